//! Content that comes in and goes out as lines of JSON: `{"type":"follow","did":…}`.
//!
//! A file is imported whole or not at all: it is read once to find everything that is wrong with
//! it, and a second time to apply it in one transaction, so it is never held in memory. What is
//! imported twice is stored once. Export writes what import takes back.
//!
//! Reading order: `kind.rs` is the table of all types; `form.rs` and `syntax.rs` say what a member
//! may hold, `record.rs` reads a line (`lines.rs`), `batch.rs` applies many (`sql.rs`); `export.rs`
//! goes the other way.

mod batch;
mod export;
mod form;
mod kind;
mod lines;
mod record;
mod sql;
mod syntax;

use super::db::{Db, Tx};
use super::{Store, StoreError};
use batch::{Batch, Unapplied};
use kind::KINDS;
use lines::{Line, Lines};
use record::Record;
use std::io::{self, BufRead, Seek};
use std::time::Duration;
use uuid::Uuid;

pub use export::ExportError;
pub use form::Misfit;
pub use record::Wrong;

/// 1 min for a thousand rows on a slow disk: nobody waits for an answer.
const BATCH_PATIENCE: Duration = Duration::from_secs(60);
/// 10 min to make a file durable: SQLite moves all of it from its log to its tables then.
const COMMIT_PATIENCE: Duration = Duration::from_secs(600);
/// Lines between two reports of how far the check is.
const SEEN_EVERY: u64 = 1_000;
/// Wrong lines that are told in full.
const MAX_REFUSED: usize = 20;
/// What podcast:guid is made in (Podcasting 2.0, "podcast:guid").
const PODCASTS: Uuid = Uuid::from_u128(0xead4_c236_bf58_58c6_a2c6_a6b2_8d12_8cb6);

/// The names of all types, in an order in which they can be imported.
pub fn types() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

/// What an import is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It looks for what is wrong.
    Checking,
    /// It writes.
    Applying,
}

/// What was imported: rows by type.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    put: [u64; KINDS.len()],
    deleted: [u64; KINDS.len()],
}

impl Imported {
    fn count(&mut self, record: &Record) {
        let counts = if record.is_deletion { &mut self.deleted } else { &mut self.put };
        for (kind, count) in KINDS.iter().zip(counts) {
            *count += u64::from(kind.name == record.kind.name);
        }
    }
}

impl std::fmt::Display for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut comma = "";
        for (counts, what) in [(&self.put, ""), (&self.deleted, " deleted")] {
            for (kind, count) in KINDS.iter().zip(counts).filter(|(_, count)| **count > 0) {
                write!(f, "{comma}{count} {}{what}", kind.name)?;
                comma = ", ";
            }
        }
        if comma.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

/// A line that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its number, from 1 on.
    pub line: u64,
    /// Why.
    pub wrong: Wrong,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.wrong)
    }
}

/// Why nothing of a file was imported.
#[derive(Debug)]
pub enum ImportError {
    /// These lines are refused, and so many more.
    Refused(Vec<Refused>, u64),
    /// The file can not be read.
    Read(io::Error),
    /// The database is unavailable; the file may have been imported.
    Store(StoreError),
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(lines, more) => {
                for refused in lines {
                    writeln!(f, "{refused}")?;
                }
                if *more > 0 {
                    writeln!(f, "and {more} more")?;
                }
                f.write_str("nothing of it was imported")
            }
            Self::Read(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ImportError {}

impl From<io::Error> for ImportError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<StoreError> for ImportError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Unapplied> for ImportError {
    fn from(why: Unapplied) -> Self {
        match why {
            Unapplied::Refused(refused) => Self::Refused(vec![refused], 0),
            Unapplied::Store(error) => Self::Store(error),
        }
    }
}

impl Store {
    /// Imports a file, all of it or nothing. A new podcast without a guid gets the one of its feed
    /// below `base_url`. `seen` learns how many bytes each stage has read.
    ///
    /// # Errors
    /// Lines are refused, the file can not be read, or the database is unavailable.
    pub async fn import(
        &self,
        file: &mut (impl BufRead + Seek),
        base_url: Option<&str>,
        mut seen: impl FnMut(Stage, u64),
    ) -> Result<Imported, ImportError> {
        check(&mut *file, |bytes| seen(Stage::Checking, bytes))?;
        file.rewind()?;
        let mut tx = begin(&self.db).await?;
        let mut imported = Imported::default();
        let mut batch = Batch::default();
        let mut lines = Lines::new(file);
        while let Some(mut record) = next(&mut lines)? {
            if batch.is_full_for(&record.1) {
                batch.apply(&mut tx).await?;
                seen(Stage::Applying, lines.bytes);
            }
            name_podcast(&mut record.1, base_url);
            imported.count(&record.1);
            batch.push(lines.number, record.0, record.1);
        }
        batch.apply(&mut tx).await?;
        seen(Stage::Applying, lines.bytes);
        tx.commit_within(COMMIT_PATIENCE).await?;
        Ok(imported)
    }
}

/// Begins to write much.
async fn begin(db: &Db) -> Result<Tx, StoreError> {
    if matches!(db, Db::Sqlite { .. }) {
        db.run(sql::CACHE, &[]).await?;
    }
    let mut tx = db.begin().await?;
    if matches!(tx, Tx::Postgres(_)) {
        let patience = BATCH_PATIENCE.as_millis().to_string();
        tx.row(sql::PATIENCE, &[(&patience).into()]).await?;
    }
    Ok(tx)
}

/// Finds everything that is wrong with a file by itself.
fn check(file: impl BufRead, mut seen: impl FnMut(u64)) -> Result<(), ImportError> {
    let mut lines = Lines::new(file);
    let (mut refused, mut more) = (Vec::new(), 0);
    loop {
        match next(&mut lines) {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(ImportError::Refused(wrong, _)) if refused.len() < MAX_REFUSED => {
                refused.extend(wrong);
            }
            Err(ImportError::Refused(..)) => more += 1,
            Err(error) => return Err(error),
        }
        if lines.number.is_multiple_of(SEEN_EVERY) {
            seen(lines.bytes);
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(ImportError::Refused(refused, more)) }
}

/// The record of the next line, and the line's length.
fn next(lines: &mut Lines<impl BufRead>) -> Result<Option<(usize, Record)>, ImportError> {
    let read = match lines.next()? {
        None => return Ok(None),
        Some(Line::TooLong) => Err(Wrong::TooLong),
        Some(Line::Bytes(line)) => Record::parse(line).map(|record| (line.len(), record)),
    };
    let line = lines.number;
    read.map(Some).map_err(|wrong| ImportError::Refused(vec![Refused { line, wrong }], 0))
}

/// Gives a podcast the guid of its feed's address, unless it has one. Where one is stored, that
/// stays.
fn name_podcast(record: &mut Record, base_url: Option<&str>) {
    let Some(base_url) = base_url.filter(|_| record.kind.name == "podcast") else { return };
    let did = record.row.get("did").and_then(serde_json::Value::as_str).unwrap_or_default();
    let feed = format!("{base_url}/functions/podcast-rss-feed?did={did}");
    let guid = podcast_guid(&feed);
    record.row.entry("guid").or_insert_with(|| guid.into());
}

/// The guid of a feed's URL: without its scheme and the slashes at its end.
fn podcast_guid(url: &str) -> String {
    let name = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/');
    Uuid::new_v5(&PODCASTS, name.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guid_of_a_feed_is_that_of_its_specification() {
        for (url, guid) in [
            ("https://podnews.net/rss", "9b024349-ccf0-5f69-a609-6b82873eab3c"),
            ("http://podnews.net/rss//", "9b024349-ccf0-5f69-a609-6b82873eab3c"),
            ("https://mp3s.nashownotes.com/pc20rss.xml", "917393e3-1b1e-5cef-ace4-edaa54e1f810"),
        ] {
            assert_eq!(podcast_guid(url), guid, "{url}");
        }
    }
}
