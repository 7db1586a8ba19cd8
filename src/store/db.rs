//! SQLite and PostgreSQL behind one type: both get the same SQL and arguments, and return rows of
//! text and integers.
//!
//! Every call has a timeout. After a timeout the database may have done the work all the same, so
//! callers repeat or read again. Nothing here knows a table.

use super::breaker::ConnectBreaker;
use super::connection::Connection;
use super::error::{Cause, StoreError};
use super::sql;
use super::tx::Tx;
use portcullis_filters::felt::Felt;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{
    AssertSqlSafe, Decode, PgPool, Postgres, Row as _, SqlSafeStr, Sqlite, SqlitePool, Type,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Timeout of one statement: far more than a healthy database needs, and less than a client's
/// timeout.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Whether the argument can be stored: PostgreSQL stores no text with a NUL.
    fn is_storable(&self) -> bool {
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
    Ok(std::array::from_fn(|at| texts.get(at).map(String::as_str).into()))
}

/// Connections to one of the two databases; clones share them.
#[derive(Debug, Clone)]
pub(super) enum Db {
    /// One connection writes, as SQLite allows one writer; the others read.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PgPool, Arc<ConnectBreaker>),
}

impl Db {
    /// The rows of a query.
    pub(super) async fn rows(
        &self,
        sql: impl SqlSafeStr,
        args: &[Arg<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        if matches!(self, Self::Postgres(..)) && !args.iter().all(Arg::is_storable) {
            // no row has a text that cannot be stored: SQLite finds none either
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + TIMEOUT;
        let mut connection = until(deadline, self.reader()).await?;
        let found = until(deadline, connection.rows(sql, args)).await;
        connection.end(&found);
        found
    }

    /// The first row of a query.
    pub(super) async fn row(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// All results of a query.
    pub(super) async fn all<T: FromRow>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<T>, StoreError> {
        self.rows(sql, args).await?.iter().map(T::read).collect()
    }

    /// The first result of a query.
    pub(super) async fn one<T: FromRow>(
        &self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Option<T>, StoreError> {
        self.row(sql, args).await?.as_ref().map(T::read).transpose()
    }

    /// Runs one statement that writes, durable on return; returns the number of changed rows.
    pub(super) async fn run(&self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64, StoreError> {
        let deadline = Instant::now() + TIMEOUT;
        let mut connection = until(deadline, self.writer()).await?;
        let changed = until(deadline, connection.run(sql, args)).await;
        connection.end(&changed);
        changed
    }

    /// SQLite only: moves the log into the file and empties it; `false` if a reader needs it.
    pub(super) async fn empty_log(&self) -> Result<bool, StoreError> {
        let deadline = Instant::now() + TIMEOUT;
        let mut connection = until(deadline, self.writer()).await?;
        let found = until(deadline, connection.rows(sql::LOG_EMPTY, &[])).await;
        connection.end(&found);
        let is_busy = found?.first().map(|row| row.flag("busy")).transpose()?;
        Ok(is_busy == Some(false))
    }

    /// Begins a transaction that may write; dropping it rolls it back.
    pub(super) async fn begin(&self) -> Result<Tx, StoreError> {
        Ok(self.begin_with("").await?.0)
    }

    /// Begins a transaction that may write and runs its first statement in the same round trip;
    /// returns the rows of that.
    pub(super) async fn begin_with(
        &self,
        first: &'static str,
    ) -> Result<(Tx, Vec<Row>), StoreError> {
        let begin = match self {
            // a deferred one fails without waiting if another transaction wrote after its first
            // read
            Self::Sqlite { .. } => "BEGIN IMMEDIATE",
            Self::Postgres(..) => "BEGIN",
        };
        let statements = AssertSqlSafe(format!("{begin}; {first}"));
        let deadline = Instant::now() + TIMEOUT;
        Tx::begin(until(deadline, self.writer()).await?, statements, deadline).await
    }

    /// Begins a transaction that only reads, and sees one state of the tables from its first query
    /// until it is dropped. It may idle between queries for `idle`.
    pub(super) async fn snapshot(&self, idle: Duration) -> Result<Tx, StoreError> {
        let begin = match self {
            Self::Sqlite { .. } => "BEGIN",
            Self::Postgres(..) => sql::SNAPSHOT_BEGIN,
        };
        let deadline = Instant::now() + TIMEOUT;
        let connection = until(deadline, self.reader()).await?;
        let (mut tx, _) = Tx::begin(connection, begin, deadline).await?;
        if tx.is_postgres() {
            let idle = idle.as_millis().to_string();
            tx.row(sql::SNAPSHOT_IDLE, &[idle.into()]).await?;
        }
        Ok(tx)
    }

    async fn reader(&self) -> Result<Connection, StoreError> {
        match self {
            Self::Sqlite { readers, .. } => of_sqlite(readers).await,
            Self::Postgres(pool, breaker) => of_postgres(pool, breaker).await,
        }
    }

    async fn writer(&self) -> Result<Connection, StoreError> {
        match self {
            Self::Sqlite { writer, .. } => of_sqlite(writer).await,
            Self::Postgres(pool, breaker) => of_postgres(pool, breaker).await,
        }
    }

    /// Closes all connections once their statements are done.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool, _) => pool.close().await,
        }
    }
}

// Boxed: the future that opens a connection has 15 KB, and each caller's would contain it.

async fn of_sqlite(pool: &SqlitePool) -> Result<Connection, StoreError> {
    Ok(Connection::Sqlite(Box::pin(pool.acquire()).await?))
}

async fn of_postgres(pool: &PgPool, breaker: &ConnectBreaker) -> Result<Connection, StoreError> {
    Box::pin(breaker.acquire(pool)).await.map(Connection::Postgres)
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
        let list: Vec<T> = items.filter_map(|item| serde_json::from_value(item).ok()).collect();
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

/// Runs `work` within [`TIMEOUT`].
pub(super) async fn bounded<T>(
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    within(TIMEOUT, work).await
}

/// Runs `work` within a timeout of its own.
pub(super) async fn within<T, E>(
    timeout: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    until(Instant::now() + timeout, work).await
}

/// Runs `work` until a deadline.
pub(super) async fn until<T, E>(
    deadline: Instant,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    StoreError: From<E>,
{
    match timeout_at(deadline, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Unavailable(Cause::Timeout)),
    }
}
