//! A value from elsewhere: fetched by one, kept for all.
//!
//! Fresh for a time; then whoever comes first fetches it again, while the others go on with the old
//! one, or wait if there is none. When that fails, the old one serves on for a longer time. No
//! failure is repeated at once.

use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

/// What is not there is looked for again after this.
const ABSENT: Duration = Duration::from_secs(60);
/// What can not be had is tried again after this: an outage should not last longer than it does.
const UNAVAILABLE: Duration = Duration::from_secs(5);
/// A fresh value is fetched again for a token that it does not fit at most this often: anybody can
/// make such tokens.
const RENEWAL: Duration = Duration::from_secs(30);

/// For how long a value serves.
pub(super) struct Terms {
    pub(super) fresh: Duration,
    /// When it can not be fetched again.
    pub(super) stale: Duration,
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Surely there is none.
    Absent,
    /// It can not be had at present.
    Unavailable,
}

/// A value, and when it is fetched.
#[derive(Debug)]
pub(super) struct Kept<V> {
    last: ArcSwapOption<Dated<V>>,
    flight: Mutex<Flight>,
}

#[derive(Debug)]
struct Dated<V> {
    value: Arc<V>,
    at: SystemTime,
}

#[derive(Debug, Default)]
struct Flight {
    failed: Option<(Failure, SystemTime)>,
    /// When it was last fetched again, and why in vain.
    renewed: Option<(SystemTime, Option<Failure>)>,
}

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Self { last: ArcSwapOption::empty(), flight: Mutex::default() }
    }
}

impl<V> Kept<V> {
    /// The value, fetched now if there is no fresh one.
    pub(super) async fn get(
        &self,
        terms: &Terms,
        now: SystemTime,
        fetch: impl Future<Output = Result<V, Failure>>,
    ) -> Result<Arc<V>, Failure> {
        if let Some(fresh) = self.within(terms.fresh, now) {
            return Ok(fresh);
        }
        let mut flight = match self.flight.try_lock() {
            Ok(flight) => flight,
            Err(_) => match self.within(terms.stale, now) {
                Some(stale) => return Ok(stale),
                None => self.flight.lock().await,
            },
        };
        // meanwhile another one may have fetched it, or tried to
        if let Some(fresh) = self.within(terms.fresh, now) {
            return Ok(fresh);
        }
        let failure = match flight.failed {
            Some((failure, at)) if age(at, now) < failure.pause() => failure,
            _ => match fetch.await {
                Ok(value) => {
                    flight.failed = None;
                    return Ok(self.keep(value, now));
                }
                Err(failure) => {
                    flight.failed = Some((failure, now));
                    failure
                }
            },
        };
        match failure {
            Failure::Absent => Err(failure),
            Failure::Unavailable => self.within(terms.stale, now).ok_or(failure),
        }
    }

    /// Another value than the one `seen`, which did not fit: fetched now, unless that was done a
    /// short time ago. A failure is told for as long as it is not tried again.
    pub(super) async fn renew(
        &self,
        seen: &Arc<V>,
        now: SystemTime,
        fetch: impl Future<Output = Result<V, Failure>>,
    ) -> Result<Option<Arc<V>>, Failure> {
        let mut flight = self.flight.lock().await;
        if let Some(last) = &*self.last.load()
            && !Arc::ptr_eq(&last.value, seen)
        {
            return Ok(Some(Arc::clone(&last.value)));
        }
        match flight.renewed {
            Some((at, None)) if age(at, now) < RENEWAL => return Ok(None),
            Some((at, Some(failure))) if age(at, now) < failure.pause() => return Err(failure),
            _ => {}
        }
        let renewed = fetch.await;
        flight.renewed = Some((now, renewed.as_ref().err().copied()));
        Ok(Some(self.keep(renewed?, now)))
    }

    fn keep(&self, value: V, at: SystemTime) -> Arc<V> {
        let value = Arc::new(value);
        self.last.store(Some(Arc::new(Dated { value: Arc::clone(&value), at })));
        value
    }

    fn within(&self, life: Duration, now: SystemTime) -> Option<Arc<V>> {
        let last = self.last.load();
        last.as_ref().filter(|last| age(last.at, now) < life).map(|last| Arc::clone(&last.value))
    }
}

impl Failure {
    fn pause(self) -> Duration {
        match self {
            Self::Absent => ABSENT,
            Self::Unavailable => UNAVAILABLE,
        }
    }
}

/// How far two times are apart: a clock that was set back must not make anything last.
fn age(at: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(at).unwrap_or_else(|earlier| earlier.duration())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::future::{pending, ready};

    const TERMS: Terms = Terms { fresh: Duration::from_secs(10), stale: Duration::from_secs(60) };

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + second)
    }

    /// What is had at once.
    fn get(kept: &Kept<u8>, second: u64, fetched: u8) -> Option<u8> {
        let value = kept.get(&TERMS, at(second), ready(Ok(fetched))).now_or_never()?;
        value.ok().map(|value| *value)
    }

    #[test]
    fn while_one_fetches_the_others_go_on_with_what_there_is() {
        let kept = Kept::default();
        assert_eq!(get(&kept, 0, 1), Some(1));
        assert_eq!(get(&kept, 9, 2), Some(1), "fresh");
        let mut slow = Box::pin(kept.get(&TERMS, at(10), pending()));
        assert!((&mut slow).now_or_never().is_none(), "it fetches");
        assert_eq!(get(&kept, 59, 2), Some(1), "stale");
        assert_eq!(get(&kept, 60, 2), None, "too old: it waits");
        drop(slow);
        assert_eq!(get(&kept, 60, 2), Some(2), "the next one fetches");
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_last() {
        let kept = Kept::default();
        assert_eq!(get(&kept, 1000, 1), Some(1));
        assert_eq!(get(&kept, 999, 2), Some(1), "requests overtake each other");
        assert_eq!(get(&kept, 0, 2), Some(2));
    }
}
