//! One process writes for a signer at a time.
//!
//! On SQLite the file has one process, so there is nothing to take. On PostgreSQL it is a session's
//! advisory lock on a connection of its own: it ends with the connection, and so with the process.
//! Its key is the first eight bytes of SHA-256 over `portcullis signer ` and the signer's felt as
//! text, as a signed big-endian number. Within one process the caller queues by itself.
//!
//! A connection can break while its owner believes in the lock; the unique rule on (epoch, signer,
//! nonce) then still keeps two processes from one nonce.

use super::db::{PATIENCE, bounded, felt_text};
use super::error::{Cause, StoreError};
use super::open::{Place, connect};
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

impl Store {
    /// Waits for the right to write for a signer, at most so long.
    ///
    /// # Errors
    /// [`StoreError::SignerHeld`]: another process kept it. The database is unavailable.
    pub async fn lock_signer(
        &self,
        signer: Felt,
        wait: Duration,
    ) -> Result<SignerLock, StoreError> {
        let Place::Postgres(options) = &self.place else {
            return Ok(SignerLock { session: None });
        };
        let mut connection = connect(options).await?;
        // zero would be without end
        let wait = wait.max(Duration::from_millis(1));
        let text = wait.as_millis().to_string();
        bounded(sqlx::query(sql::SIGNER_WAIT).bind(text).execute(&mut connection)).await?;
        let key = key(signer);
        let locking = sqlx::query(sql::SIGNER_LOCK).bind(key).execute(&mut connection);
        match tokio::time::timeout(wait + PATIENCE, locking).await {
            Ok(Ok(_)) => Ok(SignerLock { session: Some((connection, key)) }),
            Ok(Err(error)) => Err(held_or(error)),
            Err(_) => Err(StoreError::Unavailable(Cause::Timeout)),
        }
    }
}

impl SignerLock {
    /// Asks whether it is still held: its connection answers.
    ///
    /// # Errors
    /// The connection is gone, and the lock with it, or will be.
    pub async fn check(&mut self) -> Result<(), StoreError> {
        match &mut self.session {
            Some((connection, _)) => bounded(connection.ping()).await,
            None => Ok(()),
        }
    }

    /// Gives it back. A lock that is dropped instead is given back when PostgreSQL sees that its
    /// connection was closed, which is soon.
    ///
    /// # Errors
    /// The connection is gone, and the lock with it.
    pub async fn release(self) -> Result<(), StoreError> {
        let Some((mut connection, key)) = self.session else { return Ok(()) };
        bounded(sqlx::query(sql::SIGNER_UNLOCK).bind(key).execute(&mut connection)).await?;
        bounded(connection.close()).await
    }
}

/// PostgreSQL's 55P03 lock_not_available, when the wait is over.
fn held_or(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|error| error.code());
    if code.as_deref() == Some("55P03") { StoreError::SignerHeld } else { error.into() }
}

fn key(signer: Felt) -> i64 {
    let digest = Sha256::digest(format!("portcullis signer {}", felt_text(signer)));
    let (first, _) = digest.split_first_chunk().expect("SHA-256 has 32 bytes");
    i64::from_be_bytes(*first)
}
