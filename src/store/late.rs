//! A start without the store: what does not need it serves, and every call to the store fails with
//! the cause until it can be prepared.
//!
//! A mistake of the configuration still stops the start, as does a SQLite file that another process
//! uses: only a person can correct those.

use super::{Store, StoreError};
use crate::config::StoreConfig;
use crate::secrets::Secret;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How often an unusable store is tried: after its return, requests are served within seconds.
const RETRY: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the store as [`Store::open`] does. If the database cannot be used now, that is
    /// repeated on the current runtime until it can.
    ///
    /// # Errors
    /// The URL is not usable, or another process has the SQLite file.
    pub async fn open_or_wait(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Arc<Self>, StoreError> {
        let store = Arc::new(Self::unprepared(config, password)?);
        match store.prepare().await {
            Ok(()) => Ok(store),
            Err(error) if is_mistake(&error) => {
                store.close_connections().await;
                Err(error)
            }
            Err(error) => {
                log::error!("starting without the store: store.url: {}: {error}", config.url);
                store.db.breaker().unprepared(error.cause());
                tokio::spawn(prepare_later(Arc::clone(&store)));
                Ok(store)
            }
        }
    }
}

/// Whether waiting does not help.
fn is_mistake(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Url(_) | StoreError::ReadUrl(_) | StoreError::CaFile(_) | StoreError::Locked(_)
    )
}

async fn prepare_later(store: Arc<Store>) {
    loop {
        tokio::time::sleep(RETRY).await;
        if store.db.is_closed() {
            return;
        }
        let store = Arc::clone(&store);
        // a thread of its own: a migration's future cannot be sent to another one
        let trial = move || {
            let prepared = Handle::current().block_on(store.prepare());
            // the condition `store` and its log line have the newest cause
            let failed = prepared.map_err(|error| store.db.breaker().unprepared(error.cause()));
            failed.is_ok()
        };
        if tokio::task::spawn_blocking(trial).await.unwrap_or(true) {
            return;
        }
    }
}
