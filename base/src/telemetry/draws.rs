//! Chance for sampling, without a system call: the hash of a counter.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of numbers that no client can predict. They are no secrets.
#[derive(Debug, Default)]
pub(super) struct Draws {
    seed: RandomState,
    next: AtomicU64,
}

impl Draws {
    /// The next number.
    pub(super) fn draw(&self) -> u64 {
        self.seed
            .hash_one(self.next.fetch_add(1, Ordering::Relaxed))
    }
}
