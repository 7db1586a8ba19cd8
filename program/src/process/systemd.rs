//! Reports to the service manager: sd_notify(3). Does nothing without one.
//!
//! The watchdog's `WATCHDOG=1` is sent only if every runtime runs a task and fires a timer. A
//! thread of its own would report health while everything else hangs.

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Reports that the process serves.
pub(crate) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that a reload has begun. [`ready`] follows.
pub(crate) fn reloading() {
    // the service manager compares this clock, which Linux always has
    let now = NotifyState::monotonic_usec_now().ok();
    let states = [
        NotifyState::Reloading,
        NotifyState::Status("reloading the configuration"),
    ];
    notify(&states.into_iter().chain(now).collect::<Vec<_>>());
}

/// Changes the status text only.
pub(crate) fn status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Reports that another process becomes the main process of the service.
pub(crate) fn main_process(process: u32, status: &str) {
    notify(&[NotifyState::MainPid(process), NotifyState::Status(status)]);
}

/// Reports that the process stops.
pub(crate) fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("cannot notify the service manager: {error}");
    }
}

/// The runtimes that the watchdog checks.
#[derive(Debug, Default)]
pub struct Runtimes {
    handles: Mutex<Vec<Handle>>,
    count: watch::Sender<usize>,
}

impl Runtimes {
    /// Registers a runtime that serves.
    pub fn add(&self, runtime: Handle) {
        self.handles.lock().push(runtime);
        self.count.send_modify(|count| *count += 1);
    }

    /// Waits until `count` runtimes are registered.
    pub(crate) async fn registered(&self, count: usize) {
        let mut now = self.count.subscribe();
        // the sender lives as long as `self`
        let _ = now.wait_for(|now| *now >= count).await;
    }

    /// Waits until each runtime has run a task and fired a timer. Returns false if one is shut
    /// down.
    pub async fn respond(&self) -> bool {
        /// Long enough to need the timer.
        const MOMENT: Duration = Duration::from_millis(1);
        let handles = self.handles.lock().clone();
        // created on the runtime, so that it uses the runtime's own timer
        let probe = || async { tokio::time::sleep(MOMENT).await };
        let probes: Vec<_> = handles
            .iter()
            .map(|runtime| runtime.spawn(probe()))
            .collect();
        for probe in probes {
            if probe.await.is_err() {
                return false;
            }
        }
        true
    }
}

/// The task that pings the watchdog of the service manager, twice per its interval, while all
/// runtimes respond. The manager expects no ping before the process is ready.
pub(crate) struct Watchdog {
    interval: Duration,
    runtimes: Arc<Runtimes>,
}

impl Watchdog {
    /// Returns `None` if the service manager set no watchdog.
    pub(crate) fn new(runtimes: &Arc<Runtimes>) -> Option<Self> {
        let interval = sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero())?;
        let runtimes = Arc::clone(runtimes);
        Some(Self { interval, runtimes })
    }

    async fn run(&self) {
        let half = self.interval / 2;
        let mut ticks = tokio::time::interval(half);
        loop {
            ticks.tick().await;
            match tokio::time::timeout(half, self.runtimes.respond()).await {
                Ok(true) => notify(&[NotifyState::Watchdog]),
                _ => log::error!(
                    "a runtime is stuck: not pinging the watchdog of the service manager"
                ),
            }
        }
    }
}

#[async_trait]
impl BackgroundService for Watchdog {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
        }
    }
}
