//! The proof of life that the service manager wants: `WATCHDOG=1`, only when every runtime turns.
//!
//! A thread of its own would say that all is well while everything else hangs. Here each runtime
//! that serves is given a task, which has to be woken by its timer, before anything is said.

use super::systemd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Long enough to have to wait for the timer.
const A_MOMENT: Duration = Duration::from_millis(1);

/// The runtimes that serve.
#[derive(Debug, Default)]
pub struct Runtimes {
    handles: Mutex<Vec<Handle>>,
    count: watch::Sender<usize>,
}

impl Runtimes {
    /// This one serves from now on.
    pub fn add(&self, runtime: Handle) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(runtime);
        self.count.send_modify(|count| *count += 1);
    }

    /// Waits until so many do.
    pub async fn are(&self, count: usize) {
        let mut now = self.count.subscribe();
        // the sender is ours
        let _ = now.wait_for(|now| *now >= count).await;
    }

    /// Waits until each has run a task and rung a timer; false when one is shut down.
    async fn turn(&self) -> bool {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // the timer is made there: one made here would be this runtime's
        let turn = || async { tokio::time::sleep(A_MOMENT).await };
        let turns = handles.iter().map(|runtime| runtime.spawn(turn()));
        let turns: Vec<_> = turns.collect();
        for turn in turns {
            if turn.await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Tells the service manager that the process is well, twice as often as it wants to hear it, while
/// that is so. Returns when it does not want to.
pub async fn watch_over(runtimes: Arc<Runtimes>) {
    let wanted = sd_notify::watchdog_enabled().filter(|every| !every.is_zero());
    let Some(wanted) = wanted else { return };
    let mut ticks = tokio::time::interval(wanted / 2);
    loop {
        ticks.tick().await;
        match tokio::time::timeout(wanted / 2, runtimes.turn()).await {
            Ok(true) => systemd::well(),
            _ => log::error!("a runtime does not turn: the service manager's watchdog will bark"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn all_turn_only_when_no_runtime_is_stuck() {
        let runtimes = Runtimes::default();
        runtimes.add(Handle::current());
        let mut other = tokio::runtime::Builder::new_multi_thread();
        let other = other.worker_threads(1).enable_all().build().expect("threads can be made");
        runtimes.add(other.handle().clone());
        assert!(runtimes.turn().await, "both turn");

        let (release, held) = mpsc::channel::<()>();
        other.spawn(async move { held.recv() });
        let turn = runtimes.turn();
        tokio::pin!(turn);
        let waited = tokio::time::timeout(Duration::from_millis(100), &mut turn).await;
        assert!(waited.is_err(), "one is stuck");
        release.send(()).expect("it waits");
        assert!(turn.await, "both turn again");

        other.shutdown_background();
        assert!(!runtimes.turn().await, "one is gone");
    }
}
