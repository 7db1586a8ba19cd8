//! Keeps the node of `dev` running: when it ends, starts it again at its address, with the network
//! deployed anew.

use super::error::DevError;
use super::node::Devnet;
use nix::sys::signal::{Signal, raise};
use portcullis_program::command::block_on;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::oneshot::{self, Sender};

/// Time between two polls of the process.
const POLL: Duration = Duration::from_millis(200);
/// Time before the next attempt to start it.
const PAUSE: Duration = Duration::from_secs(5);

/// A node that is started again when it ends.
pub(super) struct Supervisor {
    stop: Sender<()>,
    thread: JoinHandle<Result<(), DevError>>,
}

impl Supervisor {
    /// Watches the node that `first` starts; `deploy` sets its network up after a restart. If
    /// `first` fails, the supervisor stops the process.
    pub(super) fn watch(
        first: impl AsyncFnOnce() -> Result<Devnet, DevError> + Send + 'static,
        deploy: impl AsyncFn() -> Result<(), DevError> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let ended = block_on(async {
                tokio::select! {
                    ended = run(first, deploy) => ended,
                    _ = stopped => Ok(()),
                }
            });
            let ended = ended.map_err(DevError::Runtime).flatten();
            if ended.is_err() {
                // as Ctrl-C does
                let _ = raise(Signal::SIGTERM);
            }
            ended
        });
        Self { stop, thread }
    }

    /// Stops the node.
    ///
    /// # Errors
    /// Returns why the node did not start.
    pub(super) fn stop(self) -> Result<(), DevError> {
        drop(self.stop);
        self.thread.join().unwrap_or(Ok(()))
    }
}

async fn run(
    first: impl AsyncFnOnce() -> Result<Devnet, DevError>,
    deploy: impl AsyncFn() -> Result<(), DevError>,
) -> Result<(), DevError> {
    let mut devnet = first().await?;
    let mut pause = POLL;
    loop {
        tokio::time::sleep(pause).await;
        let Some(status) = devnet.exit_status() else {
            continue;
        };
        log::error!("the node ended ({status}): starting it again, with an empty chain");
        let restarted = async {
            devnet.restart().await?;
            deploy().await
        };
        match restarted.await {
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
