//! Refusals: equal ones within a minute count in one row, so a backend that repeats a refused
//! request does not fill the store.
//!
//! A row is *open* for a minute after its first refusal. Then it is *closed*: chained to the row
//! before it, after which it never changes. Rows are closed in the order of their numbers. There
//! are never more open rows than operations with a reason, unless clocks are set back.

use super::budget::MINUTE_US;
use alloc::string::String;
use alloc::vec::Vec;

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
    /// The number of the row: each has the next one.
    pub seq: i64,
    /// The first refusal.
    pub first: Refusal,
    /// The number of refusals, from 1.
    pub count: i64,
    /// When the first one was, in microseconds since 1970.
    pub first_us: i64,
    /// When the last one was, in microseconds since 1970.
    pub last_us: i64,
}

impl Refusals {
    /// Whether a refusal at this time may count in the row. A row that begins later was dated by a
    /// clock that was ahead: by less than a minute it still counts.
    fn is_open_at(&self, at_us: i64) -> bool {
        at_us.abs_diff(self.first_us) < MINUTE_US.unsigned_abs()
    }

    fn counts(&self, refusal: &Refusal, at_us: i64) -> bool {
        self.first.operation == refusal.operation
            && self.first.reason == refusal.reason
            && self.is_open_at(at_us)
    }

    fn count(&mut self, at_us: i64) {
        self.count = self.count.saturating_add(1);
        self.first_us = self.first_us.min(at_us);
        self.last_us = self.last_us.max(at_us);
    }
}

/// The open rows.
#[derive(Debug)]
pub struct OpenRefusals {
    /// The last number that is taken.
    last: i64,
    rows: Vec<Refusals>,
    /// The rows from the first that changed.
    changed_from: usize,
}

/// The rows to write.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Rows that are new or counted more, closed or not.
    pub counted: Vec<Refusals>,
    /// Rows to close, in this order.
    pub closed: Vec<Refusals>,
}

impl OpenRefusals {
    /// The open rows by number, and the number of the last closed one.
    #[must_use]
    pub fn after(closed: i64, open: Vec<Refusals>) -> Self {
        Self {
            last: open.last().map_or(closed, |row| row.seq),
            changed_from: open.len(),
            rows: open,
        }
    }

    /// Counts a refusal.
    pub fn count(&mut self, refusal: &Refusal, at_us: i64) {
        let open = self.rows.iter().rposition(|row| row.counts(refusal, at_us));
        if let Some((at, row)) = open.and_then(|at| Some((at, self.rows.get_mut(at)?))) {
            row.count(at_us);
            self.changed_from = self.changed_from.min(at);
            return;
        }
        self.last = self.last.saturating_add(1);
        self.rows.push(Refusals {
            seq: self.last,
            first: refusal.clone(),
            count: 1,
            first_us: at_us,
            last_us: at_us,
        });
    }

    /// The rows to write at this time.
    #[must_use]
    pub fn fold(self, now_us: i64) -> Folded {
        let is_over = |row: &&Refusals| !row.is_open_at(now_us);
        Folded {
            closed: self.rows.iter().take_while(is_over).cloned().collect(),
            counted: self.rows.into_iter().skip(self.changed_from).collect(),
        }
    }
}
