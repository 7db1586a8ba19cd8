//! One round: events are derived from new entries of the journal, and those that are due are sent.

use super::{Attempts, DueTimes, EventKind, Settled};
use crate::chance::Chance;
use crate::ledger::{IntentId, IntentState};
use crate::post::Answer;
use crate::txm::io::Stored;
use alloc::vec::Vec;

/// Entries that are read at once.
pub const PAGE: usize = 256;
/// Pages of a round, before anything is sent.
const PAGES: usize = 8;
/// Events that are sent at once, each of another write.
pub const BATCH: usize = 16;

/// An entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its sequence number.
    pub seq: i64,
    /// The change of a write; `None` for a refusal.
    pub moved: Option<Moved>,
}

/// A change of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The write.
    pub write: IntentId,
    /// Its state.
    pub state: IntentState,
    /// Its state in the entry before, if there is one.
    pub previous: Option<IntentState>,
}

/// An event to keep until it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The sequence number of its entry.
    pub seq: i64,
    /// Its write.
    pub write: IntentId,
}

/// An event that is due.
#[derive(Clone, Debug)]
pub struct Waiting<E> {
    /// The sequence number of its entry.
    pub seq: i64,
    /// Its write.
    pub write: IntentId,
    /// The attempts that failed.
    pub attempts: Attempts,
    /// The event.
    pub event: E,
}

/// An event that was sent, and what follows.
#[derive(Clone, Debug)]
pub struct Settlement<E> {
    /// The event.
    pub sent: Waiting<E>,
    /// The receiver's answer.
    pub answer: Answer,
    /// The consequence.
    pub settled: Settled,
}

/// The journal, the events that wait, and the receiver.
pub trait Outbox: Send + Sync {
    /// An event, with the facts that its body has.
    type Event: Send + Sync;

    /// Microseconds since 1970, by the clock of the store.
    fn now_us(&self) -> i64;
    /// A number that is not drawn again.
    fn chance(&self) -> Chance;

    /// The last entry that was read; the end of the journal, when nothing was read before.
    fn cursor(&self) -> impl Future<Output = Stored<i64>> + Send;
    /// The entries after this one, in their order; at most [`PAGE`].
    fn entries(&self, after: i64) -> impl Future<Output = Stored<Vec<Entry>>> + Send;
    /// Keeps these events, due now, and moves the cursor, both or neither; `false`, and neither, if
    /// the cursor is not at `from`.
    fn keep(
        &self,
        events: &[NewEvent],
        from: i64,
        to: i64,
        now_us: i64,
    ) -> impl Future<Output = Stored<bool>> + Send;
    /// The events that are due, without those that wait for an earlier one of their write; at most
    /// [`BATCH`].
    fn due(
        &self,
        times: DueTimes,
    ) -> impl Future<Output = Stored<Vec<Waiting<Self::Event>>>> + Send;
    /// Sends each event once; the answers, in this order.
    fn send(&self, events: &[Waiting<Self::Event>]) -> impl Future<Output = Vec<Answer>> + Send;
    /// Records what follows, all or nothing. First, every event that is due after `due_us` is due
    /// then.
    fn settle(
        &self,
        settlements: &[Settlement<Self::Event>],
        due_us: Option<i64>,
    ) -> impl Future<Output = Stored<()>> + Send;
}

/// Reads new entries, and sends the events that are due. Returns what was sent.
///
/// # Errors
/// The journal is unavailable. What was sent is sent again.
pub async fn round<O: Outbox>(io: &O) -> Stored<Vec<Settlement<O::Event>>> {
    read_entries(io).await?;
    let due = io.due(DueTimes::at(io.now_us())).await?;
    debug_assert!(
        due.iter()
            .all(|one| due.iter().filter(|it| it.write == one.write).count() == 1),
        "an event waits for the earlier ones of its write"
    );
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let answers = io.send(&due).await;
    debug_assert_eq!(answers.len(), due.len(), "each event has its answer");
    let now_us = io.now_us();
    let mut settlements = Vec::with_capacity(due.len());
    let mut due_us = None;
    for (sent, answer) in due.into_iter().zip(answers) {
        let settled = sent.attempts.settle(answer, now_us, io.chance());
        if settled == Settled::Delivered {
            due_us = due_us.or(sent.attempts.hastens(now_us));
        }
        settlements.push(Settlement {
            sent,
            answer,
            settled,
        });
    }
    io.settle(&settlements, due_us).await?;
    Ok(settlements)
}

/// Derives events from the entries after the cursor.
async fn read_entries(io: &impl Outbox) -> Stored<()> {
    let mut from = io.cursor().await?;
    for _ in 0..PAGES {
        let entries = io.entries(from).await?;
        let Some(last) = entries.last() else {
            return Ok(());
        };
        let events: Vec<NewEvent> = entries.iter().filter_map(event).collect();
        // another process may have read them meanwhile
        if !io.keep(&events, from, last.seq, io.now_us()).await? || entries.len() < PAGE {
            return Ok(());
        }
        from = last.seq;
    }
    Ok(())
}

/// The event that an entry is.
fn event(entry: &Entry) -> Option<NewEvent> {
    let Moved {
        write,
        state,
        previous,
    } = entry.moved?;
    EventKind::of(previous, state)?;
    Some(NewEvent {
        seq: entry.seq,
        write,
    })
}
