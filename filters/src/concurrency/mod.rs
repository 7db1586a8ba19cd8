//! How many calls a URL of the node gets concurrently, and which clients wait or are refused.
//!
//! In: the start and the end of each call, with its latency, and the client that it is for. Out: a
//! call starts, waits, or is refused at once. [`Admission`] combines the parts, one for each URL
//! and each [`CostClass`]: `limit` learns the number of concurrent calls from latencies, as TCP
//! Vegas and gradient controllers do; `shares` orders the clients that wait. A waiting call is
//! refused when a better claim needs its place, or by its driver after [`MAX_WAIT`].
//!
//! It never reads a clock: times are arguments. Reading order: `cost`, `admission`, `limit`,
//! `latencies`, `in_flight`, `shares`.

mod admission;
mod cost;
mod in_flight;
mod latencies;
mod limit;
mod shares;

pub use admission::{Admission, AdmissionStats, Ended, Entry, Place, ReadStats, Started};
pub use cost::CostClass;

use core::time::Duration;

/// How long a call may wait in all: a longer wait would make its answer late as well.
pub const MAX_WAIT: Duration = Duration::from_millis(500);

/// A duration in whole microseconds.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The average of a newest value and earlier ones, which count this often.
fn average(earlier: u64, count: u64, newest: u64) -> u64 {
    let sum = earlier.saturating_mul(count).saturating_add(newest);
    sum.checked_div(count.saturating_add(1)).unwrap_or_default()
}
