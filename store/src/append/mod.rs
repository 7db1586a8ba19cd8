//! Appends to the journal for all commands of this process, in groups.
//!
//! A transaction locks the end of the journal once for all commands that wait by then: they are its
//! group, and each is answered after the commit. A command that fails because
//! of its own rows fails alone, as the others are run again without it. [`Appender::run`] runs as a
//! task of its own while commands wait, so no caller that goes away stops the commands of others.
//!
//! Reading order: `group.rs` (a transaction), `facts.rs`, `rows.rs`.

mod facts;
mod group;
mod rows;

use super::db::Db;
use super::error::{Cause, StoreError};
use super::timeout::TIMEOUT;
use super::{Intended, IntentId};
use group::{Failure, Group};
use parking_lot::Mutex;
use portcullis_filters::ledger::group::MAX_COMMANDS;
use portcullis_filters::ledger::{OwnedChange, OwnedIntent, Refusal};
pub(super) use rows::stored;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A change of an intent.
#[derive(Debug)]
pub(super) struct ChangeOf {
    pub(super) id: IntentId,
    pub(super) change: OwnedChange,
}

/// A command that waits, and its caller.
#[derive(Debug)]
struct Job<C, R> {
    command: C,
    now_us: i64,
    /// Until when its transaction must have locked the end of the journal.
    deadline: Instant,
    caller: oneshot::Sender<Result<R, StoreError>>,
}

impl<C, R> Job<C, R> {
    fn is_late(&self) -> bool {
        self.deadline <= Instant::now()
    }

    fn answer(self, reply: Result<R, StoreError>) {
        // a caller that went away needs no answer
        let _ = self.caller.send(reply);
    }
}

/// The commands of one transaction, or those that wait for one.
#[derive(Debug, Default)]
struct Jobs {
    intents: VecDeque<Job<OwnedIntent, Intended>>,
    changes: VecDeque<Job<ChangeOf, bool>>,
    refusals: VecDeque<Job<Refusal, ()>>,
}

impl Jobs {
    fn len(&self) -> usize {
        self.intents.len() + self.changes.len() + self.refusals.len()
    }

    /// The deadline of the command that waits longest.
    fn deadline(&self) -> Instant {
        let intents = self.intents.iter().map(|job| job.deadline);
        let changes = self.changes.iter().map(|job| job.deadline);
        let refusals = self.refusals.iter().map(|job| job.deadline);
        let all = intents.chain(changes).chain(refusals);
        all.min().unwrap_or_else(Instant::now)
    }

    /// Takes the commands of the next transaction, without those whose callers went away.
    fn next(&mut self) -> Self {
        Self {
            intents: take(&mut self.intents),
            changes: take(&mut self.changes),
            refusals: take(&mut self.refusals),
        }
    }

    /// Splits the commands into groups of one.
    fn each_alone(self) -> Vec<Self> {
        let mut groups = Vec::with_capacity(self.len());
        groups.extend(self.intents.into_iter().map(|job| Self {
            intents: [job].into(),
            ..Self::default()
        }));
        groups.extend(self.changes.into_iter().map(|job| Self {
            changes: [job].into(),
            ..Self::default()
        }));
        groups.extend(self.refusals.into_iter().map(|job| Self {
            refusals: [job].into(),
            ..Self::default()
        }));
        groups
    }

    fn fail(self, error: &StoreError) {
        for job in self.intents {
            job.answer(Err(error.shared()));
        }
        for job in self.changes {
            job.answer(Err(error.shared()));
        }
        for job in self.refusals {
            job.answer(Err(error.shared()));
        }
    }
}

/// Takes up to [`MAX_COMMANDS`] commands; answers those that waited too long.
fn take<C, R>(waiting: &mut VecDeque<Job<C, R>>) -> VecDeque<Job<C, R>> {
    let mut taken = VecDeque::new();
    while taken.len() < MAX_COMMANDS
        && let Some(job) = waiting.pop_front()
    {
        if job.is_late() {
            job.answer(Err(StoreError::Unavailable(Cause::Timeout)));
        } else if !job.caller.is_closed() {
            taken.push_back(job);
        }
    }
    taken
}

/// Puts the postponed commands before those that wait.
fn put_back<C, R>(waiting: &mut VecDeque<Job<C, R>>, postponed: VecDeque<Job<C, R>>) {
    for job in postponed.into_iter().rev() {
        waiting.push_front(job);
    }
}

/// The commands that wait, and whether a task runs them.
#[derive(Debug, Default)]
struct Queue {
    jobs: Jobs,
    is_running: bool,
}

/// Appends to the journal; clones share their queue.
#[derive(Debug, Clone)]
pub(super) struct Appender {
    db: Db,
    queue: Arc<Mutex<Queue>>,
}

impl Appender {
    pub(super) fn new(db: Db) -> Self {
        Self {
            db,
            queue: Arc::default(),
        }
    }

    /// Stores a new intent, if its facts permit it.
    pub(super) async fn intend(
        &self,
        new: OwnedIntent,
        now_us: i64,
    ) -> Result<Intended, StoreError> {
        let answer = self.wait(|jobs| &mut jobs.intents, new, now_us);
        // the task was stopped, perhaps during the commit
        answer.await.unwrap_or_else(|_| Err(closed().of_commit()))
    }

    /// Records a change of an intent; `false` if its state does not allow that.
    pub(super) async fn change(&self, change: ChangeOf, now_us: i64) -> Result<bool, StoreError> {
        let answer = self.wait(|jobs| &mut jobs.changes, change, now_us);
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Records a refusal.
    pub(super) async fn record(&self, refusal: Refusal, now_us: i64) -> Result<(), StoreError> {
        let answer = self.wait(|jobs| &mut jobs.refusals, refusal, now_us);
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Lets a command wait for the next group; returns its answer.
    fn wait<C, R>(
        &self,
        kind: impl FnOnce(&mut Jobs) -> &mut VecDeque<Job<C, R>>,
        command: C,
        now_us: i64,
    ) -> oneshot::Receiver<Result<R, StoreError>> {
        let (caller, answer) = oneshot::channel();
        let deadline = Instant::now() + TIMEOUT;
        let mut queue = self.queue.lock();
        kind(&mut queue.jobs).push_back(Job {
            command,
            now_us,
            deadline,
            caller,
        });
        if !std::mem::replace(&mut queue.is_running, true) {
            tokio::spawn(self.clone().run());
        }
        answer
    }

    /// Runs groups while commands wait. A group takes those that wait once it has the lock.
    async fn run(self) {
        let mut running = Running {
            queue: &self.queue,
            has_ended: false,
        };
        while let Some(deadline) = running.deadline() {
            match Group::begin(&self.db, deadline).await {
                Ok(group) => self.run_group(group, running.next()).await,
                // those that did not wait so long try again
                Err(StoreError::Unavailable(Cause::Timeout)) => running.fail_late(),
                Err(error) => running.next().fail(&error),
            }
        }
    }

    /// Runs a group, or its commands one by one if one of them prevents it.
    async fn run_group(&self, group: Group, jobs: Jobs) {
        let is_shared = jobs.len() > 1;
        match group.run(&jobs).await {
            Ok(done) => self.answer(jobs, done),
            Err(failure) if is_shared && failure.is_of_one() => {
                for alone in jobs.each_alone() {
                    self.run_alone(alone).await;
                }
            }
            Err(failure) => fail(jobs, failure),
        }
    }

    async fn run_alone(&self, jobs: Jobs) {
        let group = match Group::begin(&self.db, Instant::now() + TIMEOUT).await {
            Ok(group) => group,
            Err(error) => return jobs.fail(&error),
        };
        match group.run(&jobs).await {
            Ok(done) => self.answer(jobs, done),
            Err(failure) => fail(jobs, failure),
        }
    }

    /// Answers each command after the end of its transaction, or lets it wait again.
    fn answer(&self, jobs: Jobs, done: group::Done) {
        let end = &done.end;
        let intents = answer(jobs.intents, done.intended, end);
        let changes = answer(jobs.changes, done.changed, end);
        let recorded = std::iter::repeat_with(|| Some(group::Decided::recorded()));
        let refusals = answer(jobs.refusals, recorded, end);
        let mut queue = self.queue.lock();
        put_back(&mut queue.jobs.intents, intents);
        put_back(&mut queue.jobs.changes, changes);
        put_back(&mut queue.jobs.refusals, refusals);
    }
}

/// Answers the commands that were decided; returns the others.
fn answer<C, R>(
    jobs: VecDeque<Job<C, R>>,
    decided: impl IntoIterator<Item = Option<group::Decided<R>>>,
    end: &group::End,
) -> VecDeque<Job<C, R>> {
    let mut postponed = VecDeque::new();
    for (job, decided) in jobs.into_iter().zip(decided) {
        match decided {
            Some(decided) => job.answer(decided.answered(end)),
            None => postponed.push_back(job),
        }
    }
    postponed
}

/// Answers the commands of a transaction that was rolled back.
fn fail(jobs: Jobs, failure: Failure) {
    match failure {
        Failure::Store(error) => jobs.fail(&error),
        Failure::KeyTaken => {
            for job in jobs.intents {
                job.answer(Ok(Intended::KeyConflict));
            }
        }
    }
}

/// The error of a command whose task was stopped.
fn closed() -> StoreError {
    StoreError::Unavailable(Cause::Closed)
}

/// A running task. If it stops early, with its runtime, no command waits for it.
struct Running<'q> {
    queue: &'q Mutex<Queue>,
    has_ended: bool,
}

impl Running<'_> {
    /// Until when the command that waits longest waits for the lock; `None` once no command waits,
    /// which ends the task.
    fn deadline(&mut self) -> Option<Instant> {
        let mut queue = self.queue.lock();
        if queue.jobs.len() > 0 {
            return Some(queue.jobs.deadline());
        }
        queue.is_running = false;
        self.has_ended = true;
        None
    }

    /// Takes the commands of the next group.
    fn next(&self) -> Jobs {
        self.queue.lock().jobs.next()
    }

    /// Answers the commands that waited too long.
    fn fail_late(&self) {
        let mut queue = self.queue.lock();
        let waiting = queue.jobs.next();
        put_back(&mut queue.jobs.intents, waiting.intents);
        put_back(&mut queue.jobs.changes, waiting.changes);
        put_back(&mut queue.jobs.refusals, waiting.refusals);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            *self.queue.lock() = Queue::default();
        }
    }
}
