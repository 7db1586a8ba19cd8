//! The ten operations: one file for each path, in it what is read, what it means, and what is
//! called.
//!
//! Each decides on the chain's state alone, so that it can be asked again after the write: then the
//! answer must be "already". Shapes and policy were judged before, in `portcullis_filters`.

mod faucet_drip;
mod mint_card;
mod recovery_cancel;
mod recovery_execute;
mod recovery_propose;
mod register;
mod require_v2;
mod submit_usership;
mod verification_attest;
mod verification_revoke;

use super::outcome::{Details, Outcome};
use super::state::{Decision, Halt, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::{Operation, OperationKind};

/// Which of our accounts signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Owner,
    Verifier,
    Faucet,
}

/// Who signs an operation.
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

/// What the journal finds an operation by, beside its content: the recipient of a drip.
pub(super) fn subject(operation: &Operation) -> Option<Felt> {
    match operation {
        Operation::FaucetDrip(drip) => Some(drip.recipient),
        _ => None,
    }
}

/// What the operation comes to.
pub(super) async fn decide(operation: &Operation, state: &State<'_>) -> Result<Decision, Halt> {
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

/// Reserves what an operation needs beside the chain, right before its intent; an outcome when it
/// is taken.
pub(super) async fn reserve(
    operation: &Operation,
    state: &State<'_>,
) -> Result<Option<Outcome>, Halt> {
    match operation {
        Operation::FaucetDrip(drip) => faucet_drip::bind(drip, state).await,
        _ => Ok(None),
    }
}

/// Gives back what was reserved: nothing came of it.
pub(super) async fn give_back(operation: &Operation, state: &State<'_>) -> Result<(), Halt> {
    match operation {
        Operation::FaucetDrip(drip) => faucet_drip::unbind(drip, state).await,
        _ => Ok(()),
    }
}

/// Reads back what a transaction that succeeded was for: members of the answer, or `None` when the
/// chain does not show it.
pub(super) async fn read_back(
    operation: &Operation,
    state: &State<'_>,
) -> Result<Option<Details>, Halt> {
    match operation {
        // a drip leaves nothing behind but a balance, which may be spent by now
        Operation::FaucetDrip(_) => Ok(Some(Details::None)),
        Operation::RecoveryExecute(execute) => recovery_execute::read_back(execute, state).await,
        Operation::RecoveryCancel(cancel) => recovery_cancel::read_back(cancel, state).await,
        _ => Ok(match decide(operation, state).await? {
            Decision::Already(details) => Some(details),
            Decision::No(_) | Decision::Write(_) => None,
        }),
    }
}
