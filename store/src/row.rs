//! The arguments of a statement, and the rows of either database: text and integers.

use super::error::StoreError;
use portcullis_filters::felt::Felt;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Postgres, Row as _, Sqlite, Type};
use std::borrow::Cow;

/// An argument of a statement.
#[derive(Debug)]
pub(super) enum Arg<'a> {
    Text(Option<Cow<'a, str>>),
    Int(Option<i64>),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Some(text).into()
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(text: &'a String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Arg<'_> {
    fn from(text: String) -> Self {
        Self::Text(Some(text.into()))
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text.map(Cow::Borrowed))
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Some(number).into()
    }
}

impl From<Option<i64>> for Arg<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Felt> for Arg<'_> {
    fn from(felt: Felt) -> Self {
        Some(felt).into()
    }
}

impl From<Option<Felt>> for Arg<'_> {
    fn from(felt: Option<Felt>) -> Self {
        Self::Text(felt.map(|felt| felt.to_string().into()))
    }
}

/// A digest, in hexadecimal.
impl From<&[u8; 32]> for Arg<'_> {
    fn from(digest: &[u8; 32]) -> Self {
        hex::encode(digest).into()
    }
}

impl Arg<'_> {
    /// The text, unless it is NULL or a number.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => text.as_deref(),
            Self::Int(_) => None,
        }
    }

    /// The number, unless it is NULL or a text.
    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => *number,
            Self::Text(_) => None,
        }
    }

    /// Whether the argument can be stored: PostgreSQL stores no text with a NUL.
    pub(super) fn is_storable(&self) -> bool {
        !matches!(self, Self::Text(Some(text)) if text.contains('\0'))
    }
}

/// One argument for each of `PLACES` parameters; those without a text are NULL.
pub(super) fn slots<const PLACES: usize>(
    texts: &[String],
) -> Result<[Arg<'_>; PLACES], StoreError> {
    if texts.len() > PLACES {
        return Err(StoreError::TooLarge("labels"));
    }
    Ok(std::array::from_fn(|at| {
        texts.get(at).map(String::as_str).into()
    }))
}

/// A type that can be read from a row of a query.
pub(super) trait FromRow: Sized {
    fn read(row: &Row) -> Result<Self, StoreError>;
}

/// A row of either database.
#[derive(Debug)]
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// A column: `String` or `i64`, or an `Option` of them.
    pub(super) fn get<T>(&self, column: &'static str) -> Result<T, StoreError>
    where
        T: for<'r> Decode<'r, Sqlite> + Type<Sqlite>,
        T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => Ok(row.try_get(column)?),
            Self::Postgres(row) => Ok(row.try_get(column)?),
        }
    }

    /// A column that is 0 or 1.
    pub(super) fn flag(&self, column: &'static str) -> Result<bool, StoreError> {
        Ok(self.get::<i64>(column)? != 0)
    }

    /// A column that holds a JSON list, without its malformed items. Adds its name to `malformed`
    /// if there are any.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        column: &'static str,
        malformed: &mut Vec<&'static str>,
    ) -> Result<Vec<T>, StoreError> {
        let text = self.get::<String>(column)?;
        let items: Option<Vec<serde_json::Value>> = serde_json::from_str(&text).ok();
        let length = items.as_ref().map(Vec::len);
        let items = items.into_iter().flatten();
        let list: Vec<T> = items
            .filter_map(|item| serde_json::from_value(item).ok())
            .collect();
        if length != Some(list.len()) {
            malformed.push(column);
        }
        Ok(list)
    }

    /// A column of text, as parsed by `parse`.
    pub(super) fn parsed<T>(
        &self,
        column: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        parse(&self.get::<String>(column)?).ok_or(StoreError::Corrupt(column))
    }

    /// A column that holds a felt.
    pub(super) fn felt(&self, column: &'static str) -> Result<Felt, StoreError> {
        self.parsed(column, Felt::parse)
    }
}
