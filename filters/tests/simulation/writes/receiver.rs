//! The receiver of events: it is dead for an hour, slow, refuses, or answers wrongly. What it gets is
//! compared with the journal: each write that becomes final, displaced, lost or found again is sent
//! once or more, in order per write, none is lost, and none that did not happen is sent.

use super::machine::{Machine, Shared};
use super::rules::Case;
use super::world::{Fault, World};
use portcullis_filters::events::{EventKind, Waiting};
use portcullis_filters::ledger::{IntentId, IntentState};
use portcullis_filters::post::Answer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
/// The attempts after which an event may be given up, and three days but for what jitter takes.
const LEAST_ATTEMPTS: usize = 40;
const PATIENCE: Duration = Duration::from_secs(71 * 3_600);
/// The attempts of two senders within two minutes, if each delay is twice as long as the one before.
const PACE: Duration = Duration::from_secs(120);
const MOST_ATTEMPTS: usize = 16;
/// How soon the receiver has everything, once it takes an event that failed before.
const HASTENED: Duration = Duration::from_secs(25);
/// How long the receiver is looked at in the end, and how much time passes in between.
const LOOK: Duration = Duration::from_secs(4);
const BETWEEN: Duration = Duration::from_secs(300);
/// Every event is due after this many looks: the longest delay is that after 410, an hour and a
/// quarter.
const LOOKS: u32 = 16;
/// By how much the store's clock is ahead while everything fails in the end, in microseconds.
const AHEAD_US: i64 = 30 * 24 * 3_600_000_000;

/// How the receiver treats events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Manner {
    #[default]
    Takes,
    /// It answers nothing, and gets nothing.
    Dead,
    /// It has the event, and answers too late.
    Slow,
    /// It answers with this status, and has nothing.
    Errs(u16),
}

/// The receiver, and what it must get.
#[derive(Default)]
pub(super) struct Receiver {
    manner: Manner,
    until: Duration,
    /// The writes whose events it refuses.
    refused: BTreeSet<IntentId>,
    expected: BTreeMap<i64, Expected>,
    /// When it last took an event that was sent before: longer delays may be over.
    hastened: Duration,
    /// From when on no failure goes unrecorded, and when it last took an event that had failed since.
    recorded: Duration,
    back: Option<Duration>,
}

/// An event that it must get.
struct Expected {
    write: IntentId,
    kind: &'static str,
    attempts: Vec<Duration>,
    is_delivered: bool,
    is_given_up: bool,
}

/// What a backend must learn of a change, by the words of the contract.
fn announced(before: Option<IntentState>, state: IntentState) -> Option<&'static str> {
    use IntentState::{Accepted, Displaced, Intended, Lost, Rejected, Reverted, Sent, Succeeded};
    let kind = match state {
        Accepted if matches!(before, Some(Displaced | Lost)) => "write.found",
        Accepted | Intended | Sent => return None,
        Succeeded => "write.succeeded",
        Reverted => "write.reverted",
        Rejected => "write.rejected",
        Displaced => "write.displaced",
        Lost => "write.lost",
    };
    Some(kind)
}

impl Receiver {
    /// An entry of the journal is written.
    pub(super) fn expect(
        &mut self,
        seq: usize,
        write: IntentId,
        before: Option<IntentState>,
        state: IntentState,
    ) {
        if let Some(kind) = announced(before, state) {
            let expected = Expected {
                write,
                kind,
                attempts: Vec::new(),
                is_delivered: false,
                is_given_up: false,
            };
            self.expected.insert(seq as i64, expected);
        }
    }

    /// An event is sent, whether it arrives or not.
    fn attempted(&mut self, seq: i64, kind: &str, now: Duration) -> Result<(), String> {
        let Some(expected) = self.expected.get_mut(&seq) else {
            return Err(format!(
                "events: entry {seq} has no event, but {kind} is sent"
            ));
        };
        if expected.kind != kind {
            let right = expected.kind;
            return Err(format!("events: {seq} is {right}, and is sent as {kind}"));
        }
        expected.attempts.push(now);
        let recent = expected.attempts.iter().rev();
        let recent = recent.take_while(|at| **at > self.hastened && **at + PACE > now);
        if recent.count() > MOST_ATTEMPTS {
            return Err(format!("events: {seq} is sent too often"));
        }
        Ok(())
    }

    /// It has got an event: those before it of the same write came first.
    fn delivered(&mut self, seq: i64, now: Duration) -> Result<Case, String> {
        let Some(expected) = self.expected.get(&seq) else {
            return Ok(Case::EventTaken);
        };
        let is_again = expected.is_delivered;
        let write = expected.write;
        let mut earlier = self.expected.range(..seq);
        let is_missing = |it: &Expected| it.write == write && !it.is_delivered && !it.is_given_up;
        if let Some((missing, _)) = earlier.find(|(_, it)| is_missing(it)) {
            return Err(format!("events: {seq} is delivered before {missing}"));
        }
        if let Some(expected) = self.expected.get_mut(&seq) {
            expected.is_delivered = true;
            let before = expected
                .attempts
                .split_last()
                .map_or(&[][..], |(_, before)| before);
            if !before.is_empty() {
                self.hastened = now;
            }
            if !is_again && before.iter().any(|at| *at > self.recorded) {
                self.back = Some(now);
            }
        }
        Ok(if is_again {
            Case::EventTakenAgain
        } else {
            Case::EventTaken
        })
    }

    /// The first event up to one that it has not got.
    fn missing(&self, last: i64) -> Option<i64> {
        let mut expected = self.expected.range(..=last);
        let missing = expected.find(|(_, it)| !it.is_delivered && !it.is_given_up);
        missing.map(|(seq, _)| *seq)
    }
}

impl World {
    /// What happens to the receiver, about once a second.
    pub(super) fn disturb_receiver(&mut self) {
        let manner = if self.fires(Fault::ReceiverDead, 60) {
            Manner::Dead
        } else if self.fires(Fault::ReceiverSlow, 90) {
            Manner::Slow
        } else if self.fires(Fault::ReceiverErrs, 60) {
            Manner::Errs(self.chance.pick(&[500, 302, 410]))
        } else {
            Manner::Takes
        };
        if manner != Manner::Takes {
            let time = self.millis(500, 30_000);
            let time = self.chance.pick(&[time, HOUR]);
            self.receiver.manner = manner;
            self.receiver.until = self.now() + time;
            self.note(|| format!("the receiver is {manner:?} for {time:?}"));
        }
        if self.fires(Fault::ReceiverRefuses, 30) {
            let newest = self.receiver.expected.last_key_value();
            let refused = newest.map(|(_, it)| it.write);
            self.receiver.refused.extend(refused);
            self.note(|| format!("the receiver refuses the events of {refused:?}"));
        }
    }

    /// The receiver's answer to an event.
    pub(super) fn receive(&mut self, event: &Waiting<Option<EventKind>>, is_lost: bool) -> Answer {
        let (now, seq) = (self.now(), event.seq);
        let kind = event.event.map(EventKind::name).unwrap_or_default();
        let judged = self.receiver.attempted(seq, kind, now);
        self.oracle.report(judged);
        let is_failing = now < self.receiver.until;
        let manner = if is_failing {
            self.receiver.manner
        } else {
            Manner::Takes
        };
        match manner {
            Manner::Dead => return Answer::None,
            Manner::Errs(status) => return Answer::Status(status),
            Manner::Takes | Manner::Slow if is_lost => return Answer::None,
            Manner::Takes | Manner::Slow => {}
        }
        if self.receiver.refused.contains(&event.write) {
            return Answer::Status(400);
        }
        match self.receiver.delivered(seq, now) {
            Ok(case) => self.met(case),
            broken => self.oracle.report(broken.map(|_| ())),
        }
        self.note(|| format!("the receiver has event {seq}, {kind}"));
        if manner == Manner::Slow || self.fires(Fault::AnswerLost, 20) {
            return Answer::None;
        }
        Answer::Status(204)
    }

    /// An event is given up only after three days of attempts.
    pub(super) fn judge_event_given_up(&mut self, seq: i64) {
        let (now, was_set) = (self.now(), self.clock_was_set());
        let Some(expected) = self.receiver.expected.get_mut(&seq) else {
            return;
        };
        expected.is_given_up = true;
        let attempts = expected.attempts.len();
        let first = expected.attempts.first().copied().unwrap_or(now);
        if attempts < LEAST_ATTEMPTS || !was_set && now < first + PATIENCE {
            let took = now - first;
            let broken = format!("events: {seq} is given up after {attempts} attempts in {took:?}");
            self.oracle.report(Err(broken));
        }
    }

    /// Lets the receiver fail while the chain loses its blocks in the end.
    pub(super) fn fail_receiver(&mut self) {
        self.receiver.recorded = self.now();
        if self.enabled.contains(&Fault::ReceiverErrs) && self.chance.choose(2) == 1 {
            self.receiver.manner = self.chance.pick(&[
                Manner::Dead,
                Manner::Slow,
                Manner::Errs(500),
                Manner::Errs(410),
            ]);
            self.receiver.until = self.now() + 24 * HOUR;
        }
    }
}

/// The receiver fails no longer, and gets everything: all within seconds once it has taken something.
pub(super) fn receive_all(world: &Shared<World>, machine: &mut Machine<World>) {
    if world.lock().regime.loses_tail {
        return;
    }
    date_ahead(world, machine);
    let (last, healed) = {
        let mut world = world.lock();
        world.note(|| "the receiver takes everything".to_owned());
        world.receiver.until = Duration::ZERO;
        world.receiver.refused.clear();
        (world.journal.tables.entries.len() as i64, world.now())
    };
    for _ in 0..LOOKS {
        let end = world.now() + LOOK;
        machine.run(|world, _| {
            let back = world.receiver.back.filter(|at| *at >= healed);
            let is_over = world.now() >= back.map_or(end, |at| at + HASTENED);
            is_over || world.receiver.missing(last).is_none() || world.oracle.violation.is_some()
        });
        let mut world = world.lock();
        let Some(missing) = world.receiver.missing(last) else {
            return;
        };
        if world.receiver.back >= Some(healed) {
            let broken = format!("events: {missing} waits, and the receiver is back");
            world.oracle.report(Err(broken));
        }
        if world.oracle.violation.is_some() {
            return;
        }
        world.pass(BETWEEN);
    }
    let mut world = world.lock();
    if let Some(missing) = world.receiver.missing(last) {
        let broken = format!("events: {missing} is never delivered");
        world.oracle.report(Err(broken));
    }
}

/// The store's clock is ahead for a while, in which events fail.
fn date_ahead(world: &Shared<World>, machine: &mut Machine<World>) {
    {
        let mut world = world.lock();
        let may_be = world.enabled.contains(&Fault::StoreClockBack);
        let is_failing = world.now() < world.receiver.until;
        if !may_be || !is_failing || world.chance.choose(2) == 0 {
            return;
        }
        world.set_clock(AHEAD_US);
    }
    let end = world.now() + 2 * LOOK;
    machine.run(|world, _| world.now() >= end || world.oracle.violation.is_some());
    world.lock().set_clock(-AHEAD_US);
}
