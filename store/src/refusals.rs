//! Refusals of authenticated requests: rows that count equal ones, each chained to the one before
//! once its minute is over, and deleted when it is old. [`OpenRefusals`] decides.
//!
//! Their chain is apart from that of writes, so that deleting refusals leaves the other whole. An
//! entry of theirs is hashed and exported like any other. Earlier versions journaled each refusal
//! among the writes.

use super::entry::{Entry, Event};
use super::journal::EntryFilter;
use super::row::{Arg, FromRow, Row};
use super::state::EntryKind;
use super::tx::Tx;
use super::{Journal, PAGE, StoreError, sql};
use portcullis_filters::ledger::{OpenRefusals, Refusal, Refusals};
use serde_json::json;
use std::ops::RangeInclusive;

/// A row as lists show it: equal refusals, or one that an earlier version journaled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its number.
    pub seq: i64,
    /// When the first refusal was, in microseconds since 1970 UTC.
    pub first_us: i64,
    /// When the last one was.
    pub last_us: i64,
    /// The operation.
    pub operation: String,
    /// Details, as in the entry that the row becomes.
    pub detail: String,
}

/// The ends of the chain of refusals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ends {
    /// The last row that is chained.
    pub(super) seq: i64,
    pub(super) hash: String,
    /// The last row that was deleted.
    pub(super) pruned_seq: i64,
    pub(super) pruned_hash: String,
    /// The number before the first row.
    pub(super) start_seq: i64,
}

impl FromRow for Ends {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: seq hash pruned_seq pruned_hash start_seq;))
    }
}

impl FromRow for Refusals {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: seq first_us last_us; {
            count: row.get("refusals")?,
            first: from_row!(Refusal, row; get: operation reason request_id;),
        }))
    }
}

impl FromRow for Refused {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let refusals = Refusals::read(row)?;
        Ok(Self {
            detail: detail(&refusals),
            seq: refusals.seq,
            first_us: refusals.first_us,
            last_us: refusals.last_us,
            operation: refusals.first.operation,
        })
    }
}

impl From<Entry> for Refused {
    fn from(entry: Entry) -> Self {
        Self {
            seq: entry.seq,
            first_us: entry.at_us,
            last_us: entry.at_us,
            operation: entry.operation,
            detail: entry.detail,
        }
    }
}

/// The entry of a row that is chained, with the hashes as they are stored.
pub(super) fn chained(row: &Row) -> Result<Entry, StoreError> {
    let refusals = Refusals::read(row)?;
    let hash = row.get("hash")?;
    let entry = entry(&refusals, row.get("prev_hash")?);
    Ok(Entry { hash, ..entry })
}

/// The entry of a row that follows the one with `prev_hash`.
fn entry(refusals: &Refusals, prev_hash: String) -> Entry {
    let event = Event {
        kind: EntryKind::Refused,
        intent: None,
        operation: &refusals.first.operation,
        detail: detail(refusals),
    };
    Entry::after(prev_hash, refusals.seq, refusals.last_us, event)
}

fn detail(refusals: &Refusals) -> String {
    json!({
        "count": refusals.count,
        "first_us": refusals.first_us,
        "reason": refusals.first.reason,
        "request_id": refusals.first.request_id,
    })
    .to_string()
}

/// Counts refusals, and closes the rows whose minute is over. The end of the journal must be
/// locked.
pub(super) async fn record(
    tx: &mut Tx,
    refusals: &[(&Refusal, i64)],
    now_us: i64,
) -> Result<(), StoreError> {
    let ends = ends(tx).await?;
    let rows = tx.rows(sql::REFUSALS_OPEN, &[]).await?;
    let open: Result<_, _> = rows.iter().map(Refusals::read).collect();
    let mut open = OpenRefusals::after(ends.seq, open?);
    for (refusal, at_us) in refusals {
        open.count(refusal, *at_us);
    }
    let folded = open.fold(now_us);
    let counted: Vec<_> = folded.counted.iter().map(columns).collect();
    tx.run_each(sql::REFUSALS_COUNT, &counted).await?;
    close(tx, ends, &folded.closed).await
}

/// Chains the rows to the last one that is chained.
async fn close(tx: &mut Tx, ends: Ends, rows: &[Refusals]) -> Result<(), StoreError> {
    let Some(last) = rows.last() else {
        return Ok(());
    };
    let mut hash = ends.hash;
    let mut closed: Vec<Vec<Arg<'_>>> = Vec::with_capacity(rows.len());
    for row in rows {
        let entry = entry(row, hash);
        closed.push(vec![
            entry.seq.into(),
            entry.prev_hash.into(),
            entry.hash.clone().into(),
        ]);
        hash = entry.hash;
    }
    tx.run_each(sql::REFUSALS_CLOSE, &closed).await?;
    let end = [last.seq.into(), hash.into()];
    tx.run(sql::REFUSAL_HEAD_MOVE, &end).await.map(drop)
}

/// Deletes the oldest rows: at most `limit`, and none whose last refusal was at `before_us` or
/// later. Returns how many. The end of the journal must be locked.
pub(super) async fn prune(tx: &mut Tx, before_us: i64, limit: i64) -> Result<u64, StoreError> {
    let rows = tx.rows(sql::REFUSED, &[0.into(), limit.into()]).await?;
    let mut last = None;
    for row in &rows {
        let entry = chained(row)?;
        if entry.at_us >= before_us {
            break;
        }
        last = Some(entry);
    }
    let Some(last) = last else { return Ok(0) };
    let end = [last.seq.into(), last.hash.into()];
    tx.run(sql::REFUSAL_HEAD_PRUNE, &end).await?;
    tx.run(sql::REFUSALS_PRUNE, &[last.seq.into()]).await
}

async fn ends(tx: &mut Tx) -> Result<Ends, StoreError> {
    let row = tx.row(sql::REFUSAL_HEAD, &[]).await?;
    Ends::read(&row.ok_or(StoreError::Corrupt("refusal_head"))?)
}

fn columns(row: &Refusals) -> Vec<Arg<'_>> {
    vec![
        row.seq.into(),
        (&row.first.operation).into(),
        (&row.first.reason).into(),
        (&row.first.request_id).into(),
        row.count.into(),
        row.first_us.into(),
        row.last_us.into(),
    ]
}

impl Journal {
    /// Refusals that the filter selects, with a number below `before`, newest first; at most
    /// `limit`, and at most [`PAGE`]. Those of the last minute may still count more.
    pub async fn refusals(
        &self,
        filter: &EntryFilter,
        before: i64,
        limit: u32,
    ) -> Result<Vec<Refused>, StoreError> {
        let limit = i64::from(limit.min(PAGE));
        let args = filter.below(before, limit);
        let mut found: Vec<Refused> = self.db.all(sql::REFUSALS, &args).await?;
        let missing = limit - found.len() as i64;
        if missing > 0 {
            let args = filter.below(before, missing);
            let earlier: Vec<Entry> = self.db.all(sql::REFUSALS_JOURNALED, &args).await?;
            found.extend(earlier.into_iter().map(Refused::from));
        }
        debug_assert!(
            found.is_sorted_by(|newer, older| newer.seq > older.seq),
            "newest first"
        );
        Ok(found)
    }

    /// Entries of refusals that the filter selects, with a number above `after`, oldest first; at
    /// most [`PAGE`]. Those of the last minute have no entry yet.
    pub async fn refused(
        &self,
        filter: &EntryFilter,
        after: i64,
    ) -> Result<Vec<Entry>, StoreError> {
        let args = [
            (after.max(filter.after) + 1).into(),
            i64::from(PAGE).into(),
            filter.since_us.into(),
            filter.operation.as_deref().into(),
        ];
        let rows = self.db.rows(sql::REFUSED_MATCHING, &args).await?;
        rows.iter().map(chained).collect()
    }

    /// The numbers of the refusals that were deleted.
    pub async fn pruned_refusals(&self) -> Result<RangeInclusive<i64>, StoreError> {
        let ends = self.ends_of_refusals().await?;
        Ok(ends.start_seq + 1..=ends.pruned_seq)
    }

    /// The ends of the chain of refusals.
    pub(super) async fn ends_of_refusals(&self) -> Result<Ends, StoreError> {
        let row = self.db.row(sql::REFUSAL_HEAD, &[]).await?;
        Ends::read(&row.ok_or(StoreError::Corrupt("refusal_head"))?)
    }
}
