//! A vector that grows by a fixed piece and never moves.
//!
//! In: items. Out: their numbers, by which they are found again. A plain vector doubles: it would
//! hold up to twice what is needed, and three times while it moves. Here a piece is the most that
//! is ever held in vain, and the allocator is asked for one size only, so nothing fragments.
//!
//! It never lets go of an item. Next: `blocks` and `recent`, which keep theirs in it.

use alloc::vec::Vec;

/// Items in a piece: with the sizes in use here, 3 and 4 KiB, which allocators pack well.
const PIECE: u32 = 64;

#[derive(Debug)]
pub(super) struct Chunks<T> {
    pieces: Vec<Vec<T>>,
    len: u32,
}

impl<T> Chunks<T> {
    pub(super) const fn new() -> Self {
        Self { pieces: Vec::new(), len: 0 }
    }

    /// Adds an item and tells its number. (Memory ends long before the numbers do.)
    pub(super) fn push(&mut self, item: T) -> u32 {
        let number = self.len;
        if number.is_multiple_of(PIECE) {
            self.pieces.push(Vec::with_capacity(as_index(PIECE)));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(item);
        }
        self.len = number.saturating_add(1);
        number
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.pieces.get(as_index(number / PIECE))?.get(as_index(number % PIECE))
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.pieces.get_mut(as_index(number / PIECE))?.get_mut(as_index(number % PIECE))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let items = self.pieces.len().saturating_mul(as_index(PIECE));
        let list = self.pieces.capacity().saturating_mul(size_of::<Vec<T>>());
        items.saturating_mul(size_of::<T>()).saturating_add(list)
    }
}

fn as_index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
