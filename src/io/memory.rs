//! Bounds on memory over all clients: of node answers, in flight and cached, and of request bodies.
//!
//! An answer reserves its bytes before it is read and releases them when it has been sent, or when
//! the cache evicts it, so slow readers of large answers cannot exhaust the machine: when the pool
//! is empty, new requests get 503.

use parking_lot::Mutex;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::ClientKey;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

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

/// A share of the pool, for one answer or one request body; released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: Arc<MemoryPool>,
    bytes: usize,
    /// The clients that are still reading the answer, each with the guard that counts it.
    readers: Mutex<Vec<(ClientKey, Weak<Guard>)>>,
}

impl MemoryPermit {
    /// An empty share.
    pub fn of(memory: &Arc<MemoryPool>) -> Self {
        Self { memory: Arc::clone(memory), bytes: 0, readers: Mutex::default() }
    }

    /// The size of the pool.
    pub fn pool_size(&self) -> usize {
        self.memory.size()
    }

    /// Counts the answer as the client's until the guard is dropped, once for all of its requests
    /// that read the same answer: `count` is called for the first. `None` if `count` refuses.
    pub fn read_by(
        &self,
        client: ClientKey,
        count: impl FnOnce() -> Option<Guard>,
    ) -> Option<Arc<Guard>> {
        let mut readers = self.readers.lock();
        readers.retain(|(_, guard)| guard.strong_count() > 0);
        let known = readers.iter().find(|(reader, _)| *reader == client);
        if let Some(guard) = known.and_then(|(_, guard)| guard.upgrade()) {
            return Some(guard);
        }
        let guard = Arc::new(count()?);
        readers.push((client, Arc::downgrade(&guard)));
        Some(guard)
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
