//! Records of one type that are written to the database together.

use super::record::{Action, Record, Row};
use super::record_type::{RecordType, Rows, Step};
use super::sql::{self, Dialect};
use super::{BATCH_TIMEOUT, ImportError};
use crate::StoreError;
use crate::row::Arg;
use crate::tx::Tx;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use std::collections::HashSet;

/// 1,000 rows: more are no faster.
const MAX_ROWS: usize = 1_000;
/// 1 MiB of lines: bounds the memory of a batch, up to one more record.
const MAX_BYTES: usize = 1 << 20;

/// Records of one type with distinct keys.
#[derive(Default)]
pub(super) struct Batch {
    /// The records, with their line numbers.
    records: Vec<(u64, Record)>,
    keys: HashSet<String>,
    bytes: usize,
}

impl Batch {
    /// Whether this batch must be applied before the record is added.
    pub(super) fn is_full_for(&self, next: &Record) -> bool {
        let Some((_, first)) = self.records.first() else {
            return false;
        };
        self.records.len() >= MAX_ROWS
            || self.bytes >= MAX_BYTES
            || first.of.name != next.of.name
            || first.action != next.action
            || self.keys.contains(&next.key())
    }

    /// Adds the record of a line of this many bytes.
    pub(super) fn push(&mut self, line: u64, bytes: usize, record: Record) {
        let is_new = self.keys.insert(record.key());
        debug_assert!(is_new, "the records of a batch have distinct keys");
        debug_assert!(
            self.records.len() < MAX_ROWS,
            "a full batch is applied first"
        );
        self.bytes += bytes;
        self.records.push((line, record));
    }

    /// Applies the batch and empties it, or finds the line that the database refuses.
    pub(super) async fn apply(&mut self, tx: &mut Tx) -> Result<(), ImportError> {
        let records = std::mem::take(self).records;
        let Some((_, first)) = records.first() else {
            return Ok(());
        };
        let of = first.of;
        let steps = match first.action {
            Action::Put => of.put,
            Action::Delete => &[Step::Delete],
            Action::DeleteAuthor => &[Step::Run(sql::AUTHOR_DELETE, Rows::All)],
        };
        tx.run(sql::SAVE, &[]).await?;
        let rows: Vec<&Row> = records.iter().map(|(_, record)| &record.row).collect();
        let mut fits = true;
        for step in steps {
            fits = fits && run(tx, of, step, &rows).await?.is_none();
        }
        if fits {
            tx.run(sql::KEEP, &[]).await?;
            return Ok(());
        }
        // run each step again row by row to find the line; the caller then drops the transaction
        tx.undo(sql::UNDO).await?;
        for step in steps {
            for (line, record) in &records {
                if let Some(why) = run(tx, of, step, &[&record.row]).await? {
                    return Err(ImportError::line(*line, format!("{}: {why}", of.name)));
                }
            }
        }
        Ok(())
    }
}

/// Runs a step of a type; returns the message if the stored rows forbid it.
async fn run(
    tx: &mut Tx,
    of: &RecordType,
    step: &Step,
    rows: &[&Row],
) -> Result<Option<&'static str>, StoreError> {
    let (statement, which) = match step {
        Step::Put(once) => (sql::put(of, once), Rows::All),
        Step::Delete => (sql::delete(of), Rows::All),
        Step::Run(statement, which) | Step::Check(statement, which, _) => {
            ((*statement).to_owned(), *which)
        }
    };
    let Some(list) = list(of, rows, which) else {
        return Ok(None);
    };
    let dialect = if tx.is_postgres() {
        Dialect::Postgres
    } else {
        Dialect::Sqlite
    };
    // made of constants: the values are in the list
    let (sql, args) = (AssertSqlSafe(dialect.text(&statement)), [Arg::from(&list)]);
    if let Step::Check(_, _, why) = step {
        return Ok(tx.row(sql, &args).await?.map(|_| *why));
    }
    match tx.run_within(BATCH_TIMEOUT, sql, &args).await {
        Ok(_) => Ok(None),
        Err(error) if error.is_constraint_violation() => Ok(Some(of.conflict)),
        Err(error) => Err(error),
    }
}

/// The rows that a statement takes, as JSON; `None` without any.
fn list(of: &RecordType, rows: &[&Row], which: Rows) -> Option<String> {
    let all = rows.iter().copied();
    let list: Vec<Value> = match which {
        Rows::All => all.cloned().map(Value::Object).collect(),
        Rows::With(list) => all
            .filter(|row| row.contains_key(list))
            .cloned()
            .map(Value::Object)
            .collect(),
        Rows::Each(list) => all.flat_map(|row| items(of, row, list)).collect(),
    };
    (!list.is_empty()).then(|| Value::Array(list).to_string())
}

/// A row for each item of a list: the record's key, the item's rank and content.
fn items(of: &RecordType, row: &Row, list: &str) -> Vec<Value> {
    let items = row
        .get(list)
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let key = of
        .key()
        .filter_map(|column| Some((column, row.get(column)?)));
    let key: Row = key
        .map(|(column, value)| (column.to_owned(), value.clone()))
        .collect();
    let ranks = items.iter().zip(1_u64..);
    ranks
        .map(|(item, rank)| {
            let mut row = key.clone();
            row.insert("rank".to_owned(), rank.into());
            match item {
                Value::Object(members) => row.extend(members.clone()),
                label => drop(row.insert("label".to_owned(), label.clone())),
            }
            Value::Object(row)
        })
        .collect()
}
