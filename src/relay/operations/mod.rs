//! The ten operations, one file per path: the state it reads, its decision, the call it makes.
//!
//! Each decides on the chain's state alone, so that it can decide again after the write: then the
//! decision must be "already". Shapes and policy were judged before, in `portcullis_filters`.

mod faucet_drip;
mod mint_card;
mod recovery_cancel;
mod recovery_execute;
mod recovery_propose;
mod register;
pub(super) mod require_v2;
mod submit_usership;
mod verification_attest;
mod verification_revoke;

use super::outcome::{Details, Outcome};
use super::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::{Operation, OperationKind};

/// One of our accounts that sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Owner,
    Verifier,
    Faucet,
}

/// The role that signs an operation.
pub(super) const fn role(kind: OperationKind) -> Role {
    match kind {
        OperationKind::VerificationAttest
        | OperationKind::VerificationRevoke
        | OperationKind::SubmitUsership => Role::Verifier,
        OperationKind::FaucetDrip => Role::Faucet,
        OperationKind::Register
        | OperationKind::MintCard
        | OperationKind::RecoveryPropose
        | OperationKind::RecoveryExecute
        | OperationKind::RecoveryCancel
        | OperationKind::RequireV2 => Role::Owner,
    }
}

/// What the journal finds an operation by, in addition to its content: the recipient of a drip.
pub(super) fn subject(operation: &Operation) -> Option<Felt> {
    match operation {
        Operation::FaucetDrip(drip) => Some(drip.recipient),
        _ => None,
    }
}

/// Decides what the operation does in the present state.
pub(super) async fn decide(operation: &Operation, state: &State<'_>) -> Result<Decision, Outcome> {
    match operation {
        Operation::Register(register) => register::decide(register, state).await,
        Operation::VerificationAttest(attest) => verification_attest::decide(attest, state).await,
        Operation::VerificationRevoke(revoke) => verification_revoke::decide(revoke, state).await,
        Operation::MintCard(mint) => mint_card::decide(mint, state).await,
        Operation::SubmitUsership(submit) => submit_usership::decide(submit, state).await,
        Operation::FaucetDrip(drip) => faucet_drip::decide(drip, state).await,
        Operation::RecoveryPropose(propose) => recovery_propose::decide(propose, state).await,
        Operation::RecoveryExecute(execute) => recovery_execute::decide(execute, state).await,
        Operation::RecoveryCancel(cancel) => recovery_cancel::decide(cancel, state).await,
        Operation::RequireV2(require) => require_v2::decide(require, state).await,
    }
}

/// Reserves what an operation needs in the store, right before its intent.
pub(super) async fn reserve(operation: &Operation, state: &State<'_>) -> Result<(), Outcome> {
    match operation {
        Operation::FaucetDrip(drip) => faucet_drip::bind(drip, state).await,
        _ => Ok(()),
    }
}

/// Releases the reservation of an operation that was not executed.
pub(super) async fn release(operation: &Operation, state: &State<'_>) -> Result<(), Outcome> {
    match operation {
        Operation::FaucetDrip(drip) => faucet_drip::unbind(drip, state).await,
        _ => Ok(()),
    }
}

/// Reads the effect of a transaction that succeeded: further members of the response, or `None` if
/// the chain does not show it.
pub(super) async fn read_back(
    operation: &Operation,
    state: &State<'_>,
) -> Result<Option<Details>, Outcome> {
    match operation {
        // a drip changes a balance only, which may be spent by now
        Operation::FaucetDrip(_) => Ok(Some(Details::None)),
        Operation::RecoveryExecute(execute) => recovery_execute::read_back(execute, state).await,
        Operation::RecoveryCancel(cancel) => recovery_cancel::read_back(cancel, state).await,
        _ => Ok(match decide(operation, state).await? {
            Decision::Already(details) => Some(details),
            Decision::Write(_) => None,
        }),
    }
}
