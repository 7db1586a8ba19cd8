//! The calls in flight, by when they began.
//!
//! A call that hangs holds its slot for a short time only: otherwise as many calls as the limit
//! allows could hang, and no other call would start before their deadlines.

use core::time::Duration;

/// The cells by which the age of a call is known.
const CELL_MILLIS: u64 = 500;
const CELLS: usize = 4;

/// The calls in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InFlight {
    /// The number of the newest cell.
    newest: u64,
    /// The calls that began in each of the latest cells, at the cell's number modulo [`CELLS`].
    cells: [u32; CELLS],
    /// All calls, including those that hang.
    all: u32,
}

/// The number of the cell in which a call begins.
fn cell(at: Duration) -> u64 {
    let millis = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    millis / CELL_MILLIS
}

impl InFlight {
    /// The calls that hold a slot: those that began within the last 1.5 to 2 seconds.
    pub(super) fn holding(&mut self, now: Duration) -> u32 {
        let now = cell(now);
        for _ in 0..CELLS {
            if self.newest >= now {
                break;
            }
            self.newest = self.newest.saturating_add(1);
            if let Some(calls) = self.calls_of(self.newest) {
                *calls = 0;
            }
        }
        self.newest = self.newest.max(now);
        self.cells.iter().sum()
    }

    /// All calls, including those that hang.
    pub(super) const fn all(&self) -> u32 {
        self.all
    }

    /// Counts a call that begins.
    pub(super) fn begin(&mut self, now: Duration) {
        self.holding(now);
        if let Some(calls) = self.calls_of(cell(now)) {
            *calls = calls.saturating_add(1);
        }
        self.all = self.all.saturating_add(1);
    }

    /// Counts the end of a call that began at `at`.
    pub(super) fn end(&mut self, at: Duration, now: Duration) {
        self.holding(now);
        if let Some(calls) = self.calls_of(cell(at)) {
            debug_assert!(*calls > 0, "a call ends once");
            *calls = calls.saturating_sub(1);
        }
        self.all = self.all.saturating_sub(1);
    }

    /// The calls that began in this cell; `None` if it is too old.
    fn calls_of(&mut self, cell: u64) -> Option<&mut u32> {
        let cells = u64::try_from(CELLS).ok()?;
        if cell.saturating_add(cells) <= self.newest {
            return None;
        }
        let index = usize::try_from(cell.checked_rem(cells)?).ok()?;
        self.cells.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_hanging_call_holds_no_slot() {
        let mut calls = InFlight::default();
        for began in [1_000, 1_400, 1_900] {
            calls.begin(at(began));
        }
        for (now, holding) in [(1_900, 3), (2_999, 3), (3_000, 1), (3_500, 0)] {
            assert_eq!(calls.holding(at(now)), holding, "at {now}");
        }
        assert_eq!(calls.all(), 3);
        calls.begin(at(3_600));
        calls.end(at(1_000), at(3_700));
        assert_eq!((calls.holding(at(3_700)), calls.all()), (1, 3));
        calls.end(at(3_600), at(9_000));
        assert_eq!((calls.holding(at(9_000)), calls.all()), (0, 2));
    }
}
