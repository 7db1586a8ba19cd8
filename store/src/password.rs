//! Replaces the password and the server of PostgreSQL while the store is in use: new connections
//! are opened with the password that its file holds, or with the former one until the server knows
//! that, to the server that accepts writes. Open connections are not affected by a change at the
//! server.

use super::db::Db;
use super::open::{Location, Server, text_of};
use super::replica::Replica;
use super::timeout::bounded;
use super::{Store, StoreError};
use parking_lot::Mutex;
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::{self, Secret, SecretError};
use sha2::{Digest as _, Sha256};
use sqlx::Connection as _;
use std::path::PathBuf;

/// The file of the password, and which content of it is in use.
pub(super) struct Password {
    file: Option<PathBuf>,
    /// `None` before the file was read here.
    digest: Mutex<Option<[u8; 32]>>,
}

impl Password {
    pub(super) fn of(config: &StoreConfig) -> Self {
        Self {
            file: config.password_file.clone(),
            digest: Mutex::default(),
        }
    }
}

impl Store {
    /// Reads the file of the password again, for new connections. Returns whether it has another
    /// content than when it was last read here.
    ///
    /// # Errors
    /// The file is unusable: the password does not change.
    pub fn renew_password(&self) -> Result<bool, SecretError> {
        let Some(file) = &self.password.file else {
            return Ok(false);
        };
        let password = secrets::read(file).map_err(|error| error.of("store.password_file"))?;
        let digest = Sha256::digest(password.expose()).into();
        let before = self.password.digest.lock().replace(digest);
        if before == Some(digest) {
            return Ok(false);
        }
        self.set_password(&password)
            .map_err(|_| SecretError::not(file, "a password in UTF-8"))?;
        for server in self.replica.iter().flat_map(Replica::servers) {
            server
                .set_password(&password)
                .map_err(|_| SecretError::not(file, "a password in UTF-8"))?;
        }
        Ok(before.is_some())
    }

    /// Looks for the server that accepts writes, if the URL has several hosts, and uses it for new
    /// connections.
    ///
    /// # Errors
    /// No server accepts writes.
    pub async fn follow_primary(&self) -> Result<(), StoreError> {
        let Some(server) = self.server().filter(|server| server.has_others()) else {
            return Ok(());
        };
        let connection = server.connect().await?;
        if let Db::Postgres(pool, breaker) = &self.db {
            breaker.connect_with(pool, server.pool_options());
        }
        bounded(connection.close()).await
    }

    fn set_password(&self, password: &Secret) -> Result<(), StoreError> {
        let Some(server) = self.server() else {
            return Ok(());
        };
        server.set_password(password)?;
        if let Db::Postgres(pool, breaker) = &self.db {
            let options = pool.connect_options().as_ref().clone();
            breaker.replace_password(pool, options.password(text_of(password)?));
        }
        Ok(())
    }

    fn server(&self) -> Option<&Server> {
        match &self.location {
            Location::Postgres(server) => Some(server),
            Location::Sqlite(_) => None,
        }
    }
}
