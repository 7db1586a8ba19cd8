//! Import and export of content as lines of JSON: `{"type":"follow","did":…}`.
//!
//! A file is imported whole or not at all: the first pass finds everything that is wrong with it,
//! the second applies it in one transaction, so memory stays bounded. Importing twice stores once,
//! and import reads what export writes.
//!
//! Reading order: `types.rs` lists all types (`record_type.rs`); `field.rs` checks members,
//! `record.rs` parses a line, `rules.rs` judges it, `batch.rs` applies many records (`sql.rs`);
//! `export.rs` writes them. `shown.rs` applies the same rules to rows that were stored past import.

mod batch;
mod categories;
mod export;
mod field;
mod record;
mod record_type;
mod rules;
mod shown;
mod sql;
mod types;

use super::StoreError;
use super::db::Db;
use super::tx::Tx;
use batch::Batch;
use record::{Action, MAX_DEPTH, Record};
use simd_json::Buffers;
use std::io::{self, BufRead, Read as _, Seek};
use std::time::Duration;
use thiserror::Error;
use types::RECORD_TYPES;
use uuid::Uuid;

pub use export::{ExportError, Exported};
pub use rules::ImportRules;
pub use shown::{may_show, shown_category};
pub use types::types;

/// Timeout of a batch: a thousand rows on a slow disk.
const BATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of SQLite's commit of a file: it then moves all of the file from its log to its tables.
/// PostgreSQL does that later, and has [`BATCH_TIMEOUT`].
const COMMIT_TIMEOUT: Duration = Duration::from_secs(600);
/// Lines between two progress reports of the check.
const REPORT_EVERY: u64 = 1_000;
/// Maximum length of a line in bytes: far beyond any record, and a bound for files without line
/// ends.
const MAX_LINE: usize = 1 << 20;
/// Maximum number of refused lines that are listed.
const MAX_REFUSED: usize = 20;
/// The namespace of podcast:guid (Podcasting 2.0, "podcast:guid").
const PODCASTS: Uuid = Uuid::from_u128(0xead4_c236_bf58_58c6_a2c6_a6b2_8d12_8cb6);

/// The stage of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The first pass checks every line.
    Checking,
    /// The second pass writes.
    Applying,
}

/// How many records of each type were imported.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    put: [u64; RECORD_TYPES.len()],
    deleted: [u64; RECORD_TYPES.len()],
}

impl Imported {
    fn count(&mut self, record: &Record) {
        let counts = match record.action {
            Action::Put => &mut self.put,
            Action::Delete | Action::DeleteAuthor => &mut self.deleted,
        };
        for (of, count) in RECORD_TYPES.iter().zip(counts) {
            *count += u64::from(of.name == record.of.name);
        }
    }
}

impl std::fmt::Display for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut comma = "";
        for (counts, what) in [(&self.put, ""), (&self.deleted, " deleted")] {
            for (of, count) in RECORD_TYPES
                .iter()
                .zip(counts)
                .filter(|(_, count)| **count > 0)
            {
                let plural = if *count == 1 { "" } else { "s" };
                write!(f, "{comma}{} {}{plural}{what}", grouped(*count), of.name)?;
                comma = ", ";
            }
        }
        if comma.is_empty() {
            f.write_str("nothing")
        } else {
            Ok(())
        }
    }
}

/// Formats a number with a comma before each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Why nothing of a file was imported.
#[derive(Debug, Error)]
pub enum ImportError {
    /// These lines are refused, and this many more.
    #[error("{}", refused(.0, *.1))]
    Refused(Vec<String>, u64),
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The store failed; the file may have been imported.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ImportError {
    /// One refused line.
    fn line(number: u64, why: impl std::fmt::Display) -> Self {
        Self::Refused(vec![format!("line {number}: {why}")], 0)
    }
}

fn refused(lines: &[String], more: u64) -> String {
    let more = if more > 0 {
        format!("and {more} more\n")
    } else {
        String::new()
    };
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    format!("{lines}{more}nothing was imported")
}

/// Imports and exports content.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    pub(super) db: &'a Db,
}

impl Content<'_> {
    /// Imports a file, whole or not at all. `progress` gets the bytes that each stage has read.
    pub async fn import(
        &self,
        file: &mut (impl BufRead + Seek),
        rules: ImportRules<'_>,
        mut progress: impl FnMut(Stage, u64),
    ) -> Result<Imported, ImportError> {
        check(Records::new(&mut *file, rules), |bytes| {
            progress(Stage::Checking, bytes)
        })?;
        file.rewind()?;
        let mut tx = begin(self.db).await?;
        let mut imported = Imported::default();
        let mut batch = Batch::default();
        let mut records = Records::new(file, rules);
        while let Some((length, mut record)) = records.next()? {
            if batch.is_full_for(&record) {
                batch.apply(&mut tx).await?;
                progress(Stage::Applying, records.bytes);
            }
            name_podcast(&mut record, rules.base_url);
            imported.count(&record);
            batch.push(records.number, length, record);
        }
        batch.apply(&mut tx).await?;
        progress(Stage::Applying, records.bytes);
        let timeout = if tx.is_postgres() {
            BATCH_TIMEOUT
        } else {
            COMMIT_TIMEOUT
        };
        tx.commit_within(timeout).await?;
        // an error here does not undo the import
        if let Err(error) = analyze(self.db).await {
            error.log();
        }
        Ok(imported)
    }
}

/// Begins a transaction for many rows.
async fn begin(db: &Db) -> Result<Tx, StoreError> {
    let mut tx = db.begin().await?;
    if tx.is_postgres() {
        let timeout = BATCH_TIMEOUT.as_millis().to_string();
        tx.row(sql::TIMEOUT, &[(&timeout).into()]).await?;
    } else {
        tx.run(sql::CACHE, &[]).await?;
    }
    Ok(tx)
}

/// Updates the planner's statistics, which PostgreSQL itself does some minutes later: until then it
/// may sort a large table for each page. SQLite plans without statistics.
async fn analyze(db: &Db) -> Result<(), StoreError> {
    if matches!(db, Db::Postgres(..)) {
        let mut tx = begin(db).await?;
        tx.run_within(BATCH_TIMEOUT, sql::ANALYZE, &[]).await?;
        tx.commit().await?;
    }
    Ok(())
}

/// Finds everything that is wrong with the lines of a file.
fn check(
    mut records: Records<'_, impl BufRead>,
    mut progress: impl FnMut(u64),
) -> Result<(), ImportError> {
    let (mut refused, mut more) = (Vec::new(), 0);
    loop {
        match records.next() {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(ImportError::Refused(line, _)) if refused.len() < MAX_REFUSED => {
                refused.extend(line);
            }
            Err(ImportError::Refused(..)) => more += 1,
            Err(error) => return Err(error),
        }
        if records.number.is_multiple_of(REPORT_EVERY) {
            progress(records.bytes);
        }
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(ImportError::Refused(refused, more))
    }
}

/// The records of a file, line by line, in bounded memory.
struct Records<'a, R> {
    from: R,
    rules: ImportRules<'a>,
    line: Vec<u8>,
    /// The number of the current line, from 1.
    number: u64,
    /// Bytes read so far.
    bytes: u64,
    buffers: Buffers,
}

impl<'a, R: BufRead> Records<'a, R> {
    fn new(from: R, rules: ImportRules<'a>) -> Self {
        let buffers = Buffers::with_max_depth(0, MAX_DEPTH);
        Self {
            from,
            rules,
            line: Vec::new(),
            number: 0,
            bytes: 0,
            buffers,
        }
    }

    /// The next record and the length of its line. Blank lines are skipped.
    fn next(&mut self) -> Result<Option<(usize, Record)>, ImportError> {
        while self.read()? > 0 {
            self.number += 1;
            let length = self.line.len();
            let record = if length > MAX_LINE {
                // skips the rest
                while !self.line.ends_with(b"\n") && self.read()? > 0 {}
                Err("longer than any record".to_owned())
            } else if self.line.trim_ascii().is_empty() {
                continue;
            } else {
                let record = Record::parse(&mut self.line, &mut self.buffers);
                record.and_then(|record| self.rules.judge(record))
            };
            let record = record.map_err(|why| ImportError::line(self.number, why))?;
            return Ok(Some((length, record)));
        }
        Ok(None)
    }

    /// Reads to the end of the line, or one byte beyond the limit.
    fn read(&mut self) -> io::Result<usize> {
        self.line.clear();
        let bound = MAX_LINE as u64 + 1;
        let read = self
            .from
            .by_ref()
            .take(bound)
            .read_until(b'\n', &mut self.line)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Gives a podcast the guid of its feed's URL, unless it has one. A stored guid stays.
fn name_podcast(record: &mut Record, base_url: Option<&str>) {
    let Some(base_url) = base_url.filter(|_| record.of.name == "podcast") else {
        return;
    };
    let did = record
        .row
        .get("did")
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default();
    let feed = format!("{base_url}/functions/podcast-rss-feed?did={did}");
    let guid = podcast_guid(&feed);
    record.row.entry("guid").or_insert_with(|| guid.into());
}

/// Derives a guid from a feed's URL, without its scheme and the slashes at its end.
fn podcast_guid(url: &str) -> String {
    let name = url
        .split_once("://")
        .map_or(url, |(_, rest)| rest)
        .trim_end_matches('/');
    Uuid::new_v5(&PODCASTS, name.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_guids_match_the_podcast_specification() {
        for (url, guid) in [
            (
                "https://podnews.net/rss",
                "9b024349-ccf0-5f69-a609-6b82873eab3c",
            ),
            (
                "http://podnews.net/rss//",
                "9b024349-ccf0-5f69-a609-6b82873eab3c",
            ),
            (
                "https://mp3s.nashownotes.com/pc20rss.xml",
                "917393e3-1b1e-5cef-ace4-edaa54e1f810",
            ),
        ] {
            assert_eq!(podcast_guid(url), guid, "{url}");
        }
    }
}
