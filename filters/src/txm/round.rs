//! The background round over everything that is not final: the open intents of our accounts and of
//! users, those in doubt, and the newest included ones.
//!
//! Every intent gets its turn and a budget of its own. What one intent does not answer, or answers
//! with an error, ends neither the round nor another intent's part of it.

use super::fate::{lose_if_settled, next_nonce};
use super::io::{Io, Stored, within};
use super::not_sent::NotSent;
use super::reconcile::{GRACE, age, give_up, resolve};
use super::rollbacks::{Confirmed, look_for};
use super::settings::Role;
use super::sightings;
use crate::ledger::{Intent, IntentId, IntentState};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem::replace;
use core::ops::Range;
use core::time::Duration;
use futures_util::future::{join, join3};
use futures_util::stream::{self, StreamExt as _};

/// Intents of a kind that a round passes; further ones are passed by the next rounds, in turn.
const ROUND: u8 = 64;
/// Intents that are passed concurrently.
const CONCURRENT: usize = 16;
/// The time for one intent: a call of the node and what follows from it.
const BUDGET: Duration = Duration::from_secs(10);
/// Lost intents of a slot that are looked for, too: they may return.
const LOST: usize = 16;
/// How long a round waits for an account: one that is busy is resolved by its own writes.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Included intents in a batch; another batch follows only if all of them are gone.
const NEWEST: u8 = 16;

/// Resolves what can be resolved now. The open intents of users are passed beside it: a node that
/// is silent about them delays nothing else.
///
/// # Errors
/// Returns an error if the journal cannot be read.
pub async fn pass_all<I: Io>(io: &Arc<I>, epoch: &str) -> Stored<()> {
    let below = io.memory(|memory| memory.displaced);
    let displaced = io.displaced(epoch, below, u32::from(ROUND)).await?;
    let open = io.unresolved(epoch, None).await?;
    debug_assert!(
        displaced.is_sorted_by(|newer, older| newer.id > older.id),
        "displaced intents are listed newest first"
    );
    debug_assert!(
        below.is_none_or(|below| displaced.iter().all(|it| it.id < below)),
        "the page begins below the last one"
    );
    debug_assert!(
        open.iter()
            .all(|it| it.state.is_unresolved() && it.epoch == epoch),
        "only open intents of the epoch are unresolved"
    );
    // after the oldest ones, the next round begins with the newest again
    let mut oldest = None;
    if displaced.len() == usize::from(ROUND) {
        oldest = displaced.last().map(|it| it.id);
    }
    forget(&**io, below..oldest, &displaced, &open);
    io.memory(|memory| memory.displaced = oldest);
    let (ours, users) = open
        .into_iter()
        .partition(|intent| io.pins().signs_with(intent.signer));
    pass_users(io, users);
    let io = &**io;
    join3(
        accounts(io, epoch),
        join(included(io, epoch), anywhere(io, epoch)),
        join(
            each(io, displaced, |intent| follow_displaced(io, intent)),
            each(io, ours, |intent| follow_ours(io, intent)),
        ),
    )
    .await;
    Ok(())
}

/// Passes the open intents of users in the background, unless the last ones still are.
fn pass_users<I: Io>(io: &Arc<I>, users: Vec<Intent>) {
    if users.is_empty() || io.memory(|memory| replace(&mut memory.passes_users, true)) {
        return;
    }
    let users = io.memory(|memory| next_round(&mut memory.next_open, users));
    let passing = Passing(Arc::clone(io));
    io.spawn(async move {
        let io = &*passing.0;
        each(io, users, |intent| follow_user(io, intent)).await;
    });
}

/// Says that the open intents of users are passed, until it is dropped.
struct Passing<I: Io>(Arc<I>);

impl<I: Io> Drop for Passing<I> {
    fn drop(&mut self) {
        self.0.memory(|memory| memory.passes_users = false);
    }
}

/// Forgets what is remembered of intents that are no longer watched: those that are not open, and
/// not on the page of displaced ones that begins below `page.start` and ends with `page.end`.
fn forget(io: &impl Io, page: Range<Option<IntentId>>, displaced: &[Intent], open: &[Intent]) {
    sightings::retain(io, |id| {
        let is_within =
            page.start.is_none_or(|below| id < below) && page.end.is_none_or(|oldest| id >= oldest);
        !is_within || open.iter().chain(displaced).any(|it| it.id == id)
    });
    let now = io.now();
    io.memory(|memory| {
        memory.resent.retain(|_, resent| !resent.is_past(now));
    });
}

/// The next [`ROUND`] intents of `all`, in turn.
fn next_round(begin: &mut usize, mut all: Vec<Intent>) -> Vec<Intent> {
    let round = usize::from(ROUND);
    let at = begin.checked_rem(all.len()).unwrap_or(0);
    *begin = begin.wrapping_add(round);
    all.rotate_left(at);
    all.truncate(round);
    all
}

/// Passes intents, each within its budget.
async fn each<F>(io: &impl Io, intents: Vec<Intent>, pass: impl Fn(Intent) -> F)
where
    F: Future<Output = Result<(), NotSent>> + Send,
{
    let passes = stream::iter(intents).map(pass);
    passes
        .for_each_concurrent(CONCURRENT, |work| async {
            // the next round tries again, and the journal says what is open
            let _passed = within(io, io.now().saturating_add(BUDGET), work).await;
        })
        .await;
}

/// Resolves the open intents of our accounts.
async fn accounts(io: &impl Io, epoch: &str) {
    for role in io.pins().accounts.roles() {
        let deadline = io.now().saturating_add(LOCK_WAIT);
        let Ok(guard) = io.lock(role, deadline).await else {
            continue;
        };
        // the account's next write tries again
        let _read = account(io, epoch, role).await;
        io.unlock(guard).await;
    }
}

async fn account(io: &impl Io, epoch: &str, role: Role) -> Stored<()> {
    let address = *io.pins().accounts.of(role);
    for intent in io.unresolved(epoch, Some(address)).await? {
        let deadline = io.now().saturating_add(BUDGET);
        let _resolved = within(io, deadline, resolve(io, &intent, GRACE)).await;
    }
    Ok(())
}

/// Checks the newest included intents: a chain loses its newest blocks, so if it has one, it has
/// all blocks below.
async fn included(io: &impl Io, epoch: &str) {
    let mut moved: Vec<IntentId> = Vec::new();
    for _ in 0..ROUND {
        // those that are gone are not listed any more
        let limit = usize::from(NEWEST).saturating_add(moved.len());
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let Ok(mut newest) = io.included_newest(epoch, limit).await else {
            return;
        };
        debug_assert!(
            newest.is_sorted_by_key(|it| Reverse(it.included.map(|block| block.number))),
            "the newest blocks come first"
        );
        newest.retain(|intent| !moved.contains(&intent.id));
        let mut is_over = newest.is_empty();
        for intent in &newest {
            let deadline = io.now().saturating_add(BUDGET);
            match within(io, deadline, is_in_place(io, intent)).await {
                Some(Ok(Place::Gone)) => {}
                Some(Ok(Place::Moved)) => moved.push(intent.id),
                Some(Ok(Place::Same)) => return,
                // the next one may be answered, and the next round begins again
                Some(Err(_)) | None => is_over = true,
            }
        }
        if is_over {
            return;
        }
    }
}

/// Where the chain has an intent that was in a block.
enum Place {
    /// In its block, or nothing proves that it is gone.
    Same,
    /// In another block: those below its former one may be gone, too.
    Moved,
    /// The transaction is in no block.
    Gone,
}

async fn is_in_place(io: &impl Io, intent: &Intent) -> Result<Place, NotSent> {
    match look_for(io, intent).await? {
        Confirmed::Displaced => return Ok(Place::Gone),
        Confirmed::Shown => {}
        Confirmed::Pending | Confirmed::Unavailable | Confirmed::Unknown => {
            return Ok(Place::Same);
        }
    }
    let now = io.intent(intent.id).await?;
    let included = now.and_then(|now| now.included);
    if included == intent.included {
        return Ok(Place::Same);
    }
    Ok(Place::Moved)
}

/// Looks for the blocks of included intents whose receipts stated none: a few in each round, in
/// turn.
async fn anywhere(io: &impl Io, epoch: &str) {
    let below = io.memory(|memory| memory.anywhere);
    let Ok(found) = io.included_anywhere(epoch, below, u32::from(NEWEST)).await else {
        return;
    };
    io.memory(|memory| memory.anywhere = found.last().map(|it| it.id));
    each(io, found, |intent| look_anywhere(io, intent)).await;
}

/// Looks for an intent whose block is not known, which no block can prove to be gone.
async fn look_anywhere(io: &impl Io, intent: Intent) -> Result<(), NotSent> {
    if look_for(io, &intent).await? == Confirmed::Unknown {
        give_up(io, &intent).await?;
    }
    Ok(())
}

/// Looks for an intent in doubt, and for the newest lost ones of its slot, which may return; then
/// for the transaction that used their nonce.
async fn follow_displaced(io: &impl Io, intent: Intent) -> Result<(), NotSent> {
    if look_for(io, &intent).await? == Confirmed::Shown {
        return Ok(());
    }
    let slot = io
        .of_slot(&intent.epoch, intent.signer, intent.nonce)
        .await?;
    let lost = slot.iter().rev().filter(|it| it.state == IntentState::Lost);
    for other in lost.take(LOST) {
        if look_for(io, other).await? == Confirmed::Shown {
            return Ok(());
        }
    }
    lose_if_used(io, &intent).await
}

/// Resolves an open intent of a user, and looks for the transaction that used its nonce.
async fn follow_user(io: &impl Io, intent: Intent) -> Result<(), NotSent> {
    resolve(io, &intent, GRACE).await?;
    follow_ours(io, intent).await
}

/// Looks for the transaction that used the nonce of an open intent. Those of our accounts are
/// resolved while the account is locked.
async fn follow_ours(io: &impl Io, intent: Intent) -> Result<(), NotSent> {
    if age(io, &intent) >= GRACE {
        lose_if_used(io, &intent).await?;
    }
    Ok(())
}

async fn lose_if_used(io: &impl Io, intent: &Intent) -> Result<(), NotSent> {
    if next_nonce(io, intent).await? > intent.nonce {
        lose_if_settled(io, intent).await?;
    }
    Ok(())
}
