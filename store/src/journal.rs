//! The journal: every state change of an intent and every refusal, append-only and hash-chained.
//!
//! [`Journal`] reads, also while a relay writes. Only the store appends, and it locks the end of
//! the chain first ([`begin`]), which serializes all writers across processes: the sequence has no
//! gaps, and what a writer reads after the lock is still true when it commits.

use super::db::Db;
use super::each;
use super::entry::{Entry, Event, GENESIS};
use super::row::{Arg, FromRow as _, Row};
use super::state::EntryKind;
use super::timeout::TIMEOUT;
use super::tx::Tx;
use super::{Intent, IntentId, IntentState, StoreError, sql};
use portcullis_base::io::clock::now_us;
use portcullis_filters::felt::Felt;
use thiserror::Error;
use tokio::time::Instant;

/// The maximum number of entries per read.
pub const PAGE: u32 = 500;
/// The maximum number of entries that a statement searches: a fraction of its timeout.
const SPAN: i64 = 50_000;

/// The end of the chain, locked until the transaction ends.
#[derive(Debug)]
pub(super) struct End {
    seq: i64,
    hash: String,
}

impl End {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            seq: row.get("seq")?,
            hash: row.get("hash")?,
        })
    }
}

/// The intent of this id.
pub(super) async fn intent(db: &Db, id: IntentId) -> Result<Option<Intent>, StoreError> {
    db.one(sql::INTENT, &[id.0.into()]).await
}

/// Begins a transaction that has locked the end of the chain.
pub(super) async fn begin(db: &Db) -> Result<(Tx, End), StoreError> {
    begin_until(db, Instant::now() + TIMEOUT).await
}

/// [`begin`], with a deadline for the lock.
pub(super) async fn begin_until(db: &Db, deadline: Instant) -> Result<(Tx, End), StoreError> {
    let (tx, rows) = db.begin_with(sql::CHAIN_LOCK, deadline).await?;
    let end = End::read(rows.first().ok_or(StoreError::Corrupt("chain_head"))?)?;
    Ok((tx, end))
}

/// The entries that a transaction appends, in their order.
#[derive(Debug)]
pub(super) struct Appended {
    end: End,
    entries: Vec<Entry>,
}

impl Appended {
    /// No entries yet, after this end.
    pub(super) fn after(end: End) -> Self {
        Self {
            end,
            entries: Vec::new(),
        }
    }

    /// The next entry's sequence number.
    pub(super) fn next(&self) -> i64 {
        self.end.seq + 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, event: Event<'_>, now_us: i64) {
        let seq = self.next();
        let entry = Entry::after(self.end.hash.clone(), seq, now_us, event);
        self.end = End {
            seq,
            hash: entry.hash.clone(),
        };
        self.entries.push(entry);
    }

    /// Writes the entries and the new end of the chain.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result<(), StoreError> {
        let entries: Vec<Vec<Arg<'_>>> = self.entries.iter().map(columns).collect();
        let moved = if tx.is_postgres() {
            tx.run_columns(sql::ENTRIES_ADD.to_owned(), &each::columns(&entries))
                .await?
        } else {
            tx.run_each(sql::ENTRY_ADD, &entries).await?;
            let end = [self.end.seq.into(), (&self.end.hash).into()];
            tx.run(sql::CHAIN_MOVE, &end).await?
        };
        debug_assert_eq!(moved, 1, "the chain has one end");
        Ok(())
    }
}

fn columns(entry: &Entry) -> Vec<Arg<'_>> {
    vec![
        entry.seq.into(),
        entry.at_us.into(),
        entry.kind.name().into(),
        entry.intent.map(|id| id.0).into(),
        (&entry.operation).into(),
        (&entry.detail).into(),
        (&entry.prev_hash).into(),
        (&entry.hash).into(),
    ]
}

/// Reads the journal.
#[derive(Debug, Clone)]
pub struct Journal {
    pub(super) db: Db,
}

/// Selects intents; `None` matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// The transaction's hash.
    pub hash: Option<Felt>,
    /// The account that the operation is about.
    pub subject: Option<Felt>,
    /// The state.
    pub state: Option<IntentState>,
    /// The operation's name.
    pub operation: Option<String>,
}

impl Search {
    /// The statement whose index selects best.
    fn statement(&self) -> &'static str {
        match self {
            Self { hash: Some(_), .. } => sql::SEARCH_BY_HASH,
            Self {
                subject: Some(_), ..
            } => sql::SEARCH_BY_SUBJECT,
            Self { state: Some(_), .. } => sql::SEARCH_BY_STATE,
            Self {
                operation: Some(_), ..
            } => sql::SEARCH_BY_OPERATION,
            _ => sql::SEARCH,
        }
    }
}

/// Selects entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryFilter {
    /// Only those with a higher sequence number.
    pub after: i64,
    /// Only those from this time on, in microseconds since 1970 UTC.
    pub since_us: i64,
    /// Only those of this kind.
    pub kind: Option<EntryKind>,
    /// Only those of this operation.
    pub operation: Option<String>,
}

impl Default for EntryFilter {
    fn default() -> Self {
        Self {
            after: 0,
            since_us: i64::MIN,
            kind: None,
            operation: None,
        }
    }
}

impl EntryFilter {
    /// The arguments of a statement that reads entries of these numbers.
    fn between(&self, after: i64, until: i64, limit: u32) -> [Arg<'_>; 6] {
        [
            after.into(),
            until.into(),
            i64::from(limit.min(PAGE)).into(),
            self.since_us.into(),
            self.kind.map(EntryKind::name).into(),
            self.operation.as_deref().into(),
        ]
    }
}

/// The result of verifying the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verified {
    /// Every entry is as written.
    Whole {
        /// The number of entries.
        entries: i64,
        /// The hash of the newest entry. A copy stored elsewhere proves later that none was
        /// rewritten.
        head: String,
    },
    /// The chain was changed from outside.
    Broken {
        /// The first entry that is changed or missing.
        seq: i64,
        /// How it breaks the chain.
        why: Break,
    },
}

/// How an entry breaks the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Break {
    /// The entry is missing.
    #[error("the entry is missing")]
    Missing,
    /// The entry's `prev_hash` is not the hash of the previous entry.
    #[error("its prev_hash is not the hash of the previous entry")]
    Link,
    /// The entry's hash does not match its content.
    #[error("its hash does not match its content")]
    Hash,
    /// The stored head does not match the last entry.
    #[error("the stored head does not match the last entry")]
    End,
}

impl Journal {
    /// Entries from `from_seq` on, oldest first; at most `limit`, and at most [`PAGE`].
    pub async fn entries(&self, from_seq: i64, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let args = [from_seq.into(), i64::from(limit.min(PAGE)).into()];
        self.db.all(sql::ENTRIES, &args).await
    }

    /// The newest entries, oldest first; at most `limit`, and at most [`PAGE`].
    pub async fn newest(&self, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let args = [i64::from(limit.min(PAGE)).into()];
        let mut entries: Vec<_> = self.db.all(sql::ENTRIES_NEWEST, &args).await?;
        entries.reverse();
        Ok(entries)
    }

    /// The entries of one intent, oldest first.
    pub async fn entries_of(&self, intent: IntentId) -> Result<Vec<Entry>, StoreError> {
        self.db.all(sql::ENTRIES_OF, &[intent.0.into()]).await
    }

    /// The intent of this id.
    pub async fn intent(&self, id: IntentId) -> Result<Option<Intent>, StoreError> {
        intent(&self.db, id).await
    }

    /// Intents with an id below `before`, newest first; at most `limit`, and at most [`PAGE`].
    pub async fn search(
        &self,
        search: &Search,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Intent>, StoreError> {
        let args = [
            before.into(),
            i64::from(limit.min(PAGE)).into(),
            search.hash.into(),
            search.subject.into(),
            search.state.map(IntentState::name).into(),
            search.operation.as_deref().into(),
        ];
        self.db.all(search.statement(), &args).await
    }

    /// Refusals with a sequence number below `before`, newest first, of one operation or all; at
    /// most `limit`, and at most [`PAGE`].
    pub async fn refusals(
        &self,
        operation: Option<&str>,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let args = [
            before.into(),
            i64::from(limit.min(PAGE)).into(),
            operation.into(),
        ];
        self.db.all(sql::REFUSALS, &args).await
    }

    /// The entries that the filter selects after `after`, oldest first, and the number to continue
    /// after; `None` at the end of the journal. There may be none although there are later ones.
    pub async fn matching(
        &self,
        filter: &EntryFilter,
        after: i64,
    ) -> Result<Option<(Vec<Entry>, i64)>, StoreError> {
        let end = self.end().await?;
        let after = after.max(filter.after);
        if end.is_none_or(|end| end.seq <= after) {
            return Ok(None);
        }
        let until = after.saturating_add(SPAN);
        let args = filter.between(after, until, PAGE);
        let found: Vec<Entry> = self.db.all(sql::ENTRIES_MATCHING, &args).await?;
        let next = match found.last() {
            Some(last) if found.len() == PAGE as usize => last.seq,
            _ => until,
        };
        Ok(Some((found, next)))
    }

    /// The newest entries that the filter selects, oldest first; at most `limit`.
    pub async fn newest_matching(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let end = self.end().await?;
        let mut until = end.map_or(0, |end| end.seq);
        let mut found: Vec<Entry> = Vec::new();
        while until > filter.after && found.len() < limit as usize {
            let after = filter.after.max(until.saturating_sub(SPAN));
            let missing = limit.saturating_sub(found.len() as u32);
            let args = filter.between(after, until, missing);
            let page: Vec<Entry> = self.db.all(sql::ENTRIES_MATCHING_NEWEST, &args).await?;
            until = match page.last() {
                Some(oldest) if page.len() == missing.min(PAGE) as usize => oldest.seq - 1,
                _ => after,
            };
            found.extend(page);
        }
        found.reverse();
        Ok(found)
    }

    /// The database's time in microseconds since 1970 UTC; this machine's with SQLite.
    pub async fn now_us(&self) -> Result<i64, StoreError> {
        match &self.db {
            Db::Sqlite { .. } => Ok(now_us()),
            Db::Postgres(..) => {
                let row = self.db.row(sql::NOW, &[]).await?;
                row.ok_or(StoreError::Corrupt("now_us"))?.get("now_us")
            }
        }
    }

    /// The end of the chain, as it is stored.
    async fn end(&self) -> Result<Option<End>, StoreError> {
        let row = self.db.row(sql::CHAIN_HEAD, &[]).await?;
        row.map(|row| End::read(&row)).transpose()
    }

    /// Verifies the whole chain, also while it grows. A broken chain is a result, not an error.
    pub async fn verify(&self) -> Result<Verified, StoreError> {
        self.verify_each(|_| {}).await
    }

    /// Verifies like [`Self::verify`], and passes each unchanged entry to `see`.
    pub async fn verify_each(&self, mut see: impl FnMut(&Entry)) -> Result<Verified, StoreError> {
        let mut at = Verifier {
            seq: 0,
            hash: GENESIS.to_owned(),
        };
        loop {
            let args = [(at.seq + 1).into(), i64::from(PAGE).into()];
            let rows = self.db.rows(sql::ENTRIES, &args).await?;
            for row in &rows {
                match at.step(row) {
                    Ok(entry) => see(&entry),
                    Err(why) => {
                        return Ok(Verified::Broken {
                            seq: at.seq + 1,
                            why,
                        });
                    }
                }
            }
            if !rows.is_empty() {
                continue;
            }
            // read after the rows, so the head is never behind them
            let Some(end) = self.end().await? else {
                return Ok(Verified::Broken {
                    seq: at.seq,
                    why: Break::End,
                });
            };
            if end.seq > at.seq && !self.entries(at.seq + 1, 1).await?.is_empty() {
                continue;
            }
            return Ok(at.ends_at(end));
        }
    }

    /// Closes the connections.
    pub async fn close(self) {
        self.db.close().await;
    }
}

/// The verified part of the chain.
struct Verifier {
    seq: i64,
    hash: String,
}

impl Verifier {
    fn step(&mut self, row: &Row) -> Result<Entry, Break> {
        // rows are sorted: any other number is a later one
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
        self.seq = entry.seq;
        self.hash.clone_from(&entry.hash);
        Ok(entry)
    }

    fn ends_at(self, end: End) -> Verified {
        if end.seq > self.seq {
            return Verified::Broken {
                seq: self.seq + 1,
                why: Break::Missing,
            };
        }
        if end.seq < self.seq || end.hash != self.hash {
            return Verified::Broken {
                seq: self.seq,
                why: Break::End,
            };
        }
        Verified::Whole {
            entries: self.seq,
            head: self.hash,
        }
    }
}

/// A JSON object of the members with a value; the caller sorts them.
pub(super) fn object(members: &[(&str, Option<&str>)]) -> String {
    debug_assert!(
        members.is_sorted_by(|(one, _), (next, _)| one < next),
        "the members are sorted"
    );
    let member = |(key, value): &(&str, Option<&str>)| Some(((*key).into(), (*value)?.into()));
    serde_json::Value::Object(members.iter().filter_map(member).collect()).to_string()
}
