//! What is kept, and for how long: the journal and intents for ever, the faucet's bindings as long
//! as the chain, idempotency keys until they are pruned.
//!
//! In: what the relay is about to do, and what became of it. Out: what was kept before, also after
//! a crash at any point. SQLite serves one process, PostgreSQL several. It reads no clock and knows
//! no chain; every call ends within seconds.
//!
//! Reading order: `intent.rs`, `journal.rs` with `entry.rs` and `state.rs`, `idempotency.rs`,
//! `faucet.rs`, `signer.rs`; then what carries them: [`sql`], `db.rs`, `open.rs`, `error.rs`.

mod db;
mod entry;
mod error;
mod faucet;
mod hex;
mod idempotency;
mod intent;
mod journal;
mod open;
mod signer;
pub mod sql;
mod state;

use crate::config;
use crate::secrets::Secret;
use db::Db;
use open::{FileLock, Place};

pub use entry::{Entry, GENESIS};
pub use error::{Cause, StoreError};
pub use faucet::Binding;
pub use idempotency::Claim;
pub use intent::{Intended, Intent, IntentId, NewIntent};
pub use journal::{Break, Journal, PAGE, Verified};
pub use signer::SignerLock;
pub use state::{Kind, State};

/// Where it is kept.
#[derive(Clone, Copy)]
pub struct StoreConfig<'a> {
    /// `sqlite:FILE` or `postgres://…`, without a password.
    pub url: &'a str,
    /// PostgreSQL's password; line ends after it do not count.
    pub password: Option<&'a [u8]>,
    /// Connections to PostgreSQL, besides one for each locked signer.
    pub max_connections: u32,
}

impl<'a> StoreConfig<'a> {
    /// As configured, with the password that was read.
    pub fn new(config: &'a config::StoreConfig, password: Option<&'a Secret>) -> Self {
        Self {
            url: &config.url,
            password: password.map(Secret::expose),
            max_connections: config.max_connections,
        }
    }
}

/// What is kept, to be read and written.
pub struct Store {
    db: Db,
    place: Place,
    lock: Option<FileLock>,
}

impl Store {
    /// Opens the store, and creates or updates its tables. A SQLite file belongs to this process
    /// until the store is closed or dropped.
    ///
    /// # Errors
    /// The URL can not be used, another process has the SQLite file, the database is unavailable,
    /// or its tables are of another version.
    pub async fn open(config: &StoreConfig<'_>) -> Result<Self, StoreError> {
        let place = Place::parse(config)?;
        let (db, lock) = match &place {
            Place::Sqlite(file) => {
                let lock = open::lock_file(file)?;
                (open::sqlite(file).await?, Some(lock))
            }
            Place::Postgres(options) => {
                (open::postgres(options, config.max_connections).await?, None)
            }
        };
        Ok(Self { db, place, lock })
    }

    /// Opens the journal to be read, also while a relay writes it; nothing is locked or changed.
    ///
    /// # Errors
    /// The URL can not be used, the database is unavailable, or no relay of this version has kept
    /// anything in it.
    pub async fn open_read_only(config: &StoreConfig<'_>) -> Result<Journal, StoreError> {
        let db = match Place::parse(config)? {
            Place::Sqlite(file) => open::sqlite_read_only(&file).await?,
            Place::Postgres(options) => open::postgres_read_only(&options).await?,
        };
        Ok(Journal { db })
    }

    /// The journal, to be read.
    pub fn journal(&self) -> Journal {
        Journal { db: self.db.clone() }
    }

    /// Writes down that an authenticated request was refused.
    ///
    /// # Errors
    /// The database is unavailable: it may be written nevertheless.
    pub async fn refused(
        &self,
        operation: &str,
        reason: &str,
        digest: Option<[u8; 32]>,
        request_id: &str,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let end = journal::lock(&mut tx).await?;
        let digest = digest.map(|digest| hex::write(&digest));
        let detail = journal::object(&[
            ("digest", digest.as_deref()),
            ("reason", Some(reason)),
            ("request_id", Some(request_id)),
        ]);
        let what = entry::What { kind: Kind::Refused, intent: None, operation, detail };
        journal::append(&mut tx, end, what, now_us).await?;
        tx.commit().await
    }

    /// Whether no other process can write here.
    pub fn is_exclusive(&self) -> bool {
        self.lock.is_some()
    }

    /// Ends all connections after what they are doing, and gives a SQLite file back.
    pub async fn close(self) {
        self.db.close().await;
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
