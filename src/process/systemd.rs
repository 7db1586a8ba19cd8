//! What the service manager is told: sd_notify(3). Nothing happens where nobody listens.

use sd_notify::NotifyState;

/// The process serves.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The configuration is being read again. [`ready`] follows.
pub(crate) fn reloading() {
    // the clock that the service manager compares it with can be read on Linux
    let now = NotifyState::monotonic_usec_now().ok();
    let states = [NotifyState::Reloading, NotifyState::Status("reading the configuration again")];
    tell(&states.into_iter().chain(now).collect::<Vec<_>>());
}

/// How things stand.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Another process is the service's main one from now on.
pub(crate) fn follow(process: u32, status: &str) {
    tell(&[NotifyState::MainPid(process), NotifyState::Status(status)]);
}

/// The process has begun to stop.
pub(crate) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// The process is well.
pub(crate) fn well() {
    tell(&[NotifyState::Watchdog]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!("the service manager can not be told how things stand: {error}");
    }
}
