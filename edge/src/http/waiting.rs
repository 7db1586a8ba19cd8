//! The memory of requests that wait: for their bodies, for the node, or for a client that does not
//! read.
//!
//! In: a client, and the memory that its request takes. Out: a permit, or a refusal. Over HTTP/2
//! each stream reserves its memory before it gets a task, and an unfinished head as it grows. Over
//! HTTP/1 only a request whose body did not arrive with its head reserves memory. Next: `io`, which
//! has the pool.

use http::HeaderMap;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_base::io::{ClientShare, Exhausted, MemoryPermit, MemoryPool};
use portcullis_filters::client::ClientKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// 96 MiB: twelve clients at their share.
const WAITING_MEMORY: usize = 96 << 20;
/// 8 MiB for each client: 500 small requests, or 120 with two hundred fields. Its connections take
/// 5 MiB more, and an address must not add more than 16 MiB.
const SHARES: usize = 12;
/// 15 KiB: a request without its head. Two thirds of it are the state of Pingora's phases.
const REQUEST: usize = 15 << 10;
/// 6 KiB: a stream whose small response the client does not read. The stream takes half of that;
/// the rest is memory of its request that the allocator has not returned yet.
const RESPONSE: usize = 6 << 10;
/// A field of a head without name and value: an entry of the map, two allocations, what both leave
/// unused, and as much again that the allocator has not returned. RFC 9113, section 6.5.2, counts
/// 32.
const FIELD: usize = 256;

/// The memory of all requests that wait.
pub struct WaitingRequests {
    pool: Arc<MemoryPool>,
    /// Memory of requests that a trusted proxy forwarded, by client.
    forwarded: Arc<Inflight>,
}

/// The memory that a client holds over all of its connections to a surface. A connection keeps it,
/// so that a request finds it without a lookup.
#[derive(Debug)]
pub(super) struct ClientMemory {
    pool: Arc<MemoryPool>,
    held: AtomicUsize,
}

/// A part of a client's memory, released on drop.
#[derive(Debug)]
pub(super) struct ClientPermit {
    memory: Arc<ClientMemory>,
    bytes: usize,
}

/// The memory of one request that waits, released on drop.
pub(super) enum WaitingPermit {
    /// The memory of a connected client.
    Connected(ClientPermit),
    /// The memory of a client behind a trusted proxy.
    Forwarded { permit: MemoryPermit, _share: Guard },
}

impl Default for WaitingRequests {
    fn default() -> Self {
        let pool = MemoryPool::in_shares(WAITING_MEMORY, SHARES);
        Self {
            pool,
            forwarded: Arc::new(Inflight::new()),
        }
    }
}

impl WaitingRequests {
    /// The memory of a client that connects.
    pub(super) fn connected(&self) -> Arc<ClientMemory> {
        Arc::new(ClientMemory {
            pool: Arc::clone(&self.pool),
            held: AtomicUsize::new(0),
        })
    }

    /// Reserves the memory of a request with this head, of which `raw` bytes are also stored as
    /// received. Charges the `connected` client, or else `client`, the one behind a proxy.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if the pool or the client's share has less.
    pub(super) fn request(
        &self,
        connected: Option<&Arc<ClientMemory>>,
        client: ClientKey,
        head: &HeaderMap,
        raw: usize,
    ) -> Result<WaitingPermit, Exhausted> {
        let bytes = REQUEST + size_of_head(head) + raw;
        if let Some(memory) = connected {
            let mut permit = ClientPermit::of(memory);
            permit.resize(bytes)?;
            return Ok(WaitingPermit::Connected(permit));
        }
        let share = ClientShare::of(client, &self.forwarded);
        let share = share
            .hold(bytes, bytes, &self.pool)
            .ok_or(Exhausted::Share)?;
        let mut permit = MemoryPermit::of(&self.pool);
        permit.reserve(bytes)?;
        Ok(WaitingPermit::Forwarded {
            permit,
            _share: share,
        })
    }
}

impl WaitingPermit {
    /// Shrinks to the memory of a response of which the client has not read `bytes`.
    pub(super) fn shrink_to_response(&mut self, bytes: usize) {
        match self {
            Self::Connected(permit) => {
                // no more than the request had
                let _ = permit.resize(permit.bytes.min(RESPONSE + bytes));
            }
            // the share of its client cannot shrink
            Self::Forwarded { permit, .. } => permit.shrink(RESPONSE + bytes),
        }
    }
}

impl ClientMemory {
    fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let held = self.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // a single one fits, however small the pool is
        let fits = held <= self.pool.share() || held == bytes;
        let taken = if fits {
            self.pool.take(bytes)
        } else {
            Err(Exhausted::Share)
        };
        taken.inspect_err(|_| {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        })
    }
}

impl ClientPermit {
    /// An empty permit.
    pub(super) fn of(memory: &Arc<ClientMemory>) -> Self {
        Self {
            memory: Arc::clone(memory),
            bytes: 0,
        }
    }

    /// Reserves `bytes`; `None` for zero bytes, or without a client's memory.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if the pool or the client's share has less.
    pub(super) fn reserve(
        memory: Option<&Arc<ClientMemory>>,
        bytes: usize,
    ) -> Result<Option<Self>, Exhausted> {
        let Some(memory) = memory.filter(|_| bytes > 0) else {
            return Ok(None);
        };
        let mut permit = Self::of(memory);
        permit.resize(bytes)?;
        Ok(Some(permit))
    }

    /// Grows or shrinks to `bytes`.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if the pool or the client's share has less; the permit is unchanged.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        if let Some(less) = self.bytes.checked_sub(bytes) {
            let held = self.memory.held.fetch_sub(less, Ordering::Relaxed);
            debug_assert!(held >= less, "a client gives back what it holds");
            self.memory.pool.give_back(less);
        } else {
            self.memory.take(bytes - self.bytes)?;
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        // less always fits
        let _ = self.resize(0);
    }
}

/// Bytes of memory of a head; each value of a repeated field counts, such as each crumb of a
/// `cookie`.
fn size_of_head(head: &HeaderMap) -> usize {
    head.iter()
        .map(|(name, value)| name.as_str().len() + value.len() + FIELD)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const SHARE: usize = WAITING_MEMORY / SHARES;

    #[test]
    fn a_permit_grows_within_the_clients_share() {
        let waiting = WaitingRequests::default();
        let (one, other) = (waiting.connected(), waiting.connected());
        let mut first = ClientPermit::of(&one);
        let mut second = ClientPermit::of(&one);
        assert_eq!(first.resize(SHARE - 100), Ok(()));
        assert_eq!(second.resize(101), Err(Exhausted::Share));
        assert_eq!(second.resize(100), Ok(()), "what is refused is not held");
        assert_eq!(first.resize(SHARE - 99), Err(Exhausted::Share));
        assert_eq!(
            ClientPermit::of(&other).resize(SHARE),
            Ok(()),
            "another client's"
        );
        assert_eq!(first.resize(1), Ok(()));
        drop(second);
        let held = (one.held.load(Ordering::Relaxed), waiting.pool.taken());
        assert_eq!(held, (1, 1), "what is dropped is released");
    }

    #[test]
    fn clients_behind_a_proxy_have_their_own_shares() {
        let waiting = WaitingRequests::default();
        let [one, other] = [1, 2].map(|n| ClientKey::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))));
        let connected = waiting.connected();
        let request = |connected, client, raw| {
            waiting
                .request(connected, client, &HeaderMap::new(), raw)
                .map(drop)
        };
        let head = HeaderMap::new();
        let held = waiting
            .request(None, one, &head, SHARE - REQUEST)
            .expect("its share");
        assert_eq!(request(None, one, 0), Err(Exhausted::Share));
        assert_eq!(request(None, other, 0), Ok(()));
        assert_eq!(
            request(Some(&connected), one, 0),
            Ok(()),
            "it is not the proxy's"
        );
        drop(held);
        assert_eq!(request(None, one, 0), Ok(()));
    }

    #[test]
    fn a_response_takes_less_than_its_request() {
        let (waiting, head) = (WaitingRequests::default(), HeaderMap::new());
        let client = ClientKey::of(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let connected = waiting.connected();
        for connected in [Some(&connected), None] {
            let mut permit = waiting
                .request(connected, client, &head, 900)
                .expect("its share");
            assert_eq!(waiting.pool.taken(), REQUEST + 900);
            permit.shrink_to_response(4 << 10);
            assert_eq!(waiting.pool.taken(), RESPONSE + (4 << 10));
            drop(permit);
            assert_eq!(waiting.pool.taken(), 0);
        }
    }
}
