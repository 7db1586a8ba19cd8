//! The clients that were seen lately, in the order in which they were.
//!
//! In: a client and the hash of its key. Out: its window. Clients lie in numbered slots that are
//! linked from the newest to the oldest; an index of slot numbers finds them by hash.
//!
//! It never decides how many clients are too many: its owner calls [`Recent::insert`] or
//! [`Recent::replace_oldest`]. A link that pointed nowhere would end the chain, not the process.
//! Next: `shared`, which spreads clients over several of these.

use core::hash::BuildHasher;

use hashbrown::HashTable;

use super::chunks::Chunks;
use super::window::Window;
use crate::client::ClientKey;

/// The number of no slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot {
    client: ClientKey,
    newer: u32,
    older: u32,
    window: Window,
}

impl Slot {
    fn new(client: ClientKey, window: Window) -> Self {
        Self { client, newer: NONE, older: NONE, window }
    }
}

#[derive(Debug)]
pub(super) struct Recent<S> {
    hasher: S,
    index: HashTable<u32>,
    slots: Chunks<Slot>,
    newest: u32,
    oldest: u32,
}

impl<S> Recent<S> {
    /// The client in the slot of this number, and its window.
    pub(super) fn at(&self, number: u32) -> Option<(ClientKey, &Window)> {
        self.slots.get(number).map(|slot| (slot.client, &slot.window))
    }
}

impl<S: BuildHasher> Recent<S> {
    pub(super) const fn new(hasher: S) -> Self {
        let index = HashTable::new();
        Self { hasher, index, slots: Chunks::new(), newest: NONE, oldest: NONE }
    }

    pub(super) fn hash(&self, client: ClientKey) -> u64 {
        self.hasher.hash_one(client)
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.index.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.heap_bytes().saturating_add(self.index.allocation_size())
    }

    pub(super) fn windows_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.slots.iter_mut().map(|slot| &mut slot.window)
    }

    pub(super) fn get(&self, hash: u64, client: ClientKey) -> Option<&Window> {
        let number = self.find(hash, client)?;
        self.slots.get(number).map(|slot| &slot.window)
    }

    /// The client's window; the client becomes the newest.
    pub(super) fn see(&mut self, hash: u64, client: ClientKey) -> Option<&mut Window> {
        let number = self.find(hash, client)?;
        if number != self.newest {
            self.unlink(number);
            self.link_newest(number);
        }
        self.slots.get_mut(number).map(|slot| &mut slot.window)
    }

    /// Adds a client that isn't there yet, as the newest.
    pub(super) fn insert(&mut self, hash: u64, client: ClientKey, window: Window) {
        let number = self.slots.push(Slot::new(client, window));
        self.enter(hash, number);
    }

    /// Does the same in the place of the oldest client, whose window it returns. If there is
    /// none, it is an insert.
    pub(super) fn replace_oldest(
        &mut self,
        hash: u64,
        client: ClientKey,
        window: Window,
    ) -> Option<Window> {
        let number = self.oldest;
        let Some(oldest) = self.slots.get(number) else {
            self.insert(hash, client, window);
            return None;
        };
        let old_hash = self.hash(oldest.client);
        if let Ok(entry) = self.index.find_entry(old_hash, |other| *other == number) {
            entry.remove();
        }
        self.unlink(number);
        let slot = self.slots.get_mut(number)?;
        let old = core::mem::replace(slot, Slot::new(client, window));
        self.enter(hash, number);
        Some(old.window)
    }

    fn enter(&mut self, hash: u64, number: u32) {
        let Self { hasher, index, slots, .. } = self;
        index.insert_unique(hash, number, |other| {
            slots.get(*other).map_or(0, |slot| hasher.hash_one(slot.client))
        });
        self.link_newest(number);
    }

    fn find(&self, hash: u64, client: ClientKey) -> Option<u32> {
        let is_it = |number: &u32| self.slots.get(*number).is_some_and(|it| it.client == client);
        self.index.find(hash, is_it).copied()
    }

    fn unlink(&mut self, number: u32) {
        let Some(slot) = self.slots.get(number) else { return };
        let (newer, older) = (slot.newer, slot.older);
        match self.slots.get_mut(newer) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, number: u32) {
        let second = core::mem::replace(&mut self.newest, number);
        match self.slots.get_mut(second) {
            Some(slot) => slot.newer = number,
            None => self.oldest = number,
        }
        if let Some(slot) = self.slots.get_mut(number) {
            (slot.newer, slot.older) = (NONE, second);
        }
    }
}
