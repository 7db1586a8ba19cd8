//! The clients in the order in which they were last seen.
//!
//! In: a client and the hash of its key. Out: its window. Clients lie in numbered slots that are
//! linked from the newest to the oldest; an index of slot numbers finds them by hash.
//!
//! It never decides how many clients are too many: its owner calls [`Recent::insert`] or
//! [`Recent::replace_oldest`]. A link to no slot ends the list, not the process.
//! Next: `window`.

use alloc::vec::Vec;
use hashbrown::HashTable;

use super::window::Window;
use crate::client::ClientKey;

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

    pub(super) fn windows_mut(&mut self) -> impl Iterator<Item = &mut Window> {
        self.slots.iter_mut().map(|slot| &mut slot.window)
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
