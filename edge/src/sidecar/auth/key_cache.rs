//! Public keys of third parties, fetched on demand and cached.
//!
//! A fetched value is fresh for a time. After that the first caller fetches it again, while others
//! use the stale value. If the fetch fails, the stale value is used until it is too old, and the
//! fetch is not repeated at once.
//!
//! A fetch may need a permit. The caller waits for it before the fetch starts, so that a client
//! without a permit does not delay others that need the same value.

use portcullis_base::io::shared::Shared;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause after a fetch that found no key.
const ABSENT: Duration = Duration::from_secs(60);
/// Pause after a fetch that got no answer: short, so that an outage is not prolonged.
const UNAVAILABLE: Duration = Duration::from_secs(5);
/// Pause between two renewals: anybody can make tokens that fit no key.
const RENEWAL: Duration = Duration::from_secs(30);

/// How long a fetched value is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) fresh: Duration,
    /// The limit while the value cannot be fetched again.
    pub(super) stale: Duration,
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The value does not exist.
    Absent,
    /// The value cannot be fetched at present.
    Unavailable,
}

/// Values by the name of their owner.
#[derive(Debug)]
pub(super) struct KeyCache<V> {
    lifetime: Lifetime,
    /// Each with the time of its fetch.
    values: Arc<Cache<String, (Arc<V>, Instant)>>,
    fetches: Shared<(String, Purpose), Result<Arc<V>, Failure>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// There is no fresh value.
    Refresh,
    /// The fresh value does not fit a token.
    Renew,
}

impl<V: Send + Sync + 'static> KeyCache<V> {
    pub(super) fn new(capacity: usize, lifetime: Lifetime) -> Self {
        let values = Arc::new(Cache::new(capacity));
        Self {
            lifetime,
            values,
            fetches: Shared::new(capacity, |_| 1),
        }
    }

    /// Returns the value, fetched now if the cached one is not fresh.
    pub(super) async fn get<P, F: Future<Output = Result<V, Failure>> + Send + 'static>(
        &self,
        name: &str,
        permit: impl Future<Output = Option<P>>,
        fetch: impl FnOnce(Option<P>) -> F,
    ) -> Result<Arc<V>, Failure> {
        let fresh = || self.younger_than(self.lifetime.fresh, name);
        if let Some(fresh) = fresh() {
            return Ok(fresh);
        }
        let stale = || self.younger_than(self.lifetime.stale, name);
        if self
            .fetches
            .is_running(&(name.to_owned(), Purpose::Refresh))
            && let Some(stale) = stale()
        {
            return Ok(stale);
        }
        let fetched = match self.permit(name, Purpose::Refresh, permit).await {
            Ok(permit) => match fresh() {
                Some(fresh) => return Ok(fresh),
                None => self.fetch(name, Purpose::Refresh, fetch(permit)).await,
            },
            Err(failure) => Err(failure),
        };
        match fetched {
            Err(Failure::Unavailable) => stale().ok_or(Failure::Unavailable),
            fetched => fetched,
        }
    }

    /// Returns a newer value than `seen`, which did not fit. It is fetched at most every
    /// [`RENEWAL`]; a failure is returned until the next attempt.
    pub(super) async fn renew<P, F: Future<Output = Result<V, Failure>> + Send + 'static>(
        &self,
        name: &str,
        seen: &Arc<V>,
        permit: impl Future<Output = Option<P>>,
        fetch: impl FnOnce(Option<P>) -> F,
    ) -> Result<Option<Arc<V>>, Failure> {
        let other = |value: &Arc<V>| !Arc::ptr_eq(value, seen);
        if let Some(newer) = self.values.get(name).map(|(value, _)| value).filter(other) {
            return Ok(Some(newer));
        }
        let permit = self.permit(name, Purpose::Renew, permit).await?;
        Ok(Some(self.fetch(name, Purpose::Renew, fetch(permit)).await?).filter(other))
    }

    /// Waits for the permit of a new fetch. A fetch that is running, or whose result is cached,
    /// needs none.
    async fn permit<P>(
        &self,
        name: &str,
        purpose: Purpose,
        permit: impl Future<Output = Option<P>>,
    ) -> Result<Option<P>, Failure> {
        if self.fetches.is_known(&(name.to_owned(), purpose)) {
            return Ok(None);
        }
        permit.await.map(Some).ok_or(Failure::Unavailable)
    }

    async fn fetch(
        &self,
        name: &str,
        purpose: Purpose,
        fetch: impl Future<Output = Result<V, Failure>> + Send + 'static,
    ) -> Result<Arc<V>, Failure> {
        let (values, owner) = (Arc::clone(&self.values), name.to_owned());
        let compute = async move {
            let at = Instant::now();
            match fetch.await {
                Ok(value) => {
                    let value = Arc::new(value);
                    values.insert(owner, (Arc::clone(&value), at));
                    (Ok(value), purpose.pause())
                }
                Err(failure) => (Err(failure), failure.pause()),
            }
        };
        let fetched = self.fetches.get((name.to_owned(), purpose), compute).await;
        fetched.unwrap_or(Err(Failure::Unavailable))
    }

    fn younger_than(&self, age: Duration, name: &str) -> Option<Arc<V>> {
        self.values
            .get(name)
            .filter(|(_, at)| at.elapsed() < age)
            .map(|(value, _)| value)
    }
}

impl Purpose {
    /// Pause after a fetch that succeeded.
    fn pause(self) -> Duration {
        match self {
            Self::Refresh => Duration::ZERO,
            Self::Renew => RENEWAL,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::time::{advance, timeout};

    #[tokio::test(start_paused = true)]
    async fn others_use_the_stale_value_during_a_fetch() {
        let [fresh, stale] = [10, 60].map(Duration::from_secs);
        let cache = KeyCache::new(8, Lifetime { fresh, stale });
        let get = async |fetched: u8| {
            let value = cache.get("a", ready(Some(())), |_| ready(Ok(fetched)));
            timeout(Duration::from_millis(1), value)
                .await
                .ok()?
                .ok()
                .map(|value| *value)
        };
        assert_eq!(get(1).await, Some(1));
        advance(Duration::from_secs(9)).await;
        assert_eq!(get(2).await, Some(1), "fresh");
        advance(Duration::from_secs(1)).await;
        let slow = cache.get("a", ready(Some(())), |_| pending());
        let slow = timeout(Duration::from_millis(1), slow);
        assert!(
            slow.await.is_err(),
            "it fetches, and goes on when its caller leaves"
        );
        advance(Duration::from_secs(49)).await;
        assert_eq!(get(2).await, Some(1), "stale");
        advance(Duration::from_secs(1)).await;
        assert_eq!(get(2).await, None, "too old: it waits");
    }
}
