//! How a process reaches the world: each call waits, may fail, and may be done even so.

use super::Bug;
use super::world::{Row, Shared, World};
use portcullis_filters::chance::Chance;
use portcullis_filters::events::{
    Attempts, BATCH, DueTimes, Entry, Moved, NewEvent, Outbox, PAGE, Settled, Settlement, Waiting,
    round,
};
use portcullis_filters::post::Answer;
use portcullis_filters::txm::io::{JournalError, Stored};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A process: at most one round at a time.
pub(super) struct Process {
    outbox: Arc<SimOutbox>,
    round: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Process {
    pub(super) fn new(outbox: SimOutbox) -> Self {
        Self {
            outbox: Arc::new(outbox),
            round: None,
        }
    }

    /// Goes on with its round, or begins one; whether it ends.
    pub(super) fn poll(&mut self) -> bool {
        let outbox = Arc::clone(&self.outbox);
        let running = self.round.get_or_insert_with(|| {
            Box::pin(async move {
                // the next round does what this one could not
                let _failed = round(&*outbox).await;
            })
        });
        let mut context = Context::from_waker(Waker::noop());
        let is_over = running.as_mut().poll(&mut context).is_ready();
        if is_over {
            self.round = None;
        }
        is_over
    }

    /// Ends its round, or a new one.
    pub(super) fn finish_round(&mut self) {
        while !self.poll() {}
    }

    pub(super) fn crash(&mut self) {
        self.round = None;
    }
}

/// The world, as one process sees it.
pub(super) struct SimOutbox(Shared);

impl SimOutbox {
    pub(super) fn new(world: &Shared) -> Self {
        Self(world.clone())
    }

    /// Performs a statement after a while: it fails, is done, or is done without a confirmation.
    async fn perform<T>(&self, statement: impl FnOnce(&mut World) -> T) -> Stored<T> {
        pause().await;
        let [is_refused, is_unconfirmed] = {
            let mut world = self.0.lock();
            [world.fails(20), world.fails(20)]
        };
        if is_refused {
            return Err(JournalError::Failed);
        }
        let done = statement(&mut self.0.lock());
        pause().await;
        if is_unconfirmed {
            return Err(JournalError::Unconfirmed);
        }
        Ok(done)
    }
}

/// Lets others go on.
async fn pause() {
    let mut is_over = false;
    poll_fn(|_| {
        if std::mem::replace(&mut is_over, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

impl Outbox for SimOutbox {
    type Event = ();

    fn now_us(&self) -> i64 {
        self.0.lock().clock_us()
    }

    fn chance(&self) -> Chance {
        let mut world = self.0.lock();
        world.drawn = world.drawn.wrapping_mul(747_796_405).wrapping_add(1);
        Chance(world.drawn)
    }

    async fn cursor(&self) -> Stored<i64> {
        self.perform(|world| {
            let end = world.entries.len() as i64;
            *world.cursor.get_or_insert(end)
        })
        .await
    }

    async fn entries(&self, after: i64) -> Stored<Vec<Entry>> {
        self.perform(|world| {
            let later = world.entries.iter().filter(|entry| entry.seq > after);
            let entry = |entry: &super::world::Entry| Entry {
                seq: entry.seq,
                moved: entry.moved.map(|(write, state)| Moved {
                    write,
                    state,
                    previous: world.state_before(write, entry.seq),
                }),
            };
            later.take(PAGE).map(entry).collect()
        })
        .await
    }

    async fn keep(&self, events: &[NewEvent], from: i64, to: i64, now_us: i64) -> Stored<bool> {
        let bug = self.0.lock().bug;
        if bug == Bug::CursorApart {
            self.perform(|world| world.cursor = Some(to)).await?;
        }
        self.perform(|world| {
            let is_there = world.cursor == Some(from) || bug == Bug::CursorApart;
            if is_there {
                world.cursor = Some(to);
                for event in events {
                    world.rows.entry(event.seq).or_insert(Row {
                        write: event.write,
                        attempts: Attempts::default(),
                        due_us: now_us,
                    });
                }
            }
            is_there
        })
        .await
    }

    async fn due(&self, times: DueTimes) -> Stored<Vec<Waiting<()>>> {
        self.perform(|world| {
            let is_first = |seq: i64, row: &Row| {
                let mut earlier = world.rows.range(..seq);
                world.bug == Bug::OutOfOrder || earlier.all(|(_, other)| other.write != row.write)
            };
            let due = world.rows.iter().filter(|(_, row)| times.has(row.due_us));
            let mut due: Vec<_> = due.filter(|(seq, row)| is_first(**seq, row)).collect();
            due.sort_by_key(|(seq, row)| (row.due_us, **seq));
            let waiting = due.into_iter().map(|(seq, row)| Waiting {
                seq: *seq,
                write: row.write,
                attempts: row.attempts,
                event: (),
            });
            // the flow asserts that it gets one of each write
            let mut waiting: Vec<_> = waiting.collect();
            if world.bug == Bug::OutOfOrder {
                waiting.drain(..waiting.len().saturating_sub(1));
            }
            waiting.truncate(BATCH);
            waiting
        })
        .await
    }

    async fn send(&self, events: &[Waiting<()>]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for event in events {
            pause().await;
            answers.push(self.0.lock().receive(event));
        }
        pause().await;
        answers
    }

    async fn settle(&self, settlements: &[Settlement<()>], due_us: Option<i64>) -> Stored<()> {
        self.perform(|world| {
            for row in world.rows.values_mut() {
                row.due_us = row.due_us.min(due_us.unwrap_or(i64::MAX));
            }
            for one in settlements {
                world.settle(one);
            }
        })
        .await
    }
}

impl World {
    /// The receiver's answer to an event.
    fn receive(&mut self, event: &Waiting<()>) -> Answer {
        let [is_lost, is_cut] = [self.fails(12), self.fails(12)];
        let seq = event.seq;
        self.judge.attempted(seq, self.now_us);
        if let Some(answer) = self.away {
            return answer;
        }
        if is_lost {
            return Answer::None;
        }
        if self.refused.contains(&event.write) {
            self.note(&format!("{seq} is refused"));
            return Answer::Status(400);
        }
        self.note(&format!("{seq} is delivered"));
        self.judge.delivered(seq, event.write);
        if is_cut {
            return Answer::None;
        }
        Answer::Status(204)
    }

    fn settle(&mut self, one: &Settlement<()>) {
        let seq = one.sent.seq;
        match one.settled {
            Settled::Later { attempts, due_us } => {
                if let Some(row) = self.rows.get_mut(&seq) {
                    row.attempts = attempts;
                    row.due_us = due_us;
                }
            }
            Settled::Delivered => {
                self.rows.remove(&seq);
            }
            Settled::GivenUp => {
                self.note(&format!("{seq} is given up"));
                if self.rows.remove(&seq).is_some() {
                    self.judge.given_up(seq, self.now_us);
                }
            }
        }
    }
}
