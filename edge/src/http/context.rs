//! State that all listeners of the process share: the drain, the memory of uploads, log, metrics
//! and request ids.
//!
//! Pingora always sleeps for its whole grace period; the [`Drain`] ends with the last request and
//! the last connection. `process::lifecycle` starts each of its phases.

use super::waiting::WaitingRequests;
use arrayvec::ArrayString;
use http::{HeaderName, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use pingora::server::ShutdownWatch;
use portcullis_base::io::MemoryPool;
use portcullis_base::telemetry::{Log, Metrics, RequestLine, Surface, Tracer};
use prometheus::IntGauge;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::watch;

/// 128 MiB: two thousand of the largest bodies.
pub const UPLOAD_MEMORY: usize = 128 << 20;

/// Shared by all listeners. Cheap to clone.
#[derive(Clone)]
pub struct ServerContext {
    /// The source of request ids.
    pub request_ids: Arc<RequestIds>,
    /// Graceful shutdown.
    pub drain: Arc<Drain>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The log.
    pub log: Log,
    /// The memory of request bodies that are under way.
    pub uploads: Arc<MemoryPool>,
    /// The memory of requests that wait.
    pub waiting: Arc<WaitingRequests>,
    /// Traces requests; `None` without `[trace]`.
    pub tracer: Option<Arc<Tracer>>,
}

impl ServerContext {
    /// Counts and logs a request. Those of the operator and of ACME challenges are only logged.
    pub fn log_request(&self, line: &RequestLine<'_>) {
        let (metrics, name) = (&*self.metrics, line.record.method);
        let (reason, total) = (line.reason, line.total);
        match line.surface {
            Surface::Gateway => metrics.request(name, reason, line.bytes, total),
            Surface::Relay => metrics.relay.requests.count(name, reason, total),
            Surface::Sidecar => metrics.sidecar.requests.count(name, reason, total),
            Surface::Admin | Surface::Acme => {}
        }
        self.log.request(line);
    }
}

/// How long a connection may still send a request once the drain has begun: a request that was
/// already in transit is answered, and then the connection is closed.
pub const DRAIN_KEEPALIVE: Duration = Duration::from_secs(1);
/// Interval at which the drain counts the requests in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const SERVING: u8 = 0;
const UNREADY: u8 = 1;
const DRAINING: u8 = 2;

/// The phase of the drain, the open connections and the requests in flight.
#[derive(Debug)]
pub struct Drain {
    phase: AtomicU8,
    /// Guards that delay the end of the process.
    held: AtomicUsize,
    gauge: IntGauge,
    /// Ends the listeners. Each of them and each connection holds a receiver: when the last is
    /// dropped, all have ended.
    listeners: watch::Sender<bool>,
    /// Ends the operator's listener, which is open for as long as requests are in flight.
    operator: watch::Sender<bool>,
    open: Mutex<Open>,
}

/// The tasks of open connections, to wake when the drain begins.
#[derive(Debug, Default)]
struct Open {
    next: u64,
    tasks: HashMap<u64, Waker>,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlight(DrainGuard);

/// Delays the end of the process until it is dropped.
#[derive(Debug)]
pub struct DrainGuard(Arc<Drain>);

/// Keeps the task of an open connection registered until it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    drain: Arc<Drain>,
    key: u64,
}

impl Drain {
    /// Starts in the serving phase; `gauge` shows the requests in flight.
    pub fn new(gauge: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            phase: AtomicU8::new(SERVING),
            held: AtomicUsize::new(0),
            gauge,
            listeners: watch::Sender::new(false),
            operator: watch::Sender::new(false),
            open: Mutex::default(),
        })
    }

    /// Whether the drain has begun: the process is no longer ready.
    pub fn has_begun(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= UNREADY
    }

    /// Whether new calls are refused.
    pub fn refuses(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= DRAINING
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn enter(self: &Arc<Self>) -> InFlight {
        self.gauge.inc();
        InFlight(self.hold())
    }

    /// Delays the end of the process, up to the grace period.
    pub fn hold(self: &Arc<Self>) -> DrainGuard {
        self.held.fetch_add(1, Ordering::Relaxed);
        DrainGuard(Arc::clone(self))
    }

    /// Requests in flight, and connections that have responses to write.
    pub fn in_flight(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns a watch that becomes true when the listener of a surface has to end.
    pub fn listener(&self, surface: Surface) -> ShutdownWatch {
        match surface {
            Surface::Admin => self.operator.subscribe(),
            _ => self.listeners.subscribe(),
        }
    }

    /// Registers the task of a connection, to be woken when the drain begins: it may wait for a
    /// silent client.
    pub fn watch(self: &Arc<Self>, task: Waker) -> ConnectionGuard {
        let mut open = self.open();
        let key = open.next;
        open.next += 1;
        open.tasks.insert(key, task);
        drop(open);
        ConnectionGuard {
            drain: Arc::clone(self),
            key,
        }
    }

    /// Begins the drain: every response is now the last on its connection, and idle connections end
    /// after [`DRAIN_KEEPALIVE`].
    pub fn begin(&self) {
        self.phase.store(UNREADY, Ordering::Relaxed);
        // a task that registers later takes the lock after this, and so sees the phase
        self.open().tasks.values().for_each(Waker::wake_by_ref);
    }

    /// Refuses new calls from now on.
    pub fn refuse(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether the listeners have ended: endless responses end too.
    pub fn is_closing(&self) -> bool {
        *self.listeners.borrow()
    }

    /// Ends all listeners but the operator's.
    pub fn close_listeners(&self) {
        self.listeners.send_replace(true);
    }

    /// Ends the operator's listener.
    pub fn close_operator(&self) {
        self.operator.send_replace(true);
    }

    /// Waits until no request is in flight.
    pub async fn nothing_in_flight(&self) {
        while self.in_flight() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the last listener and the last connection have ended.
    pub async fn nothing_open(&self) {
        self.listeners.closed().await;
        self.operator.closed().await;
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock()
    }
}

impl ConnectionGuard {
    /// Whether the drain has begun.
    pub fn has_begun(&self) -> bool {
        self.drain.has_begun()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.gauge.dec();
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        let held = self.0.held.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(held > 0, "each request in flight is counted");
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let task = self.drain.open().tasks.remove(&self.key);
        debug_assert!(task.is_some(), "an open connection is registered");
    }
}

/// The field of a request id, in requests and responses. A static, because a lookup by text parses
/// the name each time.
pub static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request's id: 8 to 64 letters, digits and hyphens. Stored inline, so that it needs no
/// allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId(ArrayString<MAX>);

const MIN: usize = 8;
const MAX: usize = 64;

impl RequestId {
    /// Parses an id; `None` if it is not well-formed.
    fn new(id: &[u8]) -> Option<Self> {
        let is_ours = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let is_id = (MIN..=MAX).contains(&id.len()) && id.iter().all(is_ours);
        let id = str::from_utf8(id).ok().filter(|_| is_id)?;
        ArrayString::from(id).ok().map(Self)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Mints ids that are unique across processes: a random prefix and a count, in hexadecimal digits
/// with leading zeros.
#[derive(Debug)]
pub struct RequestIds {
    /// 16 digits and a hyphen.
    process: ArrayString<MAX>,
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestIds {
    /// Draws the prefix from the random keys of the standard library's maps.
    pub fn new() -> Self {
        let mut process = ArrayString::new();
        push_hex(&mut process, RandomState::new().hash_one(0));
        process.push('-');
        Self {
            process,
            next: AtomicU64::new(0),
        }
    }

    /// The client's own id if it is well-formed, else a new one.
    pub fn accept_or_mint(&self, given: Option<&HeaderValue>) -> RequestId {
        given
            .and_then(|given| RequestId::new(given.as_bytes()))
            .unwrap_or_else(|| self.mint())
    }

    /// A new id.
    pub fn mint(&self) -> RequestId {
        let mut id = self.process;
        push_hex(&mut id, self.next.fetch_add(1, Ordering::Relaxed));
        RequestId(id)
    }
}

fn push_hex(id: &mut ArrayString<MAX>, number: u64) {
    let mut digits = [0; 2 * size_of::<u64>()];
    hex::encode_to_slice(number.to_be_bytes(), &mut digits).expect("two digits per byte");
    id.push_str(str::from_utf8(&digits).expect("digits are ASCII"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_client_ids_are_accepted() {
        let ids = RequestIds::new();
        let long = "x".repeat(65);
        for (given, is_accepted) in [
            ("abcdefgh", true),
            ("0f8fad5b-d9cb-469f-a165-70867728950e", true),
            (&long[..64], true),
            (&long, false),
            ("short12", false),
            ("with space", false),
            ("under_score", false),
            ("\"quoted-id\"", false),
        ] {
            let value = HeaderValue::from_str(given).expect("a header value");
            assert_eq!(
                ids.accept_or_mint(Some(&value)).as_str() == given,
                is_accepted,
                "{given}"
            );
        }
    }

    #[test]
    fn minted_ids_are_well_formed_and_unique() {
        let ids = RequestIds::new();
        let (one, two) = (ids.mint(), ids.mint());
        assert!(
            RequestId::new(one.as_str().as_bytes()) == Some(one),
            "{}",
            one.as_str()
        );
        assert_ne!(one.as_str(), two.as_str());
        assert_ne!(
            RequestIds::new().mint().as_str(),
            RequestIds::new().mint().as_str()
        );
    }
}
