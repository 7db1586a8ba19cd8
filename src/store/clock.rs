//! The clock, as the store counts: microseconds since 1970.

use std::time::{Duration, SystemTime};

/// Now.
pub fn now_us() -> i64 {
    micros(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
