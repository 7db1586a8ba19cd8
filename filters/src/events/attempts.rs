//! When an event is sent, and what follows from an answer.

use super::EventOutcome;
use crate::chance::Chance;
use crate::post::{Answer, Delays};

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// Three days after its first attempt, an event is given up: a weekend, and a day to notice.
pub const GIVEN_UP_AFTER_US: i64 = 72 * HOUR;
/// Attempts before an event is given up. Fewer mean that this process was suspended, or that a
/// clock was set.
const LEAST_ATTEMPTS: u32 = 40;
/// A quarter of an hour at most, so that a receiver that is back gets everything soon.
const DELAYS: Delays = Delays {
    first_us: 5 * SECOND.unsigned_abs(),
    longest_us: 900 * SECOND.unsigned_abs(),
};
/// The delay after 410 Gone, by which a receiver wants no more: the operator decides.
const GONE: Delays = Delays {
    first_us: HOUR.unsigned_abs(),
    longest_us: HOUR.unsigned_abs(),
};
/// No delay is longer: an event that is due later was dated by a clock that was ahead.
const LONGEST_US: i64 = 2 * HOUR;

/// The attempts to deliver an event that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Their number.
    pub failed: u32,
    /// When the first one was made.
    pub first_us: Option<i64>,
}

/// The times at which an event is due: up to now, and those that only a clock that was ahead has
/// set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueTimes {
    /// An event that is due at this time or before.
    pub until_us: i64,
    /// An event that is due after this time.
    pub after_us: i64,
}

/// The consequence of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The receiver has the event.
    Delivered,
    /// The event is sent again.
    Later {
        /// The attempts so far.
        attempts: Attempts,
        /// When it is due.
        due_us: i64,
    },
    /// The event is not sent again.
    GivenUp,
}

impl DueTimes {
    /// The times at which an event is due now.
    #[must_use]
    pub const fn at(now_us: i64) -> Self {
        Self {
            until_us: now_us,
            after_us: now_us.saturating_add(LONGEST_US),
        }
    }

    /// Whether an event that is due at this time is sent now.
    #[must_use]
    pub fn has(self, due_us: i64) -> bool {
        due_us <= self.until_us || due_us > self.after_us
    }
}

impl Attempts {
    /// Decides what follows from the answer to one more attempt. Only 2xx is a delivery.
    #[must_use]
    pub fn settle(self, answer: Answer, now_us: i64, chance: Chance) -> Settled {
        if matches!(answer, Answer::Status(200..=299)) {
            return Settled::Delivered;
        }
        // a clock that was ahead has set a first time that is still to come
        let first_us = self.first_us.unwrap_or(now_us).min(now_us);
        let failed = self.failed.saturating_add(1);
        let is_old = now_us.saturating_sub(first_us) >= GIVEN_UP_AFTER_US;
        if is_old && failed >= LEAST_ATTEMPTS {
            return Settled::GivenUp;
        }
        let delay = match answer {
            Answer::Status(410) => GONE.after(failed, chance),
            _ => DELAYS.after(failed, chance),
        };
        debug_assert!(delay < LONGEST_US, "a delay is no fault of a clock");
        Settled::Later {
            attempts: Self {
                failed,
                first_us: Some(first_us),
            },
            due_us: now_us.saturating_add(delay),
        }
    }

    /// When all events that wait are due at the latest, now that one is delivered: if that one had
    /// failed before, the receiver is back, and longer delays are over.
    #[must_use]
    pub fn hastens(self, now_us: i64) -> Option<i64> {
        if self.failed == 0 {
            return None;
        }
        Some(now_us.saturating_add_unsigned(DELAYS.first_us))
    }
}

impl Settled {
    /// The result, for the metric.
    #[must_use]
    pub const fn outcome(&self) -> EventOutcome {
        match self {
            Self::Delivered => EventOutcome::Delivered,
            Self::Later { .. } => EventOutcome::Failed,
            Self::GivenUp => EventOutcome::GivenUp,
        }
    }
}
