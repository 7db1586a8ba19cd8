//! Settles the intents whose end the journal does not know: after a crash, and whenever an answer
//! was lost.
//!
//! Runs before anything is written, and in the background. The chain decides: a receipt settles an
//! intent; one that may have been sent, and whose nonce is still free, is sent once more as the
//! same transaction, which can be executed only once; one that an earlier version left unsent is
//! rejected. Intents of an earlier epoch of the chain are left as they are. `rollbacks` has what
//! follows after a receipt.

use super::io::{Io, LockError};
use super::node::{CallError, ErrorObject, code};
use super::outcome::Outcome;
use super::settings::{Required, Role};
use super::{DEADLINE, journal, pins, rollbacks, submit};
use crate::ledger::{Change, Intent, IntentState};
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

/// How long an answer may still be on its way: before that, nothing is sent again.
const GRACE: Duration = Duration::from_secs(10);
/// The interval at which a write of another process is read again.
const FOLLOW: Duration = Duration::from_millis(100);

/// Permits a write: proves the pins and settles what earlier processes left. Returns the epoch.
///
/// # Errors
/// Returns a refusal if the pins are unproven, or the chain or the store is unavailable.
pub async fn permit(
    io: &impl Io,
    required: Required,
    deadline: Duration,
) -> Result<String, Outcome> {
    let epoch = io.require(required).await?;
    catch_up(io, &epoch, deadline).await?;
    Ok(epoch)
}

/// Settles what earlier processes left, once per epoch.
async fn catch_up(io: &impl Io, epoch: &str, deadline: Duration) -> Result<(), Outcome> {
    let is_done = || io.memory(|memory| memory.reconciled.as_deref() == Some(epoch));
    if is_done() {
        return Ok(());
    }
    let settled = io.in_turn(deadline, async {
        if !is_done() {
            settle_earlier(io, epoch, deadline).await?;
            io.memory(|memory| memory.reconciled = Some(epoch.to_owned()));
        }
        Ok(())
    });
    settled.await.unwrap_or_else(|| Err(Outcome::overloaded()))
}

async fn settle_earlier(io: &impl Io, epoch: &str, deadline: Duration) -> Result<(), Outcome> {
    if let Some(number) = io.floor(epoch).await? {
        // a URL that is behind must not take back what was acknowledged
        io.note_shown(number);
    }
    for role in io.pins().accounts.roles() {
        let guard = match io.lock(role, deadline).await {
            Ok(guard) => guard,
            // a live process writes with it, and each write settles the earlier ones
            Err(LockError::HeldElsewhere) => continue,
            Err(error) => return Err(error.into()),
        };
        let settled = settle_signer(io, epoch, role, Duration::ZERO).await;
        io.unlock(guard).await;
        settled?;
    }
    // users' transactions take no lock: another live process may be writing them
    let grace = if io.is_exclusive() {
        Duration::ZERO
    } else {
        GRACE
    };
    settle_users(io, epoch, grace).await
}

/// The outcome of a journaled intent, which is not sent again; `None` if it has no effect, or is in
/// doubt. Waits for a process that is writing it.
///
/// # Errors
/// Returns an error if the intent was included and no URL shows that it still is, or if the chain
/// or the store is unavailable.
pub(super) async fn known(io: &impl Io, intent: &Intent) -> Result<Option<Outcome>, Outcome> {
    let (start, mut intent) = (io.now(), intent.clone());
    loop {
        if intent.state.is_included() {
            let included = rollbacks::still_included(io, &intent).await?;
            return Ok(included.as_ref().and_then(Outcome::of));
        }
        if intent.state.is_unresolved() {
            intent = submit::refreshed(io, &intent).await?.unwrap_or(intent);
        }
        let known = Outcome::of(&intent);
        if !known.as_ref().is_some_and(Outcome::is_open) {
            return Ok(known);
        }
        if pins::has_restarted(io, &intent.epoch).await {
            return Err(Outcome::restarted());
        }
        let limit = writing_time(io, &intent);
        let waited = io.now().saturating_sub(start);
        if age(io, &intent) >= limit || waited >= limit {
            return Ok(known);
        }
        io.sleep(FOLLOW).await;
        intent = io.intent(intent.id).await?.unwrap_or(intent);
    }
}

/// How long another process may take to write an open intent.
fn writing_time(io: &impl Io, intent: &Intent) -> Duration {
    match intent.state {
        // writes of this process are joined in memory
        _ if io.is_exclusive() => Duration::ZERO,
        IntentState::Intended | IntentState::Sent => GRACE,
        // an operation waits for its receipt, a user's transaction does not
        _ if io.pins().signs_with(intent.signer) => io.settings().receipt_timeout,
        _ => Duration::ZERO,
    }
}

/// Settles the pending intents of one of our accounts. The caller must hold its lock.
///
/// # Errors
/// Returns an error if an intent is still open: the account's next nonce must not be used then.
pub(super) async fn settle_signer(
    io: &impl Io,
    epoch: &str,
    role: Role,
    grace: Duration,
) -> Result<(), Outcome> {
    let address = *io.pins().accounts.of(role);
    for intent in io.unresolved(epoch, Some(address)).await? {
        let is_settled = settle(io, &intent, grace).await?;
        if !is_settled && next_nonce(io, &intent).await? <= intent.nonce {
            return Err(Outcome::unsettled());
        }
    }
    Ok(())
}

/// Settles the pending intents of users.
async fn settle_users(io: &impl Io, epoch: &str, grace: Duration) -> Result<(), Outcome> {
    for intent in io.unresolved(epoch, None).await? {
        if !io.pins().signs_with(intent.signer) {
            settle(io, &intent, grace).await?;
        }
    }
    Ok(())
}

/// Settles one intent if its outcome can be known; returns whether the journal has it now.
async fn settle(io: &impl Io, intent: &Intent, grace: Duration) -> Result<bool, Outcome> {
    let age = age(io, intent);
    if intent.state == IntentState::Intended {
        return Ok(age >= grace && io.apply(intent.id, &Change::Rejected("never sent")).await?);
    }
    match io.receipt(intent.transaction_hash).await? {
        Some(receipt) if receipt.accepted => {
            journal::include(io, intent.id, &receipt).await?;
            return Ok(true);
        }
        None if age >= grace => {}
        _ => return Ok(false),
    }
    if next_nonce(io, intent).await? > intent.nonce {
        // this transaction or another used the nonce: the background task finds out which
        return Ok(false);
    }
    submit::resend(io, intent)
        .await
        .map_err(Outcome::not_of_this_request)
}

/// The time since an intent last changed.
pub(super) fn age(io: &impl Io, intent: &Intent) -> Duration {
    Duration::from_micros(io.clock_us().abs_diff(intent.updated_us))
}

/// The next nonce of the account of an intent.
pub(super) async fn next_nonce(io: &impl Io, intent: &Intent) -> Result<u64, Outcome> {
    match io.nonce(intent.signer).await {
        // the account is not deployed yet
        Err(CallError::Returned(ErrorObject {
            code: code::CONTRACT_NOT_FOUND,
            ..
        })) => Ok(0),
        other => Ok(other?),
    }
}

/// Settles what can be settled, in the background.
///
/// # Errors
/// Returns an error if the intents of users cannot be read or checked.
pub async fn settle_open(io: &impl Io, epoch: &str) -> Result<(), Outcome> {
    for role in io.pins().accounts.roles() {
        // an error is dropped: the account's next write tries again
        if let Ok(guard) = io.lock(role, io.now().saturating_add(DEADLINE)).await {
            let _open = settle_signer(io, epoch, role, GRACE).await;
            io.unlock(guard).await;
        }
    }
    let _followed = rollbacks::follow(io, epoch, GRACE).await;
    settle_users(io, epoch, GRACE).await
}
