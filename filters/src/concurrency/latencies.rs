//! A sample of latencies, and of how many calls were in flight when each call began.
//!
//! The calls of a sample are chosen as they start. A sample of those that end first would lack the
//! slow ones.

use super::micros;
use core::time::Duration;

/// A sample of fewer answers is too small to conclude from.
const FEW: u32 = 8;
/// The most calls of a sample.
const MANY: u32 = 256;
/// After a sample whose error is more than one part in this many, the next one is larger.
const VAGUE: u64 = 6;
/// How many times the mean latency a full sample waits for its last calls.
const PATIENCE: u64 = 4;
/// A sample that took this long ends, even if it is not full.
const LONG: Duration = Duration::from_secs(1);

/// The number of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleId(u32);

/// A sample of latencies. All times are in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latencies {
    id: u32,
    /// The fewest calls of a sample, and those of this one.
    least: u32,
    wanted: u32,
    started: u32,
    ended: u32,
    sum: u64,
    squares: u64,
    /// The sum of the calls in flight at each start.
    in_flight: u64,
    /// The sum of the start times of the calls that have not ended.
    starts: u64,
    /// When the first call started, and the last one.
    since: Duration,
    until: Duration,
}

/// The mean of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mean {
    /// Microseconds.
    pub(super) latency: u64,
    /// The standard error of the latency, in microseconds.
    pub(super) error: u64,
    /// The calls in flight, including the call itself.
    pub(super) in_flight: u64,
}

impl Latencies {
    /// An empty sample of at least this many calls.
    pub(super) const fn new(least: u32) -> Self {
        Self {
            id: 0,
            least,
            wanted: least,
            started: 0,
            ended: 0,
            sum: 0,
            squares: 0,
            in_flight: 0,
            starts: 0,
            since: Duration::ZERO,
            until: Duration::ZERO,
        }
    }

    /// Adds a call that starts, unless the sample is full.
    pub(super) fn start(&mut self, in_flight: u32, now: Duration) -> Option<SampleId> {
        if self.started >= self.wanted {
            return None;
        }
        if self.started == 0 {
            self.since = now;
        }
        self.until = now;
        self.started = self.started.saturating_add(1);
        self.in_flight = self.in_flight.saturating_add(in_flight.into());
        self.starts = self.starts.saturating_add(micros(now));
        Some(SampleId(self.id))
    }

    /// Records the latency of a call that started at `at`, if it belongs to this sample.
    pub(super) fn end(&mut self, id: SampleId, at: Duration, took: u64) {
        if id.0 != self.id {
            return;
        }
        self.ended = self.ended.saturating_add(1);
        debug_assert!(self.ended <= self.started, "a call ends once");
        self.starts = self.starts.saturating_sub(micros(at));
        self.sum = self.sum.saturating_add(took);
        self.squares = self.squares.saturating_add(took.saturating_mul(took));
    }

    /// Takes out a call whose latency shows nothing.
    pub(super) fn discard(&mut self, id: SampleId, at: Duration, in_flight: u32) {
        if id.0 == self.id {
            self.started = self.started.saturating_sub(1);
            self.starts = self.starts.saturating_sub(micros(at));
            self.in_flight = self.in_flight.saturating_sub(in_flight.into());
        }
    }

    /// Whether the sample is complete, or as complete as it is going to be.
    pub(super) fn is_full(&self, now: Duration) -> bool {
        if self.started < self.wanted {
            return self.is_usable() && now.saturating_sub(self.since) >= LONG;
        }
        if self.ended == self.started {
            return true;
        }
        let waited = micros(now.saturating_sub(self.until));
        let mean = part(self.sum, self.ended.into());
        self.is_usable() && waited > mean.saturating_mul(PATIENCE)
    }

    /// Whether the sample is large enough to conclude from.
    pub(super) const fn is_usable(&self) -> bool {
        self.ended >= FEW
    }

    /// Whether the latency is above this for sure.
    pub(super) fn is_above(&self, latency: u64) -> bool {
        let mean = mean_of(self.ended, self.sum, self.squares, 1);
        mean.latency.saturating_sub(mean.error.saturating_mul(2)) > latency
    }

    /// Empties the sample, and returns its mean. A call that has not ended counts with its time so
    /// far, or with `most`.
    pub(super) fn take(&mut self, most: u64, now: Duration) -> Mean {
        let pending = u64::from(self.started.saturating_sub(self.ended));
        let running = pending
            .saturating_mul(micros(now))
            .saturating_sub(self.starts);
        let age = running.checked_div(pending).unwrap_or_default().min(most);
        let sum = self.sum.saturating_add(age.saturating_mul(pending));
        let squares = age.saturating_mul(age).saturating_mul(pending);
        let squares = self.squares.saturating_add(squares);
        let mean = mean_of(self.started, sum, squares, self.in_flight);
        if mean.error.saturating_mul(VAGUE) > mean.latency {
            self.wanted = self.wanted.saturating_mul(2).min(MANY);
        } else {
            self.wanted = (self.wanted / 2).max(self.least);
        }
        self.clear();
        mean
    }

    /// Empties the sample.
    pub(super) fn clear(&mut self) {
        let Self {
            id, least, wanted, ..
        } = *self;
        *self = Self {
            id: id.wrapping_add(1),
            wanted,
            ..Self::new(least)
        };
    }
}

fn mean_of(count: u32, sum: u64, squares: u64, in_flight: u64) -> Mean {
    let count = u64::from(count.max(1));
    let latency = part(sum, count);
    let variance = part(squares, count).saturating_sub(latency.saturating_mul(latency));
    Mean {
        latency,
        error: part(variance, count).isqrt(),
        in_flight: part(in_flight, count).max(1),
    }
}

fn part(sum: u64, count: u64) -> u64 {
    sum.checked_div(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_sample_has_a_mean_and_an_error() {
        let mut sample = Latencies::new(16);
        for (took, in_flight) in [(80, 4), (120, 8)].repeat(8) {
            let id = sample.start(in_flight, at(0)).unwrap();
            sample.end(id, at(0), took);
        }
        assert!(sample.is_full(at(120)));
        assert!(
            sample.start(1, at(120)).is_none(),
            "no more calls belong to it"
        );
        let mean = sample.take(1_000, at(120));
        assert_eq!((mean.latency, mean.error, mean.in_flight), (100, 5, 6));
        assert!(!sample.is_usable(), "it is empty again");
    }

    #[test]
    fn slow_calls_count_before_they_end() {
        let mut sample = Latencies::new(10);
        let calls: Vec<_> = (0..10).filter_map(|_| sample.start(1, at(0))).collect();
        for id in &calls[..8] {
            sample.end(*id, at(0), 100);
        }
        for (now, is_full) in [(100, false), (400, false), (401, true)] {
            assert_eq!(sample.is_full(at(now)), is_full, "at {now}");
        }
        let mut clipped = sample;
        assert_eq!(sample.take(1_000, at(600)).latency, 200);
        assert_eq!(clipped.take(300, at(600)).latency, 140, "one that hangs");
        sample.end(calls[8], at(0), 700);
        assert_eq!(sample.ended, 0, "it belongs to an earlier sample");
    }

    #[test]
    fn a_vague_sample_is_followed_by_a_larger_one() {
        let mut sample = Latencies::new(16);
        for (round, wanted) in [(1, 32), (2, 64), (3, 32)] {
            while let Some(id) = sample.start(1, at(0)) {
                let took = if sample.started == 1 && round < 3 {
                    100_000
                } else {
                    10
                };
                sample.end(id, at(0), took);
            }
            sample.take(1_000_000, at(0));
            assert_eq!(sample.wanted, wanted, "round {round}");
        }
    }
}
