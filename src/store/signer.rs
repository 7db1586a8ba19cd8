//! The lock that lets one process at a time write for a signer.
//!
//! On SQLite the file belongs to one process, so there is nothing to lock. On PostgreSQL it is a
//! session's advisory lock on a connection of its own: it ends with the connection or the process.
//! Its key is the first eight bytes of SHA-256 over `portcullis signer ` and the signer's felt as
//! text, as a signed big-endian number. Within one process the caller queues.
//!
//! A connection can break unnoticed by the lock's owner; the unique index on (epoch, signer, nonce)
//! then still keeps two processes from using one nonce. The connection outlives the lock, since a
//! new one costs several round trips and a proof of the password; waiting processes get the lock in
//! the order in which they came.

use super::db::{TIMEOUT, bounded, within};
use super::error::StoreError;
use super::open::Location;
use super::{Store, sql};
use portcullis_filters::felt::Felt;
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection};
use std::time::{Duration, Instant};

/// The right to write for a signer, over all processes that share the store.
#[derive(Debug)]
pub struct SignerLock {
    key: i64,
    session: Option<(PgConnection, Instant)>,
    is_held: bool,
}

impl SignerLock {
    /// The lock of a signer, not held yet.
    pub fn of(signer: Felt) -> Self {
        Self { key: key(signer), session: None, is_held: false }
    }

    /// Takes it, waiting at most `wait`: [`StoreError::SignerHeld`] after that.
    pub async fn acquire(&mut self, store: &Store, wait: Duration) -> Result<(), StoreError> {
        let Location::Postgres(server) = &store.location else { return Ok(()) };
        // out of its place until its state is known: dropping the future drops the connection
        let mut open = self.session.take().filter(|(_, since)| since.elapsed() < server.lifetime);
        if let Some((connection, _)) = &mut open
            && bounded(connection.ping()).await.is_err()
        {
            open = None;
        }
        let (mut connection, since) = match open {
            Some(open) => open,
            None => (server.connect().await?, Instant::now()),
        };
        // zero would wait for ever
        let wait = wait.max(Duration::from_millis(1));
        let text = wait.as_millis().to_string();
        bounded(sqlx::query(sql::SIGNER_WAIT).bind(text).execute(&mut connection)).await?;
        let locking = sqlx::query(sql::SIGNER_LOCK).bind(self.key).execute(&mut connection);
        let locked = within(wait + TIMEOUT, async { locking.await.map_err(held_or) }).await;
        if matches!(locked, Ok(_) | Err(StoreError::SignerHeld)) {
            self.is_held = locked.is_ok();
            self.session = Some((connection, since));
        }
        locked.map(drop)
    }

    /// Checks that it is still held: its connection answers.
    pub async fn check(&mut self) -> Result<(), StoreError> {
        match &mut self.session {
            Some((connection, _)) => bounded(connection.ping()).await,
            None => Ok(()),
        }
    }

    /// Releases it.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        let Some((mut connection, since)) = self.session.take() else { return Ok(()) };
        self.is_held = false;
        bounded(sqlx::query(sql::SIGNER_UNLOCK).bind(self.key).execute(&mut connection)).await?;
        self.session = Some((connection, since));
        Ok(())
    }

    /// Releases it without waiting, if it is held: PostgreSQL does so when it sees the closed
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
    if code.as_deref() == Some("55P03") { StoreError::SignerHeld } else { error.into() }
}

fn key(signer: Felt) -> i64 {
    let digest = Sha256::digest(format!("portcullis signer {signer}"));
    let (first, _) = digest.split_first_chunk().expect("SHA-256 has 32 bytes");
    i64::from_be_bytes(*first)
}
