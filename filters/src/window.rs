//! A window of time that ends now: which stored instants count for a limit, and until when.
//!
//! A limit holds "within any day", by the clock that dated its rows. A clock that was ahead for a
//! moment dates rows in the future. These are dated anew when they are first seen
//! ([`ahead_after_us`]), so that they count for one window from then on. Until that is stored, rows
//! up to one window ahead count as if they were dated now, and rows further ahead do not count. No
//! wait is longer than the window.

/// A window of time. Instants are in microseconds since 1970, by any clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    now_us: i64,
    length_us: i64,
}

impl Window {
    /// The window of this length that ends at `now_us`.
    #[must_use]
    pub const fn new(now_us: i64, length_us: i64) -> Self {
        debug_assert!(length_us >= 0, "a window ends no earlier than it begins");
        Self { now_us, length_us }
    }

    /// The window of the instants after `after_us`, up to `until_us`.
    #[must_use]
    pub const fn between(after_us: i64, until_us: i64) -> Self {
        let length_us = until_us.saturating_sub(after_us) / 2;
        let now_us = until_us.saturating_sub(length_us);
        Self { now_us, length_us }
    }

    /// The instant after which a row counts.
    #[must_use]
    pub const fn after_us(self) -> i64 {
        self.now_us.saturating_sub(self.length_us)
    }

    /// The last instant at which a row counts.
    #[must_use]
    pub const fn until_us(self) -> i64 {
        self.now_us.saturating_add(self.length_us)
    }

    /// Whether a row dated `at_us` counts.
    #[must_use]
    pub const fn counts(self, at_us: i64) -> bool {
        self.after_us() < at_us && at_us <= self.until_us()
    }

    /// When a row that counts now stops counting: at most one window from now.
    #[must_use]
    pub fn end_us(self, at_us: i64) -> i64 {
        at_us.min(self.now_us).saturating_add(self.length_us)
    }

    /// Until when a row dated `at_us` forbids another one; `None` if it does not.
    #[must_use]
    pub fn forbids_until_us(self, at_us: i64) -> Option<i64> {
        if !self.counts(at_us) {
            return None;
        }
        let end_us = self.end_us(at_us);
        debug_assert!(end_us > self.now_us, "what counts now forbids for a while");
        Some(end_us)
    }
}

/// 1 s: more than the clocks of the processes that share a store differ.
const SKEW_US: i64 = 1_000_000;
/// November 2021, in microseconds since 1970: Starknet is not older.
const EARLIEST_US: i64 = 1_637_000_000_000_000;

/// The instant after which a stored row is dated ahead of the clock, and has to be dated anew.
/// `None` if this clock is wrong itself, as after a start without a battery: then all rows are
/// ahead of it.
#[must_use]
pub const fn ahead_after_us(now_us: i64) -> Option<i64> {
    if now_us < EARLIEST_US {
        return None;
    }
    Some(now_us.saturating_add(SKEW_US))
}

/// Seconds from `now_us` until a later time, rounded up; `None` if it is not later.
#[must_use]
pub fn seconds_until(time_us: i64, now_us: i64) -> Option<u32> {
    let left = time_us.saturating_sub(now_us).saturating_add(999_999) / 1_000_000;
    u32::try_from(left).ok().filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: i64 = 24 * 60 * 60 * 1_000_000;
    const NOW: i64 = 1_700_000_000_000_000;

    #[test]
    fn a_row_counts_from_its_window_to_one_ahead() {
        let window = Window::new(NOW, DAY);
        for (at, until, why) in [
            (NOW - DAY, None, "a day old"),
            (NOW - DAY + 1, Some(NOW + 1), "the last moment"),
            (NOW - 5, Some(NOW - 5 + DAY), "a while ago"),
            (NOW, Some(NOW + DAY), "of now"),
            (NOW + 5, Some(NOW + DAY), "ahead: as if it were of now"),
            (NOW + DAY, Some(NOW + DAY), "a day ahead"),
            (NOW + DAY + 1, None, "further ahead"),
            (i64::MAX, None, "the end of time"),
            (i64::MIN, None, "its beginning"),
        ] {
            assert_eq!(window.forbids_until_us(at), until, "{why}");
        }
    }

    #[test]
    fn a_window_between_two_instants_counts_what_is_between() {
        for until in [NOW, NOW + 1] {
            let window = Window::between(NOW - DAY, until);
            for (at, counts) in [
                (NOW - DAY, false),
                (NOW - DAY + 2, true),
                (until, true),
                (until + 1, false),
            ] {
                assert_eq!(window.counts(at), counts, "{} of {until}", at - NOW);
            }
        }
        assert!(
            !Window::between(NOW, NOW - 1).counts(NOW - 1),
            "nothing is between"
        );
    }

    #[test]
    fn rows_are_ahead_of_a_plausible_clock_only() {
        assert_eq!(ahead_after_us(NOW), Some(NOW + SKEW_US));
        assert_eq!(ahead_after_us(0), None, "1970");
        assert_eq!(ahead_after_us(i64::MAX), Some(i64::MAX));
    }

    #[test]
    fn an_empty_window_forbids_nothing() {
        for at in [NOW - 1, NOW, NOW + 1] {
            assert_eq!(Window::new(NOW, 0).forbids_until_us(at), None);
        }
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_the_window(at: i64, now: i64, length in 0..=DAY * 366) {
            let window = Window::new(now, length);
            let end = window.end_us(at);
            prop_assert!(end <= now.saturating_add(length));
            if let Some(until) = window.forbids_until_us(at) {
                prop_assert!(until > now || until == i64::MAX);
                prop_assert_eq!(until, end);
            }
        }
    }
}
