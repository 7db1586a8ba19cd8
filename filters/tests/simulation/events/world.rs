//! The world: writes that change their states, processes that crash, a receiver, clocks.

use super::Bug;
use super::judge::{Counted, Judge};
use super::outbox::{Process, SimOutbox};
use crate::toolkit::{Chance, Outcome};
use portcullis_filters::events::Attempts;
use portcullis_filters::ledger::{IntentId, IntentState};
use portcullis_filters::post::Answer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

pub(super) const SECOND: i64 = 1_000_000;
pub(super) const HOUR: i64 = 3_600 * SECOND;
/// By when all is delivered that is not refused: the longest delay is that after 410.
const SETTLING: i64 = 2 * HOUR + HOUR / 2;
/// Writes of a run.
const WRITES: u32 = 5;

/// An event that waits.
pub(super) struct Row {
    pub(super) write: IntentId,
    pub(super) attempts: Attempts,
    pub(super) due_us: i64,
}

/// An entry of the journal.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) seq: i64,
    /// `None` for a refusal.
    pub(super) moved: Option<(IntentId, IntentState)>,
}

/// All that processes share.
pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) bug: Bug,
    pub(super) now_us: i64,
    /// How far the store's clock is ahead.
    pub(super) ahead_us: i64,
    pub(super) entries: Vec<Entry>,
    pub(super) cursor: Option<i64>,
    pub(super) rows: BTreeMap<i64, Row>,
    /// The answer to each event while the receiver is away.
    pub(super) away: Option<Answer>,
    /// Writes whose events it refuses.
    pub(super) refused: BTreeSet<IntentId>,
    /// Whether nothing fails any longer, but what it refuses.
    pub(super) is_healed: bool,
    pub(super) judge: Judge,
    /// The next number of [`SimOutbox::chance`].
    pub(super) drawn: u32,
}

/// The world, as processes have it.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("no process panics")
    }
}

impl World {
    /// Runs the steps, then until all is delivered.
    pub(super) fn run(chance: &mut Chance, bug: Bug, steps: u32) -> (Outcome, Counted) {
        let drawn = std::mem::replace(chance, Chance::of_list(&[]));
        let world = Shared(Arc::new(Mutex::new(Self::new(drawn, bug))));
        let count = 1 + world.lock().chance.choose(3);
        let mut processes: Vec<_> = (0..count)
            .map(|_| Process::new(SimOutbox::new(&world)))
            .collect();
        // it began before the first write
        processes[0].finish_round();
        for _ in 0..steps {
            step(&world, &mut processes);
            if world.lock().judge.violation.is_some() {
                break;
            }
        }
        settle(&world, &mut processes);
        drop(processes);
        let mut world = world.lock();
        *chance = std::mem::replace(&mut world.chance, Chance::of_list(&[]));
        let outcome = Outcome {
            violation: world.judge.violation.take(),
            trace: std::mem::take(&mut world.judge.trace),
        };
        (outcome, world.judge.counted)
    }

    fn new(chance: Chance, bug: Bug) -> Self {
        Self {
            chance,
            bug,
            now_us: 1_800_000_000 * SECOND,
            ahead_us: 0,
            entries: Vec::new(),
            cursor: None,
            rows: BTreeMap::new(),
            away: None,
            refused: BTreeSet::new(),
            is_healed: false,
            judge: Judge::default(),
            drawn: 0,
        }
    }

    /// The time by the store's clock.
    pub(super) fn clock_us(&self) -> i64 {
        self.now_us + self.ahead_us
    }

    /// One in `n`, unless nothing fails any longer.
    pub(super) fn fails(&mut self, n: u32) -> bool {
        let drawn = self.chance.choose(n);
        drawn == n - 1 && !self.is_healed
    }

    pub(super) fn note(&mut self, line: &str) {
        let at = self.now_us as f64 / 1e6 - 1.8e9;
        self.judge.trace.push(format!("{at:12.3} {line}"));
    }

    pub(super) fn state_before(&self, write: IntentId, seq: i64) -> Option<IntentState> {
        let before = self.entries.iter().rev().filter(|entry| entry.seq < seq);
        let mut moved = before.filter_map(|entry| entry.moved);
        moved.find(|(of, _)| *of == write).map(|(_, state)| state)
    }

    fn append(&mut self, moved: Option<(IntentId, IntentState)>) {
        let seq = self.entries.len() as i64 + 1;
        if let Some((write, state)) = moved {
            let before = self.state_before(write, seq);
            self.judge.recorded(seq, write, before, state);
            self.note(&format!("{seq}: write {write} is {}", state.name()));
        }
        self.entries.push(Entry { seq, moved });
    }

    /// A write is stored, or takes a step that its state allows.
    fn move_write(&mut self, write: u32, step: u32) {
        let write = IntentId(i64::from(write) + 1);
        let Some(state) = self.state_before(write, i64::MAX) else {
            self.append(Some((write, IntentState::Intended)));
            self.append(Some((write, IntentState::Sent)));
            return;
        };
        let next = IntentState::ALL[step as usize % IntentState::ALL.len()];
        // what is sent again has no entry
        if state.may_become(next) && next != IntentState::Sent {
            self.append(Some((write, next)));
        }
    }

    /// What happens outside the processes.
    fn disturb(&mut self) {
        let [kind, which, size] = [16, WRITES, 64].map(|n| self.chance.choose(n));
        match kind {
            1..=7 => self.move_write(which, size),
            8 => self.append(None),
            9 => {
                let answers = [None, Some(Answer::None), Some(Answer::Status(500))];
                self.away = match size {
                    63 => Some(Answer::Status(410)),
                    _ => answers[size as usize % answers.len()],
                };
                let away = self.away;
                self.note(&format!("the receiver is away: {away:?}"));
            }
            10 => {
                let write = IntentId(i64::from(which) + 1);
                if !self.refused.remove(&write) {
                    self.refused.insert(write);
                }
                let refused = self.refused.clone();
                self.note(&format!("it refuses the events of {refused:?}"));
            }
            11 => self.now_us += i64::from(size) * 60 * SECOND,
            12 if size > 60 => self.now_us += 30 * HOUR,
            13 if size > 60 => {
                self.ahead_us = i64::from(which) * 365 * 24 * HOUR;
                self.judge.clock_set(self.now_us);
                self.note("the store's clock is set");
            }
            _ => self.now_us += i64::from(size) * SECOND / 16,
        }
    }
}

/// Something happens, and a process goes on.
fn step(world: &Shared, processes: &mut [Process]) {
    world.lock().disturb();
    let [which, crash, polls] = [12, 40, 8].map(|n| world.lock().chance.choose(n));
    let count = processes.len();
    let process = &mut processes[which as usize % count];
    if crash == 39 {
        world.lock().note(&format!("process {which} crashes"));
        process.crash();
        return;
    }
    for _ in 0..polls {
        // a lock that is lost unnoticed lets several send
        process.poll();
    }
}

/// Nothing fails any longer: first but what the receiver refuses, then at all.
fn settle(world: &Shared, processes: &mut [Process]) {
    {
        let mut world = world.lock();
        world.note("nothing fails any longer, but what is refused");
        world.is_healed = true;
        world.away = None;
    }
    for process in processes.iter_mut() {
        process.crash();
    }
    run_for_long(world, &mut processes[0]);
    world.lock().judge_delivered();
    world.lock().refused.clear();
    run_for_long(world, &mut processes[0]);
    world.lock().judge_delivered();
}

fn run_for_long(world: &Shared, process: &mut Process) {
    let end = world.lock().now_us + SETTLING;
    while world.lock().now_us < end {
        process.finish_round();
        world.lock().now_us += 20 * SECOND;
    }
}
