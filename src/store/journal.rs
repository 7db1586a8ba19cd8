//! The journal: what was intended and what became of it, append-only and chained by hashes.
//!
//! [`Journal`] reads, also beside a relay that writes. Appending is for the store only: whoever
//! appends takes the end of the chain first ([`lock`]), and so waits for everyone else who does, in
//! this process or another. That is why there are no gaps, and why what is read after the lock is
//! still true when it is written.

use super::db::{Db, Row, Tx};
use super::entry::{Entry, GENESIS, What};
use super::intent::{Intent, IntentId};
use super::{StoreError, sql};

/// Entries that are read at once, at most.
pub const PAGE: u32 = 500;

/// Where the chain ended when it was locked. Locked until the transaction ends.
#[derive(Debug)]
pub(super) struct End {
    seq: i64,
    hash: String,
}

impl End {
    /// The number of the entry that will be appended.
    pub(super) fn next(&self) -> i64 {
        self.seq + 1
    }

    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self { seq: row.get("seq")?, hash: row.get("hash")? })
    }
}

/// Takes the end of the chain.
pub(super) async fn lock(tx: &mut Tx) -> Result<End, StoreError> {
    let row = tx.row(sql::CHAIN_LOCK, &[]).await?;
    End::read(&row.ok_or(StoreError::Corrupt("chain_head"))?)
}

/// Appends one entry.
pub(super) async fn append(
    tx: &mut Tx,
    end: End,
    what: What<'_>,
    now_us: i64,
) -> Result<(), StoreError> {
    let entry = Entry::after(end.hash.clone(), end.next(), now_us, what);
    let args = [
        entry.seq.into(),
        entry.at_us.into(),
        entry.kind.name().into(),
        entry.intent.map(|id| id.0).into(),
        (&entry.operation).into(),
        (&entry.detail).into(),
        (&entry.prev_hash).into(),
        (&entry.hash).into(),
    ];
    tx.run(sql::ENTRY_ADD, &args).await?;
    tx.run(sql::CHAIN_MOVE, &[entry.seq.into(), (&entry.hash).into()]).await?;
    Ok(())
}

/// The journal, to be read.
#[derive(Debug, Clone)]
pub struct Journal {
    pub(super) db: Db,
}

/// What came of checking the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified {
    /// Every entry is as it was written.
    Whole {
        /// How many there are.
        entries: i64,
        /// The hash of the newest. Kept elsewhere, it proves later that none was rewritten.
        head: String,
    },
    /// It was changed from outside.
    Broken {
        /// The first entry that is not as it was written, or is missing.
        seq: i64,
        /// What is wrong with it.
        why: Break,
    },
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// It is not there.
    Missing,
    /// It does not follow from the one before.
    Link,
    /// Its hash is not that of its content.
    Hash,
    /// The chain ends elsewhere.
    End,
}

impl std::fmt::Display for Break {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Missing => "it is missing",
            Self::Link => "it does not follow from the entry before",
            Self::Hash => "its content is not what was hashed",
            Self::End => "the chain ends elsewhere",
        })
    }
}

impl Journal {
    /// Entries from `from_seq` on, oldest first; at most `limit`, and at most [`PAGE`].
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn entries(&self, from_seq: i64, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let args = [from_seq.into(), i64::from(limit.min(PAGE)).into()];
        self.read(self.db.rows(sql::ENTRIES, &args).await?)
    }

    /// The newest entries, oldest first; at most `limit`, and at most [`PAGE`].
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn newest(&self, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let args = [i64::from(limit.min(PAGE)).into()];
        let mut rows = self.db.rows(sql::ENTRIES_NEWEST, &args).await?;
        rows.reverse();
        self.read(rows)
    }

    /// The entries of one intent, oldest first.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn entries_of(&self, intent: IntentId) -> Result<Vec<Entry>, StoreError> {
        self.read(self.db.rows(sql::ENTRIES_OF, &[intent.0.into()]).await?)
    }

    fn read(&self, rows: Vec<Row>) -> Result<Vec<Entry>, StoreError> {
        rows.iter().map(Entry::read).collect()
    }

    /// The intent of this id.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn intent(&self, id: IntentId) -> Result<Option<Intent>, StoreError> {
        self.db.row(sql::INTENT, &[id.0.into()]).await?.as_ref().map(Intent::read).transpose()
    }

    /// Checks the whole chain, also while it grows.
    ///
    /// # Errors
    /// The database is unavailable. A chain that was changed is no error.
    pub async fn verify(&self) -> Result<Verified, StoreError> {
        let mut at = Walked { seq: 0, hash: GENESIS.to_owned() };
        loop {
            let args = [(at.seq + 1).into(), i64::from(PAGE).into()];
            let rows = self.db.rows(sql::ENTRIES, &args).await?;
            for row in &rows {
                if let Err(why) = at.step(row) {
                    return Ok(Verified::Broken { seq: at.seq + 1, why });
                }
            }
            if !rows.is_empty() {
                continue;
            }
            // read after the rows, so it is never behind them
            let Some(row) = self.db.row(sql::CHAIN_HEAD, &[]).await? else {
                return Ok(Verified::Broken { seq: at.seq, why: Break::End });
            };
            let end = End::read(&row)?;
            if end.seq > at.seq && !self.entries(at.seq + 1, 1).await?.is_empty() {
                continue;
            }
            return Ok(at.ends_at(end));
        }
    }

    /// Ends the connections.
    pub async fn close(self) {
        self.db.close().await;
    }
}

/// How far the chain was found whole.
struct Walked {
    seq: i64,
    hash: String,
}

impl Walked {
    fn step(&mut self, row: &Row) -> Result<(), Break> {
        // SQL's order: a row that is not the next one is a later one
        if row.get::<i64>("seq").ok() != Some(self.seq + 1) {
            return Err(Break::Missing);
        }
        let entry = Entry::read(row).map_err(|_| Break::Hash)?;
        if entry.prev_hash != self.hash {
            return Err(Break::Link);
        }
        if entry.computed_hash() != entry.hash {
            return Err(Break::Hash);
        }
        (self.seq, self.hash) = (entry.seq, entry.hash);
        Ok(())
    }

    fn ends_at(self, end: End) -> Verified {
        if end.seq > self.seq {
            return Verified::Broken { seq: self.seq + 1, why: Break::Missing };
        }
        if end.seq < self.seq || end.hash != self.hash {
            return Verified::Broken { seq: self.seq, why: Break::End };
        }
        Verified::Whole { entries: self.seq, head: self.hash }
    }
}

/// An object with the members that have a value, which the caller gives in the order of their keys.
pub(super) fn object(members: &[(&str, Option<&str>)]) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let members = members.iter().filter_map(|(key, value)| Some((key, (*value)?)));
    let members: Vec<String> =
        members.map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
    format!("{{{}}}", members.join(","))
}
