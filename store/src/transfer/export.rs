//! Writes the stored content as the lines that import reads.

use super::Content;
use super::record_type::{After, RecordType};
use super::sql::Dialect;
use super::types::RECORD_TYPES;
use crate::StoreError;
use crate::db::Db;
use crate::row::{Arg, Row};
use serde_json::Value;
use sqlx::AssertSqlSafe;
use std::io::{self, Write};
use thiserror::Error;

/// Rows per page.
const PAGE: i64 = 500;
/// Maximum number of malformed rows that are listed.
const MAX_ROWS: usize = 20;
/// Characters of a key: a stored text may have any length.
const MAX_KEY: usize = 100;

/// Why an export stopped.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output failed.
    #[error(transparent)]
    Out(#[from] io::Error),
}

/// The rows that an export left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// How many rows have a value that a record cannot express.
    pub malformed: u64,
    /// Table, key and column of the first ones.
    pub rows: Vec<String>,
}

impl Exported {
    fn leave_out(&mut self, of: &RecordType, row: &Row, column: &str) {
        self.malformed += 1;
        if self.rows.len() < MAX_ROWS {
            let key = of.key().map(|column| key_part(row, column));
            let key = key.collect::<Vec<_>>().join(" ");
            self.rows.push(format!("{} {key}: {column}", of.table));
        }
    }
}

/// A part of a row's key, for people.
fn key_part(row: &Row, column: &'static str) -> String {
    let text = row.get::<String>(column);
    let text = text.or_else(|_| row.get::<i64>(column).map(|number| number.to_string()));
    text.unwrap_or_default().chars().take(MAX_KEY).collect()
}

impl Content<'_> {
    /// Writes the content of one type, or of all. Concurrent changes may be included or not. A row
    /// that a record cannot express is left out.
    pub async fn export(
        &self,
        only: Option<&str>,
        out: &mut impl Write,
    ) -> Result<Exported, ExportError> {
        let mut exported = Exported::default();
        for of in RECORD_TYPES
            .iter()
            .filter(|of| only.is_none_or(|only| only == of.name))
        {
            export(self.db, of, out, &mut exported).await?;
        }
        Ok(exported)
    }
}

/// Writes one type, page by page.
async fn export(
    db: &Db,
    of: &RecordType,
    out: &mut impl Write,
    exported: &mut Exported,
) -> Result<(), ExportError> {
    let dialect = match db {
        Db::Sqlite { .. } => Dialect::Sqlite,
        Db::Postgres(..) => Dialect::Postgres,
    };
    let page = dialect.text(of.page);
    let first = |after: &After| match after {
        After::Text(_) => "".into(),
        After::Int(_) => 0.into(),
    };
    let mut args: Vec<Arg<'_>> = of.after.iter().map(first).chain([PAGE.into()]).collect();
    loop {
        // made of constants
        let rows = db.rows(AssertSqlSafe(page.as_str()), &args).await?;
        for row in &rows {
            match line(of, row) {
                Ok(line) => writeln!(out, "{line}")?,
                Err(StoreError::Corrupt(column)) => exported.leave_out(of, row, column),
                Err(error) => return Err(error.into()),
            }
        }
        let Some(last) = rows.last() else {
            return Ok(());
        };
        let position = of.after.iter().map(|after| position(after, last));
        args = position
            .chain([Ok(PAGE.into())])
            .collect::<Result<_, _>>()?;
    }
}

fn position(after: &After, row: &Row) -> Result<Arg<'static>, StoreError> {
    Ok(match after {
        After::Text(column) => row.get::<String>(column)?.into(),
        After::Int(column) => row.get::<i64>(column)?.into(),
    })
}

/// A row as a line: its type, then its members in the order of the type.
fn line(of: &RecordType, row: &Row) -> Result<String, StoreError> {
    let mut line = format!("{{\"type\":\"{}\"", of.name);
    for member in of.members {
        let (field, corrupt) = (member.field, StoreError::Corrupt(member.column));
        let value = if field.is_number() {
            let number: Option<i64> = row.get(member.column)?;
            number
                .map(|number| field.show_number(number).ok_or(corrupt))
                .transpose()?
        } else if field.is_json() {
            let json: Option<String> = row.get(member.column)?;
            json.map(|json| serde_json::from_str(&json).map_err(|_| corrupt))
                .transpose()?
        } else {
            row.get::<Option<String>>(member.column)?.map(Value::from)
        };
        if let Some(value) = value {
            line += &format!(",\"{}\":{value}", member.name);
        }
    }
    line.push('}');
    Ok(line)
}
