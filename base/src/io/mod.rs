//! Bounded I/O for clients and node alike: deadlines, reads without idle buffers, memory permits.
//!
//! Deadlines cost nothing until something waits, and little after that. Bytes are read over the
//! stack, because connections mostly wait: a buffer that is allocated before anything arrives
//! would be held all that time, and be cold when it is used. A node's answer or a request body
//! reserves its memory before it is read, so slow readers of large answers cannot exhaust the
//! machine: when the pool is empty, new requests get 503.
//!
//! Imports no other module of the program. Next: `shared` (one computation for equal requests),
//! `gzip` (one compression for equal payloads).

pub mod clock;
pub mod cores;
pub mod gzip;
pub mod monotonic;
pub mod plain;
mod retry_after;
pub mod shared;

pub use retry_after::parse_retry_after;

use bytes::BytesMut;
use parking_lot::Mutex;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_filters::client::ClientKey;
use std::fmt;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

/// 16 KiB: one read of unknown size. A head and a usual body fit.
pub const READ_SIZE: usize = 16 << 10;

/// The first descriptor that is reserved from clients' connections, and from those to the node.
static RESERVED_FROM: [AtomicI32; 2] = [AtomicI32::new(i32::MAX), AtomicI32::new(i32::MAX)];

/// Connections that may not use the last descriptors. The operator's may use all.
#[derive(Clone, Copy, Debug)]
pub enum DescriptorUse {
    /// A connection of a client.
    Client,
    /// A connection to the node.
    Node,
}

impl DescriptorUse {
    /// Reserves every descriptor from `first` on.
    pub fn reserve(self, first: u64) {
        let first = i32::try_from(first).unwrap_or(i32::MAX);
        RESERVED_FROM[self as usize].store(first, Ordering::Relaxed);
    }

    /// Whether a descriptor is reserved. The kernel returns the lowest free descriptor (POSIX,
    /// section 2.14), so all below it are in use.
    pub fn is_reserved(self, descriptor: i32) -> bool {
        descriptor >= RESERVED_FROM[self as usize].load(Ordering::Relaxed)
    }
}

/// Boxes a future that is seldom awaited, so that the one that awaits it stays small: a request
/// holds its whole future while the node is queried.
pub fn cold<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}

/// Appends what has arrived, at most [`READ_SIZE`] bytes, and returns how many: 0 at the end. The
/// stack keeps no copy, which could be a bearer token.
pub fn poll_read_some(
    from: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    to: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut step = [MaybeUninit::uninit(); READ_SIZE];
    let mut piece = ReadBuf::uninit(&mut step);
    ready!(Pin::new(from).poll_read(cx, &mut piece))?;
    to.extend_from_slice(piece.filled());
    // read through `black_box` below, so that the compiler keeps the write
    piece.filled_mut().fill(0);
    Poll::Ready(Ok(black_box(&piece).filled().len()))
}

/// Runs `future` for at most `limit`, counted from when it first has to wait; `None` after that.
///
/// A future that is ready at once, as most reads and writes of small requests are, reads no clock
/// and sets no timer. It is borrowed or boxed, since one that is moved here would be held twice.
pub fn within<F: Future + Unpin>(
    limit: Duration,
    mut future: F,
) -> impl Future<Output = Option<F::Output>> {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(move |cx| match Pin::new(&mut future).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => {
            let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
            timer.as_mut().poll(cx).map(|()| None)
        }
    })
}

/// Runs all of a task's work for at most `limit`; `None` after that.
///
/// The timer is registered once, and not polled each time the task wakes for something else: most
/// tasks end long before their limit.
pub async fn lifetime<T>(limit: Duration, life: impl Future<Output = T>) -> Option<T> {
    let mut life = pin!(life);
    let mut limit = pin!(tokio::time::sleep(limit));
    // first, because a task whose budget is spent would not be registered
    if poll_fn(|cx| Poll::Ready(limit.as_mut().poll(cx)))
        .await
        .is_ready()
    {
        return None;
    }
    poll_fn(|cx| match life.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if limit.is_elapsed() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// A timer that is postponed when it fires, instead of being set for each deadline.
///
/// Where deadlines are met repeatedly, as by the requests of a connection, it is set once per
/// timeout instead of once per request.
#[derive(Debug, Default)]
pub struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Ready at `until`.
    pub fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self
            .0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
        Poll::Pending
    }

    /// Runs `future` to its end; `None` at `until`.
    pub async fn within<T>(
        &mut self,
        until: Instant,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_until(until, cx).map(|()| None),
        })
        .await
    }
}

/// A bound in bytes over all clients: on node answers, in flight and cached, on request bodies, or
/// on requests that wait.
#[derive(Debug)]
pub struct MemoryPool {
    free: AtomicUsize,
    size: usize,
    /// The most that one client holds.
    share: usize,
}

impl MemoryPool {
    /// A pool of `size` bytes, of which one client holds at most a quarter.
    pub fn new(size: usize) -> Arc<Self> {
        Self::in_shares(size, SHARES)
    }

    /// A pool of `size` bytes, of which one client holds at most one of `shares` equal parts.
    pub fn in_shares(size: usize, shares: usize) -> Arc<Self> {
        Arc::new(Self {
            free: AtomicUsize::new(size),
            size,
            share: size / shares,
        })
    }

    /// Bytes in all.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The most that one client holds.
    pub fn share(&self) -> usize {
        self.share
    }

    /// Reserves bytes.
    ///
    /// # Errors
    /// Returns [`Exhausted::Pool`] if fewer are left, and reserves nothing.
    pub fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let take = |free: usize| free.checked_sub(bytes);
        let taken = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| Exhausted::Pool)
    }

    /// Releases bytes that were reserved.
    pub fn give_back(&self, bytes: usize) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that are reserved.
    pub fn taken(&self) -> usize {
        self.size - self.free.load(Ordering::Relaxed)
    }
}

/// Why memory cannot be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The pool has fewer bytes than requested.
    Pool,
    /// The client would hold more than its share of the pool.
    Share,
}

/// One client holds at most a quarter of the memory that all share, unless a pool has smaller
/// shares.
const SHARES: usize = 4;
/// 64 KiB: all smaller answers that a client may have in flight take little memory.
pub const LARGE: usize = 64 << 10;

/// One client's part of a pool, bounded by its share.
#[derive(Clone)]
pub struct ClientShare {
    client: ClientKey,
    held: Arc<Inflight>,
}

/// Bytes that are charged to a client until the last clone is dropped.
pub type Held = Arc<Vec<Guard>>;

impl ClientShare {
    /// The share of `client`; `held` counts what each client holds of the same pool.
    pub fn of(client: ClientKey, held: &Arc<Inflight>) -> Self {
        Self {
            client,
            held: Arc::clone(held),
        }
    }

    /// Charges `more` bytes of a `bytes`-byte object to the client. `None` when the client would
    /// hold more than its share of the pool.
    pub fn hold(&self, more: usize, bytes: usize, pool: &MemoryPool) -> Option<Guard> {
        let signed = |bytes: usize| isize::try_from(bytes).unwrap_or(isize::MAX);
        let (guard, all) = self.held.incr(self.client, signed(more));
        // a single one fits, however small the pool is
        (all <= signed(pool.share) || all == signed(bytes)).then_some(guard)
    }
}

impl fmt::Debug for ClientShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientShare").field(&self.client).finish()
    }
}

/// A part of a pool, for one answer or one request body; released on drop.
#[derive(Debug)]
pub struct MemoryPermit {
    memory: Arc<MemoryPool>,
    bytes: usize,
    /// The share of the client that the answer is fetched for, if any.
    share: Option<ClientShare>,
    readers: Mutex<Readers>,
}

/// The clients that a large answer is charged to.
#[derive(Debug, Default)]
struct Readers {
    /// Charges the answer to the client that it was fetched for, until that client reads it.
    fetched: Vec<Guard>,
    /// The clients that are still reading it.
    reading: Vec<(ClientKey, Weak<Vec<Guard>>)>,
}

impl MemoryPermit {
    /// Creates an empty permit that is charged to no client.
    pub fn of(memory: &Arc<MemoryPool>) -> Self {
        Self {
            memory: Arc::clone(memory),
            bytes: 0,
            share: None,
            readers: Mutex::default(),
        }
    }

    /// Creates an empty permit. Its memory is charged to the client once it is large.
    pub fn for_client(memory: &Arc<MemoryPool>, share: Option<ClientShare>) -> Self {
        let mut permit = Self::of(memory);
        permit.share = share;
        permit
    }

    /// Charges the answer, of this many bytes, to the client while it reads: once for all of its
    /// requests that read the same answer. `None` if the client already holds its share.
    pub fn read_by(&self, share: &ClientShare, bytes: usize) -> Option<Held> {
        let mut readers = self.readers.lock();
        let Readers { fetched, reading } = &mut *readers;
        reading.retain(|(_, held)| held.strong_count() > 0);
        let known = reading.iter().find(|(reader, _)| *reader == share.client);
        if let Some(held) = known.and_then(|(_, held)| held.upgrade()) {
            return Some(held);
        }
        let is_own = self
            .share
            .as_ref()
            .is_some_and(|own| own.client == share.client);
        let counted = if is_own {
            std::mem::take(fetched)
        } else {
            Vec::new()
        };
        let held = if counted.is_empty() {
            vec![share.hold(bytes, bytes, &self.memory)?]
        } else {
            counted
        };
        let held = Arc::new(held);
        reading.push((share.client, Arc::downgrade(&held)));
        Some(held)
    }

    /// Grows to at least `bytes`.
    ///
    /// # Errors
    /// Returns [`Exhausted`] if the pool or the client's share has less; the permit is unchanged.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let more = bytes.saturating_sub(self.bytes);
        self.memory.take(more)?;
        let counted = self
            .count(bytes)
            .inspect_err(|_| self.memory.give_back(more))?;
        self.bytes += more;
        self.readers.get_mut().fetched.extend(counted);
        Ok(())
    }

    /// Releases all but `bytes` of the reserved memory. Not for a permit with a client's share.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.memory.give_back(less);
        self.bytes -= less;
    }

    /// Charges bytes that are not charged yet, if the permit is large and has a client.
    fn count(&self, bytes: usize) -> Result<Option<Guard>, Exhausted> {
        let counted = if self.bytes < LARGE { 0 } else { self.bytes };
        let Some(share) = self
            .share
            .as_ref()
            .filter(|_| bytes >= LARGE && bytes > counted)
        else {
            return Ok(None);
        };
        let guard = share.hold(bytes - counted, bytes, &self.memory);
        guard.map(Some).ok_or(Exhausted::Share)
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::task::Waker;

    #[test]
    fn what_was_read_is_not_left_on_the_stack() {
        const AROUND: usize = 64 << 10;
        let token = b"token-of-nobody-0123456789abcdef".to_vec();
        let (mut to, mut cx) = (BytesMut::new(), Context::from_waker(Waker::noop()));
        let read = poll_read_some(&mut token.as_slice(), &mut cx, &mut to);
        assert!(matches!(read, Poll::Ready(Ok(32))), "{read:?}");
        let here = (&raw const cx).addr();
        let mut stack = vec![0; 2 * AROUND];
        let memory = File::open("/proc/self/mem").expect("it is this process");
        let length = memory
            .read_at(&mut stack, (here - AROUND) as u64)
            .expect("it is mapped");
        assert!(length > AROUND, "{length}");
        assert_eq!(memchr::memmem::find(&stack[..length], &token), None);
    }
}
