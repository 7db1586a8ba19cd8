//! The rate limiter that threads share.
//!
//! In: a client, and a time that does not decrease. Out: its [`RateLimitStatus`]. Clients are
//! spread over shards by their hash. Each shard has a lock of its own, held only while a request is
//! judged; a panic under a lock does not poison it. A shard has its clients in the order in which
//! they were last seen, each with its window of admissions.

use super::recent::{Recent, Record};
use super::window::{Counted, Window};
use super::{Millis, Quota, RateLimitStatus, WINDOW_MILLIS, WINDOW_SECONDS};
use crate::client::ClientKey;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use parking_lot::Mutex;

/// 16 shards in all: enough that a dozen threads seldom meet at one lock.
const FURTHER_SHARDS: usize = 15;

/// Below this capacity there is one shard: several would differ too much in size.
const SHARDED_FROM: u32 = 4096;

/// How many windows a check trims after the quota was lowered, in less than a microsecond.
const TRIMMED_AT_ONCE: u32 = 4;

/// Clients that are read under one lock, within some microseconds.
pub(super) const STEP: u32 = 256;

/// An exact sliding-window limiter for any number of threads.
///
/// The places for clients are counted over all shards: no client is evicted while a place is free,
/// and at most `capacity` clients are stored. Without a free place a new client evicts the least
/// recently seen of its shard. A capacity below 4,096 has one shard, so that is the least recently
/// seen of all. Above it, shards differ in size by chance: with 100,000 clients, the evicted one is
/// among the 4 % or so that were seen least recently.
///
/// A client may have a quota of its own, which its requests bring. It may also have a value `T`
/// next to its window: both are evicted together.
#[derive(Debug)]
pub struct RateLimiter<S, T = ()> {
    hasher: S,
    first: Mutex<Shard<T>>,
    further: Box<[Mutex<Shard<T>>]>,
    capacity: u32,
    places_taken: AtomicU32,
}

impl<S> RateLimiter<S> {
    /// A limiter of at most `capacity` clients.
    ///
    /// Clients choose their keys, so the hasher should have a random key.
    #[must_use]
    pub fn new(quota: Quota, capacity: NonZeroU32, hasher: S) -> Self {
        Self::with_values(quota, capacity, hasher)
    }
}

impl<S, T> RateLimiter<S, T> {
    /// A limiter whose clients may have a value each: see [`RateLimiter::value_or_insert`].
    #[must_use]
    pub fn with_values(quota: Quota, capacity: NonZeroU32, hasher: S) -> Self {
        let further = if capacity.get() < SHARDED_FROM {
            0
        } else {
            FURTHER_SHARDS
        };
        let shard = || Mutex::new(Shard::new(quota));
        Self {
            hasher,
            first: shard(),
            further: core::iter::repeat_with(shard).take(further).collect(),
            capacity: capacity.get(),
            places_taken: AtomicU32::new(0),
        }
    }

    /// Changes the quota at `now`, shard by shard. Earlier admissions still count, even if the
    /// quota is raised again. From a minute after the quota was lowered, checks release the unused
    /// memory.
    pub fn set_quota(&self, quota: Quota, now: Millis) {
        self.shards()
            .for_each(|shard| shard.lock().set_quota(quota, now));
    }

    /// How many clients are stored.
    #[must_use]
    pub fn population(&self) -> u32 {
        self.shards().fold(0, |sum, shard| {
            sum.saturating_add(shard.lock().recent().len())
        })
    }

    /// How many clients were evicted to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.shards()
            .fold(0, |sum, shard| sum.saturating_add(shard.lock().evicted()))
    }

    /// The bytes in use, without the allocator's own. Reads every client.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let own = size_of_val(&*self.further).saturating_add(size_of::<Self>());
        self.shards().fold(own, |sum, shard| {
            sum.saturating_add(shard.lock().recent().heap_bytes())
        })
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Mutex<Shard<T>>> {
        core::iter::once(&self.first).chain(&self.further)
    }

    /// Takes a free slot for a new client; returns whether there was one.
    fn take_place(&self) -> bool {
        let next = |taken: u32| (taken < self.capacity).then(|| taken.saturating_add(1));
        self.places_taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .is_ok()
    }
}

impl<S: BuildHasher, T> RateLimiter<S, T> {
    /// Judges a request and counts it if it passes; the client becomes the most recently seen.
    pub fn check(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        self.judge(client, None, now)
    }

    /// Checks like [`RateLimiter::check`], by this quota in place of the common one.
    pub fn check_by(&self, client: ClientKey, quota: Quota, now: Millis) -> RateLimitStatus {
        self.judge(client, Some(quota), now)
    }

    /// Checks like [`RateLimiter::check_by`], but admits only while fewer than `most` requests
    /// count. This is atomic: of concurrent requests, no more than `most` pass.
    pub fn check_within(
        &self,
        client: ClientKey,
        quota: Quota,
        now: Millis,
        most: u32,
    ) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        let mut shard = self.shard(hash).lock();
        let own = shard.peek(hash, client, quota, now);
        let counted = quota.requests().saturating_sub(own.remaining);
        let Some(remaining) = most.checked_sub(counted.saturating_add(1)) else {
            return RateLimitStatus {
                admitted: false,
                remaining: 0,
                ..own
            };
        };
        let own = shard.check(hash, client, quota, now, || self.take_place());
        RateLimitStatus {
            remaining: own.remaining.min(remaining),
            ..own
        }
    }

    /// The status that [`RateLimiter::check`] would return; changes nothing.
    #[must_use]
    pub fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        let shard = self.shard(hash).lock();
        shard.peek(hash, client, shard.quota, now)
    }

    /// The status that [`RateLimiter::check_by`] would return; changes nothing.
    #[must_use]
    pub fn peek_by(&self, client: ClientKey, quota: Quota, now: Millis) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        self.shard(hash).lock().peek(hash, client, quota, now)
    }

    fn judge(&self, client: ClientKey, quota: Option<Quota>, now: Millis) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        let mut shard = self.shard(hash).lock();
        let quota = quota.unwrap_or(shard.quota);
        shard.check(hash, client, quota, now, || self.take_place())
    }

    /// The most clients that are stored.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many requests of the client count at `now`, whatever its quota is.
    #[must_use]
    pub fn admitted(&self, client: ClientKey, now: Millis) -> u32 {
        let left = self.peek_by(client, Quota::UNLIMITED, now).remaining;
        Quota::MAX.saturating_sub(left)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<T>> {
        // four bits that a shard's index does not use: it uses the lowest and the highest ones
        let number = usize::try_from(hash >> 32 & 15).unwrap_or(0);
        self.further.get(number).unwrap_or(&self.first)
    }
}

impl<S: BuildHasher, T: Clone> RateLimiter<S, T> {
    /// The client's value, created by `make` if it has none. The client becomes the most recently
    /// seen, and is added if it is new.
    pub fn value_or_insert(&self, client: ClientKey, make: impl FnOnce() -> T) -> T {
        let hash = self.hasher.hash_one(client);
        let mut shard = self.shard(hash).lock();
        match shard.see(hash, client, || self.take_place()) {
            Some(record) => record.value.get_or_insert_with(make).clone(),
            None => make(),
        }
    }

    /// The client's value, if it has one; changes nothing.
    #[must_use]
    pub fn value(&self, client: ClientKey) -> Option<T> {
        let hash = self.hasher.hash_one(client);
        self.shard(hash)
            .lock()
            .recent()
            .get(hash, client)?
            .value
            .clone()
    }

    /// The clients' values that match. Locks are taken in steps: no request waits for the whole
    /// walk.
    #[must_use]
    pub fn values(&self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let mut found = Vec::new();
        for shard in self.shards() {
            let mut from = Some(0);
            while let Some(number) = from {
                from = shard.lock().list_values(number, &matches, &mut found);
            }
        }
        found
    }
}

/// A part of the clients, behind one lock.
///
/// The limiter decides whether a new client has room; without room it evicts the least recently
/// seen one.
#[derive(Debug)]
pub(super) struct Shard<T> {
    recent: Recent<T>,
    quota: Quota,
    evicted: u64,
    trimming: Option<Trimming>,
}

/// Windows that may hold more than the quota, because it was lowered.
#[derive(Clone, Copy, Debug)]
struct Trimming {
    /// When their requests beyond the quota no longer count.
    due: Millis,
    /// The number of the next slot.
    next: u32,
}

impl<T> Shard<T> {
    pub(super) const fn new(quota: Quota) -> Self {
        Self {
            recent: Recent::new(),
            quota,
            evicted: 0,
            trimming: None,
        }
    }

    pub(super) fn recent(&self) -> &Recent<T> {
        &self.recent
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn set_quota(&mut self, quota: Quota, now: Millis) {
        if quota.requests() < self.quota.requests() {
            let due = Millis(now.0.saturating_add(WINDOW_MILLIS));
            self.trimming = Some(Trimming { due, next: 0 });
        }
        self.quota = quota;
    }

    /// Trims a few windows, if that is due.
    fn trim(&mut self, now: Millis) {
        let Some(Trimming { due, next }) = self.trimming.filter(|trimming| now >= trimming.due)
        else {
            return;
        };
        let end = next.saturating_add(TRIMMED_AT_ONCE);
        self.trimming = (next < self.recent.len()).then_some(Trimming { due, next: end });
        for number in next..end {
            if let Some(window) = self.recent.window_mut(number) {
                window.trim(now, self.quota);
            }
        }
    }

    /// Judges a request and counts it if it passes. `take_place` is called for a new client only.
    pub(super) fn check(
        &mut self,
        hash: u64,
        client: ClientKey,
        quota: Quota,
        now: Millis,
        take_place: impl FnOnce() -> bool,
    ) -> RateLimitStatus {
        self.trim(now);
        let record = self.see(hash, client, take_place);
        let Some(Record {
            window: Some(window),
            ..
        }) = record
        else {
            let window = Window::starting_at(now);
            let counted = window.counted(now, quota);
            if let Some(record) = record {
                record.window = Some(window);
            }
            return RateLimitStatus {
                admitted: true,
                ..status(counted, quota, now)
            };
        };
        let now = now.max(window.newest());
        let admitted = window.admit(now, quota);
        let counted = window.counted(now, quota);
        RateLimitStatus {
            admitted,
            ..status(counted, quota, now)
        }
    }

    /// The client's record; the client becomes the most recently seen, and is added if it is new.
    fn see(
        &mut self,
        hash: u64,
        client: ClientKey,
        take_place: impl FnOnce() -> bool,
    ) -> Option<&mut Record<T>> {
        let number = match self.recent.find(hash, client) {
            Some(number) => number,
            None if take_place() => self.recent.insert(hash, client),
            None => match self.recent.replace_oldest(hash, client) {
                Some(number) => {
                    self.evicted = self.evicted.saturating_add(1);
                    number
                }
                None => self.recent.insert(hash, client),
            },
        };
        self.recent.see(number)
    }

    /// Adds the values of [`STEP`] slots; returns the number of the next slot, if there is one.
    fn list_values(
        &self,
        from: u32,
        matches: impl Fn(&T) -> bool,
        found: &mut Vec<T>,
    ) -> Option<u32>
    where
        T: Clone,
    {
        let end = from.saturating_add(STEP);
        for number in from..end {
            let (_, record) = self.recent.at(number)?;
            found.extend(record.value.iter().filter(|value| matches(value)).cloned());
        }
        Some(end)
    }

    pub(super) fn peek(
        &self,
        hash: u64,
        client: ClientKey,
        quota: Quota,
        now: Millis,
    ) -> RateLimitStatus {
        let record = self.recent.get(hash, client);
        let Some(window) = record.and_then(|record| record.window.as_ref()) else {
            return status(None, quota, now);
        };
        let now = now.max(window.newest());
        status(window.counted(now, quota), quota, now)
    }
}

/// The status of the next request.
fn status(counted: Option<Counted>, quota: Quota, now: Millis) -> RateLimitStatus {
    let count = counted.map_or(0, |counted| counted.count);
    let remaining = quota.requests().saturating_sub(count);
    let age = counted.map_or(0, |counted| now.since(counted.oldest));
    let seconds = WINDOW_MILLIS.saturating_sub(age).div_ceil(1000);
    let reset_seconds = u32::try_from(seconds).unwrap_or(WINDOW_SECONDS).max(1);
    debug_assert!(
        reset_seconds <= WINDOW_SECONDS,
        "no wait exceeds the window"
    );
    RateLimitStatus {
        admitted: remaining > 0,
        remaining,
        reset_seconds,
    }
}
