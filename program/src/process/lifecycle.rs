//! The lifecycle of the process: signals, from readiness to exit.
//!
//! SIGHUP reloads. SIGUSR2 starts a successor, and stops this process once that is ready. Both wait
//! until the process serves. SIGTERM and SIGINT stop it: readiness fails, requests are still served
//! for `drain_delay`, so that load balancers notice; then the listeners close, so that one slow
//! client delays nobody else, new calls on open connections get 503 `draining`, and those in flight
//! have `grace_period` to finish. If another process has the sockets, this one stops accepting at
//! once, and serves its connections until they close. `signals` ends the process at a
//! second signal.
//! Pingora's own graceful stop would sleep through its whole grace period.

use super::systemd;
use crate::admin::Listener;
use crate::process::handover::{ListenerFd, Predecessor, Program, Successor};
use crate::process::reload::Reload;
use crate::process::signals::StopSignals;
use crate::process::systemd::Runtimes;
use async_trait::async_trait;
use futures_util::FutureExt as _;
use nix::sys::signal::{SigSet, Signal as SignalNumber, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use pingora::server::{ShutdownSignal as Shutdown, ShutdownSignalWatch};
use portcullis_base::config::ServerConfig;
use portcullis_base::telemetry::{Exporter, Surface};
use portcullis_edge::http::context::Drain;
use prometheus::IntGauge;
use std::future;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Everything that the lifecycle task needs.
pub(crate) struct Lifecycle {
    pub(crate) drain: Arc<Drain>,
    pub(crate) draining: IntGauge,
    pub(crate) config: ServerConfig,
    pub(crate) runtimes: Arc<Runtimes>,
    /// How many runtimes are registered when the process is ready.
    pub(crate) expected: usize,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) sockets: Vec<ListenerFd>,
    pub(crate) reload: Option<Reload>,
    pub(crate) program: Option<Program>,
    /// Whether only one process at a time can open the store.
    pub(crate) is_exclusive: bool,
    pub(crate) predecessor: Option<Predecessor>,
    pub(crate) exporter: Option<Exporter>,
}

/// Who has the listening sockets when this process stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketOwner {
    Nobody,
    /// The service manager, which starts another process for new connections.
    Manager,
    /// A process that serves already.
    Successor,
}

impl Lifecycle {
    /// Runs until a signal has stopped the process.
    async fn run(mut self, mut signals: StopSignals) {
        let owner = tokio::select! {
            () = self.serve() => SocketOwner::Successor,
            () = signals.wait() => self.socket_owner(),
        };
        if owner != SocketOwner::Successor {
            systemd::stopping("stopping: finishing the requests in flight");
        }
        // the new owner has its own descriptors; without one, nobody may listen after this process
        self.sockets.clear();
        let ignored = async {
            if owner == SocketOwner::Successor {
                // the first stop signal after a handover changes nothing
                signals.wait().await;
                log::info!("stopping already: handed over");
            }
            future::pending::<()>().await
        };
        tokio::select! {
            () = self.drain(owner) => {}
            () = ignored => {}
        }
        if let Some(exporter) = &self.exporter {
            exporter.finish().await;
        }
    }

    /// Becomes ready and serves, until a successor does.
    async fn serve(&mut self) {
        let watch = |kind| signal(kind).expect("SIGHUP and SIGUSR2 can be watched on Linux");
        let mut hangup = watch(SignalKind::hangup());
        let mut user = watch(SignalKind::user_defined2());
        // this is the first thread, to which Pingora delivers signals
        change_mask(SigSet::thread_unblock);
        self.runtimes.registered(self.expected).await;
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.notify_ready().await;
        }
        log::info!("serving");
        systemd::ready(&self.status("serving"));
        loop {
            tokio::select! {
                _ = hangup.recv() => self.reload(),
                _ = user.recv() => if let Some(successor) = self.spawn_successor().await {
                    let id = successor.process_id();
                    systemd::main_process(id, &format!("process {id} is the main process now"));
                    successor.release().await;
                    log::info!("handed over to process {id}");
                    if hangup.recv().now_or_never().is_some() {
                        // the signal is for the serving process, which may have read older files
                        forward(SignalNumber::SIGHUP, id);
                    }
                    return;
                },
            }
        }
    }

    fn reload(&self) {
        let Some(reload) = &self.reload else { return };
        systemd::reloading();
        let status = match reload.run() {
            Ok(0) => "serving; the last reload changed nothing".to_owned(),
            Ok(1) => "serving; the last reload changed 1 key or file".to_owned(),
            Ok(changes) => format!("serving; the last reload changed {changes} keys and files"),
            Err(_) => "serving with the old configuration: the last reload FAILED".to_owned(),
        };
        systemd::ready(&self.status(&status));
    }

    async fn spawn_successor(&self) -> Option<Successor> {
        let Some(program) = &self.program else {
            log::warn!("this mode has no handover");
            return None;
        };
        if self.is_exclusive {
            log::warn!("not handed over: one process at a time can open SQLite; restart instead");
            systemd::status(&self.status("serving: with SQLite, restart for an upgrade"));
            return None;
        }
        log::info!("handing over: starting a successor");
        systemd::status("handing over: waiting for a successor");
        match program.spawn_successor(&self.sockets).await {
            Ok(successor) => Some(successor),
            Err(error) => {
                log::error!("not handed over, still serving: the successor failed: {error}");
                systemd::status(&self.status("serving, after a successor FAILED to start"));
                None
            }
        }
    }

    fn status(&self, state: &str) -> String {
        let name = |at: &Listener| format!("{} {}", at.surface.name(), at.listen);
        format!(
            "{state}; {}",
            self.listeners
                .iter()
                .map(name)
                .collect::<Vec<_>>()
                .join(", ")
        )
    }

    /// The owner of the sockets after a stop signal: the service manager, if it holds those of all
    /// surfaces.
    fn socket_owner(&self) -> SocketOwner {
        let surfaces = || {
            self.sockets
                .iter()
                .filter(|socket| socket.surface != Surface::Admin)
        };
        let all_are_held = surfaces().all(|socket| socket.is_held);
        if all_are_held && surfaces().count() > 0 {
            SocketOwner::Manager
        } else {
            SocketOwner::Nobody
        }
    }

    async fn drain(&self, owner: SocketOwner) {
        self.drain.begin();
        self.draining.set(1);
        if owner == SocketOwner::Nobody {
            log::info!("stopping: not ready, still serving");
            if !self.config.drain_delay.is_zero() {
                tokio::time::sleep(self.config.drain_delay).await;
            }
            self.drain.refuse();
        } else {
            log::info!("stopping: another process has the sockets");
        }
        let finished = async {
            self.drain.close_listeners();
            if owner == SocketOwner::Nobody {
                // the operator sees what is still in flight
                self.drain.nothing_in_flight().await;
            }
            self.drain.close_operator();
            self.drain.nothing_open().await;
        };
        match tokio::time::timeout(self.config.grace_period, finished).await {
            Ok(()) => log::info!("stopping: nothing in flight"),
            Err(_) if self.drain.in_flight() > 0 => {
                log::warn!("stopping: grace period over, requests in flight are aborted");
            }
            Err(_) => log::info!("stopping: grace period over, nothing in flight"),
        }
    }
}

/// Blocks SIGHUP and SIGUSR2 until the process serves: without a handler they would kill it. Call
/// it while the process has a single thread.
pub fn block_signals() {
    change_mask(SigSet::thread_block);
}

fn change_mask(change: impl FnOnce(&SigSet) -> nix::Result<()>) {
    let signals = SigSet::from_iter([SignalNumber::SIGHUP, SignalNumber::SIGUSR2]);
    change(&signals).expect("a thread may change its mask");
}

fn forward(signal: SignalNumber, process: u32) {
    let sent = i32::try_from(process).map(|process| kill(Pid::from_raw(process), signal));
    if !matches!(sent, Ok(Ok(()))) {
        log::warn!("cannot forward {signal} to process {process}");
    }
}

/// Adapter: our lifecycle as Pingora's [`ShutdownSignalWatch`], which runs it once.
pub(crate) struct ShutdownSignal(pub(crate) Mutex<Option<(Lifecycle, StopSignals)>>);

#[async_trait]
impl ShutdownSignalWatch for ShutdownSignal {
    async fn recv(&self) -> Shutdown {
        let lifecycle = self.0.lock().take();
        if let Some((lifecycle, signals)) = lifecycle {
            lifecycle.run(signals).await;
        }
        Shutdown::FastShutdown
    }
}
