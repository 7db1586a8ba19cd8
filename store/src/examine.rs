//! Examines the store as a start would find it, without changing it.

use super::db::Db;
use super::error::StoreError;
use super::open::{self, Location, Server};
use super::versions::NEWEST;
use nix::unistd::{AccessFlags, access};
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::Secret;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The state of the store as a start would find it.
#[derive(Debug, PartialEq, Eq)]
pub struct Examined {
    /// The tables.
    pub tables: Tables,
    /// The lock file of a SQLite database that another process uses.
    pub in_use: Option<PathBuf>,
}

/// The tables of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// The database has no tables: a start creates them.
    None,
    /// The tables have this program's version.
    UpToDate,
    /// The tables have an older version: a start migrates them.
    Older,
}

/// Examines the store.
pub(super) async fn examine(
    config: &StoreConfig,
    password: Option<&Secret>,
) -> Result<Examined, StoreError> {
    Server::of_replica(config, password)?;
    match Location::parse(config, password)? {
        Location::Sqlite(file) => {
            let is_new = file.metadata().map_or(0, |found| found.len()) == 0;
            check_permissions(&file)?;
            let db = if is_new {
                None
            } else {
                Some(open::sqlite_to_read(&file).await?)
            };
            Ok(Examined {
                tables: tables(db).await?,
                in_use: held_lock(&file)?,
            })
        }
        Location::Postgres(server) => {
            open::check_writable(&server).await?;
            let db = open::postgres_to_read(&server).await?;
            Ok(Examined {
                tables: tables(Some(db)).await?,
                in_use: None,
            })
        }
    }
}

async fn tables(db: Option<Db>) -> Result<Tables, StoreError> {
    let Some(db) = db else {
        return Ok(Tables::None);
    };
    let version = open::version(&db).await;
    db.close().await;
    match version {
        Ok(None) => Ok(Tables::None),
        Err(error) if error.misses_table() => Ok(Tables::None),
        Err(error) => Err(error),
        Ok(Some(version)) if version == NEWEST => Ok(Tables::UpToDate),
        Ok(Some(version)) if version < NEWEST => Ok(Tables::Older),
        Ok(Some(found)) => Err(StoreError::Version {
            found,
            known: NEWEST,
        }),
    }
}

/// Checks that a SQLite file can be written, and that files can be created next to it.
fn check_permissions(file: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).open(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|errno| io::Error::from(errno).into())
}

/// The lock file, if another process holds it.
fn held_lock(database: &Path) -> Result<Option<PathBuf>, StoreError> {
    let path = open::lock_path(database);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // closing the file releases a lock that was free
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(path)),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}
