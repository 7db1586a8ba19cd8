//! The clients in the order in which they were last seen, and the window of each.
//!
//! In: a client, the hash of its key, and times that do not decrease. Out: whether a request is
//! admitted, how many admissions count and which is the oldest of them. Clients lie in numbered
//! slots that are linked from the newest to the oldest; an index of slot numbers finds them by
//! hash.
//!
//! It never decides how many clients are too many: its owner calls [`Recent::insert`] or
//! [`Recent::replace_oldest`]. A link to no slot ends the list, not the process. A time that still
//! counts is never dropped.

use super::{Millis, Quota, WINDOW_MILLIS};
use crate::client::ClientKey;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// The number of no slot.
const NONE: u32 = u32::MAX;

/// Slots are added by this many and an eighth of those in use, so that little is unused.
const MORE_SLOTS: usize = 64;

#[derive(Debug)]
struct Slot {
    hash: u64,
    client: ClientKey,
    newer: u32,
    older: u32,
    window: Window,
}

#[derive(Debug)]
pub(super) struct Recent {
    index: HashTable<u32>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self { index: HashTable::new(), slots: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// The client in the slot of this number, and its window.
    pub(super) fn at(&self, number: u32) -> Option<(ClientKey, &Window)> {
        self.slot(number).map(|slot| (slot.client, &slot.window))
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let slots = self.slots.capacity().saturating_mul(size_of::<Slot>());
        let rings: usize = self.slots.iter().map(|slot| slot.window.heap_bytes()).sum();
        slots.saturating_add(rings).saturating_add(self.index.allocation_size())
    }

    /// The window in the slot of this number.
    pub(super) fn window_mut(&mut self, number: u32) -> Option<&mut Window> {
        self.slot_mut(number).map(|slot| &mut slot.window)
    }

    pub(super) fn get(&self, hash: u64, client: ClientKey) -> Option<&Window> {
        self.slot(self.find(hash, client)?).map(|slot| &slot.window)
    }

    /// The client's window; the client becomes the newest.
    pub(super) fn see(&mut self, hash: u64, client: ClientKey) -> Option<&mut Window> {
        let number = self.find(hash, client)?;
        if number != self.newest {
            self.unlink(number);
            self.link_newest(number);
        }
        self.slot_mut(number).map(|slot| &mut slot.window)
    }

    /// Adds a client that is not there yet, as the newest.
    pub(super) fn insert(&mut self, hash: u64, client: ClientKey, window: Window) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact((self.slots.len() / 8).saturating_add(MORE_SLOTS));
        }
        let number = self.len();
        self.slots.push(Slot { hash, client, newer: NONE, older: NONE, window });
        self.enter(number);
    }

    /// Does the same in the slot of the oldest client; returns whether there was one.
    pub(super) fn replace_oldest(&mut self, hash: u64, client: ClientKey, window: Window) -> bool {
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

/// Room in a ring that is allocated first.
const FIRST_ROOM: usize = 4;

/// The window of one client: a ring of two bytes per admission, at least one.
///
/// The newest time is stored whole, the earlier ones as their lowest 16 bits: none is 60,000 ms or
/// more before the newest, so 65,536 values tell them apart.
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
    pub(super) const fn starting_at(now: Millis) -> Self {
        Self { newest: now, earlier: VecDeque::new() }
    }

    pub(super) fn newest(&self) -> Millis {
        self.newest
    }

    /// The admissions it holds: at least as many as count now, more than a quota that was lowered.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.earlier.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.earlier.capacity().saturating_mul(size_of::<u16>())
    }

    /// Admits a request at `now`, not before the newest, unless the quota is spent.
    pub(super) fn admit(&mut self, now: Millis, quota: Quota) -> bool {
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
    pub(super) fn trim(&mut self, now: Millis, quota: Quota) {
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
