//! The wall clock and its units: microseconds since 1970 UTC.

use std::time::{Duration, SystemTime};

/// 9999-12-31T23:59:59Z in seconds since 1970: the last second of RFC 3339 and HTTP dates.
pub const LAST_SECOND: u64 = 253_402_300_799;

/// The current time.
pub fn now_us() -> i64 {
    micros(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// A duration in microseconds, at most `i64::MAX`.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
