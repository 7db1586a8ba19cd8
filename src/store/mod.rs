//! What is kept, and for how long: the journal and intents for ever, the faucet's bindings as long
//! as the chain, idempotency keys and what else is old until they are pruned.
//!
//! In: what the relay is about to do and what became of it, what the age verifier reports. Out:
//! what was kept before, also after a crash at any point, and the content of the service endpoints,
//! which others write. It reads no clock and knows no chain; every call ends within seconds.
//!
//! Reading order: `intent.rs`, `journal.rs` with `entry.rs` and `state.rs`, `search.rs`,
//! `idempotency.rs`, `faucet.rs`, `signer.rs`; `feed.rs`, `suggestion.rs`, `account.rs`,
//! `podcast.rs`, `sitemap.rs`, `age.rs`; then what carries them: [`sql`], `db.rs`, `open.rs`,
//! `error.rs`.

mod account;
mod age;
pub mod clock;
mod db;
mod entry;
mod error;
mod faucet;
mod feed;
mod hex;
mod idempotency;
mod intent;
mod journal;
mod open;
mod podcast;
mod prune;
mod search;
mod signer;
mod sitemap;
pub mod sql;
mod state;
mod suggestion;
mod transfer;

use crate::config;
use crate::secrets::Secret;
use db::Db;
use open::{FileLock, Place};

pub use account::{Account, AccountStatus};
pub use age::{AgeUser, EventOutcome, FirstOutcome, Opening};
pub use entry::{Entry, GENESIS};
pub use error::{Cause, StoreError};
pub use faucet::Binding;
pub use feed::{FeedItem, FeedQuery, MAX_BLOCKED, MAX_LABELS};
pub use idempotency::Claim;
pub use intent::{Intended, Intent, IntentId, NewIntent};
pub use journal::{Break, Journal, PAGE, Verified};
pub use podcast::{Episode, Funding, Person, Podcast, Transcript, Txt};
pub use prune::{AGE_EVENTS_KEPT, Forget, Forgotten};
pub use search::Search;
pub use signer::SignerLock;
pub use sitemap::{SitemapPage, SitemapStamp, SitemapUrl};
pub use state::{Kind, State};
pub use suggestion::{Suggestion, SuggestionQuery, Suggestions};
pub use transfer::{
    ExportError, ImportError, Imported, Misfit, Refused, Stage, Wrong, types as content_types,
};

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

    /// Opens the store beside a process that may have it open, to read and to write short
    /// transactions. Tables are made where there are none.
    ///
    /// # Errors
    /// The URL can not be used, the database is unavailable, its tables are of another version, or
    /// another process is just making them.
    pub async fn open_beside(config: &StoreConfig<'_>) -> Result<Self, StoreError> {
        let place = Place::parse(config)?;
        let db = match &place {
            Place::Sqlite(file) => open::sqlite_beside(file).await?,
            Place::Postgres(options) => {
                open::postgres_beside(options, config.max_connections).await?
            }
        };
        Ok(Self { db, place, lock: None })
    }

    /// Opens the journal to be read, also while a relay writes it; nothing is locked or changed.
    ///
    /// # Errors
    /// The URL can not be used, the database is unavailable, or nothing of this version is kept in
    /// it.
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

    /// Asks whether the database answers, and its tables are those of this program.
    ///
    /// # Errors
    /// It does not, or they are not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        open::check_version(&self.db).await
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
