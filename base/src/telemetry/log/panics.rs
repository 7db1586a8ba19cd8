//! Panics of the thread that writes the log: it writes again after a pause, and its condition ends
//! once it has written for a minute. The lines that it had taken are lost.

use super::Log;
use super::output::{Output, Stderr};
use crate::telemetry::{Metrics, Task};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// The pause after a panic.
const PAUSE: Duration = Duration::from_secs(1);
/// A writer that has written this long after a panic has recovered.
const STEADY: Duration = Duration::from_secs(60);

/// The panics of the writer so far.
#[derive(Default)]
pub(super) struct Panics {
    /// Where they are counted; set once the metrics exist.
    metrics: OnceLock<Arc<Metrics>>,
    newest: Mutex<Option<Instant>>,
}

impl Panics {
    /// Called while lines are written: ends the condition in time.
    pub(super) fn review(&self) {
        let mut newest = self.newest.lock();
        if newest.is_some_and(|at| at.elapsed() >= STEADY) {
            *newest = None;
            if let Some(metrics) = self.metrics.get() {
                let now = SystemTime::now();
                metrics.tasks.recovered(Task::Log, &metrics.conditions, now);
            }
        }
        assert!(!self.rehearses(), "a rehearsal");
    }

    fn rehearses(&self) -> bool {
        Task::Log.rehearses_panic()
            && self
                .metrics
                .get()
                .is_some_and(|metrics| !metrics.tasks.has_failed(Task::Log))
    }

    fn note(&self) {
        *self.newest.lock() = Some(Instant::now());
        if let Some(metrics) = self.metrics.get() {
            metrics
                .tasks
                .failed(Task::Log, &metrics.conditions, SystemTime::now());
        }
    }
}

impl Log {
    /// Counts panics of the writer in these metrics.
    pub fn report_panics_to(&self, metrics: &Arc<Metrics>) {
        // a second server in one process, in tests, reports to the first
        let _ = self.sink.panics.metrics.set(Arc::clone(metrics));
    }

    /// Writes lines as long as the process lives.
    pub(super) fn keep_writing(&self) {
        let write = || self.write_out(Output::new(Stderr));
        while catch_unwind(AssertUnwindSafe(write)).is_err() {
            self.skip_taken();
            self.sink.panics.note();
            sleep(PAUSE);
        }
    }

    /// Counts the lines that were taken and not written as over, so that no flush waits for them.
    fn skip_taken(&self) {
        let mut pending = self.sink.pending.lock();
        pending.written = pending.appended - pending.lines.len() as u64;
    }
}
