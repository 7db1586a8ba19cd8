//! The clock of another machine, as its answers bound it.
//!
//! An answer was read somewhere between its request and its arrival, so it bounds the other clock
//! from both sides, and a slow answer bounds it loosely. The bounds of all answers apply together,
//! each widened by what the two clocks may have drifted since. A slow answer therefore never spoils
//! what a fast one has shown. Pure: the time of this machine's monotonic clock is an argument.

use core::time::Duration;

/// Two clocks drift apart by less than 1 ms per second; those that are disciplined, by half of it.
const DRIFT: i64 = 1_000;
/// A clock that is set back by less than this stands still meanwhile. One that is set back further
/// was wrong, and its correction applies at once.
const CORRECTION_US: i64 = 10_000_000;

/// An answer of the other clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Its time, in microseconds since 1970.
    pub read_us: i64,
    /// When the request was sent, by this machine's monotonic clock.
    pub sent: Duration,
    /// When the answer arrived.
    pub received: Duration,
}

/// Knowledge of the other clock at an instant of this machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteClock {
    at: Duration,
    earliest_us: i64,
    latest_us: i64,
    /// The estimate, which is within the bounds.
    estimate_us: i64,
    /// No later estimate is below this one.
    floor_us: i64,
}

impl RemoteClock {
    /// The knowledge after an answer. An answer that contradicts the bounds replaces them: one of
    /// the clocks was set.
    #[must_use]
    pub fn after(last: Option<Self>, reading: Reading) -> Self {
        let at = reading.received;
        let took = micros(at.saturating_sub(reading.sent));
        let earliest_us = reading.read_us;
        let latest_us = earliest_us.saturating_add(took);
        let fresh = Self {
            at,
            earliest_us,
            latest_us,
            estimate_us: earliest_us.midpoint(latest_us),
            floor_us: i64::MIN,
        };
        let Some(last) = last else { return fresh };
        let shown_us = last.now_us(at);
        let floor_us = if shown_us.saturating_sub(fresh.latest_us) < CORRECTION_US {
            shown_us
        } else {
            i64::MIN
        };
        let bounds = last.bounds(at);
        let earliest_us = earliest_us.max(bounds.0);
        let latest_us = latest_us.min(bounds.1);
        if earliest_us > latest_us {
            return Self { floor_us, ..fresh };
        }
        Self {
            at,
            earliest_us,
            latest_us,
            estimate_us: last.estimate(at).clamp(earliest_us, latest_us),
            floor_us,
        }
    }

    /// The other clock's time, in microseconds since 1970. It goes back only if the other clock was
    /// set back by more than 10 seconds.
    #[must_use]
    pub fn now_us(&self, now: Duration) -> i64 {
        self.estimate(now).max(self.floor_us)
    }

    /// How far [`now_us`](Self::now_us) may be from the other clock, in microseconds.
    #[must_use]
    pub fn error_us(&self, now: Duration) -> i64 {
        let (earliest_us, latest_us) = self.bounds(now);
        let now_us = self.now_us(now);
        let ahead = now_us.saturating_sub(earliest_us);
        ahead.max(latest_us.saturating_sub(now_us))
    }

    fn estimate(&self, now: Duration) -> i64 {
        self.estimate_us.saturating_add(self.elapsed_us(now))
    }

    /// The earliest and the latest time that the other clock may have now.
    fn bounds(&self, now: Duration) -> (i64, i64) {
        let elapsed = self.elapsed_us(now);
        let drift = elapsed.checked_div(DRIFT).unwrap_or(0);
        let earliest = self.earliest_us.saturating_add(elapsed);
        let latest = self.latest_us.saturating_add(elapsed);
        (earliest.saturating_sub(drift), latest.saturating_add(drift))
    }

    fn elapsed_us(&self, now: Duration) -> i64 {
        micros(now.saturating_sub(self.at))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: i64 = 1_000_000;
    /// The other clock when this machine's shows zero.
    const START: i64 = 1_700_000_000 * SECOND;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// An answer that was read after `there`, and arrived after `back` more.
    fn reading(sent: Duration, there: Duration, back: Duration, ahead_us: i64) -> Reading {
        let read = sent + there;
        Reading {
            read_us: START + ahead_us + micros(read),
            sent,
            received: read + back,
        }
    }

    #[test]
    fn a_slow_answer_does_not_shift_the_clock() {
        let fast = RemoteClock::after(None, reading(ms(0), ms(1), ms(1), 0));
        for (there, back) in [(0, 5_000), (5_000, 0)] {
            let slow = reading(ms(1_000), ms(there), ms(back), 0);
            let clock = RemoteClock::after(Some(fast), slow);
            let error = clock.now_us(ms(6_000)) - START - 6_000_000;
            assert!(error.abs() <= 2_000, "{there} ms there: {error} us");
            assert!(clock.error_us(ms(6_000)) <= 10_000);
        }
    }

    #[test]
    fn a_first_answer_that_is_slow_says_so() {
        let slow = RemoteClock::after(None, reading(ms(0), ms(0), ms(5_000), 0));
        assert_eq!(slow.error_us(ms(5_000)), 2_500_000);
        let fast = reading(ms(6_000), ms(1), ms(1), 0);
        let clock = RemoteClock::after(Some(slow), fast);
        let error = clock.now_us(ms(7_000)) - START - 7_000_000;
        assert!(error.abs() <= 2_500_000);
        let settled = clock.now_us(ms(10_000)) - START - 10_000_000;
        assert!(
            settled.abs() <= 10_000,
            "the fast one decides: {settled} us"
        );
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let clock = RemoteClock::after(None, reading(ms(0), ms(1), ms(1), 0));
        for (ahead, expected) in [
            (3_600 * SECOND, 3_600 * SECOND),
            (-3_600 * SECOND, -3_600 * SECOND),
            // it stands still until the other clock is there again
            (-5 * SECOND, 0),
        ] {
            let set = reading(ms(1_000), ms(1), ms(1), ahead);
            let clock = RemoteClock::after(Some(clock), set);
            let shown = clock.now_us(set.received) - START - micros(set.received);
            assert!((shown - expected).abs() <= 2_000, "{ahead}: {shown}");
            let later = set.received + Duration::from_secs(60);
            let shown = clock.now_us(later) - START - micros(later);
            assert!(
                (shown - ahead).abs() <= 2_000,
                "{ahead}: {shown} a minute later"
            );
        }
    }

    proptest! {
        #[test]
        fn the_estimate_is_within_its_error_and_never_goes_back(
            trips in prop::collection::vec((0_u64..5_000, 0_u64..5_000, 0_u64..10_000), 1..40)
        ) {
            let mut clock: Option<RemoteClock> = None;
            let mut now = Duration::ZERO;
            for (there, back, pause) in trips {
                let answer = reading(now, ms(there), ms(back), 0);
                let before = clock.map(|clock| clock.now_us(answer.received));
                let after = RemoteClock::after(clock, answer);
                let shown = after.now_us(answer.received);
                prop_assert!(before.is_none_or(|before| before <= shown));
                now = answer.received + ms(pause);
                let error = (after.now_us(now) - START - micros(now)).abs();
                prop_assert!(error <= after.error_us(now), "{} us", error);
                clock = Some(after);
            }
        }
    }
}
