//! A request that is refused because an equal one has done what it asks for: an earlier one, of
//! which it is a repeat without a key, or one that arrived later, while it was under way.

use super::Task;
use super::write::Step;
use crate::ledger::Intent;
use crate::operations::{OperationKind, State};
use crate::txm::io::{Io, Stored};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::{End, Known};
use crate::txm::{reconcile, request};
use crate::window::Window;

/// The outcome of the newest equal request, if that has done what this one is `refused` for. This
/// one arrived at `since_us`.
///
/// # Errors
/// Returns the refusal if it has not, or if it is older than a request with a key; that it is in
/// progress if that one came in doubt meanwhile; another error if the chain or the store is
/// unavailable.
pub(super) async fn done_before<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    epoch: &str,
    refused: NotSent,
    since_us: i64,
) -> Result<Step, NotSent> {
    let may_be_done = matches!(
        refused,
        NotSent::TooSoon { .. } | NotSent::RecoveryNotPending
    );
    if !may_be_done {
        return Err(refused);
    }
    let newest = io.requested(epoch, &task.digest, None).await?.newest;
    let Some(newest) = newest.filter(|it| task.key.is_none() || it.created_us >= since_us) else {
        return Err(refused);
    };
    let proposed = newest_proposal(io, task, epoch).await?;
    if !request::is_done(&refused, &newest, proposed.as_ref()) {
        return Err(refused);
    }
    match reconcile::known(io, &newest).await? {
        Some(known) if matches!(known.end, End::Succeeded(_)) => {
            let read_back = task.operation.read_back(&State::of(io, epoch)).await;
            let end = End::Succeeded(read_back.ok().flatten().unwrap_or_default());
            Ok(Step::Known(Known { end, ..known }))
        }
        Some(known) if known.end == End::Unseen => Ok(Step::Known(known)),
        // what the refusal was decided by is no longer so
        _ => Err(NotSent::InProgress),
    }
}

/// The newest recovery that was proposed for the identity whose recovery the operation ends.
async fn newest_proposal<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    epoch: &str,
) -> Stored<Option<Intent>> {
    let Some(identity) = task.operation.recovered() else {
        return Ok(None);
    };
    let propose = OperationKind::RecoveryPropose.name();
    let ever = Window::new(io.clock_us(), i64::MAX);
    io.last_of(propose, identity, epoch, ever).await
}
