//! The wall clock and its units: microseconds since 1970 UTC.

use std::time::{Duration, SystemTime};

pub use portcullis_filters::operation::LAST_SECOND;

/// The current time.
pub fn now_us() -> i64 {
    micros(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// A duration in microseconds, at most `i64::MAX`.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
