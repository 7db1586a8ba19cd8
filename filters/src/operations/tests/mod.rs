//! The decision of each operation in each state of the chain. The simulation visits these states by
//! chance or not at all.

mod assets;
pub(crate) mod chain;
mod identity;
mod verification;

use self::chain::{Chain, felt, felts};
use super::{Decision, Operation, OperationKind, State};
use crate::felt::Felt;
use crate::tx::{Call, selector};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::{Details, Outcome};
use crate::txm::settings::Required;
use crate::verdict::Reason;
use futures_util::FutureExt as _;

fn decision(operation: &Operation, chain: &Chain) -> Result<Decision, NotSent> {
    let state = State::of(chain, "epoch");
    operation
        .decide(&state)
        .now_or_never()
        .expect("nothing waits")
}

/// The calls of an operation, or the reason of its refusal.
fn decided(operation: &Operation, chain: &Chain) -> Result<Decision, Reason> {
    decision(operation, chain).map_err(|why| Outcome::from(why).reason().expect("it is refused"))
}

/// The whole refusal of an operation.
fn refused(operation: &Operation, chain: &Chain) -> Outcome {
    decision(operation, chain)
        .expect_err("it is refused")
        .into()
}

/// The effect of an operation, as it is read back.
fn read(operation: &Operation, chain: &Chain) -> Option<Details> {
    let state = State::of(chain, "epoch");
    let details = operation
        .read_back(&state)
        .now_or_never()
        .expect("nothing waits");
    details.expect("the node answers")
}

const ALREADY: Result<Decision, Reason> = Ok(Decision::Already(Details::None));

fn call(to: u64, entrypoint: &str, args: &[u64]) -> Call {
    Call {
        to: felt(to),
        selector: selector(entrypoint),
        args: felts(args),
    }
}

fn writes(to: u64, entrypoint: &str, args: &[u64]) -> Result<Decision, Reason> {
    Ok(Decision::Write(vec![call(to, entrypoint, args)]))
}

fn is_known_by(operation: &Operation) -> Option<Felt> {
    operation.subject()
}

#[test]
fn an_operation_has_exactly_one_path() {
    for kind in OperationKind::ALL {
        assert_eq!(
            OperationKind::parse_path(kind.path().as_bytes()),
            Some(kind)
        );
    }
    for path in [
        &b"/"[..],
        b"",
        b"register",
        b"/Register",
        b"/register/",
        b"/register?a=1",
    ] {
        assert_eq!(OperationKind::parse_path(path), None, "{path:?}");
    }
}

#[test]
fn an_operation_requires_the_pins_that_it_does_not_make_true() {
    for (kind, expected) in [
        (OperationKind::FaucetDrip, Required::Drip),
        (OperationKind::RequireV2, Required::AllButV2),
        (OperationKind::RecoveryCancel, Required::All),
    ] {
        assert_eq!(kind.required(), expected);
    }
}
