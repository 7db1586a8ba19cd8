//! The memory of requests that wait: for their bodies, for the node, or for a client that does not
//! read.
//!
//! In: a client and what its request takes. Out: a permit, or a refusal. Over HTTP/2 each stream
//! reserves its memory before it gets a task; over HTTP/1 a request does whose body is not there
//! with its head. Next: `io`, which has the pool and the shares.

use crate::io::{ClientShare, Exhausted, MemoryPermit, MemoryPool};
use http::HeaderMap;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_filters::client::ClientKey;
use std::sync::Arc;

/// 96 MiB: sixteen clients at their share.
const WAITING_MEMORY: usize = 96 << 20;
/// 6 MiB for each client: 500 small requests, or 100 with two hundred fields. Its connections take
/// as much again, and an address shall not add more than 16 MiB.
const SHARES: usize = 16;
/// 10 KiB: a request without its head. Most of it is the state of Pingora's phases.
const REQUEST: usize = 10 << 10;
/// 6 KiB: a stream whose response the client does not take. It takes half of that, and its request
/// has left memory that the allocator returns after a while.
const RESPONSE: usize = 6 << 10;
/// A field of a head without name and value: an entry of the map, two allocations, what both leave
/// unused, and as much again that the allocator has not returned. RFC 9113, section 6.5.2, counts
/// 32.
const FIELD: usize = 256;

/// The memory of all requests that wait.
pub struct WaitingRequests {
    pool: Arc<MemoryPool>,
    held: Arc<Inflight>,
}

/// The memory of one request that waits, released on drop.
pub struct WaitingPermit {
    _permit: MemoryPermit,
    _share: Guard,
}

impl Default for WaitingRequests {
    fn default() -> Self {
        let pool = MemoryPool::in_shares(WAITING_MEMORY, SHARES);
        Self { pool, held: Arc::new(Inflight::new()) }
    }
}

impl WaitingRequests {
    /// Reserves the memory of a request with this head, and with `raw` bytes of it as they came.
    ///
    /// # Errors
    /// [`Exhausted`]: the pool or the client's share has less.
    pub fn request(
        &self,
        client: ClientKey,
        head: &HeaderMap,
        raw: usize,
    ) -> Result<WaitingPermit, Exhausted> {
        self.reserve(client, REQUEST + size_of_head(head) + raw)
    }

    /// Reserves the memory of a response of which the client has not taken `bytes`.
    ///
    /// # Errors
    /// [`Exhausted`]: the pool or the client's share has less.
    pub(super) fn response(
        &self,
        client: ClientKey,
        bytes: usize,
    ) -> Result<WaitingPermit, Exhausted> {
        self.reserve(client, RESPONSE + bytes)
    }

    fn reserve(&self, client: ClientKey, bytes: usize) -> Result<WaitingPermit, Exhausted> {
        let share = ClientShare::of(client, &self.held);
        let share = share.hold(bytes, bytes, &self.pool).ok_or(Exhausted::Share)?;
        let mut permit = MemoryPermit::of(&self.pool);
        permit.reserve(bytes)?;
        Ok(WaitingPermit { _permit: permit, _share: share })
    }
}

/// The memory of a head; each value of a field counts, as each crumb of a `cookie` does.
fn size_of_head(head: &HeaderMap) -> usize {
    head.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum()
}
