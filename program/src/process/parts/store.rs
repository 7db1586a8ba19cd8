//! The store, and the threads for work on it, which may outlive its request until the process ends.

use super::Part;
use crate::process::start_error::StartError;
use crate::process::systemd::Runtimes;
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::Secret;
use portcullis_base::telemetry::{Metrics, Task};
use portcullis_store::{Awaited, Journal, Store};
use std::panic;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Threads for work that outlives its request: mostly waits for the node and the store, and some
/// hashing.
const STORE_WORKERS: usize = 2;
/// Timeout for the threads to end: a hung disk or name server may block them.
const LAST_WORK: Duration = Duration::from_secs(1);

/// 3 s for the store's statements to end, and for SQLite to checkpoint its log. Nothing is lost if
/// the time is too short.
const STORE_CLOSING: Duration = Duration::from_secs(3);

/// The store, and the runtime for work on it.
#[derive(Clone)]
pub(crate) struct Storage {
    pub(crate) store: Arc<Store>,
    pub(crate) runtime: Handle,
}

impl Storage {
    /// Runs `work` on the threads for the store; a panic there becomes one of the caller. Returns
    /// `None` while the process stops.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        outcome(self.runtime.spawn(work)).await
    }

    /// The journal, and the runtime that reads it.
    pub(crate) fn journal(&self) -> (Journal, Handle) {
        (self.store.journal(), self.runtime.clone())
    }
}

/// The result of work on other threads; its panic is one of the caller. `None` if it was stopped.
async fn outcome<T>(work: JoinHandle<T>) -> Option<T> {
    match work.await {
        Ok(done) => Some(done),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// The task that prepares a store that could not be used at the start.
struct Preparation(Storage);

#[async_trait]
impl BackgroundService for Preparation {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let Storage { store, runtime } = &self.0;
        tokio::select! {
            _ = shutdown.changed() => {}
            () = store.prepare_when_possible(runtime) => {}
        }
    }
}

/// The threads that work on the store.
pub(crate) struct StoreWorkers {
    pub(crate) storage: Storage,
    runtime: Runtime,
}

impl StoreWorkers {
    /// Starts the threads, and opens the store or waits for it. Registers the threads' runtime.
    pub(crate) fn open(
        config: &StoreConfig,
        password: Option<&Secret>,
        awaited: Awaited,
        runtimes: &Runtimes,
    ) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(STORE_WORKERS)
            .thread_name("store-worker")
            .enable_all()
            .build()
            .map_err(StartError::Runtime)?;
        let store = runtime
            .block_on(Store::open_or_wait(config, password, awaited))
            .map_err(|error| StartError::Store(config.url.clone(), error))?;
        let handle = runtime.handle().clone();
        runtimes.add(handle.clone());
        Ok(Self {
            storage: Storage {
                store,
                runtime: handle,
            },
            runtime,
        })
    }

    /// The task that prepares the store, if it is not prepared yet.
    pub(crate) fn preparation(&self, metrics: &Arc<Metrics>) -> Part {
        let storage = &self.storage;
        if storage.store.is_prepared() {
            return Part::default();
        }
        Part::task(
            Task::StorePreparation,
            Preparation(storage.clone()),
            metrics,
        )
    }

    /// Closes the store and ends the threads; work that takes too long ends with the process.
    pub(crate) fn close(self) {
        let Self {
            storage: Storage { store, .. },
            runtime,
        } = self;
        let _in_time = runtime.block_on(async {
            tokio::time::timeout(STORE_CLOSING, store.close_connections()).await
        });
        runtime.shutdown_timeout(LAST_WORK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::panic::AssertUnwindSafe;

    #[tokio::test]
    async fn a_panic_of_work_on_the_store_is_the_callers() {
        assert_eq!(outcome(tokio::spawn(async { 7 })).await, Some(7));
        let work = tokio::spawn(async { panic!("a defect") });
        let caught = AssertUnwindSafe(outcome::<()>(work)).catch_unwind().await;
        caught.expect_err("it reaches the task, which starts again");
        let stopped = tokio::spawn(std::future::pending::<()>());
        stopped.abort();
        assert_eq!(outcome(stopped).await, None);
    }
}
