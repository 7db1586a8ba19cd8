//! The rate limiter that threads share.
//!
//! In: a client and the time. Out: its [`RateLimitStatus`]. Clients are spread over shards by their
//! hash. Each shard has a lock of its own, held only while a request is judged; a panic under a
//! lock does not poison it. Next: `recent`.

use super::recent::{Counted, Recent, Window};
use super::{Millis, Quota, RateLimitStatus, WINDOW_MILLIS, WINDOW_SECONDS};
use crate::client::ClientKey;
use alloc::boxed::Box;
use core::hash::BuildHasher;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use parking_lot::Mutex;

/// 16 shards in all: enough that a dozen threads seldom meet at one lock.
const FURTHER_SHARDS: usize = 15;

/// Below this capacity there is one shard: several would have too few clients each to be alike.
const SHARDED_FROM: u32 = 4096;

/// After the quota was lowered, each check trims this many windows: less than a microsecond.
const TRIMMED_AT_ONCE: u32 = 4;

/// An exact sliding-window limiter for any number of threads.
///
/// The places for clients are counted over all shards: no client is evicted while a place is free,
/// and at most `capacity` clients are stored. Without a free place a new client evicts the least
/// recently seen of its shard. A capacity below 4,096 has one shard, so that is the least recently
/// seen of all. Above it, shards differ in size by chance: of 100,000 clients, the evicted one is
/// among the least recently seen 4 % or so.
#[derive(Debug)]
pub struct RateLimiter<S> {
    hasher: S,
    first: Mutex<Shard>,
    further: Box<[Mutex<Shard>]>,
    capacity: u32,
    places_taken: AtomicU32,
}

impl<S> RateLimiter<S> {
    /// A limiter of at most `capacity` clients.
    ///
    /// Clients choose their keys, so the hasher should have a random key.
    #[must_use]
    pub fn new(quota: Quota, capacity: NonZeroU32, hasher: S) -> Self {
        let further = if capacity.get() < SHARDED_FROM { 0 } else { FURTHER_SHARDS };
        let shard = || Mutex::new(Shard::new(quota));
        Self {
            hasher,
            first: shard(),
            further: core::iter::repeat_with(shard).take(further).collect(),
            capacity: capacity.get(),
            places_taken: AtomicU32::new(0),
        }
    }

    /// Changes the quota at `now`, shard by shard. Admissions before the change count on, also when
    /// the quota is raised again. After a minute, checks release the memory of a larger quota.
    pub fn set_quota(&self, quota: Quota, now: Millis) {
        self.shards().for_each(|shard| shard.lock().set_quota(quota, now));
    }

    /// How many clients are stored.
    #[must_use]
    pub fn population(&self) -> u32 {
        self.shards().fold(0, |sum, shard| sum.saturating_add(shard.lock().recent().len()))
    }

    /// How many clients were evicted to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.shards().fold(0, |sum, shard| sum.saturating_add(shard.lock().evicted()))
    }

    /// The bytes in use, without the allocator's own. Reads every client.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let own = size_of_val(&*self.further).saturating_add(size_of::<Self>());
        self.shards().fold(own, |sum, shard| sum.saturating_add(shard.lock().recent().heap_bytes()))
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        core::iter::once(&self.first).chain(&self.further)
    }

    /// Takes a free place for a new client, if there is one.
    fn take_place(&self) -> bool {
        let next = |taken: u32| (taken < self.capacity).then(|| taken.saturating_add(1));
        self.places_taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl<S: BuildHasher> RateLimiter<S> {
    /// Judges a request and counts it if it passes; the client is the most recently seen then.
    pub fn check(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        self.shard(hash).lock().check(hash, client, now, || self.take_place())
    }

    /// The status that [`RateLimiter::check`] would return; changes nothing.
    #[must_use]
    pub fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        self.shard(hash).lock().peek(hash, client, now)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // four bits that the index of a shard does not use: it takes the lowest and the highest
        let number = usize::try_from(hash >> 32 & 15).unwrap_or(0);
        self.further.get(number).unwrap_or(&self.first)
    }
}

/// A part of the clients, for one thread at a time.
///
/// The limiter decides whether a new client has room; without room it evicts the least recently
/// seen one.
#[derive(Debug)]
pub(super) struct Shard {
    recent: Recent,
    quota: Quota,
    evicted: u64,
    trimming: Option<Trimming>,
}

/// Windows that may hold more than the quota, because it was lowered.
#[derive(Clone, Copy, Debug)]
struct Trimming {
    /// When what they hold beyond the quota counts no more.
    due: Millis,
    /// The number of the next slot.
    next: u32,
}

impl Shard {
    pub(super) const fn new(quota: Quota) -> Self {
        Self { recent: Recent::new(), quota, evicted: 0, trimming: None }
    }

    pub(super) fn recent(&self) -> &Recent {
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
            let Some(window) = self.recent.window_mut(number) else { return };
            window.trim(now, self.quota);
        }
    }

    /// Judges a request and counts it if it passes. `take_place` is called for a new client only.
    pub(super) fn check(
        &mut self,
        hash: u64,
        client: ClientKey,
        now: Millis,
        take_place: impl FnOnce() -> bool,
    ) -> RateLimitStatus {
        self.trim(now);
        let Some(window) = self.recent.see(hash, client) else {
            let window = Window::starting_at(now);
            let status = self.status(window.counted(now, self.quota), now);
            if take_place() {
                self.recent.insert(hash, client, window);
            } else if self.recent.replace_oldest(hash, client, window) {
                self.evicted = self.evicted.saturating_add(1);
            }
            return RateLimitStatus { admitted: true, ..status };
        };
        let now = now.max(window.newest());
        let admitted = window.admit(now, self.quota);
        let counted = window.counted(now, self.quota);
        RateLimitStatus { admitted, ..self.status(counted, now) }
    }

    pub(super) fn peek(&self, hash: u64, client: ClientKey, now: Millis) -> RateLimitStatus {
        let Some(window) = self.recent.get(hash, client) else { return self.status(None, now) };
        let now = now.max(window.newest());
        self.status(window.counted(now, self.quota), now)
    }

    /// The status of the next request.
    fn status(&self, counted: Option<Counted>, now: Millis) -> RateLimitStatus {
        let count = counted.map_or(0, |counted| counted.count);
        let remaining = self.quota.requests().saturating_sub(count);
        let age = counted.map_or(0, |counted| now.since(counted.oldest));
        let seconds = WINDOW_MILLIS.saturating_sub(age).div_ceil(1000);
        let reset_seconds = u32::try_from(seconds).unwrap_or(WINDOW_SECONDS).max(1);
        RateLimitStatus { admitted: remaining > 0, remaining, reset_seconds }
    }
}
