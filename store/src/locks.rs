//! Locks across all processes that share a store: one for each signer, and one for each duty that
//! one process performs for all.
//!
//! A SQLite file belongs to one process, so there is nothing to lock. On PostgreSQL a lock is a
//! session's advisory lock on its own connection, and ends with the connection or the process. Its
//! key is the first eight bytes of SHA-256 over its name, as a signed big-endian number. Within one
//! process the caller queues.
//!
//! A connection can break unnoticed by the lock's owner; the unique index on (epoch, signer, nonce)
//! then still prevents two processes from using one nonce. The connection outlives the lock, since
//! a new one costs several round trips and a proof of the password; waiting processes get the lock
//! in the order of their requests, so a process that releases it and takes it again is behind them.

use super::error::StoreError;
use super::open::{Location, Server};
use super::timeout::{TIMEOUT, bounded, within};
use super::{Store, sql};
use portcullis_filters::felt::Felt;
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection, Row as _};
use std::time::{Duration, Instant};

/// How long a process may be suspended before another one takes its chore.
const SUSPENDED: Duration = Duration::from_secs(30);

/// Advisory lock of a database session, across all processes that share the store.
#[derive(Debug)]
pub struct SessionLock {
    key: i64,
    session: Option<Session>,
    is_held: bool,
}

#[derive(Debug)]
struct Session {
    connection: PgConnection,
    since: Instant,
}

/// A duty that one process performs for all that share the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chore {
    /// Settling open intents in the background.
    Reconciliation,
    /// Deleting old rows.
    Pruning,
    /// Sending events to the backend.
    Events,
}

/// The right to do a chore. No process waits for it: the one that has it does the work.
#[derive(Debug)]
pub struct ChoreLock(SessionLock, Duration);

impl ChoreLock {
    /// The lock of a chore, not held yet.
    pub fn of(chore: Chore) -> Self {
        let (name, idle) = match chore {
            Chore::Reconciliation => ("portcullis reconciliation", SUSPENDED),
            Chore::Events => ("portcullis events", SUSPENDED),
            // without a limit: deleting may take long, but it ends
            Chore::Pruning => ("portcullis pruning", Duration::ZERO),
        };
        Self(SessionLock::named(name), idle)
    }

    /// Takes the lock if it is free; returns whether this process holds it now.
    pub async fn try_acquire(&mut self, store: &Store) -> Result<bool, StoreError> {
        self.0.try_acquire(store, self.1).await
    }

    /// Releases the lock.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.0.release().await
    }
}

impl SessionLock {
    /// The right to write for a signer, not held yet.
    pub fn of_signer(signer: Felt) -> Self {
        Self::named(&format!("portcullis signer {signer}"))
    }

    fn named(name: &str) -> Self {
        let digest = Sha256::digest(name);
        let (first, _) = digest.split_first_chunk().expect("SHA-256 has 32 bytes");
        Self {
            key: i64::from_be_bytes(*first),
            session: None,
            is_held: false,
        }
    }

    /// Takes the lock, waiting at most `wait`: [`StoreError::SignerHeld`] after that. A lock that
    /// is held stays held if its connection answers.
    pub async fn acquire(&mut self, store: &Store, wait: Duration) -> Result<(), StoreError> {
        let Location::Postgres(server) = &store.location else {
            self.is_held = true;
            return Ok(());
        };
        let Some(mut session) = self.unlocked(server).await? else {
            return Ok(());
        };
        // zero would wait for ever
        let wait = wait.max(Duration::from_millis(1));
        let text = wait.as_millis().to_string();
        let limit = sqlx::query(sql::LOCK_WAIT).bind(text);
        bounded(limit.execute(&mut session.connection)).await?;
        let locking = sqlx::query(sql::LOCK)
            .bind(self.key)
            .execute(&mut session.connection);
        let locked = within(wait + TIMEOUT, async { locking.await.map_err(held_or) }).await;
        if matches!(locked, Ok(_) | Err(StoreError::SignerHeld)) {
            self.is_held = locked.is_ok();
            self.session = Some(session);
        }
        locked.map(drop)
    }

    /// Takes the lock if it is free. A process that is silent for `idle` loses it; zero sets no
    /// limit.
    async fn try_acquire(&mut self, store: &Store, idle: Duration) -> Result<bool, StoreError> {
        let Location::Postgres(server) = &store.location else {
            return Ok(true);
        };
        let Some(mut session) = self.unlocked(server).await? else {
            return Ok(true);
        };
        let limit = sqlx::query(sql::SESSION_IDLE).bind(idle.as_millis().to_string());
        bounded(limit.execute(&mut session.connection)).await?;
        let locking = sqlx::query(sql::LOCK_IF_FREE).bind(self.key);
        let row = bounded(locking.fetch_one(&mut session.connection)).await?;
        self.is_held = row.try_get("is_held")?;
        self.session = Some(session);
        Ok(self.is_held)
    }

    /// Returns a session to take the lock with; `None` if the lock is held already. The session is
    /// moved out of `self` until its state is known: dropping the future drops the connection.
    async fn unlocked(&mut self, server: &Server) -> Result<Option<Session>, StoreError> {
        let was_held = std::mem::take(&mut self.is_held);
        let is_usable = |old: &Session| was_held || old.since.elapsed() < server.lifetime;
        if let Some(mut open) = self.session.take().filter(is_usable)
            && bounded(open.connection.ping()).await.is_ok()
        {
            if !was_held {
                return Ok(Some(open));
            }
            (self.session, self.is_held) = (Some(open), true);
            return Ok(None);
        }
        debug_assert!(!self.is_held, "a session holds the lock");
        Ok(Some(Session {
            connection: server.connect().await?,
            since: Instant::now(),
        }))
    }

    /// Whether the lock is held, unless its connection broke since.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Checks that the lock is still held, that is, that its connection answers; otherwise closes
    /// it, and the lock is no longer held.
    pub async fn check(&mut self) -> Result<(), StoreError> {
        if !std::mem::take(&mut self.is_held) {
            return Err(StoreError::NotHeld);
        }
        // without a session the file belongs to this process
        if let Some(mut session) = self.session.take() {
            bounded(session.connection.ping()).await?;
            self.session = Some(session);
        }
        self.is_held = true;
        Ok(())
    }

    /// Releases the lock.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        if !std::mem::take(&mut self.is_held) {
            return Ok(());
        }
        let Some(mut session) = self.session.take() else {
            return Ok(());
        };
        let unlocking = sqlx::query(sql::UNLOCK).bind(self.key);
        bounded(unlocking.execute(&mut session.connection)).await?;
        self.session = Some(session);
        Ok(())
    }

    /// Releases the lock without waiting, if it is held: PostgreSQL does so when it sees the closed
    /// connection.
    pub fn abandon(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.session = None;
        }
    }
}

/// PostgreSQL's 55P03 lock_not_available means that the wait is over.
fn held_or(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|error| error.code());
    if code.as_deref() == Some("55P03") {
        StoreError::SignerHeld
    } else {
        error.into()
    }
}
