//! The answer to a repeat without a key, which is refused because its own first request has done
//! what it asks for.

use super::Task;
use crate::ledger::Intent;
use crate::operation::OperationKind;
use crate::txm::io::{Io, Stored};
use crate::txm::operations::{self, State};
use crate::txm::outcome::{Outcome, Status};
use crate::txm::{reconcile, request};
use crate::verdict::Reason;
use crate::window::Window;

/// The outcome of the newest equal request, if that has done what this one is `refused` for.
///
/// # Errors
/// Returns an error if no URL shows the transaction of that request, nor that it is gone, or if the
/// chain or the store is unavailable.
pub(super) async fn done_before<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    epoch: &str,
    refused: &Outcome,
) -> Result<Option<Outcome>, Outcome> {
    if !matches!(
        refused.reason(),
        Some(Reason::FaucetCooldown | Reason::RecoveryNotPending)
    ) {
        return Ok(None);
    }
    let Some(newest) = io.requested(epoch, &task.digest, None).await?.newest else {
        return Ok(None);
    };
    let proposed = newest_proposal(io, task, epoch).await?;
    if !request::is_done(refused, &newest, proposed.as_ref()) {
        return Ok(None);
    }
    let Some(outcome) = reconcile::known(io, &newest).await? else {
        return Ok(None);
    };
    if outcome.status != Status::Written {
        return Ok(None);
    }
    let read_back = operations::read_back(&task.operation, &State::of(io, epoch)).await;
    Ok(Some(Outcome {
        details: read_back.ok().flatten().unwrap_or_default(),
        ..outcome
    }))
}

/// The newest recovery that was proposed for the identity whose recovery the operation ends.
async fn newest_proposal<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    epoch: &str,
) -> Stored<Option<Intent>> {
    let Some(identity) = operations::recovered(&task.operation) else {
        return Ok(None);
    };
    let propose = OperationKind::RecoveryPropose.name();
    let ever = Window::new(io.clock_us(), i64::MAX);
    io.last_of(propose, identity, epoch, ever).await
}
