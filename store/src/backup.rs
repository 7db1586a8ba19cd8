//! A copy of a SQLite store, which may be in use.

use super::open::{self, Location};
use super::{Store, StoreError, sql};
use portcullis_base::config::StoreConfig;
use std::path::Path;

impl Store {
    /// Writes all tables of a SQLite store, as they are at one instant, to the empty file `to`.
    /// Other processes may read and write meanwhile, and every commit that returned before is in
    /// the copy. The tables may be of any version, so that a backup can precede a migration.
    ///
    /// # Errors
    /// The URL is not that of a SQLite file, the file does not exist or is damaged, or `to` cannot
    /// be written.
    pub async fn copy_into(config: &StoreConfig, to: &Path) -> Result<(), StoreError> {
        let Location::Sqlite(file) = Location::parse(config, None)? else {
            return Err(StoreError::Url("only a SQLite file can be copied"));
        };
        let to = to
            .to_str()
            .ok_or(StoreError::Url("the name of the copy is not UTF-8"))?;
        open::sqlite_copy(&file, sql::COPY, to).await
    }
}
