//! Rows of one type that go to the database together.

use super::kind::{Kind, Rows, Step};
use super::record::{Record, Row, Wrong};
use super::sql::{self, Statement};
use super::{BATCH_PATIENCE, Refused};
use crate::store::StoreError;
use crate::store::db::{Arg, Tx};
use serde_json::Value;
use std::collections::HashSet;

/// 1,000 rows: more would not be faster.
const MAX_ROWS: usize = 1_000;
/// 1 MiB of lines: what a batch may hold in memory, besides one record.
const MAX_BYTES: usize = 1 << 20;

/// Records of one type, none of them twice.
#[derive(Default)]
pub(super) struct Batch {
    /// With the numbers of their lines.
    records: Vec<(u64, Record)>,
    keys: HashSet<String>,
    bytes: usize,
}

/// Why a batch was not applied.
pub(super) enum Unapplied {
    Refused(Refused),
    Store(StoreError),
}

impl From<StoreError> for Unapplied {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Batch {
    /// Whether the record has to wait until this batch is applied.
    pub(super) fn is_full_for(&self, next: &Record) -> bool {
        let Some((_, first)) = self.records.first() else { return false };
        self.records.len() >= MAX_ROWS
            || self.bytes >= MAX_BYTES
            || first.kind.name != next.kind.name
            || first.is_deletion != next.is_deletion
            || self.keys.contains(&next.key())
    }

    /// Takes the record of a line of so many bytes.
    pub(super) fn push(&mut self, line: u64, bytes: usize, record: Record) {
        self.keys.insert(record.key());
        self.bytes += bytes;
        self.records.push((line, record));
    }

    /// Applies all of it, or finds the line that can not be, and leaves the batch empty.
    pub(super) async fn apply(&mut self, tx: &mut Tx) -> Result<(), Unapplied> {
        let records = std::mem::take(self).records;
        let Some((_, first)) = records.first() else { return Ok(()) };
        let kind = first.kind;
        let delete = [Step::Run(kind.delete, Rows::All)];
        let steps = if first.is_deletion { &delete[..] } else { kind.put };
        tx.run(sql::SAVE, &[]).await?;
        let rows: Vec<&Row> = records.iter().map(|(_, record)| &record.row).collect();
        let mut fits = true;
        for step in steps {
            fits = fits && run(tx, kind, step, &rows).await?.is_none();
        }
        if fits {
            tx.run(sql::KEEP, &[]).await?;
            return Ok(());
        }
        // again, each step row by row, to know which; the caller gives the whole file up
        tx.run(sql::UNDO, &[]).await?;
        for step in steps {
            for (line, record) in &records {
                if let Some(why) = run(tx, kind, step, &[&record.row]).await? {
                    let wrong = Wrong::Refused(kind.name, why);
                    return Err(Unapplied::Refused(Refused { line: *line, wrong }));
                }
            }
        }
        Ok(())
    }
}

/// Runs one step of a type; why not, if the rows do not fit what is stored.
async fn run(
    tx: &mut Tx,
    kind: &Kind,
    step: &Step,
    rows: &[&Row],
) -> Result<Option<&'static str>, StoreError> {
    let (Step::Run(statement, of) | Step::Check(statement, of, _)) = step;
    let Some(list) = list(kind, rows, *of) else { return Ok(None) };
    let (sql, args) = (text(statement, tx), [Arg::from(&list)]);
    match step {
        Step::Check(_, _, why) => Ok(tx.row(sql, &args).await?.map(|_| *why)),
        Step::Run(..) => match tx.run_within(BATCH_PATIENCE, sql, &args).await {
            Ok(_) => Ok(None),
            Err(error) if error.is_broken_rule() => Ok(Some(kind.clash)),
            Err(error) => Err(error),
        },
    }
}

fn text(statement: &Statement, tx: &Tx) -> &'static str {
    match tx {
        Tx::Sqlite(_) => statement.sqlite,
        Tx::Postgres(_) => statement.postgres,
    }
}

/// The rows that a statement is for, as JSON; `None` if there are none.
fn list(kind: &Kind, rows: &[&Row], of: Rows) -> Option<String> {
    let list: Vec<Value> = match of {
        Rows::All => rows.iter().map(|row| Value::Object((*row).clone())).collect(),
        Rows::With(list) => {
            let with = rows.iter().filter(|row| row.contains_key(list));
            with.map(|row| Value::Object((*row).clone())).collect()
        }
        Rows::Each(list) => rows.iter().flat_map(|row| items(kind, row, list)).collect(),
    };
    (!list.is_empty()).then(|| Value::Array(list).to_string())
}

/// A row for each item of a list: the record's key, the item's rank, and what it is.
fn items(kind: &Kind, row: &Row, list: &str) -> Vec<Value> {
    let items = row.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let key = kind.key().filter_map(|column| Some((column, row.get(column)?)));
    let key: Row = key.map(|(column, value)| (column.to_owned(), value.clone())).collect();
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
