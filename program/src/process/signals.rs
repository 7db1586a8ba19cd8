//! SIGTERM and SIGINT, on a thread of their own, which nothing else in the process can block.
//!
//! The first one is passed to the task that stops the process gracefully. The second one ends the
//! process whatever it waits for: a full pipe, a hung disk, a runtime without a free thread. It
//! runs no destructor: the kernel releases sockets and file locks, and both databases recover as
//! after a crash.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::future;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::sync::watch;

/// How long the second signal waits for the last log lines.
const LAST_LINES: Duration = Duration::from_millis(100);
/// The exit status, as after a graceful stop.
const STOPPED: i32 = 0;

/// The signals that stop the process.
pub struct StopSignals(watch::Receiver<u32>);

impl StopSignals {
    /// Installs the handlers; the first signal no longer ends the process by itself.
    ///
    /// # Errors
    /// Fails if the handlers or their thread cannot be installed.
    pub fn install() -> io::Result<Self> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let (sender, received) = watch::channel(0);
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for number in (1..).zip(signals.forever()).map(|(number, _)| number) {
                    if number > 1 {
                        end_at_once();
                    }
                    // this works with or without a receiver that waits
                    sender.send_replace(number);
                }
            })?;
        Ok(Self(received))
    }

    /// Waits for a signal that no earlier call has returned.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // the sending thread ends only with the process
            future::pending().await
        }
    }
}

/// Ends the process: `_exit(2)`.
fn end_at_once() -> ! {
    let (done, ended) = mpsc::channel();
    // on another thread, since this one must not wait for locks or stderr
    let last_lines = thread::Builder::new().spawn(move || {
        log::warn!("stopping at once: second signal");
        log::logger().flush();
        done.send(())
    });
    if last_lines.is_ok() {
        // whether they were written or not
        let _ = ended.recv_timeout(LAST_LINES);
    }
    low_level::exit(STOPPED)
}
