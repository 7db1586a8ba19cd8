//! The ten operations, one function per path: the state it reads, its decision, the call it makes.
//!
//! Each decides on the chain's state alone, so that it can decide again after the write: then the
//! decision must be "already". Shapes and policy were judged before, in `policy`.

mod assets;
mod identity;
mod state;
#[cfg(test)]
pub(super) mod tests;
pub(super) mod verification;

pub(super) use assets::check_binding;
pub(super) use state::{Decision, State};

use super::io::Io;
use super::not_sent::NotSent;
use super::outcome::Details;
use crate::felt::Felt;
use crate::operation::Operation;

/// The account or identity that the journal has as the subject of an operation, by which earlier
/// ones are found: a drip's recipient, and the identity of a proposal.
pub(super) fn subject(operation: &Operation) -> Option<Felt> {
    match operation {
        Operation::FaucetDrip(drip) => Some(drip.recipient),
        Operation::RecoveryPropose(propose) => Some(propose.identity),
        _ => None,
    }
}

/// The identity whose pending recovery an operation ends.
pub(super) fn recovered(operation: &Operation) -> Option<Felt> {
    match operation {
        Operation::RecoveryExecute(execute) => Some(execute.identity),
        Operation::RecoveryCancel(cancel) => Some(cancel.identity),
        _ => None,
    }
}

/// Decides what the operation does in the present state.
pub(super) async fn decide(
    operation: &Operation,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    match operation {
        Operation::Register(register) => identity::register(register, state).await,
        Operation::VerificationAttest(attest) => verification::attest(attest, state).await,
        Operation::VerificationRevoke(revoke) => verification::revoke(revoke, state).await,
        Operation::MintCard(mint) => assets::mint_card(mint, state).await,
        Operation::SubmitUsership(submit) => assets::submit_usership(submit, state).await,
        Operation::FaucetDrip(drip) => assets::faucet_drip(drip, state).await,
        Operation::RecoveryPropose(propose) => identity::propose(propose, state).await,
        Operation::RecoveryExecute(execute) => identity::execute(execute, state).await,
        Operation::RecoveryCancel(cancel) => identity::cancel(cancel, state).await,
        Operation::RequireV2(require) => verification::require_v2(require, state).await,
    }
}

/// Reads the effect of a transaction that succeeded: further members of the response, or `None` if
/// the chain does not show it.
pub(super) async fn read_back(
    operation: &Operation,
    state: &State<'_, impl Io>,
) -> Result<Option<Details>, NotSent> {
    match operation {
        // a drip changes a balance only, which may be spent by now
        Operation::FaucetDrip(_) => Ok(Some(Details::None)),
        Operation::RecoveryExecute(execute) => identity::executed(execute, state).await,
        Operation::RecoveryCancel(cancel) => identity::cancelled(cancel, state).await,
        _ => Ok(match decide(operation, state).await? {
            Decision::Already(details) => Some(details),
            Decision::Write(_) | Decision::Bind(..) => None,
        }),
    }
}
