//! A start without the store: what does not need it serves, and every call to the store fails with
//! the cause until it can be prepared.
//!
//! Only a PostgreSQL that is away is waited for. Whatever a person must correct still stops the
//! start: the configuration, tables of another version, a certificate, a file that cannot be used.

use super::error::Cause;
use super::{Store, StoreError};
use crate::config::StoreConfig;
use crate::secrets::Secret;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// How often an unusable store is tried: after its return, requests are served within seconds.
const RETRY: Duration = Duration::from_secs(1);

impl Store {
    /// Opens the store as [`Store::open`] does. If PostgreSQL is away, that is repeated on the
    /// current runtime until it is there.
    ///
    /// # Errors
    /// The store cannot be used, and waiting does not help.
    pub async fn open_or_wait(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Arc<Self>, StoreError> {
        let store = Arc::new(Self::unprepared(config, password)?);
        match store.prepare().await {
            Ok(()) => Ok(store),
            Err(error) if !(store.db.is_postgres() && is_away(&error)) => {
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

/// Whether the database may be there later, without anybody's help.
fn is_away(error: &StoreError) -> bool {
    use Cause::{Busy, Io, Outage, Timeout};
    matches!(error, StoreError::Unavailable(Timeout | Io(_) | Outage(_) | Busy { .. }))
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
