//! How far a stop is, and what it waits for.
//!
//! In: connections and requests that come and go. Out: whether new calls are refused, whether a
//! connection may stay, and the end of the last of them. What begins a stop is in `life`.

use pingora::server::ShutdownWatch;
use prometheus::IntGauge;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::watch;

/// Once a stop has begun, a connection has this long to bring its next request: a client that sends
/// one before it hears of the stop is answered, and told that it was the last.
pub const LAST_CALL: Duration = Duration::from_secs(1);
/// How often the requests in flight are looked at while the process waits for them.
const LOOK: Duration = Duration::from_millis(10);

const SERVING: u8 = 0;
const UNREADY: u8 = 1;
const DRAINING: u8 = 2;

/// How far the stop is, and what is open and in flight.
#[derive(Debug)]
pub struct Stop {
    phase: AtomicU8,
    /// What the process waits for.
    held: AtomicUsize,
    gauge: IntGauge,
    /// Ends the listeners. Each of them, and each connection from the moment that it was accepted,
    /// holds a receiver: when there is none any more, all are over.
    listeners: watch::Sender<bool>,
    open: Mutex<Open>,
}

/// The tasks of the connections that are open.
#[derive(Debug, Default)]
struct Open {
    next: u64,
    tasks: HashMap<u64, Waker>,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight(Hold);

/// Something that the process does not end before, until it is dropped.
#[derive(Debug)]
pub struct Hold(Arc<Stop>);

/// An open connection, until it is dropped.
#[derive(Debug)]
pub struct Watched {
    stop: Arc<Stop>,
    key: u64,
}

impl Stop {
    /// Serving; `gauge` shows the requests in flight.
    pub fn new(gauge: IntGauge) -> Arc<Self> {
        Arc::new(Self {
            phase: AtomicU8::new(SERVING),
            held: AtomicUsize::new(0),
            gauge,
            listeners: watch::Sender::new(false),
            open: Mutex::default(),
        })
    }

    /// Whether a stop was asked for: the process is not ready any more.
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

    /// Holds the end of the process back, for as long as requests may.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.held.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::clone(self))
    }

    /// Requests in flight, and connections that have answers to write.
    pub fn in_flight(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Becomes true when a listener has to end.
    pub fn listener(&self) -> ShutdownWatch {
        self.listeners.subscribe()
    }

    /// Has `task`, which serves a connection, looked after when a stop begins: it may be asleep
    /// over a client that says nothing.
    pub fn watch(self: &Arc<Self>, task: Waker) -> Watched {
        let mut open = self.open();
        let key = open.next;
        open.next += 1;
        open.tasks.insert(key, task);
        drop(open);
        Watched { stop: Arc::clone(self), key }
    }

    /// Begins: from now on every answer is the last of its connection, and what is idle has
    /// [`LAST_CALL`].
    pub(crate) fn begin(&self) {
        self.phase.store(UNREADY, Ordering::Relaxed);
        // a task that comes to be watched later finds the lock, and so the phase
        self.open().tasks.values().for_each(Waker::wake_by_ref);
    }

    /// New calls are refused from now on.
    pub(crate) fn refuse(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether no listener accepts any more: what would go on for ever ends now.
    pub fn is_closing(&self) -> bool {
        *self.listeners.borrow()
    }

    /// No listener accepts any more.
    pub(crate) fn close_listeners(&self) {
        self.listeners.send_replace(true);
    }

    /// Waits until no request is in flight.
    pub(crate) async fn nothing_in_flight(&self) {
        while self.in_flight() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the last listener and the last connection are over.
    pub(crate) async fn nothing_open(&self) {
        self.listeners.closed().await;
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Whether a stop has begun.
    pub fn has_begun(&self) -> bool {
        self.stop.has_begun()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.gauge.dec();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.open().tasks.remove(&self.key);
    }
}
