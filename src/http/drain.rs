//! Graceful shutdown: its phase, and the connections and requests it waits for.
//!
//! Pingora sleeps its whole grace period whatever happens; this ends as soon as the last request
//! and the last connection have. `process::lifecycle` starts each phase.

use parking_lot::{Mutex, MutexGuard};
use pingora::server::ShutdownWatch;
use prometheus::IntGauge;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::watch;

/// How long a connection may still send a request once the drain has begun: a client that sends one
/// before it hears of the drain is answered, and its connection closed.
pub const DRAIN_KEEPALIVE: Duration = Duration::from_secs(1);
/// How often the requests in flight are counted while the process waits for them.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const SERVING: u8 = 0;
const UNREADY: u8 = 1;
const DRAINING: u8 = 2;

/// The phase of the drain, and what is open and in flight.
#[derive(Debug)]
pub struct Drain {
    phase: AtomicU8,
    /// Guards that delay the end of the process.
    held: AtomicUsize,
    gauge: IntGauge,
    /// Ends the listeners. Each of them and each connection holds a receiver: when the last is
    /// dropped, all have ended.
    listeners: watch::Sender<bool>,
    open: Mutex<Open>,
}

/// The tasks of open connections, to wake when the drain begins.
#[derive(Debug, Default)]
struct Open {
    next: u64,
    tasks: HashMap<u64, Waker>,
}

/// A request in flight, until it is dropped.
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

    /// Counts a request in.
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

    /// Becomes true when a listener has to end.
    pub fn listener(&self) -> ShutdownWatch {
        self.listeners.subscribe()
    }

    /// Registers the task of a connection, to be woken when the drain begins: it may wait for a
    /// silent client.
    pub fn watch(self: &Arc<Self>, task: Waker) -> ConnectionGuard {
        let mut open = self.open();
        let key = open.next;
        open.next += 1;
        open.tasks.insert(key, task);
        drop(open);
        ConnectionGuard { drain: Arc::clone(self), key }
    }

    /// Begins: every response is now the last of its connection, and idle connections end after
    /// [`DRAIN_KEEPALIVE`].
    pub(crate) fn begin(&self) {
        self.phase.store(UNREADY, Ordering::Relaxed);
        // a task that registers later takes the lock after this, and so sees the phase
        self.open().tasks.values().for_each(Waker::wake_by_ref);
    }

    /// Refuses new calls from now on.
    pub(crate) fn refuse(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether the listeners have ended: endless responses end too.
    pub fn is_closing(&self) -> bool {
        *self.listeners.borrow()
    }

    /// Ends the listeners.
    pub(crate) fn close_listeners(&self) {
        self.listeners.send_replace(true);
    }

    /// Waits until no request is in flight.
    pub(crate) async fn nothing_in_flight(&self) {
        while self.in_flight() > 0 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the last listener and the last connection are over.
    pub(crate) async fn nothing_open(&self) {
        self.listeners.closed().await;
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
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.drain.open().tasks.remove(&self.key);
    }
}
