//! Monotonic time as the pure crate takes it: the time since a start that all of the process share.

use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// A day: events of another process from before the start of this one have a time, too.
const HEAD_START: Duration = Duration::from_secs(24 * 60 * 60);

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The current time.
pub fn now() -> Duration {
    of(Instant::now())
}

/// The time of an instant; zero if it is more than a day before the start.
pub fn of(instant: Instant) -> Duration {
    match instant.checked_duration_since(*START) {
        Some(since) => HEAD_START + since,
        None => HEAD_START.saturating_sub(START.saturating_duration_since(instant)),
    }
}

/// The instant of a time.
pub fn instant(time: Duration) -> Instant {
    let later = *START + time.saturating_sub(HEAD_START);
    let earlier = later.checked_sub(HEAD_START.saturating_sub(time));
    earlier.unwrap_or(later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_before_the_start_has_a_time() {
        let second = Duration::from_secs(1);
        for (at, time) in [
            (*START, HEAD_START),
            (*START + second, HEAD_START + second),
            (*START - second, HEAD_START - second),
        ] {
            assert_eq!(of(at), time);
            assert_eq!(instant(time), at);
        }
    }
}
