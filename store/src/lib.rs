//! Persistence: the journal, intents, idempotency keys and bindings of the relay, the age status of
//! users, and the content of the service endpoints, which others write.
//!
//! Every call has a timeout of seconds and fails if the database is unavailable; a failed write may
//! have been done all the same. The decisions of the journal are in [`portcullis_filters::ledger`],
//! those about events of the age verifier in [`portcullis_filters::webhook`].
//!
//! Reading order: `intent.rs`, `append`, `journal.rs` with `entry.rs` and `state.rs`,
//! `refusals.rs`, `budget.rs`, `idempotency.rs`, `chain_epoch.rs`, `clock.rs`, `faucet.rs`,
//! `locks.rs`, `events.rs`; `feed.rs`, `account.rs`, `podcast.rs`, `sitemap.rs`, `age.rs`;
//! `replica.rs`, `topology.rs`; `transfer` with `syntax.rs`; `prune.rs`, `forget.rs`, `backup.rs`,
//! `size.rs`; below: `sql`, `db.rs`, `tx.rs`, `each.rs`, `row.rs`, `connection.rs`, `open.rs`,
//! `password.rs`, `versions.rs`, `examine.rs`, `error.rs`.

/// Builds a struct from a row: `get: a b; flag: c;` reads each field from the column of its name
/// with this method of [`row::Row`]; the braces hold the other fields.
macro_rules! from_row {
    ($type:ident, $row:expr; $($get:ident: $($field:ident)+;)+ $({ $($rest:tt)+ })?) => {
        $type { $($($field: $row.$get(stringify!($field))?,)+)+ $($($rest)+)? }
    };
    ($row:expr; $($fields:tt)+) => {
        from_row!(Self, $row; $($fields)+)
    };
}

mod account;
mod age;
mod append;
mod backup;
mod breaker;
mod budget;
mod chain_epoch;
mod clock;
mod connection;
mod db;
mod each;
mod entry;
mod error;
mod events;
mod examine;
mod faucet;
mod feed;
mod forget;
mod hosts;
mod idempotency;
mod intent;
mod journal;
mod late;
mod locks;
mod open;
mod password;
mod podcast;
mod prune;
mod refusals;
mod replica;
mod row;
mod sitemap;
mod size;
pub mod sql;
mod state;
pub mod syntax;
mod timeout;
mod topology;
mod transfer;
mod tx;
mod versions;

use append::Appender;
use clock::Clock;
use db::Db;
use open::{FileLock, Location};
use password::Password;
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::Secret;
use replica::Replica;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use timeout::within;
use tokio::sync::Semaphore;

pub use account::{Account, AccountStatus, Accounts};
pub use age::Ages;
pub use entry::{Entry, GENESIS};
pub use error::{Cause, StoreError};
pub use events::Events;
pub use examine::{Examined, Tables};
pub use faucet::FaucetBindings;
pub use feed::{
    FeedItem, FeedQuery, Feeds, MAX_BLOCKED, MAX_LABELS, Suggestion, SuggestionPage,
    SuggestionQuery,
};
pub use forget::Forgotten;
pub use hosts::hosts_of;
pub use idempotency::Keys;
pub use intent::Intents;
pub use journal::{Break, EntryFilter, Journal, PAGE, Search, Verified};
pub use late::Awaited;
pub use locks::{Chore, ChoreLock, SessionLock};
pub use podcast::{
    Category, Episode, Funding, Person, Place, Podcast, Podcasts, Published, Transcript, Txt,
};
pub use prune::{AGE_EVENTS_KEPT, PruneBefore, Pruned, Retention};
pub use replica::ReplicaStatus;
pub use sitemap::{Sitemap, SitemapFile, SitemapNumber, SitemapReader, SitemapStamp};
pub use sitemap::{SitemapStep, SitemapUrl};
pub use size::Sizes;
pub use state::EntryKind;
pub use topology::Topology;
pub use transfer::{
    Content, ExportError, Exported, ImportError, ImportRules, Imported, Stage, may_show,
    shown_category, types as content_types,
};

pub use portcullis_filters::ledger::{
    Binding, Budget, Budgets, Change, Claim, ClaimToken, Inclusion, Intended, Intent, IntentId,
    IntentState, NewIntent, OverBudget, Refusal, Refusals, Requested,
};
pub use portcullis_filters::webhook::{AgeUser, EventOutcome, Opening};

/// How long to find out why there is no connection.
const EXPLAINING: Duration = Duration::from_secs(1);

/// An open database; each topic has a type of its own that reads and writes it.
pub struct Store {
    db: Db,
    appender: Appender,
    location: Location,
    lock: Option<FileLock>,
    clock: Clock,
    /// Limits concurrent snapshots to half of the connections, as slow readers hold them for long.
    snapshots: Arc<Semaphore>,
    /// The database that documents are read from.
    replica: Option<Replica>,
    is_replica: bool,
    password: Password,
    /// Number of failed statements that callers reported.
    failures: AtomicU64,
}

impl Store {
    /// Reports the state that [`Store::open`] would find; creates and changes nothing.
    ///
    /// # Errors
    /// Fails as [`Store::open`] does, except that another process may have the SQLite file.
    pub async fn examine(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Examined, StoreError> {
        examine::examine(config, password).await
    }

    /// Opens the store and migrates its tables. A SQLite file belongs to this process until the
    /// store is closed or dropped.
    ///
    /// # Errors
    /// The URL is not usable, another process has the SQLite file, the database is unavailable, or
    /// its tables belong to a newer version.
    pub async fn open(config: &StoreConfig, password: Option<&Secret>) -> Result<Self, StoreError> {
        let location = Location::parse(config, password)?;
        let replica = Replica::of(config, password)?;
        let (db, lock) = match &location {
            Location::Sqlite(file) => {
                let lock = open::lock_file(file)?;
                (open::sqlite(file).await?, Some(lock))
            }
            Location::Postgres(server) => (open::postgres(server).await?, None),
        };
        let store = Self {
            lock,
            replica,
            ..Self::on(db, location, config)
        };
        store.read_clock().await?;
        Ok(store)
    }

    /// Opens the store while another process may have it open, for reads and short writes. Creates
    /// the tables if there are none, but does not migrate them.
    ///
    /// # Errors
    /// The URL is not usable, the database is unavailable, its tables belong to another version, or
    /// another process is creating them.
    pub async fn open_shared(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Self, StoreError> {
        let location = Location::parse(config, password)?;
        let db = match &location {
            Location::Sqlite(file) => open::sqlite_shared(file).await?,
            Location::Postgres(server) => open::postgres_shared(server).await?,
        };
        Ok(Self::on(db, location, config))
    }

    /// The store on these connections, without a lock and without a replica.
    fn on(db: Db, location: Location, config: &StoreConfig) -> Self {
        Self {
            appender: Appender::new(db.clone()),
            db,
            location,
            lock: None,
            clock: Clock::default(),
            snapshots: snapshots(config),
            replica: None,
            is_replica: false,
            password: Password::of(config),
            failures: AtomicU64::default(),
        }
    }

    /// Opens the journal for reading, also while a relay writes it; locks and changes nothing.
    ///
    /// # Errors
    /// The URL is not usable, the database is unavailable, or it has no tables of this version.
    pub async fn open_read_only(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Journal, StoreError> {
        Ok(Self::open_to_read(config, password).await?.journal())
    }

    /// Opens the store for reading, also while another process writes it; locks and changes
    /// nothing.
    ///
    /// # Errors
    /// The URL is not usable, the database is unavailable, or it has no tables of this version.
    pub async fn open_to_read(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Self, StoreError> {
        let location = Location::parse(config, password)?;
        let db = match &location {
            Location::Sqlite(file) => open::sqlite_read_only(file).await?,
            Location::Postgres(server) => open::postgres_read_only(server).await?,
        };
        Ok(Self::on(db, location, config))
    }

    /// Reads the journal.
    pub fn journal(&self) -> Journal {
        Journal {
            db: self.db.clone(),
        }
    }

    /// Intents, and the refusals that are recorded next to them.
    pub fn intents(&self) -> Intents<'_> {
        Intents {
            db: &self.db,
            appender: &self.appender,
        }
    }

    /// The idempotency keys of an epoch of the chain.
    pub fn keys<'a>(&'a self, epoch: &'a str) -> Keys<'a> {
        Keys {
            db: &self.db,
            epoch,
        }
    }

    /// The faucet's bindings.
    pub fn faucet(&self) -> FaucetBindings<'_> {
        FaucetBindings { db: &self.db }
    }

    /// Queries of feeds and suggestions.
    pub fn feeds(&self) -> Feeds<'_> {
        Feeds { db: &self.db }
    }

    /// Queries of accounts.
    pub fn accounts(&self) -> Accounts<'_> {
        Accounts { db: &self.db }
    }

    /// Queries of podcasts and episodes.
    pub fn podcasts(&self) -> Podcasts<'_> {
        Podcasts { db: &self.db }
    }

    /// Queries of the sitemap.
    pub fn sitemap(&self) -> Sitemap<'_> {
        Sitemap {
            db: &self.db,
            snapshots: &self.snapshots,
        }
    }

    /// Queries of age sessions, age events and users' status.
    pub fn ages(&self) -> Ages<'_> {
        Ages { db: &self.db }
    }

    /// Import and export of content.
    pub fn content(&self) -> Content<'_> {
        Content { db: &self.db }
    }

    /// Checks that the database answers and has the tables of this version.
    pub async fn ping(&self) -> Result<(), StoreError> {
        open::check_version(&self.db).await?;
        // fails for a table that another session has locked
        self.db.row(sql::INTENT_ANY, &[]).await.map(drop)
    }

    /// Finds out why PostgreSQL cannot be connected to, if `failure` does not say: the pool only
    /// reports that it found no connection in time, and a connection only that it was cut.
    pub async fn explain(&self, failure: StoreError) -> StoreError {
        let Location::Postgres(server) = &self.location else {
            return failure;
        };
        if !matches!(
            failure,
            StoreError::Unavailable(Cause::Timeout | Cause::Io(_))
        ) {
            return failure;
        }
        match within(EXPLAINING, server.connect()).await {
            Err(StoreError::Unavailable(Cause::Timeout)) | Ok(_) => failure,
            Err(cause) => cause,
        }
    }

    /// Checks that a write succeeds and that the disk has room for it, with a transaction that
    /// locks the journal's end, as every write does. Leaves nothing behind.
    pub async fn ping_write(&self) -> Result<(), StoreError> {
        let (mut tx, _) = journal::begin(&self.db).await?;
        let [change, undo] = match &self.location {
            Location::Sqlite(_) => [sql::TRIAL_ADD, sql::TRIAL_REMOVE],
            Location::Postgres(_) => [sql::ROOM_TAKE, sql::ROOM_FREE],
        };
        tx.run(change, &[]).await?;
        tx.run(undo, &[]).await?;
        tx.commit().await?;
        let Location::Sqlite(file) = &self.location else {
            return Ok(());
        };
        // a small write may fit into the `-wal` file as it is
        let file = file.clone();
        let checked = tokio::task::spawn_blocking(move || open::check_room(&file)).await;
        checked.map_err(std::io::Error::other)?
    }

    /// Logs and counts a failure that the response to its request may not report, such as that of a
    /// transaction that was sent, but could not be journaled as accepted.
    pub fn failed(&self, error: &StoreError) {
        error.log();
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Failures that were [counted](Self::failed) since the start.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Whether no other process can write to this store.
    pub fn is_exclusive(&self) -> bool {
        self.lock.is_some()
    }

    /// Closes all connections once their statements are done, and unlocks a SQLite file.
    pub async fn close(self) {
        self.close_connections().await;
    }

    /// Closes all connections once their statements are done. SQLite then moves its log into its
    /// file, and the file stays locked until the store is dropped.
    pub async fn close_connections(&self) {
        for server in self.replica.iter().flat_map(Replica::servers) {
            server.db.close().await;
        }
        self.db.close().await;
    }
}

fn snapshots(config: &StoreConfig) -> Arc<Semaphore> {
    let connections = if config.is_for_one() {
        open::READERS
    } else {
        config.max_connections
    };
    Arc::new(Semaphore::new(connections as usize / 2))
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
