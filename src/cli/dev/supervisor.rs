//! Keeps the node of `dev` running: when it ends, starts it again at its address, with the network
//! deployed anew.

use super::node::Devnet;
use super::{DevError, block_on};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two polls of the process.
const POLL: Duration = Duration::from_millis(200);
/// Time before the next attempt to start it.
const PAUSE: Duration = Duration::from_secs(5);

/// A node that is started again when it ends; dropping this stops it.
pub(super) struct Supervisor {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    /// Watches a node; `deploy` sets its network up.
    pub(super) fn watch(
        devnet: Devnet,
        deploy: impl AsyncFn() -> Result<(), DevError> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || run(devnet, &deploy, &stopped));
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // it has nothing to report
            let _ = thread.join();
        }
    }
}

fn run(
    mut devnet: Devnet,
    deploy: &impl AsyncFn() -> Result<(), DevError>,
    stopped: &Receiver<()>,
) {
    let mut pause = POLL;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let Some(status) = devnet.exit_status() else { continue };
        log::error!("the node ended ({status}): starting it again, with an empty chain");
        let restarted = block_on(async {
            devnet.restart().await?;
            deploy().await
        });
        match restarted
            .map_err(|error| error.to_string())
            .and_then(|done| done.map_err(|error| error.to_string()))
        {
            Ok(()) => {
                log::warn!("the node runs again, and its network is set up");
                pause = POLL;
            }
            Err(error) => {
                log::error!("the node does not run: {error}; trying again in {PAUSE:?}");
                devnet.stop();
                pause = PAUSE;
            }
        }
    }
}
