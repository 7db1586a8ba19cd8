//! The wall clock and its units: microseconds since 1970 UTC; and durations in whole units.

use std::time::{Duration, SystemTime};

pub use portcullis_filters::operation::LAST_SECOND;

/// The current time.
pub fn now_us() -> i64 {
    micros(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// Seconds from `now_us` until a later time, rounded up; `None` if it is not later.
pub fn seconds_until(time_us: i64, now_us: i64) -> Option<u32> {
    let left = time_us.saturating_sub(now_us).saturating_add(999_999) / 1_000_000;
    u32::try_from(left).ok().filter(|seconds| *seconds > 0)
}

/// A duration in whole milliseconds, at most `u64::MAX`.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in microseconds, at most `i64::MAX`.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
