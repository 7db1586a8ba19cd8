//! The rate limiter that threads share.
//!
//! In: a client, and a time that does not decrease. Out: its [`RateLimitStatus`]. Clients are
//! spread over shards by their hash. Each shard has a lock of its own, held only while a request is
//! judged; a panic under a lock does not poison it. A shard has its clients in the order in which
//! they were last seen, each with its window of admissions.

use super::{Millis, Quota, RateLimitStatus, WINDOW_MILLIS, WINDOW_SECONDS};
use crate::client::ClientKey;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::num::NonZeroU32;
use core::sync::atomic::{AtomicU32, Ordering};
use hashbrown::HashTable;
use parking_lot::Mutex;

/// 16 shards in all: enough that a dozen threads seldom meet at one lock.
const FURTHER_SHARDS: usize = 15;

/// Below this capacity there is one shard: several would have too few clients each to be alike.
const SHARDED_FROM: u32 = 4096;

/// After the quota was lowered, each check trims this many windows: less than a microsecond.
const TRIMMED_AT_ONCE: u32 = 4;

/// The number of no slot.
const NONE: u32 = u32::MAX;

/// Slots are added by this many and an eighth of those in use, so that little is unused.
const MORE_SLOTS: usize = 64;

/// Room in a ring that is allocated first.
const FIRST_ROOM: usize = 4;

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

    /// Checks like [`RateLimiter::check`] while fewer than `most` requests count, in one step: of
    /// requests that race, no more than `most` pass.
    pub fn check_within(&self, client: ClientKey, now: Millis, most: u32) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        let mut shard = self.shard(hash).lock();
        let own = shard.peek(hash, client, now);
        let counted = shard.quota.requests().saturating_sub(own.remaining);
        let Some(remaining) = most.checked_sub(counted.saturating_add(1)) else {
            return RateLimitStatus { admitted: false, remaining: 0, ..own };
        };
        let own = shard.check(hash, client, now, || self.take_place());
        RateLimitStatus { remaining: own.remaining.min(remaining), ..own }
    }

    /// The status that [`RateLimiter::check`] would return; changes nothing.
    #[must_use]
    pub fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        let hash = self.hasher.hash_one(client);
        self.shard(hash).lock().peek(hash, client, now)
    }

    /// How many clients are remembered at most.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many requests of the client count at `now`.
    #[must_use]
    pub fn admitted(&self, client: ClientKey, now: Millis) -> u32 {
        let hash = self.hasher.hash_one(client);
        let shard = self.shard(hash).lock();
        shard.quota.requests().saturating_sub(shard.peek(hash, client, now).remaining)
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

#[derive(Debug)]
struct Slot {
    hash: u64,
    client: ClientKey,
    newer: u32,
    older: u32,
    window: Window,
}

/// The clients in the order in which they were last seen, and the window of each. They lie in
/// numbered slots that are linked from the newest to the oldest; an index of slot numbers finds
/// them by hash.
///
/// It never decides how many clients are too many: its shard calls [`Recent::insert`] or
/// [`Recent::replace_oldest`]. A link to no slot ends the list, not the process.
#[derive(Debug)]
pub(super) struct Recent {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
}

impl Recent {
    const fn new() -> Self {
        Self { index: HashTable::new(), slots: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// The client in the slot of this number, and its window.
    pub(super) fn at(&self, number: u32) -> Option<(ClientKey, &Window)> {
        self.slot(number).map(|slot| (slot.client, &slot.window))
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    fn heap_bytes(&self) -> usize {
        let slots = self.slots.capacity().saturating_mul(size_of::<Slot>());
        let rings: usize = self.slots.iter().map(|slot| slot.window.heap_bytes()).sum();
        slots.saturating_add(rings).saturating_add(self.index.allocation_size())
    }

    /// The window in the slot of this number.
    fn window_mut(&mut self, number: u32) -> Option<&mut Window> {
        self.slot_mut(number).map(|slot| &mut slot.window)
    }

    fn get(&self, hash: u64, client: ClientKey) -> Option<&Window> {
        self.slot(self.find(hash, client)?).map(|slot| &slot.window)
    }

    /// The client's window; the client becomes the newest.
    fn see(&mut self, hash: u64, client: ClientKey) -> Option<&mut Window> {
        let number = self.find(hash, client)?;
        if number != self.newest {
            self.unlink(number);
            self.link_newest(number);
        }
        self.slot_mut(number).map(|slot| &mut slot.window)
    }

    /// Adds a client that is not there yet, as the newest.
    fn insert(&mut self, hash: u64, client: ClientKey, window: Window) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact((self.slots.len() / 8).saturating_add(MORE_SLOTS));
        }
        let number = self.len();
        self.slots.push(Slot { hash, client, newer: NONE, older: NONE, window });
        self.enter(number);
    }

    /// Does the same in the slot of the oldest client; returns whether there was one.
    fn replace_oldest(&mut self, hash: u64, client: ClientKey, window: Window) -> bool {
        let number = self.oldest;
        let Some(oldest) = self.slot(number) else {
            self.insert(hash, client, window);
            return false;
        };
        if let Ok(entry) = self.index.find_entry(oldest.hash, |other| *other == number) {
            entry.remove();
        }
        self.unlink(number);
        if let Some(slot) = self.slot_mut(number) {
            (slot.hash, slot.client, slot.window) = (hash, client, window);
        }
        self.enter(number);
        true
    }

    /// Indexes the slot and makes it the newest.
    fn enter(&mut self, number: u32) {
        let slots = &self.slots;
        let hash = |number: &u32| {
            let slot = usize::try_from(*number).ok().and_then(|number| slots.get(number));
            slot.map_or(0, |slot| slot.hash)
        };
        self.index.insert_unique(hash(&number), number, hash);
        self.link_newest(number);
    }

    fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(usize::try_from(number).ok()?)
    }

    fn slot_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(number).ok()?)
    }

    fn find(&self, hash: u64, client: ClientKey) -> Option<u32> {
        let is_it = |number: &u32| self.slot(*number).is_some_and(|slot| slot.client == client);
        self.index.find(hash, is_it).copied()
    }

    fn unlink(&mut self, number: u32) {
        let Some(slot) = self.slot(number) else { return };
        let (newer, older) = (slot.newer, slot.older);
        match self.slot_mut(newer) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slot_mut(older) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, number: u32) {
        let second = core::mem::replace(&mut self.newest, number);
        match self.slot_mut(second) {
            Some(slot) => slot.newer = number,
            None => self.oldest = number,
        }
        if let Some(slot) = self.slot_mut(number) {
            (slot.newer, slot.older) = (NONE, second);
        }
    }
}

/// The window of one client: a ring of two bytes per admission, at least one.
///
/// The newest time is stored whole, the earlier ones as their lowest 16 bits: none is 60,000 ms or
/// more before the newest, so 65,536 values tell them apart. A time that still counts is never
/// dropped.
#[derive(Debug)]
pub(super) struct Window {
    newest: Millis,
    /// The admissions before the newest, oldest first.
    earlier: VecDeque<u16>,
}

/// The admissions that count at some time; at least one, and at most the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) oldest: Millis,
    pub(super) count: u32,
}

impl Window {
    /// A window with one admission.
    const fn starting_at(now: Millis) -> Self {
        Self { newest: now, earlier: VecDeque::new() }
    }

    pub(super) fn newest(&self) -> Millis {
        self.newest
    }

    /// The admissions it holds: at least as many as count now, more than a quota that was lowered.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.earlier.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn heap_bytes(&self) -> usize {
        self.earlier.capacity().saturating_mul(size_of::<u16>())
    }

    /// Admits a request at `now`, not before the newest, unless the quota is spent.
    fn admit(&mut self, now: Millis, quota: Quota) -> bool {
        if now.since(self.newest) >= WINDOW_MILLIS {
            *self = Self::starting_at(now);
            return true;
        }
        self.drop_over(now);
        if self.len() >= quota.requests() {
            return false;
        }
        if self.earlier.len() == self.earlier.capacity() {
            // doubles, but never has room for more than the quota
            let room = earlier_than_newest(quota).saturating_sub(self.earlier.len());
            self.earlier.reserve_exact(self.earlier.len().max(FIRST_ROOM).min(room));
        }
        self.earlier.push_back(lowest_bits(self.newest));
        self.newest = now;
        true
    }

    /// The latest admissions that count at `now`, which is not before the newest; as many as the
    /// quota. Older ones change no verdict: while one of them counts, so do as many as the quota.
    pub(super) fn counted(&self, now: Millis, quota: Quota) -> Option<Counted> {
        if now.since(self.newest) >= WINDOW_MILLIS {
            return None;
        }
        let over = match self.earlier.front() {
            Some(time) if self.is_over(*time, now) => {
                self.earlier.partition_point(|time| self.is_over(*time, now))
            }
            _ => 0,
        };
        let over = over.max(self.earlier.len().saturating_sub(earlier_than_newest(quota)));
        let oldest = self.earlier.get(over).map_or(self.newest, |time| self.restored(*time));
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        Some(Counted { oldest, count: self.len().saturating_sub(over) })
    }

    /// Drops what counts no more at `now`, and memory beyond the quota.
    fn trim(&mut self, now: Millis, quota: Quota) {
        self.drop_over(now.max(self.newest));
        self.earlier.shrink_to(earlier_than_newest(quota));
    }

    fn drop_over(&mut self, now: Millis) {
        while self.earlier.front().is_some_and(|time| self.is_over(*time, now)) {
            self.earlier.pop_front();
        }
    }

    fn is_over(&self, time: u16, now: Millis) -> bool {
        now.since(self.restored(time)) >= WINDOW_MILLIS
    }

    /// The time that these are the lowest bits of.
    fn restored(&self, time: u16) -> Millis {
        let age = lowest_bits(self.newest).wrapping_sub(time);
        Millis(self.newest.0.saturating_sub(age.into()))
    }
}

fn lowest_bits(time: Millis) -> u16 {
    let [low, high, ..] = time.0.to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn earlier_than_newest(quota: Quota) -> usize {
    usize::try_from(quota.requests().saturating_sub(1)).unwrap_or(usize::MAX)
}
