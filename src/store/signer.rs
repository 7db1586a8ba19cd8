//! The lock that lets one process at a time write for a signer.
//!
//! On SQLite the file belongs to one process, so there is nothing to lock. On PostgreSQL it is a
//! session's advisory lock on a connection of its own: it ends with the connection or the process.
//! Its key is the first eight bytes of SHA-256 over `portcullis signer ` and the signer's felt as
//! text, as a signed big-endian number. Within one process the caller queues.
//!
//! A connection can break unnoticed by the lock's owner; the unique index on (epoch, signer, nonce)
//! then still keeps two processes from using one nonce.

use super::db::{TIMEOUT, bounded, within};
use super::error::StoreError;
use super::open::{Location, connect};
use super::{Store, sql};
use portcullis_filters::felt::Felt;
use sha2::{Digest as _, Sha256};
use sqlx::{Connection as _, PgConnection};
use std::time::Duration;

/// The right to write for a signer, until it is released or dropped.
#[derive(Debug)]
pub struct SignerLock {
    session: Option<(PgConnection, i64)>,
}

impl SignerLock {
    /// Locks a signer, waiting at most `wait`: [`StoreError::SignerHeld`] after that.
    pub async fn acquire(store: &Store, signer: Felt, wait: Duration) -> Result<Self, StoreError> {
        let Location::Postgres(options) = &store.location else {
            return Ok(Self { session: None });
        };
        let mut connection = connect(options).await?;
        // zero would wait for ever
        let wait = wait.max(Duration::from_millis(1));
        let text = wait.as_millis().to_string();
        bounded(sqlx::query(sql::SIGNER_WAIT).bind(text).execute(&mut connection)).await?;
        let key = key(signer);
        let locking = sqlx::query(sql::SIGNER_LOCK).bind(key).execute(&mut connection);
        within(wait + TIMEOUT, async { locking.await.map_err(held_or) }).await?;
        Ok(Self { session: Some((connection, key)) })
    }

    /// Checks that the lock is still held: its connection answers.
    pub async fn check(&mut self) -> Result<(), StoreError> {
        match &mut self.session {
            Some((connection, _)) => bounded(connection.ping()).await,
            None => Ok(()),
        }
    }

    /// Releases the lock. PostgreSQL releases a dropped one soon, when it sees the closed
    /// connection.
    pub async fn release(self) -> Result<(), StoreError> {
        let Some((mut connection, key)) = self.session else { return Ok(()) };
        bounded(sqlx::query(sql::SIGNER_UNLOCK).bind(key).execute(&mut connection)).await?;
        bounded(connection.close()).await
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
