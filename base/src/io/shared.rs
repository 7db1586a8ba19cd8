//! Single-flight with a cache: equal requests share one computation and, for a time, its result.
//!
//! In: a key and a future that computes its value. Out: the value, from the cache, from the
//! computation that is running for this key, or from a new one.
//!
//! Each computation runs in a task of its own and is recorded before it starts. A caller that goes
//! away (a reset HTTP/2 stream) therefore cancels nothing, fails no follower, and causes no second
//! computation. Time is tokio's clock.

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Computations that may run concurrently. Each has a deadline of its own, so only callers that
/// reset their requests at a high rate reach this.
const MAX_RUNNING: usize = 10_000;

/// Values by key, cached or being computed.
#[derive(Debug)]
pub struct Shared<K, V>(Arc<Mutex<Table<K, V>>>);

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborted {
    /// Too many other computations run: this one did not begin.
    NotBegun,
    /// The computation panicked or was shut down.
    Interrupted,
}

#[derive(Debug)]
struct Table<K, V> {
    entries: HashMap<K, Entry<V>>,
    running: usize,
    capacity: usize,
    /// The weight of all cached values.
    weight: usize,
    weigh: fn(&V) -> usize,
}

#[derive(Debug)]
enum Entry<V> {
    /// `Some` is sent when the computation ends; a panic closes the channel.
    Running(watch::Receiver<Option<V>>),
    Cached {
        value: V,
        until: Instant,
    },
}

impl<K, V> Shared<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates an empty table. It caches values up to a total weight of `capacity`; where every
    /// value weighs 1, that is their number.
    pub fn new(capacity: usize, weigh: fn(&V) -> usize) -> Self {
        let entries = HashMap::new();
        Self(Arc::new(Mutex::new(Table {
            entries,
            running: 0,
            capacity,
            weight: 0,
            weigh,
        })))
    }

    /// Returns the cached value, or the result of the computation that is running, or runs
    /// `compute`, which returns a value and how long to cache it, counted from its start. With a
    /// duration of zero the value serves the callers that are waiting for it and nobody else.
    ///
    /// # Errors
    /// Returns [`Aborted`] to the first caller and its followers alike. The error is not cached.
    pub async fn get(
        &self,
        key: K,
        compute: impl Future<Output = (V, Duration)> + Send + 'static,
    ) -> Result<V, Aborted> {
        let mut result = {
            let mut table = self.0.lock();
            match table.entries.get(&key) {
                Some(Entry::Running(result)) => result.clone(),
                Some(Entry::Cached { value, until }) if Instant::now() < *until => {
                    return Ok(value.clone());
                }
                _ if table.running >= MAX_RUNNING => return Err(Aborted::NotBegun),
                _ => {
                    let (sender, result) = watch::channel(None);
                    table.remove(&key);
                    table
                        .entries
                        .insert(key.clone(), Entry::Running(result.clone()));
                    table.running += 1;
                    tokio::spawn(run(Arc::clone(&self.0), key, sender, compute));
                    result
                }
            }
        };
        let value = result
            .wait_for(Option::is_some)
            .await
            .map_err(|_| Aborted::Interrupted)?;
        value.clone().ok_or(Aborted::Interrupted)
    }

    /// Whether a computation is running for this key.
    pub fn is_running(&self, key: &K) -> bool {
        matches!(self.0.lock().entries.get(key), Some(Entry::Running(_)))
    }

    /// Whether a value is cached for this key, or a computation is running.
    pub fn is_known(&self, key: &K) -> bool {
        match self.0.lock().entries.get(key) {
            Some(Entry::Cached { until, .. }) => Instant::now() < *until,
            known => known.is_some(),
        }
    }

    /// Forgets the value: the next caller computes it again. A running computation continues for
    /// its callers, but its result is not cached.
    pub fn invalidate(&self, key: &K) {
        self.0.lock().remove(key);
    }
}

async fn run<K: Eq + Hash, V: Clone>(
    table: Arc<Mutex<Table<K, V>>>,
    key: K,
    sender: watch::Sender<Option<V>>,
    compute: impl Future<Output = (V, Duration)>,
) {
    let started = Instant::now();
    let computed = AssertUnwindSafe(compute).catch_unwind().await.ok();
    let mut table = table.lock();
    table.running -= 1;
    let is_current = matches!(table.entries.get(&key),
        Some(Entry::Running(result)) if result.same_channel(&sender.subscribe()));
    if is_current {
        table.remove(&key);
    }
    if let Some((value, ttl)) = computed {
        let until = started + ttl;
        if is_current && until > Instant::now() {
            table.cache(key, value.clone(), until);
        }
        sender.send_replace(Some(value));
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(Entry::Cached { value, .. }) = self.entries.remove(key) {
            self.weight -= (self.weigh)(&value);
        }
    }

    /// Adds a value, unless it alone is too heavy. A full table is emptied first: values that live
    /// for seconds need no order of eviction.
    fn cache(&mut self, key: K, value: V, until: Instant) {
        let weight = (self.weigh)(&value);
        if weight > self.capacity {
            return;
        }
        if self.weight + weight > self.capacity {
            self.entries
                .retain(|_, entry| matches!(entry, Entry::Running(_)));
            self.weight = 0;
        }
        self.weight += weight;
        self.entries.insert(key, Entry::Cached { value, until });
    }
}
