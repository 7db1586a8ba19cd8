//! What somebody stored of the journal elsewhere: its last hash, or a file of `journal export`.

use hex::FromHex as _;
use portcullis_store::{Entry, EntryKind, GENESIS, IntentId};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use thiserror::Error;

/// The hash of an entry.
type Hash = [u8; 32];

/// The entries of an archive that were not found yet.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// By hash.
    wanted: HashMap<Hash, Wanted>,
    /// The file or hash, as it was named; `None` without an archive.
    name: Option<String>,
    is_file: bool,
    found: usize,
}

/// An entry of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// An entry of a hash alone.
    Hash,
    /// An entry in a line of a file.
    Line { line: usize, seq: i64 },
}

/// Why an archive is not usable.
#[derive(Debug, Error)]
pub(super) enum BadArchive {
    #[error("{0}: {1}; expected 64 hexadecimal digits, or a file of `journal export`")]
    File(String, io::Error),
    #[error("{0}: there is no entry in it")]
    Empty(String),
    #[error("{0}, line {1}: not an entry as `journal export` prints it")]
    Line(String, usize),
    #[error("{0}, line {1}: the hash is not that of the content: the file was changed")]
    Changed(String, usize),
}

/// An entry of an archive that the journal does not contain.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) struct NotContained {
    what: String,
    missing: usize,
}

impl fmt::Display for NotContained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, missing } = self;
        match missing {
            1 => write!(f, "{what} is not in the journal"),
            _ => write!(
                f,
                "{what} is not in the journal, and {} others",
                missing - 1
            ),
        }
    }
}

/// A line of an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'l> {
    seq: i64,
    at_us: i64,
    kind: String,
    intent: Option<i64>,
    operation: String,
    #[serde(borrow)]
    detail: &'l RawValue,
    prev_hash: String,
    hash: String,
}

impl Line<'_> {
    /// The entry; `None` if it has an unknown kind.
    fn entry(self) -> Option<Entry> {
        Some(Entry {
            seq: self.seq,
            at_us: self.at_us,
            kind: EntryKind::parse(&self.kind)?,
            intent: self.intent.map(IntentId),
            operation: self.operation,
            detail: self.detail.get().to_owned(),
            prev_hash: self.prev_hash,
            hash: self.hash,
        })
    }
}

impl Archive {
    /// Reads an archive: a hash, or the path of a file.
    ///
    /// # Errors
    /// The file cannot be read, is empty, or has a line that is not an unchanged entry.
    pub(super) fn read(name: &str) -> Result<Self, BadArchive> {
        let hash = Hash::from_hex(name).ok();
        let mut archive = Self {
            name: Some(name.to_owned()),
            is_file: hash.is_none(),
            ..Self::default()
        };
        match hash {
            Some(hash) => drop(archive.wanted.insert(hash, Wanted::Hash)),
            None => archive.read_file(name)?,
        }
        // the chain begins after this hash
        archive.find(GENESIS);
        Ok(archive)
    }

    fn read_file(&mut self, name: &str) -> Result<(), BadArchive> {
        let failed = |error| BadArchive::File(name.to_owned(), error);
        let file = BufReader::new(File::open(name).map_err(failed)?);
        for (line, text) in (1..).zip(file.lines()) {
            let text = text.map_err(failed)?;
            let entry = serde_json::from_str::<Line<'_>>(&text).ok();
            let entry = entry.and_then(Line::entry);
            let entry = entry.ok_or_else(|| BadArchive::Line(name.to_owned(), line))?;
            if entry.computed_hash() != entry.hash {
                return Err(BadArchive::Changed(name.to_owned(), line));
            }
            let hash = Hash::from_hex(&entry.hash);
            let hash = hash.map_err(|_| BadArchive::Line(name.to_owned(), line))?;
            self.wanted.insert(
                hash,
                Wanted::Line {
                    line,
                    seq: entry.seq,
                },
            );
        }
        if self.wanted.is_empty() {
            return Err(BadArchive::Empty(name.to_owned()));
        }
        Ok(())
    }

    /// Notes that the journal contains the entry with this hash, unchanged.
    pub(super) fn find(&mut self, hash: &str) {
        if let Ok(hash) = Hash::from_hex(hash)
            && self.wanted.remove(&hash).is_some()
        {
            self.found += 1;
        }
    }

    /// What to report once the whole journal was read; `None` without an archive.
    ///
    /// # Errors
    /// Something of the archive was not found.
    pub(super) fn compared(self) -> Result<Option<String>, NotContained> {
        let Some(name) = self.name else {
            return Ok(None);
        };
        let missing = self.wanted.len();
        let first = self.wanted.into_values().min_by_key(|wanted| match wanted {
            Wanted::Line { line, .. } => *line,
            Wanted::Hash => 0,
        });
        match first {
            Some(Wanted::Line { line, seq }) => Err(NotContained {
                what: format!("entry {seq} in line {line} of {name}"),
                missing,
            }),
            Some(Wanted::Hash) => Err(NotContained {
                what: format!("an entry with the hash {name}"),
                missing,
            }),
            None if self.is_file => {
                let found = self.found;
                Ok(Some(format!("all {found} entries of {name} are contained")))
            }
            None => Ok(Some(format!("the hash {name} is contained"))),
        }
    }
}
