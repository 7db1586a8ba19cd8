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

/// One answer's share of the pool, released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: Arc<MemoryPool>,
    bytes: usize,
    /// The clients that still read what it is for, each with its share.
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

    /// The share that counts this memory as the client's: the one that it has already, or what
    /// `count` makes of it. Reading the same answer many times takes its memory once.
    pub fn read_by(
        &self,
        client: ClientKey,
        count: impl FnOnce() -> Option<Guard>,
    ) -> Option<Arc<Guard>> {
        let mut readers = self.readers.lock();
        readers.retain(|(_, share)| share.strong_count() > 0);
        let known = readers.iter().find(|(reader, _)| *reader == client);
        if let Some(share) = known.and_then(|(_, share)| share.upgrade()) {
            return Some(share);
        }
        let share = Arc::new(count()?);
        readers.push((client, Arc::downgrade(&share)));
        Some(share)
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
