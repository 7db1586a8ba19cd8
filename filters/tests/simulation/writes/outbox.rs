//! How a relay sends events: one of the relays does, from a cursor over the journal. The flow and its
//! decisions are the program's.

use super::Bug;
use super::io::{SimIo, Statement};
use super::machine::{HasAgenda as _, Process, Slot, fill};
use super::store::Chore;
use super::world::{Fault, World};
use portcullis_filters::chance::Chance;
use portcullis_filters::events::{
    Attempts, BATCH, DueTimes, Entry, EventKind, Moved, NewEvent, Outbox, PAGE, Settled,
    Settlement, Waiting, round,
};
use portcullis_filters::ledger::{IntentId, IntentState};
use portcullis_filters::post::Answer;
use portcullis_filters::txm::io::{JournalError, JournalIo as _, Stored};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time between two rounds: twice as long as it is, to spare steps.
const INTERVAL: Duration = Duration::from_secs(2);

/// The part of the journal that events need: the last entry that was read, and what waits.
#[derive(Clone, Default)]
pub(super) struct Outgoing {
    cursor: i64,
    rows: BTreeMap<i64, Row>,
}

#[derive(Clone, Copy)]
struct Row {
    write: IntentId,
    attempts: Attempts,
    due_us: i64,
}

impl Outgoing {
    fn keep(&mut self, events: &[NewEvent], now_us: i64) {
        for event in events {
            self.rows.entry(event.seq).or_insert(Row {
                write: event.write,
                attempts: Attempts::default(),
                due_us: now_us,
            });
        }
    }

    /// The events that are due, without those that wait for an earlier one of their write.
    fn due(&self, times: DueTimes, bug: Bug) -> Vec<(i64, Row)> {
        let is_first = |seq: i64, row: &Row| {
            let mut earlier = self.rows.range(..seq);
            bug == Bug::OutOfOrder || earlier.all(|(_, other)| other.write != row.write)
        };
        let due = self.rows.iter().filter(|(_, row)| times.has(row.due_us));
        let due = due.filter(|(seq, row)| is_first(**seq, row));
        let mut due: Vec<_> = due.map(|(seq, row)| (*seq, *row)).collect();
        due.sort_by_key(|(seq, row)| (row.due_us, *seq));
        if bug == Bug::OutOfOrder {
            // the flow asserts that it gets one of each write
            due.drain(..due.len().saturating_sub(1));
        }
        due.truncate(BATCH);
        due
    }
}

/// Sends events until the process ends.
pub(super) async fn send_events(io: Arc<SimIo>) {
    loop {
        let is_ours = io.world.lock().try_chore(io.relay, Chore::Events);
        // the next round does what this one cannot
        let sent = if is_ours {
            round(&*io).await
        } else {
            Ok(Vec::new())
        };
        if sent.is_ok_and(|sent| sent.len() == BATCH) {
            continue;
        }
        io.world.sleep(INTERVAL).await;
    }
}

impl SimIo {
    /// Reads at once: others go on while the statements that write take their time.
    fn look<T>(&self, read: impl FnOnce(&World) -> T) -> Stored<T> {
        let mut world = self.world.lock();
        if world.fires(Fault::StoreFails, 150) {
            return Err(JournalError::Failed);
        }
        Ok(read(&world))
    }
}

impl Outbox for SimIo {
    /// The event that is sent to the backend.
    type Event = Option<EventKind>;

    fn now_us(&self) -> i64 {
        self.clock_us()
    }

    fn chance(&self) -> Chance {
        let drawn = self.world.lock().chance.choose(1 << 16);
        Chance(drawn << 16)
    }

    async fn cursor(&self) -> Stored<i64> {
        self.look(|world| world.journal.outgoing.cursor)
    }

    async fn entries(&self, after: i64) -> Stored<Vec<Entry>> {
        self.look(|world| {
            let end = world.journal.tables.entries.len() as i64;
            let entries = (after + 1..=end).map(|seq| Entry {
                seq,
                moved: world.moved(seq),
            });
            entries.take(PAGE).collect()
        })
    }

    async fn keep(&self, events: &[NewEvent], from: i64, to: i64, now_us: i64) -> Stored<bool> {
        let events = events.to_vec();
        let bug = self.world.lock().bug;
        if bug == Bug::CursorApart {
            let moved = self.perform(Statement::Write, move |world| {
                world.journal.outgoing.cursor = to;
            });
            moved.await?;
        }
        let kept = self.perform(Statement::Write, move |world| {
            let outgoing = &mut world.journal.outgoing;
            if outgoing.cursor != from && bug != Bug::CursorApart {
                return false;
            }
            outgoing.cursor = to;
            outgoing.keep(&events, now_us);
            true
        });
        kept.await
    }

    async fn due(&self, times: DueTimes) -> Stored<Vec<Waiting<Option<EventKind>>>> {
        self.look(|world| {
            let due = world.journal.outgoing.due(times, world.bug);
            let waiting = due.into_iter().map(|(seq, row)| Waiting {
                seq,
                write: row.write,
                attempts: row.attempts,
                event: world
                    .moved(seq)
                    .and_then(|it| EventKind::of(it.previous, it.state)),
            });
            waiting.collect()
        })
    }

    async fn send(&self, events: &[Waiting<Option<EventKind>>]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for event in events {
            let (slot, event) = (Slot::new(), event.clone());
            let mut world = self.world.lock();
            let (sent, answer) = (world.millis(1, 20), slot.clone());
            let relay = self.relay;
            let arrives = move |world: &mut World| world.send_event(relay, &event, answer);
            world.agenda().after(sent, arrives);
            answers.push(slot);
        }
        let mut all = Vec::new();
        for answer in answers {
            all.push(answer.wait().await);
        }
        all
    }

    async fn settle(
        &self,
        settlements: &[Settlement<Option<EventKind>>],
        due_us: Option<i64>,
    ) -> Stored<()> {
        let settlements = settlements.to_vec();
        let settled = self.perform(Statement::Write, move |world| {
            for row in world.journal.outgoing.rows.values_mut() {
                row.due_us = row.due_us.min(due_us.unwrap_or(i64::MAX));
            }
            for one in &settlements {
                world.settle_event(one);
            }
        });
        settled.await
    }
}

impl World {
    /// The change that an entry of the journal records.
    fn moved(&self, seq: i64) -> Option<Moved> {
        let at = usize::try_from(seq - 1).ok()?;
        let entries = &self.journal.tables.entries;
        let (write, state) = *entries.get(at)?;
        let mut before = entries[..at].iter().rev();
        let previous: Option<&(IntentId, IntentState)> = before.find(|(of, _)| *of == write);
        Some(Moved {
            write,
            state,
            previous: previous.map(|(_, state)| *state),
        })
    }

    /// An event arrives at the receiver, or gets lost.
    fn send_event(
        &mut self,
        relay: Process,
        event: &Waiting<Option<EventKind>>,
        answer: Slot<Answer>,
    ) {
        let is_cut_off = self.now() < self.relays[relay].cut_off_until;
        let is_lost = self.fires(Fault::CallLost, 20) || is_cut_off;
        let answered = self.receive(event, is_lost);
        match answered {
            Answer::Status(_) => fill(self.agenda(), &answer, answered),
            Answer::None => {
                let silent = move |world: &mut Self| fill(world.agenda(), &answer, Answer::None);
                self.agenda().after(super::oracle::TIMEOUT, silent);
            }
        }
    }

    fn settle_event(&mut self, one: &Settlement<Option<EventKind>>) {
        let seq = one.sent.seq;
        let rows = &mut self.journal.outgoing.rows;
        match one.settled {
            Settled::Later { attempts, due_us } => {
                if let Some(row) = rows.get_mut(&seq) {
                    row.attempts = attempts;
                    row.due_us = due_us;
                }
            }
            Settled::Delivered => {
                rows.remove(&seq);
            }
            Settled::GivenUp => {
                if rows.remove(&seq).is_some() {
                    self.judge_event_given_up(seq);
                }
            }
        }
    }
}
