//! The decision of each operation in each state of the chain. The simulation visits these states by
//! chance or not at all.

mod assets;
pub(in crate::txm) mod chain;
mod identity;
mod verification;

use self::chain::{Chain, felt, felts};
use super::{Decision, State, decide, read_back, subject};
use crate::felt::Felt;
use crate::operation::Operation;
use crate::tx::{Call, selector};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::{Details, Outcome};
use crate::verdict::Reason;
use futures_util::FutureExt as _;

fn decision(operation: &Operation, chain: &Chain) -> Result<Decision, NotSent> {
    let state = State::of(chain, "epoch");
    decide(operation, &state)
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
    let details = read_back(operation, &state)
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
    subject(operation)
}
