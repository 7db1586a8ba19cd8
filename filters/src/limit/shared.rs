//! The limiter that threads share.
//!
//! In and out as [`Limiter`], behind `&self`. Clients are spread over shards by their hash, each
//! behind its own lock, which is held only while a request is judged.
//!
//! A panic while a lock is held never spreads through it: these locks are not poisoned.
//! Next: `limit`, where a request is judged.

use alloc::boxed::Box;
use core::hash::BuildHasher;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use parking_lot::{Mutex, MutexGuard};

use super::{Limiter, Millis, Quota, Standing};
use crate::client::ClientKey;

/// 16 shards in all: enough that a dozen threads seldom meet at one lock.
const FURTHER_SHARDS: usize = 15;

/// Below this, one shard holds all: several would have too few clients each to be alike.
const SHARDED_FROM: u32 = 4096;

/// An exact sliding-window limiter for any number of threads.
///
/// The places for clients are counted over all shards: nobody is forgotten while one is free, and
/// no more than `capacity` clients are held. When all are taken, the one that goes is the least
/// recently seen of the newcomer's shard. A capacity below 4,096 has one shard, so that is the
/// least recently seen of all. Above it, shards differ in size as chance has it: with 100,000
/// clients, the one that goes is among the least recently seen 4 % or so.
#[derive(Debug)]
pub struct SharedLimiter<S> {
    hasher: S,
    first: Mutex<Limiter<S>>,
    further: Box<[Mutex<Limiter<S>>]>,
    capacity: u32,
    places_taken: AtomicU32,
}

impl<S: BuildHasher + Clone> SharedLimiter<S> {
    /// A limiter that remembers at most `capacity` clients.
    ///
    /// Clients choose their keys, so the hasher should be keyed with chance; its clones must hash
    /// as it does.
    #[must_use]
    pub fn new(quota: Quota, capacity: NonZeroU32, hasher: S) -> Self {
        let further = if capacity.get() < SHARDED_FROM { 0 } else { FURTHER_SHARDS };
        let shard = || Mutex::new(Limiter::new(quota, capacity, hasher.clone()));
        Self {
            first: shard(),
            further: core::iter::repeat_with(shard).take(further).collect(),
            hasher,
            capacity: capacity.get(),
            places_taken: AtomicU32::new(0),
        }
    }

    /// Judges a request, counts it if it passes, and notes that the client was seen.
    pub fn check(&self, client: ClientKey, now: Millis) -> Standing {
        let hash = self.hasher.hash_one(client);
        self.shard(hash).check_hashed(hash, client, now, || self.take_place())
    }

    /// Tells what [`SharedLimiter::check`] would, but counts nothing and notes nothing.
    #[must_use]
    pub fn peek(&self, client: ClientKey, now: Millis) -> Standing {
        let hash = self.hasher.hash_one(client);
        self.shard(hash).peek_hashed(hash, client, now)
    }

    /// Changes the quota, shard by shard. What is known of the clients stays known.
    pub fn set_quota(&self, quota: Quota) {
        self.shards().for_each(|mut shard| shard.set_quota(quota));
    }

    /// How many clients are remembered.
    #[must_use]
    pub fn population(&self) -> u32 {
        self.shards().fold(0, |sum, shard| sum.saturating_add(shard.len()))
    }

    /// How many clients were forgotten to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.shards().fold(0, |sum, shard| sum.saturating_add(shard.evicted()))
    }

    /// The bytes in use, without the allocator's own.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let locks = size_of_val(&*self.further).saturating_add(size_of::<Self>());
        self.shards().fold(locks, |sum, shard| sum.saturating_add(shard.heap_bytes()))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Limiter<S>> {
        // Four bits that the shard's own index makes no use of: it takes the lowest and highest.
        let number = usize::try_from(hash >> 32 & 15).unwrap_or(0);
        self.further.get(number).unwrap_or(&self.first).lock()
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Limiter<S>>> {
        self.locks().map(Mutex::lock)
    }

    /// Takes a free place, if there is one, for a client that is about to be inserted.
    fn take_place(&self) -> bool {
        let next = |taken: u32| (taken < self.capacity).then(|| taken.saturating_add(1));
        self.places_taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl<S> SharedLimiter<S> {
    /// Every shard, for whoever locks them for a moment only.
    pub(super) fn locks(&self) -> impl Iterator<Item = &Mutex<Limiter<S>>> {
        core::iter::once(&self.first).chain(&self.further)
    }
}
