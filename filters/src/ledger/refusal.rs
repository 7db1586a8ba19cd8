//! Refusals: of equal ones within a minute the first [`JOURNALED`] are journaled and the others
//! only counted, so a backend that repeats a refused request does not fill the store.

use super::budget::MINUTE_US;
use alloc::string::String;
use alloc::vec::Vec;

/// How many equal refusals of a minute are journaled: at 600 a minute, 1,000 take less than 5 KiB.
pub const JOURNALED: i64 = 4;

/// An authenticated request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The operation.
    pub operation: String,
    /// The name of the reason.
    pub reason: String,
    /// The id of the request.
    pub request_id: String,
}

/// Equal refusals within a minute: of one operation, for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusals {
    /// The operation.
    pub operation: String,
    /// The name of the reason.
    pub reason: String,
    /// When the first one was, in microseconds since 1970.
    pub first_us: i64,
    /// When the last one was, in microseconds since 1970.
    pub last_us: i64,
    /// How many there were, with those that are journaled; from 1.
    pub count: i64,
}

impl Refusals {
    /// Whether this refusal counts here. A first refusal that is dated later was dated by a clock
    /// that was ahead: by less than a minute it still counts.
    fn counts(&self, refusal: &Refusal, at_us: i64) -> bool {
        self.operation == refusal.operation
            && self.reason == refusal.reason
            && at_us.abs_diff(self.first_us) < MINUTE_US.unsigned_abs()
    }
}

/// The refusals of about the last minute.
#[derive(Debug)]
pub struct RecentRefusals {
    rows: Vec<Refusals>,
    /// The rows from the first that counted more.
    changed_from: usize,
}

impl RecentRefusals {
    /// The times, in microseconds, between which the first refusal of a row is that may count
    /// refusals at `at_us`.
    #[must_use]
    pub fn span(at_us: i64) -> [i64; 2] {
        [
            at_us.saturating_sub(MINUTE_US),
            at_us.saturating_add(MINUTE_US),
        ]
    }

    /// As they are stored.
    #[must_use]
    pub fn of(rows: Vec<Refusals>) -> Self {
        Self {
            changed_from: rows.len(),
            rows,
        }
    }

    /// Counts a refusal, and returns whether it is journaled.
    pub fn count(&mut self, refusal: &Refusal, at_us: i64) -> bool {
        let at = self.rows.iter().rposition(|row| row.counts(refusal, at_us));
        let at = at.unwrap_or_else(|| {
            self.rows.push(Refusals {
                operation: refusal.operation.clone(),
                reason: refusal.reason.clone(),
                first_us: at_us,
                last_us: at_us,
                count: 0,
            });
            self.rows.len().saturating_sub(1)
        });
        self.changed_from = self.changed_from.min(at);
        let Some(row) = self.rows.get_mut(at) else {
            return true;
        };
        row.count = row.count.saturating_add(1);
        row.last_us = row.last_us.max(at_us);
        row.count <= JOURNALED
    }

    /// The rows to store.
    #[must_use]
    pub fn changed(&self) -> &[Refusals] {
        self.rows.get(self.changed_from..).unwrap_or_default()
    }
}
