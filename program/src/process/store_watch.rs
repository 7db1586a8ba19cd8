//! Decides whether the store works, from the requests that failed because of it and from a probe.
//!
//! While nothing fails, the probe only reads. Reads succeed on a full disk, so after a failure only
//! a probe that writes can prove that it is over. Requests that continue to fail although the probe
//! writes, however few, are a failure of the store, too.

use std::time::{Duration, Instant};

/// How often the store is probed while nothing is wrong.
const INTERVAL: Duration = Duration::from_secs(5);
/// How often the store is probed while something is wrong: the end is in the log within 10 s.
const SUSPECT_INTERVAL: Duration = Duration::from_secs(2);
/// Requests that fail again within this time after a successful write are an unexplained failure,
/// which ends once no request has failed for this time. It is longer than the interval of a sender
/// that repeats an event every 6 s.
const QUIET: Duration = Duration::from_secs(7);
/// The cause of a failure that the probe does not explain.
const UNEXPLAINED: &str = "requests fail, although a write of the probe succeeds";

/// The kinds of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// Reads a few rows.
    Read,
    /// Reads, and commits a write.
    Write,
}

/// The failures and probes of the store so far.
#[derive(Debug, Default)]
pub(super) struct StoreWatch {
    /// Requests that had failed by the last probe.
    failures: u64,
    /// When more failures were last seen.
    failed_at: Option<Instant>,
    /// Whether something has failed since a probe last wrote.
    is_suspect: bool,
    /// When a probe wrote after a failure.
    proven_at: Option<Instant>,
    /// Whether requests failed again shortly after that.
    recurs: bool,
}

impl StoreWatch {
    /// The next probe, when this many requests have failed because of the store since the start.
    pub(super) fn next(&mut self, failures: u64, now: Instant) -> Probe {
        if failures > self.failures {
            self.recurs |= is_recent(self.proven_at, now);
            self.failed_at = Some(now);
            self.is_suspect = true;
        }
        self.failures = failures;
        if self.is_suspect {
            Probe::Write
        } else {
            Probe::Read
        }
    }

    /// Why the store is failing, if it is; `failure` is the cause if the probe failed.
    pub(super) fn after(&mut self, failure: Option<String>, now: Instant) -> Option<String> {
        if failure.is_some() {
            self.is_suspect = true;
            self.recurs = false;
            self.proven_at = None;
            return failure;
        }
        if self.is_suspect {
            self.proven_at = Some(now);
        }
        self.recurs &= is_recent(self.failed_at, now);
        self.is_suspect = self.recurs;
        self.recurs.then(|| UNEXPLAINED.to_owned())
    }

    /// How long to wait for the next probe.
    pub(super) fn interval(&self) -> Duration {
        if self.is_suspect {
            SUSPECT_INTERVAL
        } else {
            INTERVAL
        }
    }
}

fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < QUIET)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes the store for `seconds`. `failures` is how many requests have failed by a second, and
    /// `works` whether reads and writes succeed then. Returns the seconds at which it is failing.
    fn failing(
        seconds: u64,
        failures: impl Fn(u64) -> u64,
        works: impl Fn(u64) -> [bool; 2],
    ) -> Vec<u64> {
        let (start, mut watch) = (Instant::now(), StoreWatch::default());
        let (mut at, mut found) = (0, Vec::new());
        while at < seconds {
            let now = start + Duration::from_secs(at);
            let probe = watch.next(failures(at), now);
            let [reads, writes] = works(at);
            let is_well = reads && (writes || probe == Probe::Read);
            if watch
                .after((!is_well).then(|| "full".to_owned()), now)
                .is_some()
            {
                found.push(at);
            }
            at += watch.interval().as_secs();
        }
        found
    }

    fn every(interval: u64) -> impl Fn(u64) -> u64 {
        move |second| second / interval
    }

    #[test]
    fn only_reads_are_probed_while_nothing_fails() {
        let mut watch = StoreWatch::default();
        for second in 0..100 {
            let now = Instant::now() + Duration::from_secs(second);
            assert_eq!(watch.next(0, now), Probe::Read);
            assert_eq!(watch.after(None, now), None);
            assert_eq!(watch.interval(), INTERVAL);
        }
    }

    #[test]
    fn a_full_disk_is_reported_until_a_write_succeeds() {
        // one event every 20 s, from the first second on; the disk is full until 60
        let found = failing(
            100,
            |second| second.min(60).div_ceil(20),
            |second| [true, second >= 60],
        );
        let first = found.first().copied();
        assert_eq!(first, Some(5), "the first probe after the first failure");
        let expected: Vec<u64> = (5..60).step_by(2).collect();
        assert_eq!(found, expected, "without a gap, and not beyond its end");
    }

    #[test]
    fn a_store_that_was_away_must_write_again() {
        let found = failing(60, |_| 0, |second| [second >= 20, second >= 30]);
        assert_eq!(
            found,
            (0..30).step_by(2).collect::<Vec<_>>(),
            "also while it only reads"
        );
    }

    #[test]
    fn a_single_failure_that_is_over_is_none() {
        let found = failing(60, |second| u64::from(second >= 7), |_| [true, true]);
        assert_eq!(found, [0; 0]);
    }

    #[test]
    fn requests_that_keep_failing_are_a_failure_however_few() {
        let found = failing(120, |second| every(6)(second.min(60)), |_| [true, true]);
        let (first, last) = (found.first().copied(), found.last().copied());
        assert!(first.is_some_and(|first| first <= 20), "{found:?}");
        assert!(
            last.is_some_and(|last| (60..70).contains(&last)),
            "{found:?}"
        );
        let gaps = found
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > SUSPECT_INTERVAL.as_secs());
        assert_eq!(gaps.count(), 0, "without a gap: {found:?}");
    }

    #[test]
    fn rare_failures_that_are_over_are_none() {
        assert_eq!(failing(600, every(30), |_| [true, true]), [0; 0]);
    }
}
