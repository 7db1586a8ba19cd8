//! A connection of a pool, which runs one statement at a time.
//!
//! It returns to its pool when it is dropped, unless a failure leaves its state in doubt: then it
//! is closed, and the pool opens another when it needs one.

use super::each::Column;
use super::error::StoreError;
use super::row::{Arg, Row};
use super::timeout::TIMEOUT;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr, Sqlite};
use tokio::time::timeout;

/// A connection to either database.
#[derive(Debug)]
pub(super) enum Connection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PgPooled),
}

/// A connection to PostgreSQL that returns to its pool within [`TIMEOUT`], or is closed.
///
/// The pool tests each returned connection without a timeout: one that falls silent then would
/// occupy its slot until TCP gives up, which takes a quarter of an hour.
#[derive(Debug)]
pub(super) struct PgPooled {
    connection: PoolConnection<Postgres>,
    is_usable: bool,
}

impl From<PoolConnection<Postgres>> for PgPooled {
    fn from(connection: PoolConnection<Postgres>) -> Self {
        Self {
            connection,
            is_usable: true,
        }
    }
}

impl Drop for PgPooled {
    fn drop(&mut self) {
        if self.is_usable {
            tokio::spawn(timeout(TIMEOUT, self.connection.return_to_pool()));
        } else {
            self.connection.close_on_drop();
        }
    }
}

/// A statement with its arguments, for the driver that type inference finds.
macro_rules! query {
    ($sql:expr, $args:expr) => {
        $args
            .iter()
            .fold(sqlx::query($sql), |query, arg| match arg {
                Arg::Text(text) => query.bind(text.as_deref()),
                Arg::Int(number) => query.bind(*number),
            })
    };
}

/// A statement of [`super::each`] with its arguments.
macro_rules! query_each {
    ($sql:expr, $columns:expr) => {
        $columns
            .iter()
            .fold(sqlx::query($sql), |query, column| match column {
                Column::Texts(texts) => query.bind(texts),
                Column::Ints(numbers) => query.bind(numbers),
            })
    };
}

impl PgPooled {
    /// The rows of a query for many lists of arguments.
    pub(super) async fn rows_each(
        &mut self,
        sql: String,
        columns: &[Column<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        let query = query_each!(AssertSqlSafe(sql), columns);
        let rows = query.fetch_all(&mut *self.connection).await?;
        Ok(rows.into_iter().map(Row::Postgres).collect())
    }

    /// Runs a statement for many lists of arguments; returns the number of rows that changed.
    pub(super) async fn run_each(
        &mut self,
        sql: String,
        columns: &[Column<'_>],
    ) -> Result<u64, sqlx::Error> {
        let query = query_each!(AssertSqlSafe(sql), columns);
        let done = query.execute(&mut *self.connection).await?;
        Ok(done.rows_affected())
    }
}

impl Connection {
    /// The rows of a query.
    pub(super) async fn rows(
        &mut self,
        sql: impl SqlSafeStr,
        args: &[Arg<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(connection) => {
                let rows = query!(sql, args).fetch_all(&mut **connection).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(pooled) => {
                let rows = query!(sql, args).fetch_all(&mut *pooled.connection).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Runs a statement; returns the number of rows that changed.
    pub(super) async fn run(
        &mut self,
        sql: impl SqlSafeStr,
        args: &[Arg<'_>],
    ) -> Result<u64, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(connection) => query!(sql, args)
                .execute(&mut **connection)
                .await?
                .rows_affected(),
            Self::Postgres(pooled) => query!(sql, args)
                .execute(&mut *pooled.connection)
                .await?
                .rows_affected(),
        })
    }

    /// Runs statements that begin or end a transaction, in one round trip; returns all their rows.
    pub(super) async fn control(&mut self, sql: impl SqlSafeStr) -> Result<Vec<Row>, sqlx::Error> {
        let statements = sqlx::raw_sql(sql);
        Ok(match self {
            Self::Sqlite(connection) => {
                let rows = statements.fetch_all(&mut **connection).await?;
                rows.into_iter().map(Row::Sqlite).collect()
            }
            Self::Postgres(pooled) => {
                let rows = statements.fetch_all(&mut *pooled.connection).await?;
                rows.into_iter().map(Row::Postgres).collect()
            }
        })
    }

    /// Returns the connection to its pool after its only statement, or closes it if a failure
    /// leaves its state in doubt.
    pub(super) fn end<T>(self, done: &Result<T, StoreError>) {
        if done.as_ref().is_err_and(|error| !error.is_of_statement()) {
            self.close();
        }
    }

    /// Closes the connection, without waiting.
    pub(super) fn close(mut self) {
        match &mut self {
            Self::Sqlite(connection) => connection.close_on_drop(),
            Self::Postgres(pooled) => pooled.is_usable = false,
        }
    }
}
