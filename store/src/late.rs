//! Starts without the store: everything that does not need it serves, and every call to the store
//! fails with the cause until the store is prepared.
//!
//! Waits for a PostgreSQL in any state, also one that a person must correct: a standby, a wrong
//! password, an expired certificate, tables of another version. Only mistakes of the configuration
//! and a SQLite file that cannot be used stop the start. A successor of a running process waits for
//! an outage only, because its predecessor serves better than a process without its store.

use super::breaker::ConnectBreaker;
use super::db::Db;
use super::error::Cause;
use super::open::{self, Location};
use super::replica::Replica;
use super::{Store, StoreError};
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::Secret;
use std::panic;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinError;

/// Time between two attempts to prepare the store, so that its return is noticed within seconds.
const RETRY: Duration = Duration::from_secs(1);

/// The states of PostgreSQL that a start waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It may become available without intervention.
    Outages,
    /// Any state that the configuration does not cause.
    AllStates,
}

impl Awaited {
    fn covers(self, error: &StoreError) -> bool {
        use Cause::{Busy, Io, Outage, Timeout};
        match error {
            StoreError::Unavailable(Timeout | Io(_) | Outage(_) | Busy { .. }) => true,
            StoreError::Url(_) | StoreError::ReadUrl(_) | StoreError::CaFile(_) => false,
            _ => self == Self::AllStates,
        }
    }
}

impl Store {
    /// Opens the store as [`Store::open`] does. If PostgreSQL is in a state that `awaited` covers,
    /// the store is not [prepared](Self::is_prepared) yet: see [`Self::prepare_when_possible`].
    ///
    /// # Errors
    /// The store cannot be used, and is not waited for.
    pub async fn open_or_wait(
        config: &StoreConfig,
        password: Option<&Secret>,
        awaited: Awaited,
    ) -> Result<Arc<Self>, StoreError> {
        match Self::open(config, password).await {
            Err(error) if awaited.covers(&error) => Self::open_later(config, password, error),
            opened => opened.map(Arc::new),
        }
    }

    /// Creates a store whose calls fail with the cause of `error` until it is prepared. A SQLite
    /// file is not waited for.
    fn open_later(
        config: &StoreConfig,
        password: Option<&Secret>,
        error: StoreError,
    ) -> Result<Arc<Self>, StoreError> {
        let location = Location::parse(config, password)?;
        let Location::Postgres(server) = &location else {
            return Err(error);
        };
        log::error!(
            "starting without the store: store.url: {}: {error}",
            config.url
        );
        let breaker = ConnectBreaker::unprepared(error.cause());
        let db = Db::Postgres(server.pool(), Arc::new(breaker));
        let replica = Replica::of(config, password)?;
        let store = Arc::new(Self {
            replica,
            ..Self::on(db, location, config)
        });
        Ok(store)
    }

    /// Migrates the tables of a PostgreSQL, reads its clock, and admits calls.
    async fn prepare(&self) -> Result<(), StoreError> {
        let (Location::Postgres(server), Db::Postgres(pool, breaker)) = (&self.location, &self.db)
        else {
            return Ok(());
        };
        // an unusable file is reported by the failure of its password
        let _renewed = self.renew_password();
        let prepare = async {
            open::prepare_postgres(server).await?;
            breaker.connect_with(pool, server.pool_options());
            // bypasses the breaker, which refuses all calls until then
            self.read_clock_of(&Db::Postgres(pool.clone(), Arc::default()))
                .await
        };
        let prepared = prepare.await;
        breaker.prepare(&prepared);
        prepared
    }

    /// Whether calls are admitted.
    pub fn is_prepared(&self) -> bool {
        !matches!(&self.db, Db::Postgres(_, breaker) if !breaker.is_prepared())
    }

    /// Tries to prepare the store until that succeeds. Runs on `runtime`: a migration's future is
    /// not `Send`, so it takes a thread of it.
    pub async fn prepare_when_possible(self: &Arc<Self>, runtime: &Handle) {
        while !self.is_prepared() {
            tokio::time::sleep(RETRY).await;
            let store = Arc::clone(self);
            let prepare = move || Handle::current().block_on(store.prepare()).is_ok();
            let prepared = runtime.spawn_blocking(prepare).await;
            if let Err(Ok(panic)) = prepared.map_err(JoinError::try_into_panic) {
                panic::resume_unwind(panic);
            }
        }
    }
}
