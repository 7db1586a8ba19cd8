//! The life of the process, by signals: from when it is ready to its end.
//!
//! SIGHUP reloads. SIGUSR2 starts a successor, and ends this process once that is ready. Both wait
//! until the process serves. SIGTERM and SIGINT stop it: readiness fails, and for `drain_delay`
//! requests are still served, so that whoever balances the load looks elsewhere; then new calls get
//! 503 `draining` and those in flight have `grace_period` to finish. Where another process has the
//! sockets, this one stops accepting at once, and answers what comes on its connections until they
//! are closed. A second signal ends it at once. Pingora's own graceful stop would sleep its whole
//! grace period whatever happens.

use super::systemd;
use crate::config::ServerConfig;
use crate::http::context::ServerContext;
use crate::http::drain::Drain;
use crate::process::handover::{Bequest, Predecessor, Program, Successor};
use crate::process::reload::Reload;
use crate::process::watchdog::{self, Runtimes};
use crate::telemetry::Surface;
use async_trait::async_trait;
use futures_util::FutureExt as _;
use nix::sys::signal::{SigSet, Signal as Signalled, kill};
use nix::unistd::Pid;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use prometheus::IntGauge;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What it takes to live.
pub(crate) struct Life {
    drain: Arc<Drain>,
    draining: IntGauge,
    drain_delay: Duration,
    grace_period: Duration,
    runtimes: Arc<Runtimes>,
    /// How many of them serve when the process is ready.
    pub(crate) expected: usize,
    /// What is listened on, for people.
    pub(crate) serves: Vec<String>,
    pub(crate) sockets: Vec<Bequest>,
    pub(crate) reload: Option<Reload>,
    pub(crate) program: Option<Program>,
    /// Only one process at a time can have the store.
    pub(crate) is_alone: bool,
    pub(crate) predecessor: Option<Predecessor>,
}

/// Who has the sockets when this process stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heir {
    /// Nobody.
    None,
    /// The service manager, which starts another process for what comes in.
    Manager,
    /// A process that serves already.
    Successor,
}

impl Life {
    /// Until a signal ends it.
    pub(crate) fn new(
        process: &ServerContext,
        config: &ServerConfig,
        runtimes: Arc<Runtimes>,
    ) -> Self {
        let ServerConfig { drain_delay, grace_period, .. } = *config;
        Self {
            drain: Arc::clone(&process.drain),
            draining: process.metrics.draining.clone(),
            drain_delay,
            grace_period,
            runtimes,
            expected: 0,
            serves: Vec::new(),
            sockets: Vec::new(),
            reload: None,
            program: None,
            is_alone: false,
            predecessor: None,
        }
    }

    async fn live(mut self) {
        let mut signals = Signals::new();
        let heir = tokio::select! {
            heir = self.serve() => heir,
            () = signals.wait() => self.heir(),
        };
        if heir != Heir::Successor {
            systemd::stopping("stopping: answering what is in flight");
        }
        // an heir listens on them; without one, nobody does from when this process stops to
        self.sockets.clear();
        let second = async {
            if heir == Heir::Successor {
                // the first one that stops it
                signals.wait().await;
                log::info!("stopping already: handed over");
            }
            signals.wait().await;
        };
        tokio::select! {
            () = self.drain(heir) => {}
            () = second => log::warn!("stopping at once: a second signal"),
        }
    }

    /// Gets ready and serves, until somebody else does.
    async fn serve(&mut self) -> Heir {
        let watch = |kind| signal(kind).expect("SIGHUP and SIGUSR2 can be watched on Linux");
        let mut hangup = watch(SignalKind::hangup());
        let mut user = watch(SignalKind::user_defined2());
        // this is the first thread: Pingora waits for its signals there
        change_mask(SigSet::thread_unblock);
        self.runtimes.are(self.expected).await;
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.relieve().await;
        }
        log::info!("serving");
        systemd::ready(&self.standing("serving"));
        tokio::spawn(watchdog::watch_over(Arc::clone(&self.runtimes)));
        loop {
            tokio::select! {
                _ = hangup.recv() => self.reload(),
                _ = user.recv() => if let Some(successor) = self.successor().await {
                    let id = successor.id();
                    systemd::follow(id, &format!("process {id} has taken over"));
                    successor.go_on().await;
                    log::info!("handed over to process {id}");
                    if hangup.recv().now_or_never().is_some() {
                        // it was meant for whoever serves, who may have read the files before
                        pass_on(Signalled::SIGHUP, id);
                    }
                    return Heir::Successor;
                },
            }
        }
    }

    fn reload(&self) {
        let Some(reload) = &self.reload else { return };
        systemd::reloading();
        let came_of_it = match reload.run() {
            Ok(0) => "serving, and nothing had changed at the last reload".to_owned(),
            Ok(changes) => format!("serving, with {changes} changes of the last reload"),
            Err(_) => "serving with the old configuration: the last reload FAILED".to_owned(),
        };
        systemd::ready(&self.standing(&came_of_it));
    }

    async fn successor(&self) -> Option<Successor> {
        let Some(program) = &self.program else {
            log::warn!("there is no handing over in this mode");
            return None;
        };
        if self.is_alone {
            log::warn!("not handed over: a SQLite database has one process; restart instead");
            systemd::status(&self.standing("serving: with SQLite, restart for an upgrade"));
            return None;
        }
        log::info!("handing over: starting a successor");
        systemd::status("handing over: waiting for a successor");
        match program.succeed(&self.sockets).await {
            Ok(successor) => Some(successor),
            Err(error) => {
                log::error!("not handed over, serving on: the successor failed: {error}");
                systemd::status(&self.standing("serving, after a successor FAILED to start"));
                None
            }
        }
    }

    fn standing(&self, how: &str) -> String {
        format!("{how}; {}", self.serves.join(", "))
    }

    /// Who has the sockets when this process stops by itself: the service manager, if it holds the
    /// sockets of all surfaces.
    fn heir(&self) -> Heir {
        let surfaces = || self.sockets.iter().filter(|socket| socket.surface != Surface::Admin);
        let all_are_held = surfaces().all(|socket| socket.is_held);
        if all_are_held && surfaces().count() > 0 { Heir::Manager } else { Heir::None }
    }

    async fn drain(&self, heir: Heir) {
        self.drain.begin();
        self.draining.set(1);
        if heir == Heir::None {
            log::info!("stopping: not ready any more, still serving");
            if !self.drain_delay.is_zero() {
                tokio::time::sleep(self.drain_delay).await;
            }
            self.drain.refuse();
        } else {
            log::info!("stopping: another process has the sockets");
        }
        let over = async {
            if heir == Heir::None {
                // whoever asks now is told to ask elsewhere
                self.drain.nothing_in_flight().await;
            }
            self.drain.close_listeners();
            self.drain.nothing_open().await;
        };
        match tokio::time::timeout(self.grace_period, over).await {
            Ok(()) => log::info!("stopping: nothing is in flight any more"),
            Err(_) if self.drain.in_flight() > 0 => {
                log::warn!("stopping: the grace period is over, requests in flight are cut off");
            }
            Err(_) => log::info!("stopping: the grace period is over, and nothing is in flight"),
        }
    }
}

/// Has SIGHUP and SIGUSR2 wait until the process serves: without a handler they would end it. To be
/// called while the process has no threads yet.
pub(crate) fn hold_back() {
    change_mask(SigSet::thread_block);
}

/// Changes this thread's mask.
fn change_mask(change: impl FnOnce(&SigSet) -> nix::Result<()>) {
    let signals = SigSet::from_iter([Signalled::SIGHUP, Signalled::SIGUSR2]);
    change(&signals).expect("a thread may change its mask");
}

/// Sends a signal to a process that is most likely there.
fn pass_on(signal: Signalled, process: u32) {
    let sent = i32::try_from(process).map(|process| kill(Pid::from_raw(process), signal));
    if !matches!(sent, Ok(Ok(()))) {
        log::warn!("process {process} was not told of {signal}");
    }
}

/// A life as Pingora runs it, once.
pub(crate) struct UntilStopped(Mutex<Option<Life>>);

impl From<Life> for UntilStopped {
    fn from(life: Life) -> Self {
        Self(Mutex::new(Some(life)))
    }
}

#[async_trait]
impl ShutdownSignalWatch for UntilStopped {
    async fn recv(&self) -> ShutdownSignal {
        let life = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(life) = life {
            life.live().await;
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
