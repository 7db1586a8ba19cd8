//! Stopping without losing a request.
//!
//! SIGTERM or SIGINT: readiness fails, and for `drain_delay` requests are still served, so that
//! whoever balances the load looks elsewhere. Then new calls get 503 `draining` and those in flight
//! have `grace_period` to finish; as soon as none is left, the process ends. A second signal ends
//! it at once. Pingora's own graceful stop would sleep its whole grace period whatever happens.

use crate::config::ServerConfig;
use crate::reload::Reload;
use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use prometheus::IntGauge;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

/// How often the requests in flight are looked at while the process waits for them.
const LOOK: Duration = Duration::from_millis(10);

const SERVING: u8 = 0;
const UNREADY: u8 = 1;
const DRAINING: u8 = 2;

/// How far the stop is, and how many requests are in flight.
#[derive(Debug)]
pub struct Stop {
    phase: AtomicU8,
    /// What the process waits for.
    held: AtomicUsize,
    gauge: IntGauge,
    begun: watch::Sender<bool>,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub struct InFlight(Hold);

/// Something that the process does not end before, until it is dropped.
#[derive(Debug)]
pub struct Hold(Arc<Stop>);

impl Stop {
    /// Serving; `gauge` shows the requests in flight.
    pub fn new(gauge: IntGauge) -> Arc<Self> {
        let (phase, held) = (AtomicU8::new(SERVING), AtomicUsize::new(0));
        Arc::new(Self { phase, held, gauge, begun: watch::Sender::new(false) })
    }

    /// Whether a stop was asked for: the process is not ready any more.
    pub fn has_begun(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= UNREADY
    }

    /// Whether new calls are refused.
    pub fn refuses(&self) -> bool {
        self.phase.load(Ordering::Relaxed) >= DRAINING
    }

    /// Waits until a stop is asked for.
    pub fn begins(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut begun = self.begun.subscribe();
        async move {
            if begun.wait_for(|begun| *begun).await.is_err() {
                // whoever could ask for it is gone
                std::future::pending().await
            }
        }
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

/// Waits for the signals, and carries the stop out.
pub struct StopOnSignal {
    stop: Arc<Stop>,
    draining: IntGauge,
    drain_delay: Duration,
    grace_period: Duration,
    reload: Option<Reload>,
}

impl StopOnSignal {
    /// For this `stop`; `draining` becomes 1 when it begins.
    pub fn new(stop: Arc<Stop>, draining: IntGauge, config: &ServerConfig) -> Self {
        let ServerConfig { drain_delay, grace_period, .. } = *config;
        Self { stop, draining, drain_delay, grace_period, reload: None }
    }

    /// Reloads on SIGHUP, too.
    pub fn reload_with(&mut self, reload: Reload) {
        self.reload = Some(reload);
    }

    async fn drain(&self) {
        self.stop.phase.store(UNREADY, Ordering::Relaxed);
        self.stop.begun.send_replace(true);
        self.draining.set(1);
        log::info!("stopping: not ready any more, still serving");
        if !self.drain_delay.is_zero() {
            tokio::time::sleep(self.drain_delay).await;
        }
        self.stop.phase.store(DRAINING, Ordering::Relaxed);
        let end = Instant::now() + self.grace_period;
        while self.stop.held.load(Ordering::Relaxed) > 0 {
            if Instant::now() >= end {
                log::warn!("stopping: the grace period is over, requests in flight are cut off");
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        log::info!("stopping: nothing is in flight any more");
    }
}

#[async_trait]
impl ShutdownSignalWatch for StopOnSignal {
    async fn recv(&self) -> ShutdownSignal {
        let mut signals = Signals::new();
        let mut hangup = signal(SignalKind::hangup()).expect("SIGHUP can be watched on Linux");
        loop {
            tokio::select! {
                () = signals.wait() => break,
                _ = hangup.recv() => self.reload.iter().for_each(Reload::run),
            }
        }
        tokio::select! {
            () = self.drain() => {}
            () = signals.wait() => log::warn!("stopping at once: a second signal"),
        }
        ShutdownSignal::FastShutdown
    }
}

/// SIGTERM and SIGINT.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Default for Signals {
    fn default() -> Self {
        Self::new()
    }
}

impl Signals {
    /// Watches for them, from now on and within a tokio runtime; they do not end the process any
    /// more.
    pub fn new() -> Self {
        let watch = |kind| signal(kind).expect("SIGTERM and SIGINT can be watched on Linux");
        Self {
            terminate: watch(SignalKind::terminate()),
            interrupt: watch(SignalKind::interrupt()),
        }
    }

    /// Waits for the next one.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
