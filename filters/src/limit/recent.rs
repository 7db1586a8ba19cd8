//! The clients of a shard, in the order in which they were last seen.

use super::window::Window;
use crate::client::ClientKey;
use alloc::vec::Vec;
use hashbrown::HashTable;

/// Marks the absence of a slot.
const NONE: u32 = u32::MAX;

/// Slots to add at once, plus an eighth of those in use, so that few are unused.
const MORE_SLOTS: usize = 64;

/// The record of a client: its window, unless nothing was admitted, and a value, if it has one.
#[derive(Debug)]
pub(super) struct Record<T> {
    pub(super) window: Option<Window>,
    pub(super) value: Option<T>,
}

impl<T> Record<T> {
    const EMPTY: Self = Self {
        window: None,
        value: None,
    };
}

#[derive(Debug)]
struct Slot<T> {
    hash: u64,
    client: ClientKey,
    newer: u32,
    older: u32,
    record: Record<T>,
}

/// The clients in the order in which they were last seen, and the record of each. They lie in
/// numbered slots that are linked from the newest to the oldest; an index of slot numbers finds
/// them by hash.
///
/// Its shard decides how many clients are too many: it calls [`Recent::insert`] or
/// [`Recent::replace_oldest`]. A link to a slot that does not exist ends the list; it does not
/// panic.
#[derive(Debug)]
pub(super) struct Recent<T> {
    index: HashTable<u32>,
    slots: Vec<Slot<T>>,
    newest: u32,
    oldest: u32,
}

impl<T> Recent<T> {
    pub(super) const fn new() -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    /// The client in the slot of this number, and its record.
    pub(super) fn at(&self, number: u32) -> Option<(ClientKey, &Record<T>)> {
        self.slot(number).map(|slot| (slot.client, &slot.record))
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let slots = self.slots.capacity().saturating_mul(size_of::<Slot<T>>());
        let windows = self
            .slots
            .iter()
            .filter_map(|slot| slot.record.window.as_ref());
        let rings: usize = windows.map(Window::heap_bytes).sum();
        slots
            .saturating_add(rings)
            .saturating_add(self.index.allocation_size())
    }

    /// The window in the slot of this number.
    pub(super) fn window_mut(&mut self, number: u32) -> Option<&mut Window> {
        self.slot_mut(number)?.record.window.as_mut()
    }

    pub(super) fn get(&self, hash: u64, client: ClientKey) -> Option<&Record<T>> {
        self.slot(self.find(hash, client)?).map(|slot| &slot.record)
    }

    /// The record in the slot of this number; its client becomes the newest.
    pub(super) fn see(&mut self, number: u32) -> Option<&mut Record<T>> {
        if number != self.newest {
            self.unlink(number);
            self.link_newest(number);
        }
        self.slot_mut(number).map(|slot| &mut slot.record)
    }

    /// Adds a new client, as the newest, with an empty record; returns its slot.
    pub(super) fn insert(&mut self, hash: u64, client: ClientKey) -> u32 {
        if self.slots.len() == self.slots.capacity() {
            self.slots
                .reserve_exact((self.slots.len() / 8).saturating_add(MORE_SLOTS));
        }
        let number = self.len();
        self.slots.push(Slot {
            hash,
            client,
            newer: NONE,
            older: NONE,
            record: Record::EMPTY,
        });
        self.enter(number);
        number
    }

    /// Adds a client as [`Self::insert`] does, in the slot of the oldest client, if there is one.
    pub(super) fn replace_oldest(&mut self, hash: u64, client: ClientKey) -> Option<u32> {
        let number = self.oldest;
        let oldest = self.slot(number)?.hash;
        if let Ok(entry) = self.index.find_entry(oldest, |other| *other == number) {
            entry.remove();
        }
        self.unlink(number);
        if let Some(slot) = self.slot_mut(number) {
            (slot.hash, slot.client, slot.record) = (hash, client, Record::EMPTY);
        }
        self.enter(number);
        Some(number)
    }

    /// Indexes the slot and makes it the newest.
    fn enter(&mut self, number: u32) {
        let slots = &self.slots;
        let hash = |number: &u32| {
            let slot = usize::try_from(*number)
                .ok()
                .and_then(|number| slots.get(number));
            slot.map_or(0, |slot| slot.hash)
        };
        self.index.insert_unique(hash(&number), number, hash);
        debug_assert_eq!(
            self.index.len(),
            self.slots.len(),
            "each slot is indexed once"
        );
        self.link_newest(number);
    }

    fn slot(&self, number: u32) -> Option<&Slot<T>> {
        self.slots.get(usize::try_from(number).ok()?)
    }

    fn slot_mut(&mut self, number: u32) -> Option<&mut Slot<T>> {
        self.slots.get_mut(usize::try_from(number).ok()?)
    }

    /// The number of the client's slot.
    pub(super) fn find(&self, hash: u64, client: ClientKey) -> Option<u32> {
        let is_it = |number: &u32| self.slot(*number).is_some_and(|slot| slot.client == client);
        self.index.find(hash, is_it).copied()
    }

    fn unlink(&mut self, number: u32) {
        let Some(slot) = self.slot(number) else {
            return;
        };
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
        debug_assert_ne!(second, number, "a slot is linked once");
        match self.slot_mut(second) {
            Some(slot) => slot.newer = number,
            None => self.oldest = number,
        }
        if let Some(slot) = self.slot_mut(number) {
            (slot.newer, slot.older) = (NONE, second);
        }
    }
}
