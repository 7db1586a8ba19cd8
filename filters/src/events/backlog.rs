//! When events that wait are a problem.

use super::EventOutcome;

const SECOND: i64 = 1_000_000;
/// A minute: a receiver that is deployed anew is back by then.
const LATE_US: i64 = 60 * SECOND;
/// A day, in which somebody sees that an event was given up.
const RECENT_US: i64 = 24 * 3_600 * SECOND;

/// The events that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Their number.
    pub waiting: u64,
    /// When the journal recorded the oldest one, or the oldest entry that was not read yet.
    pub oldest_us: Option<i64>,
}

/// A problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The oldest event waits for long.
    Late,
    /// An event was given up within a day.
    GivenUp,
}

/// The failures of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    given_up_us: Option<i64>,
}

impl Failures {
    /// Learns the result of sending an event.
    pub fn note(&mut self, outcome: EventOutcome, now_us: i64) {
        if outcome == EventOutcome::GivenUp {
            self.given_up_us = Some(now_us);
        }
    }

    /// The problem that these events are, if they are one.
    #[must_use]
    pub fn trouble(&self, backlog: &Backlog, now_us: i64) -> Option<Trouble> {
        match (backlog.oldest_us, self.given_up_us) {
            (Some(oldest_us), _) if now_us.saturating_sub(oldest_us) > LATE_US => {
                Some(Trouble::Late)
            }
            (_, Some(given_up_us)) if now_us.saturating_sub(given_up_us) < RECENT_US => {
                Some(Trouble::GivenUp)
            }
            _ => None,
        }
    }
}
