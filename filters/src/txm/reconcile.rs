//! Resolves the intents whose end the journal does not know: after a crash, and whenever an answer
//! was lost.
//!
//! Each intent is resolved by itself: a write waits for the open intents of its own account, and
//! for no others. The chain decides: a receipt resolves an intent; one that may have been sent, and
//! whose nonce is still free, is sent once more as the same transaction, which can be executed only
//! once; one that an earlier version left unsent is rejected. Intents of an earlier epoch of the
//! chain are left as they are. `round` passes all of them in the background.

use super::evidence;
use super::fate::{next_nonce, of_undeployed};
use super::io::{Io, LockError};
use super::not_sent::NotSent;
use super::outcome::Known;
use super::resend::{self, ABANDONED, Resent};
use super::rollbacks::{self, Still};
use super::settings::{Required, Role};
use super::submit::{self, Submitted};
use super::{pins, record};
use crate::ledger::{Change, Intent, IntentState};
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;
use futures_util::future::{join, join_all};

/// How long an answer may still be on its way: before that, nothing is sent again. Nothing is sent
/// again unasked more often than that, either.
pub(super) const GRACE: Duration = resend::SHORTEST;
/// The interval at which a write of another process is read again.
const FOLLOW: Duration = Duration::from_millis(100);

/// Permits a write: proves the pins, and holds the node to the blocks that were acknowledged.
/// Returns the epoch.
///
/// # Errors
/// Returns an error if the pins are unproven, or the chain or the store is unavailable.
pub async fn permit(io: &impl Io, required: Required) -> Result<String, NotSent> {
    let epoch = io.require(required).await?;
    if io.memory(|memory| memory.floor.as_ref() == Some(&epoch)) {
        return Ok(epoch);
    }
    if let Some(number) = io.floor(&epoch).await? {
        // a URL that is behind must not take back what was acknowledged
        io.note_shown(number);
    }
    io.memory(|memory| memory.floor = Some(epoch.clone()));
    Ok(epoch)
}

/// Resolves what earlier processes left of an account, until that succeeded once in this epoch.
/// Afterwards each write resolves what is open before it signs.
///
/// # Errors
/// Returns an error if the account is not locked before the deadline.
pub async fn catch_up(
    io: &impl Io,
    epoch: &str,
    role: Role,
    deadline: Duration,
) -> Result<(), NotSent> {
    if is_caught_up(io, epoch, role) {
        return Ok(());
    }
    match io.lock(role, deadline).await {
        Ok(guard) => {
            // a write that is refused because of it says so
            let _blocked = free_account(io, epoch, role).await;
            io.unlock(guard).await;
        }
        // a live process writes with it, and resolves what is open before each write
        Err(LockError::HeldElsewhere) => caught_up(io, epoch, role),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The accounts of which earlier processes left something that is not resolved yet. Attempts that
/// first, until the deadline.
pub async fn blocked_roles(
    io: &impl Io,
    epoch: &str,
    deadline: Duration,
) -> impl Iterator<Item = Role> {
    let roles = io.pins().accounts.roles();
    let attempts = roles.map(|role| async move {
        // an account that is busy writes, and a write has resolved it
        let _attempted = catch_up(io, epoch, role, deadline).await;
        role
    });
    let roles = join_all(attempts).await.into_iter();
    roles.filter(move |role| !is_caught_up(io, epoch, *role))
}

fn is_caught_up(io: &impl Io, epoch: &str, role: Role) -> bool {
    let account = *io.pins().accounts.of(role);
    io.memory(|memory| memory.caught_up.get(&account).map(String::as_str) == Some(epoch))
}

/// Remembers that no intent of an earlier process prevents writes of an account.
pub(super) fn caught_up(io: &impl Io, epoch: &str, role: Role) {
    if !is_caught_up(io, epoch, role) {
        let account = *io.pins().accounts.of(role);
        io.memory(|memory| memory.caught_up.insert(account, epoch.to_owned()));
    }
}

/// How far a journaled intent got; it is not sent again. `None` if it has no effect, or is in
/// doubt. Waits for a process that is writing it.
///
/// # Errors
/// Returns an error if the chain started again, or if the store is unavailable.
pub(super) async fn known(io: &impl Io, intent: &Intent) -> Result<Option<Known>, NotSent> {
    let start = io.now();
    let mut intent = intent.clone();
    loop {
        if intent.state.is_included() {
            return Ok(match rollbacks::still_included(io, &intent).await? {
                Still::Included(now) => Known::of(&now),
                Still::Displaced => None,
                Still::Unseen => Some(Known::unseen(&intent)),
            });
        }
        if intent.state.is_unresolved() {
            intent = submit::refreshed(io, &intent).await?.unwrap_or(intent);
        }
        let known = Known::of(&intent);
        if !intent.state.is_unresolved() {
            return Ok(known);
        }
        if pins::has_restarted(io, &intent.epoch).await {
            return Err(NotSent::Restarted);
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

/// Resolves the open intents of one of our accounts, so that its next nonce can be used. The caller
/// must hold its lock. One that no URL shows for long gives its nonce up.
///
/// # Errors
/// Returns an error if an intent may still use that nonce, or if the chain or the store is
/// unavailable.
pub(super) async fn free_account(io: &impl Io, epoch: &str, role: Role) -> Result<(), NotSent> {
    let address = *io.pins().accounts.of(role);
    for intent in io.unresolved(epoch, Some(address)).await? {
        let resolved = resolve(io, &intent, Duration::ZERO).await?;
        if resolved == Resolved::Ended || next_nonce(io, &intent).await? > intent.nonce {
            continue;
        }
        if !give_up(io, &intent).await? {
            return Err(NotSent::InProgress);
        }
    }
    caught_up(io, epoch, role);
    Ok(())
}

/// Whether the nonce of an intent is still reserved for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// The journal has its end, or has it in doubt: it reserves no nonce.
    Ended,
    /// It is still open.
    Open,
}

/// Resolves one intent, as far as its outcome can be known now.
///
/// # Errors
/// Returns an error if the chain or the store is unavailable.
pub(super) async fn resolve(
    io: &impl Io,
    intent: &Intent,
    grace: Duration,
) -> Result<Resolved, NotSent> {
    let age = age(io, intent);
    if intent.state == IntentState::Intended {
        let is_over = age >= grace && io.apply(intent.id, &Change::Rejected("never sent")).await?;
        return Ok(if is_over {
            Resolved::Ended
        } else {
            Resolved::Open
        });
    }
    match io.receipt(intent.transaction_hash).await? {
        Some(receipt) if receipt.accepted => {
            record::include(io, intent.id, &receipt).await?;
            return Ok(Resolved::Ended);
        }
        Some(_) => {
            note_resent(io, intent, Resent::moved);
            return Ok(Resolved::Open);
        }
        None if age >= grace => {}
        None => return Ok(Resolved::Open),
    }
    if next_nonce(io, intent).await? > intent.nonce {
        // this transaction or another used the nonce: the background task finds out which
        note_resent(io, intent, Resent::moved);
        return Ok(Resolved::Open);
    }
    if !is_resend_due(io, intent) {
        return Ok(Resolved::Open);
    }
    let submitted = submit::repeat(io, intent, Duration::ZERO).await;
    let now = io.now();
    note_resent(io, intent, |resent| resent.sent(now));
    if matches!(submitted, Submitted::Taken | Submitted::Undecided) {
        note_answer(io, intent);
    }
    match submitted {
        Submitted::Refused(_) | Submitted::Lost | Submitted::Rejected(_) => Ok(Resolved::Ended),
        Submitted::Taken | Submitted::Undecided | Submitted::Unanswered | Submitted::Unknown(_) => {
            Ok(Resolved::Open)
        }
        Submitted::NotSent(why) => Err(why),
    }
}

/// Whether an open intent may be sent again now. If so, it is taken for sent.
fn is_resend_due(io: &impl Io, intent: &Intent) -> bool {
    let now = io.now();
    io.memory(|memory| {
        let last = memory.resent.get(&intent.id).copied();
        let Some(again) = Resent::again(last, intent.updated_us, now) else {
            return false;
        };
        memory.resent.insert(intent.id, again);
        true
    })
}

/// Notes that the node answered when an open intent was sent again, and decided nothing. One of our
/// accounts has few of them, and its writes wait for each: their pause stays the shortest.
fn note_answer(io: &impl Io, intent: &Intent) {
    if !io.pins().signs_with(intent.signer) {
        note_resent(io, intent, Resent::answered);
    }
}

fn note_resent(io: &impl Io, intent: &Intent, change: impl FnOnce(&mut Resent)) {
    io.memory(|memory| {
        if let Some(resent) = memory.resent.get_mut(&intent.id) {
            change(resent);
        }
    });
}

/// Puts an open intent in doubt if no URL has shown it for [`ABANDONED`], and every URL shows its
/// nonce as free. Another transaction may then have the nonce: at most one of the two can be
/// included (rule 8). One that was included in a block that no receipt has stated is treated alike,
/// and also if its nonce is used: no block could ever prove that it is gone. Returns whether it is
/// in doubt.
///
/// # Errors
/// Returns an error if the store is unavailable.
pub(super) async fn give_up(io: &impl Io, intent: &Intent) -> Result<bool, NotSent> {
    let (change, nonce) = match intent.state {
        state if state.is_unresolved() => {
            let why = "no node has shown it for long, and its nonce is free";
            (Change::Doubted(why), Some(intent.nonce))
        }
        state if state.is_included() && intent.included.is_none() => {
            let why = "no node has shown it for long, and its block is not known";
            (Change::Displaced { from: None, why }, None)
        }
        _ => return Ok(false),
    };
    if age(io, intent) < ABANDONED {
        return Ok(false);
    }
    let hash = intent.transaction_hash;
    let views = io.urls().into_iter().map(|url| async move {
        let (receipt, nonce) =
            join(io.receipt_of(url, hash), io.nonce_of(url, intent.signer)).await;
        Some(evidence::SlotView {
            is_shown: receipt.ok()?.is_some(),
            next_nonce: of_undeployed(nonce).ok()?,
        })
    });
    let views = join_all(views).await.into_iter().flatten();
    if !evidence::is_abandoned(views, nonce) {
        return Ok(false);
    }
    Ok(io.apply(intent.id, &change).await?)
}

/// The time since an intent last changed.
pub(super) fn age(io: &impl Io, intent: &Intent) -> Duration {
    Duration::from_micros(io.clock_us().abs_diff(intent.updated_us))
}
