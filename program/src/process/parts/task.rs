//! A background task that no panic ends.
//!
//! In: a task. Out: a service that runs it until the process stops. A panic is a failed round, and
//! so is an early end: it is counted, a condition names the task, and the task starts again after a
//! delay.

use async_trait::async_trait;
use futures_util::FutureExt as _;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::telemetry::{Metrics, Task};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{sleep, timeout};

/// Delays before a task starts again, doubled from 1 s to a minute.
const DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// A task that has run this long after a panic has recovered.
const STEADY: Duration = Duration::from_secs(60);

/// Starts a task again after a panic.
pub(super) struct Restarting<T> {
    pub(super) name: Task,
    pub(super) task: T,
    pub(super) metrics: Arc<Metrics>,
}

#[async_trait]
impl<T> BackgroundService for Restarting<T>
where
    T: BackgroundService + Send + Sync,
{
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let (tasks, conditions) = (&self.metrics.tasks, &self.metrics.conditions);
        let mut failed = 0;
        let mut rehearsal = Rehearsal(self.name.rehearses_panic());
        loop {
            let run = self.task.start(shutdown.clone());
            let run = AssertUnwindSafe(rehearsal.during(run)).catch_unwind();
            let mut run = pin!(run);
            let ended = match timeout(STEADY, &mut run).await {
                Ok(ended) => ended,
                Err(_) => {
                    if failed > 0 {
                        failed = 0;
                        tasks.recovered(self.name, conditions, SystemTime::now());
                    }
                    run.await
                }
            };
            if *shutdown.borrow() || ended.is_ok() && self.name.ends() {
                return;
            }
            if ended.is_ok() {
                log::error!(task = self.name.name(); "a background task has ended by itself");
            }
            failed += 1;
            tasks.failed(self.name, conditions, SystemTime::now());
            tokio::select! {
                _ = shutdown.changed() => return,
                () = sleep(delay(failed)) => {}
            }
        }
    }
}

/// Whether the first run panics, so that a test sees the next one.
struct Rehearsal(bool);

impl Rehearsal {
    /// How far the first run gets.
    const AFTER: Duration = Duration::from_millis(200);

    async fn during(&mut self, run: impl Future<Output = ()>) {
        if !std::mem::take(&mut self.0) {
            return run.await;
        }
        let _in_time = timeout(Self::AFTER, run).await;
        panic!("a rehearsal");
    }
}

/// The delay after this many panics in a row.
fn delay(failed: u32) -> Duration {
    let [first, longest] = DELAYS;
    first
        .saturating_mul(1 << failed.saturating_sub(1).min(16))
        .min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_base::telemetry::Condition;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::watch;

    /// Panics at its first two starts, ends by itself at the third, panics again two minutes after
    /// the fourth, then runs.
    struct Fragile(Arc<AtomicU32>);

    #[async_trait]
    impl BackgroundService for Fragile {
        async fn start(&self, mut shutdown: ShutdownWatch) {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => panic!("a defect"),
                2 => return,
                3 => sleep(2 * STEADY).await,
                _ => return shutdown.changed().await.expect("the process stops"),
            }
            panic!("another defect");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_starts_again() {
        let metrics = Arc::new(Metrics::default());
        let started = Arc::new(AtomicU32::new(0));
        let (stop, shutdown) = watch::channel(false);
        let task = Restarting {
            name: Task::Acme,
            task: Fragile(Arc::clone(&started)),
            metrics: Arc::clone(&metrics),
        };
        let running = tokio::spawn(async move { task.start(shutdown).await });
        for (seconds, starts, is_failing) in [
            (0.5, 1, true),
            (1.0, 2, true),
            (2.0, 3, true),
            (4.0, 4, true),
            (59.0, 4, true),
            (2.0, 4, false),
            (59.0, 4, true),
            (1.0, 5, true),
        ] {
            sleep(Duration::from_secs_f64(seconds)).await;
            assert_eq!(started.load(Ordering::Relaxed), starts);
            assert_eq!(metrics.conditions.has(Condition::Task), is_failing);
        }
        stop.send(true).expect("the task listens");
        running.await.expect("no panic leaves the task");
    }

    #[test]
    fn delays_between_starts_are_bounded() {
        for (failed, expected) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (u32::MAX, 60)] {
            assert_eq!(delay(failed), Duration::from_secs(expected), "{failed}");
        }
    }
}
