//! Rings of bits, made of blocks that all clients share.
//!
//! In: bits to write at a ring's tail. Out: the bits at any place of it. A ring is a circle of
//! blocks of one cache line each: 480 bits and the number of the next block. It grows by a block
//! when it is full; a ring that is given back leaves its blocks to the others. One size of block
//! means that memory is bounded by what is in use, in whatever order it comes and goes.
//!
//! It never knows what the bits mean. Next: `window`, whose times they are.

#![expect(clippy::arithmetic_side_effects, reason = "places are below 480, and lengths at most 64")]

use super::chunks::Chunks;

/// The number of no block.
const NONE: u32 = u32::MAX;

const WORDS: usize = 15;

/// The bits in a block.
const BITS: u32 = 480;

#[derive(Debug)]
struct Block {
    words: [u32; WORDS],
    next: u32,
}

/// A place in a ring: a block and a bit of it, below 480.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    block: u32,
    bit: u32,
}

impl Place {
    /// The head and tail of a ring that has no block yet.
    pub(super) const NOWHERE: Self = Self { block: NONE, bit: 0 };
}

/// All blocks, and which of them are free.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Chunks<Block>,
    /// The first of a list.
    free: u32,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self { blocks: Chunks::new(), free: NONE }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.blocks.heap_bytes()
    }

    /// A new ring without bits: where its head and tail are.
    pub(super) fn ring(&mut self) -> Place {
        let block = self.take([0; WORDS]);
        self.link(block, block);
        Place { block, bit: 0 }
    }

    /// Takes back the ring that this place is in.
    pub(super) fn release(&mut self, ring: Place) {
        if let Some(block) = self.blocks.get_mut(ring.block) {
            // The circle is cut behind this block, which so becomes the last of its blocks.
            let second = core::mem::replace(&mut block.next, self.free);
            self.free = second;
        }
    }

    /// Grows a ring that has bits in it so that `length` more, up to 64, fit between its tail and
    /// its head. Tells where the head is then: it may have moved.
    pub(super) fn make_room(&mut self, head: Place, tail: Place, length: u32) -> Place {
        let next = self.next(tail.block);
        if tail.block == head.block && tail.bit <= head.bit {
            // Both ends are in this block. It becomes two: one with the tail, one with the head.
            if head.bit - tail.bit >= length {
                return head;
            }
            let block = self.take(self.blocks.get(head.block).map_or([0; WORDS], |it| it.words));
            self.link(block, next);
            self.link(tail.block, block);
            return Place { block, bit: head.bit };
        }
        if next == head.block && BITS - tail.bit + head.bit < length {
            let block = self.take([0; WORDS]);
            self.link(block, next);
            self.link(tail.block, block);
        }
        head
    }

    /// The 64 bits from this place on; those behind the tail are whatever was there.
    pub(super) fn read(&self, from: Place) -> u64 {
        let Some(block) = self.blocks.get(from.block) else { return 0 };
        let [first, offset] = [from.bit / u32::BITS, from.bit % u32::BITS];
        let word = |index: usize| match block.words.get(index) {
            Some(word) => u64::from(*word),
            None => self.word(block.next, index - WORDS),
        };
        let first = usize::try_from(first).unwrap_or(WORDS);
        let two_words = word(first) | word(first + 1) << 32;
        // In two steps, because 64 is not a shift and 0 is an offset.
        two_words >> offset | word(first + 2) << 1 << (63 - offset)
    }

    /// Writes the lowest `length` of these bits, and tells where they end.
    pub(super) fn write(&mut self, mut to: Place, mut bits: u64, mut length: u32) -> Place {
        while length > 0 {
            let offset = to.bit % u32::BITS;
            let part = length.min(u32::BITS - offset);
            let mask = u32::MAX >> (u32::BITS - part);
            let index = usize::try_from(to.bit / u32::BITS).unwrap_or(WORDS);
            let block = self.blocks.get_mut(to.block);
            if let Some(word) = block.and_then(|block| block.words.get_mut(index)) {
                let new = u32::try_from(bits & u64::from(mask)).unwrap_or(mask);
                *word = *word & !(mask << offset) | new << offset;
            }
            bits >>= part;
            length -= part;
            to = self.after(to, part);
        }
        to
    }

    /// The place `length` bits on, up to 64.
    pub(super) fn after(&self, place: Place, length: u32) -> Place {
        match place.bit + length {
            bit @ 0..BITS => Place { bit, ..place },
            bit => Place { block: self.next(place.block), bit: bit - BITS },
        }
    }

    fn word(&self, block: u32, index: usize) -> u64 {
        let word = self.blocks.get(block).and_then(|block| block.words.get(index));
        word.copied().map_or(0, u64::from)
    }

    fn next(&self, block: u32) -> u32 {
        self.blocks.get(block).map_or(NONE, |block| block.next)
    }

    fn link(&mut self, number: u32, next: u32) {
        if let Some(block) = self.blocks.get_mut(number) {
            block.next = next;
        }
    }

    /// A block with these words: a free one if there is one, else a new one.
    fn take(&mut self, words: [u32; WORDS]) -> u32 {
        let number = self.free;
        let Some(block) = self.blocks.get_mut(number) else {
            return self.blocks.push(Block { words, next: NONE });
        };
        self.free = block.next;
        *block = Block { words, next: NONE };
        number
    }

    /// How many blocks the ring has that this place is in.
    #[cfg(test)]
    pub(super) fn count(&self, ring: Place) -> u32 {
        let mut block = self.next(ring.block);
        let mut count = u32::from(block != NONE);
        while block != ring.block {
            block = self.next(block);
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A ring, and what must be in it.
    struct Ring {
        head: Place,
        tail: Place,
        bits: VecDeque<(u64, u32)>,
        total: u32,
        most: u32,
    }

    impl Ring {
        fn push(&mut self, blocks: &mut Blocks, bits: u64, length: u32) {
            if self.total > 0 {
                self.head = blocks.make_room(self.head, self.tail, length);
            }
            self.tail = blocks.write(self.tail, bits, length);
            self.bits.push_back((bits & u64::MAX >> (64 - length), length));
            self.total += length;
            self.most = self.most.max(self.total);
        }

        fn pop(&mut self, blocks: &Blocks) {
            if let Some((_, length)) = self.bits.pop_front() {
                self.head = blocks.after(self.head, length);
                self.total -= length;
            }
        }

        fn holds_what_it_must(&self, blocks: &Blocks) -> bool {
            let mut place = self.head;
            self.bits.iter().all(|(bits, length)| {
                let read = blocks.read(place) & u64::MAX >> (64 - length);
                place = blocks.after(place, *length);
                read == *bits
            }) && place == self.tail
        }
    }

    fn new_ring(blocks: &mut Blocks) -> Ring {
        let place = blocks.ring();
        Ring { head: place, tail: place, bits: VecDeque::new(), total: 0, most: 1 }
    }

    proptest! {
        #[test]
        fn rings_keep_their_bits_in_as_few_blocks_as_they_can(
            steps in prop::collection::vec((0usize..3, 0u32..9, 1u32..=64, any::<u64>()), 0..800),
        ) {
            let mut blocks = Blocks::new();
            let mut rings = [(); 3].map(|()| new_ring(&mut blocks));
            for (number, what, length, bits) in steps {
                let Some(ring) = rings.get_mut(number) else { continue };
                match what {
                    0 if length == 1 => {
                        blocks.release(ring.tail);
                        *ring = new_ring(&mut blocks);
                    }
                    0..4 => ring.pop(&blocks),
                    _ => ring.push(&mut blocks, bits, length),
                }
                prop_assert_eq!(blocks.count(ring.head), ring.most.div_ceil(BITS));
                prop_assert_eq!(blocks.count(ring.tail), ring.most.div_ceil(BITS));
                prop_assert!(rings.iter().all(|ring| ring.holds_what_it_must(&blocks)));
            }
        }
    }

    #[test]
    fn blocks_that_were_given_back_are_used_first() {
        let mut blocks = Blocks::new();
        let mut ring = new_ring(&mut blocks);
        (0..1000).for_each(|_| ring.push(&mut blocks, 5, 64));
        let (held, bytes) = (blocks.count(ring.head), blocks.heap_bytes());
        for _ in 0..100 {
            blocks.release(ring.head);
            ring = new_ring(&mut blocks);
            (0..1000).for_each(|_| ring.push(&mut blocks, 5, 64));
        }
        assert_eq!((held, blocks.heap_bytes()), (134, bytes), "the same blocks, time and again");
    }
}
