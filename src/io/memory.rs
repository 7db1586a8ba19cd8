//! The bound on memory held by node answers, in flight and kept, over all clients.
//!
//! An answer takes its bytes from the pool before it reads them and gives them back when it has
//! been sent, or when the cache has let it go, so slow readers of large answers can not use up the
//! machine: whoever comes when the pool is empty is told to come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The pool, in bytes.
#[derive(Debug)]
pub struct MemoryPool {
    free: AtomicUsize,
    size: usize,
}

impl MemoryPool {
    /// A pool of `size` bytes.
    pub fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(size), size })
    }

    /// Bytes in all.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes taken.
    pub fn taken(&self) -> usize {
        self.size - self.free.load(Ordering::Relaxed)
    }
}

/// The pool has less than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// One answer's share of the pool, given back on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: Arc<MemoryPool>,
    bytes: usize,
}

impl MemoryPermit {
    /// A share of nothing yet.
    pub fn of(memory: &Arc<MemoryPool>) -> Self {
        Self { memory: Arc::clone(memory), bytes: 0 }
    }

    /// Makes the share at least `bytes`.
    ///
    /// # Errors
    /// [`Exhausted`] when the pool has less; the share stays as it was.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let more = bytes.saturating_sub(self.bytes);
        let take = |free: usize| free.checked_sub(more);
        self.memory
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .map_err(|_| Exhausted)?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.memory.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_taken_once_and_given_back() {
        let memory = MemoryPool::new(100);
        let mut one = MemoryPermit::of(&memory);
        let mut two = MemoryPermit::of(&memory);
        assert_eq!(one.reserve(60), Ok(()));
        assert_eq!(one.reserve(40), Ok(()), "it covers that already");
        assert_eq!(two.reserve(41), Err(Exhausted));
        assert_eq!(two.reserve(40), Ok(()));
        assert_eq!(memory.taken(), 100);
        drop(one);
        assert_eq!(memory.taken(), 40);
        drop(two);
        assert_eq!(memory.taken(), 0);
    }
}
