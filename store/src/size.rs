//! How much the store holds.

use super::open::Location;
use super::{Store, StoreError, sql};
use std::io;
use std::path::Path;

/// How much the store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the database on its disk, with SQLite's log and PostgreSQL's dead rows.
    pub bytes: i64,
    /// Entries of the journal.
    pub entries: i64,
}

impl Store {
    /// Reads how much the store holds, without a scan of a table.
    ///
    /// # Errors
    /// The database is unavailable, or the file cannot be read.
    pub async fn sizes(&self) -> Result<Sizes, StoreError> {
        let end = self.db.row(sql::CHAIN_HEAD, &[]).await?;
        let end = end.ok_or(StoreError::Corrupt("chain_head"))?;
        Ok(Sizes {
            bytes: self.bytes().await?,
            entries: end.get("seq")?,
        })
    }

    async fn bytes(&self) -> Result<i64, StoreError> {
        if let Location::Sqlite(file) = &self.location {
            let file = file.clone();
            let read = tokio::task::spawn_blocking(move || file_bytes(&file)).await;
            return Ok(read.map_err(io::Error::other)??);
        }
        let row = self.db.row(sql::BYTES, &[]).await?;
        row.ok_or(StoreError::Corrupt("bytes"))?.get("bytes")
    }
}

/// Bytes of a SQLite file and its log, which exists while it is open.
fn file_bytes(file: &Path) -> io::Result<i64> {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let bytes = file.metadata()?.len() + Path::new(&log).metadata().map_or(0, |log| log.len());
    Ok(i64::try_from(bytes).unwrap_or(i64::MAX))
}
