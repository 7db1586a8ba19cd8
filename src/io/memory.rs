//! Bounds on memory over all clients: of node answers, in flight and cached, and of request bodies.
//!
//! An answer reserves its bytes before it is read and releases them when it has been sent, or when
//! the cache evicts it, so slow readers of large answers cannot exhaust the machine: when the pool
//! is empty, new requests get 503.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The pool: a number of bytes.
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

    /// Bytes that are reserved.
    pub fn taken(&self) -> usize {
        self.size - self.free.load(Ordering::Relaxed)
    }
}

/// The pool has fewer bytes than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// One answer's share of the pool, released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: Arc<MemoryPool>,
    bytes: usize,
}

impl MemoryPermit {
    /// An empty share.
    pub fn of(memory: &Arc<MemoryPool>) -> Self {
        Self { memory: Arc::clone(memory), bytes: 0 }
    }

    /// The size of the pool.
    pub fn pool_size(&self) -> usize {
        self.memory.size()
    }

    /// Grows the share to at least `bytes`.
    ///
    /// # Errors
    /// [`Exhausted`] when the pool has less; the share is unchanged.
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
