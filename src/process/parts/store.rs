//! The store, and the threads for work on it, which may outlive its request until the process ends.

use crate::config::StoreConfig;
use crate::process::start_error::StartError;
use crate::process::systemd::Runtimes;
use crate::secrets::Secret;
use crate::store::{Journal, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

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
    /// The journal, and the runtime that reads it.
    pub(crate) fn journal(&self) -> (Journal, Handle) {
        (self.store.journal(), self.runtime.clone())
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
        runtimes: &Runtimes,
    ) -> Result<Self, StartError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(STORE_WORKERS)
            .thread_name("store-worker")
            .enable_all()
            .build()
            .map_err(StartError::Runtime)?;
        let store = runtime
            .block_on(Store::open_or_wait(config, password))
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
