//! SQLite and PostgreSQL behind one type: both get the same SQL and arguments, and return rows of
//! text and integers.
//!
//! Every call has a timeout. After a timeout the database may have done the work all the same, so
//! callers repeat or read again. Nothing here knows a table.

use super::breaker::ConnectBreaker;
use super::connection::Connection;
use super::error::StoreError;
use super::row::{Arg, FromRow, Row};
use super::sql;
use super::timeout::{TIMEOUT, until};
use super::tx::Tx;
use sqlx::{AssertSqlSafe, PgPool, SqlSafeStr, SqlitePool};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

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
        let deadline = Instant::now() + TIMEOUT;
        Ok(self.begin_with("", deadline).await?.0)
    }

    /// Begins a transaction that may write and runs its first statement in the same round trip,
    /// both until the deadline; returns the rows of that.
    pub(super) async fn begin_with(
        &self,
        first: &'static str,
        deadline: Instant,
    ) -> Result<(Tx, Vec<Row>), StoreError> {
        let begin = match self {
            // a deferred one fails without waiting if another transaction wrote after its first
            // read
            Self::Sqlite { .. } => "BEGIN IMMEDIATE",
            Self::Postgres(..) => "BEGIN",
        };
        let statements = AssertSqlSafe(format!("{begin}; {first}"));
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

    /// Closes all connections once their statements are done. A PostgreSQL that does not answer is
    /// left after [`TIMEOUT`].
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool, _) => {
                let _in_time = timeout(TIMEOUT, pool.close()).await;
            }
        }
    }
}

// Boxed: the future that opens a connection has 15 KB, and each caller's would contain it.

async fn of_sqlite(pool: &SqlitePool) -> Result<Connection, StoreError> {
    Ok(Connection::Sqlite(Box::pin(pool.acquire()).await?))
}

async fn of_postgres(pool: &PgPool, breaker: &ConnectBreaker) -> Result<Connection, StoreError> {
    let connection = Box::pin(breaker.acquire(pool)).await?;
    Ok(Connection::Postgres(connection.into()))
}
