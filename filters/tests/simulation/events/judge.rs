//! The promises about events, judged by the journal and by the deliveries.

use super::world::{HOUR, World};
use portcullis_filters::ledger::{IntentId, IntentState};
use std::collections::BTreeMap;

/// An event that the receiver must get.
#[derive(Default)]
struct Expected {
    write: Option<IntentId>,
    attempts: Vec<i64>,
    delivered: u64,
    is_given_up: bool,
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) events: u64,
    pub(super) deliveries: u64,
    pub(super) repeated: u64,
    pub(super) given_up: u64,
}

impl Counted {
    pub(super) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.deliveries += other.deliveries;
        self.repeated += other.repeated;
        self.given_up += other.given_up;
    }
}

#[derive(Default)]
pub(super) struct Judge {
    pub(super) violation: Option<String>,
    pub(super) trace: Vec<String>,
    pub(super) counted: Counted,
    expected: BTreeMap<i64, Expected>,
    /// When the clock was last set.
    clock_set: Option<i64>,
}

/// Whether a backend must learn of a change, by the words of the contract.
fn is_announced(before: Option<IntentState>, state: IntentState) -> bool {
    use IntentState::{Accepted, Displaced, Intended, Lost, Sent};
    let was_in_doubt = matches!(before, Some(Displaced | Lost));
    match state {
        Intended | Sent => false,
        Accepted => was_in_doubt,
        _ => true,
    }
}

impl Judge {
    pub(super) fn recorded(
        &mut self,
        seq: i64,
        write: IntentId,
        before: Option<IntentState>,
        state: IntentState,
    ) {
        if is_announced(before, state) {
            self.counted.events += 1;
            let expected = self.expected.entry(seq).or_default();
            expected.write = Some(write);
        }
    }

    pub(super) fn clock_set(&mut self, now_us: i64) {
        self.clock_set = Some(now_us);
    }

    pub(super) fn attempted(&mut self, seq: i64, now_us: i64) {
        match self.expected.get_mut(&seq) {
            Some(expected) => expected.attempts.push(now_us),
            None => self.fail(format!("kind: {seq} is no event")),
        }
    }

    /// The receiver has got an event: those before it of the same write came first.
    pub(super) fn delivered(&mut self, seq: i64, write: IntentId) {
        self.counted.deliveries += 1;
        let mut earlier = self.expected.range(..seq);
        let missing =
            earlier.find(|(_, it)| it.write == Some(write) && it.delivered == 0 && !it.is_given_up);
        if let Some((missing, _)) = missing {
            self.fail(format!("order: {seq} is delivered before {missing}"));
        }
        let Some(expected) = self.expected.get_mut(&seq) else {
            return;
        };
        if expected.delivered > 0 {
            self.counted.repeated += 1;
        }
        expected.delivered += 1;
    }

    /// An event is given up only after three days of attempts.
    pub(super) fn given_up(&mut self, seq: i64, now_us: i64) {
        self.counted.given_up += 1;
        let clock_set = self.clock_set;
        let Some(expected) = self.expected.get_mut(&seq) else {
            return;
        };
        expected.is_given_up = true;
        let attempts = expected.attempts.len();
        let first = expected.attempts.first().copied().unwrap_or(now_us);
        let is_clock_right = clock_set.is_none_or(|set| set < first);
        if attempts < 40 || is_clock_right && now_us - first < 71 * HOUR {
            let hours = (now_us - first) / HOUR;
            self.fail(format!(
                "patience: {seq} is given up after {attempts} attempts in {hours} hours"
            ));
        }
    }

    fn fail(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }
}

impl World {
    /// Every event is delivered, but those of writes that the receiver refuses.
    pub(super) fn judge_delivered(&mut self) {
        let missing = self.judge.expected.iter().find(|(_, it)| {
            let is_refused = it.write.is_some_and(|write| self.refused.contains(&write));
            it.delivered == 0 && !it.is_given_up && !is_refused
        });
        if let Some((seq, it)) = missing {
            let write = it.write;
            self.judge
                .fail(format!("lost: {seq} of {write:?} is not delivered"));
        }
    }
}
