//! What is stored, as the lines that import takes back.

use super::kind::{KINDS, Kind};
use super::sql::After;
use crate::store::db::{Arg, Db, Row};
use crate::store::{Store, StoreError};
use serde_json::Value;
use std::io::{self, Write};

/// Rows of one page.
const PAGE: i64 = 500;

/// Why not everything was written.
#[derive(Debug)]
pub enum ExportError {
    /// It could not be read.
    Store(StoreError),
    /// It could not be written.
    Out(io::Error),
}

impl From<StoreError> for ExportError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Out(error)
    }
}

impl std::fmt::Display for ExportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Out(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExportError {}

impl Store {
    /// Writes the content as lines, or that of one type only. What changes meanwhile may be in it
    /// as it was or as it is.
    ///
    /// # Errors
    /// The database is unavailable, holds what can not be shown, or `out` takes no more.
    pub async fn export(
        &self,
        only: Option<&str>,
        out: &mut impl Write,
    ) -> Result<(), ExportError> {
        for kind in KINDS.iter().filter(|kind| only.is_none_or(|only| only == kind.name)) {
            export(&self.db, kind, out).await?;
        }
        Ok(())
    }
}

/// Writes one type, page by page.
async fn export(db: &Db, kind: &Kind, out: &mut impl Write) -> Result<(), ExportError> {
    let sql = match db {
        Db::Sqlite { .. } => kind.select.page.sqlite,
        Db::Postgres(_) => kind.select.page.postgres,
    };
    let first = |after: &After| match after {
        After::Text(_) => Value::from(""),
        After::Int(_) => Value::from(0),
    };
    let mut key: Vec<Value> = kind.select.after.iter().map(first).collect();
    loop {
        let mut args: Vec<Arg<'_>> = key.iter().map(arg).collect();
        args.push(PAGE.into());
        let page = db.rows(sql, &args).await?;
        for row in &page {
            writeln!(out, "{}", line(kind, row)?)?;
        }
        let Some(last) = page.last() else { return Ok(()) };
        key = kind
            .select
            .after
            .iter()
            .map(|after| position(after, last))
            .collect::<Result<_, _>>()?;
    }
}

fn arg(value: &Value) -> Arg<'_> {
    match value {
        Value::String(text) => text.into(),
        other => other.as_i64().into(),
    }
}

fn position(after: &After, row: &Row) -> Result<Value, StoreError> {
    Ok(match after {
        After::Text(column) => row.get::<String>(column)?.into(),
        After::Int(column) => row.get::<i64>(column)?.into(),
    })
}

/// A row as a line: its type, then what it has, in the order of the type's members.
fn line(kind: &Kind, row: &Row) -> Result<String, StoreError> {
    let mut line = format!("{{\"type\":\"{}\"", kind.name);
    for member in kind.members {
        let (form, corrupt) = (member.form, StoreError::Corrupt(member.column));
        let value = if form.is_number() {
            let number: Option<i64> = row.get(member.column)?;
            number.map(|number| form.show_number(number).ok_or(corrupt)).transpose()?
        } else {
            match row.get::<Option<String>>(member.column)? {
                Some(json) if form.is_json() => {
                    Some(serde_json::from_str(&json).map_err(|_| corrupt)?)
                }
                text => text.map(Value::from),
            }
        };
        if let Some(value) = value {
            line += &format!(",\"{}\":{value}", member.name);
        }
    }
    line.push('}');
    Ok(line)
}
