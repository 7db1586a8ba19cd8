//! The two databases behind one face: the same text and the same arguments go to either, and rows
//! come back with text and numbers.
//!
//! Everything is bounded in time. A call that was given up may still have been done, so a caller
//! asks again instead of taking it for undone. Nothing here knows a table.

use super::error::{Cause, StoreError};
use super::sql;
use portcullis_filters::felt::Felt;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, PgPool, Postgres, Row as _, Sqlite, SqlitePool, Transaction, Type};
use std::time::Duration;

/// 5 s for one step: far beyond a healthy database, and short of a client's patience.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A value for a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg<'a> {
    Text(Option<&'a str>),
    Int(Option<i64>),
}

impl<'a> From<&'a str> for Arg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a String> for Arg<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Arg<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Arg<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl Arg<'_> {
    /// Whether PostgreSQL can have a value like it: text without a NUL.
    fn is_storable(&self) -> bool {
        !matches!(self, Self::Text(Some(text)) if text.contains('\0'))
    }
}

/// One argument for each of so many places, NULL where there are fewer texts.
pub(super) fn slots<const PLACES: usize>(
    texts: &[String],
) -> Result<[Arg<'_>; PLACES], StoreError> {
    if texts.len() > PLACES {
        return Err(StoreError::TooLarge("labels"));
    }
    Ok(std::array::from_fn(|at| texts.get(at).map(String::as_str).into()))
}

/// A statement with its arguments, for the driver that the place of use infers.
macro_rules! query {
    ($sql:expr, $args:expr) => {
        $args.iter().fold(sqlx::query($sql), |query, arg| match *arg {
            Arg::Text(text) => query.bind(text),
            Arg::Int(number) => query.bind(number),
        })
    };
}

/// Connections to one of the databases.
#[derive(Debug, Clone)]
pub(super) enum Db {
    /// One writes, since SQLite lets one write; the others read.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PgPool),
}

impl Db {
    /// Reads.
    pub(super) async fn rows(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => {
                let rows = bounded(query!(sql, args).fetch_all(readers)).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            // no row has what can not be stored: SQLite finds none either
            Self::Postgres(_) if !args.iter().all(Arg::is_storable) => Ok(Vec::new()),
            Self::Postgres(pool) => {
                let rows = bounded(query!(sql, args).fetch_all(pool)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Reads what is there once at most.
    pub(super) async fn row(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Writes with one statement, durable when it returns; the number of rows that changed.
    pub(super) async fn run(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite { writer, .. } => {
                Ok(bounded(query!(sql, args).execute(writer)).await?.rows_affected())
            }
            Self::Postgres(pool) => {
                Ok(bounded(query!(sql, args).execute(pool)).await?.rows_affected())
            }
        }
    }

    /// A transaction that may write; undone when it is dropped.
    pub(super) async fn begin(&self) -> Result<Tx, StoreError> {
        match self {
            // a deferred one fails without waiting when another wrote since it began to read
            Self::Sqlite { writer, .. } => {
                bounded(writer.begin_with("BEGIN IMMEDIATE")).await.map(Tx::Sqlite)
            }
            Self::Postgres(pool) => bounded(pool.begin()).await.map(Tx::Postgres),
        }
    }

    /// Ends all connections, after what they are doing.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// A transaction.
#[derive(Debug)]
pub(super) enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

impl Tx {
    /// A statement's first row.
    pub(super) async fn row(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<Row>, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let rows = bounded(query!(sql, args).fetch_all(&mut **tx)).await?;
                Ok(rows.into_iter().next().map(Row::Sqlite))
            }
            Self::Postgres(tx) => {
                let rows = bounded(query!(sql, args).fetch_all(&mut **tx)).await?;
                Ok(rows.into_iter().next().map(Row::Postgres))
            }
        }
    }

    /// Runs a statement; the number of rows that changed.
    pub(super) async fn run(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        self.run_within(PATIENCE, sql, args).await
    }

    /// The same with another patience than that of a request.
    pub(super) async fn run_within(
        &mut self,
        patience: Duration,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let done = within(patience, query!(sql, args).execute(&mut **tx)).await?;
                Ok(done.rows_affected())
            }
            Self::Postgres(tx) => {
                let done = within(patience, query!(sql, args).execute(&mut **tx)).await?;
                Ok(done.rows_affected())
            }
        }
    }

    /// Waits until no other transaction has the lock of this name, and has it to the end.
    pub(super) async fn lock(&mut self, name: &str) -> Result<(), StoreError> {
        match self {
            // one transaction at a time
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => self.run(sql::NAME_LOCK, &[name.into()]).await.map(drop),
        }
    }

    /// Makes all of it durable.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.commit_within(PATIENCE).await
    }

    /// The same with another patience than that of a request.
    pub(super) async fn commit_within(self, patience: Duration) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(tx) => within(patience, tx.commit()).await,
            Self::Postgres(tx) => within(patience, tx.commit()).await,
        }
    }
}

/// A row of either.
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

    /// A column that holds JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        let text: String = self.get(column)?;
        serde_json::from_str(&text).map_err(|_| StoreError::Corrupt(column))
    }

    /// A column that holds a felt.
    pub(super) fn felt(&self, column: &'static str) -> Result<Felt, StoreError> {
        Felt::parse(&self.get::<String>(column)?).ok_or(StoreError::Corrupt(column))
    }
}

/// A felt as it is stored.
pub(super) fn felt_text(felt: Felt) -> String {
    felt.to_string()
}

/// Does the work, or gives it up.
pub(super) async fn bounded<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    within(PATIENCE, work).await
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(patience, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Unavailable(Cause::Timeout)),
    }
}
