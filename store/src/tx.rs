//! A transaction: a connection on which `BEGIN` succeeded, until `COMMIT` or `ROLLBACK` does.
//!
//! These are plain statements, unknown to the driver: its own count of open transactions is wrong
//! once a database has ended one by itself, as SQLite does when a write fails. A connection whose
//! transaction failed is closed: after an error, a timeout, a future that was dropped during a
//! statement, or a commit that was not confirmed. A transaction that is dropped between two
//! statements is rolled back; its connection returns to the pool if that succeeds.

use super::connection::{Connection, PgPooled};
use super::each;
use super::error::{Cause, StoreError};
use super::row::{Arg, Row};
use super::sql;
use super::timeout::{TIMEOUT, bounded, until, within};
use sqlx::SqlSafeStr;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// A transaction.
#[derive(Debug)]
pub(super) struct Tx {
    /// `None` after the end of the transaction.
    connection: Option<Connection>,
    state: State,
}

/// The state of a transaction between two statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Every statement succeeded.
    Sound,
    /// A statement failed by itself: only a rollback may follow.
    Failed,
    /// A statement is under way, or failed in a way that may have ended the transaction.
    InDoubt,
}

impl State {
    /// The state after a statement with this result.
    fn after<T>(done: &Result<T, StoreError>) -> Self {
        match done {
            Ok(_) => Self::Sound,
            Err(error) if error.is_of_statement() => Self::Failed,
            Err(_) => Self::InDoubt,
        }
    }
}

impl Tx {
    /// Begins a transaction on this connection with the statements `begin`; returns their rows.
    pub(super) async fn begin(
        connection: Connection,
        begin: impl SqlSafeStr,
        deadline: Instant,
    ) -> Result<(Self, Vec<Row>), StoreError> {
        let mut tx = Self {
            connection: Some(connection),
            state: State::Sound,
        };
        let rows = until(deadline, tx.next()?.control(begin)).await?;
        tx.state = State::Sound;
        Ok((tx, rows))
    }

    pub(super) fn is_postgres(&self) -> bool {
        matches!(self.connection, Some(Connection::Postgres(_)))
    }

    /// The connection for the next statement. The transaction is in doubt until the caller knows
    /// the result.
    fn next(&mut self) -> Result<&mut Connection, StoreError> {
        match &mut self.connection {
            Some(connection) if self.state == State::Sound => {
                self.state = State::InDoubt;
                Ok(connection)
            }
            _ => Err(StoreError::Unavailable(Cause::Aborted)),
        }
    }

    /// The rows of a query.
    pub(super) async fn rows(
        &mut self,
        sql: impl SqlSafeStr,
        args: &[Arg<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let found = bounded(self.next()?.rows(sql, args)).await;
        self.state = State::after(&found);
        found
    }

    /// The first row of a query.
    pub(super) async fn row(
        &mut self,
        sql: impl SqlSafeStr,
        args: &[Arg<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// The rows of a query for each list of arguments; PostgreSQL is asked once for all of them.
    pub(super) async fn rows_each(
        &mut self,
        sql: &'static str,
        lists: &[Vec<Arg<'_>>],
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        let mut found = Vec::with_capacity(lists.len());
        if lists.len() > 1 && self.is_postgres() {
            found.resize_with(lists.len(), Vec::new);
            for row in self.rows_at_once(sql, lists).await? {
                let number = row.get::<i64>(each::NUMBER)?;
                let of = usize::try_from(number - 1).ok();
                let of = of.and_then(|at| found.get_mut(at));
                of.ok_or(StoreError::Corrupt(each::NUMBER))?.push(row);
            }
            return Ok(found);
        }
        for list in lists {
            found.push(self.rows(sql, list).await?);
        }
        Ok(found)
    }

    /// Runs a statement for each list of arguments, for PostgreSQL in one round trip; returns the
    /// number of rows that changed.
    pub(super) async fn run_each(
        &mut self,
        sql: &'static str,
        lists: &[Vec<Arg<'_>>],
    ) -> Result<u64, StoreError> {
        if lists.len() > 1 && self.is_postgres() {
            let columns = each::columns(lists);
            let sql = each::change(sql, &columns);
            return self.run_columns(sql, &columns).await;
        }
        let mut changed = 0;
        for list in lists {
            changed += self.run(sql, list).await?;
        }
        Ok(changed)
    }

    /// PostgreSQL only: runs a statement whose arguments are arrays; returns the number of rows
    /// that changed.
    pub(super) async fn run_columns(
        &mut self,
        sql: String,
        columns: &[each::Column<'_>],
    ) -> Result<u64, StoreError> {
        let changed = bounded(self.postgres()?.run_each(sql, columns)).await;
        self.state = State::after(&changed);
        changed
    }

    async fn rows_at_once(
        &mut self,
        sql: &'static str,
        lists: &[Vec<Arg<'_>>],
    ) -> Result<Vec<Row>, StoreError> {
        let columns = each::columns(lists);
        let found = bounded(
            self.postgres()?
                .rows_each(each::query(sql, &columns), &columns),
        )
        .await;
        self.state = State::after(&found);
        found
    }

    /// The connection to PostgreSQL for the next statement.
    fn postgres(&mut self) -> Result<&mut PgPooled, StoreError> {
        match self.next()? {
            Connection::Postgres(pooled) => Ok(pooled),
            Connection::Sqlite(_) => Err(StoreError::Unavailable(Cause::Aborted)),
        }
    }

    /// Runs a statement; returns the number of rows that changed.
    pub(super) async fn run(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        self.run_within(TIMEOUT, sql, args).await
    }

    /// [`Self::run`] with a timeout of its own.
    pub(super) async fn run_within(
        &mut self,
        timeout: Duration,
        sql: impl SqlSafeStr,
        args: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        let changed = within(timeout, self.next()?.run(sql, args)).await;
        self.state = State::after(&changed);
        changed
    }

    /// Takes the lock of this name until the transaction ends.
    pub(super) async fn lock(&mut self, name: &str) -> Result<(), StoreError> {
        if self.is_postgres() {
            self.run(sql::NAME_LOCK, &[name.into()]).await?;
        }
        // SQLite has one write transaction at a time
        Ok(())
    }

    /// Rolls back to a savepoint, even after a statement that failed by itself: the transaction
    /// continues.
    pub(super) async fn undo(&mut self, rollback: &'static str) -> Result<(), StoreError> {
        if self.state == State::Failed {
            self.state = State::Sound;
        }
        self.run(rollback, &[]).await.map(drop)
    }

    /// Commits; durable on return.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.commit_within(TIMEOUT).await
    }

    /// [`Self::commit`] with a timeout of its own.
    pub(super) async fn commit_within(mut self, timeout: Duration) -> Result<(), StoreError> {
        within(timeout, self.next()?.control("COMMIT")).await?;
        self.connection = None;
        Ok(())
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match Handle::try_current() {
            Ok(runtime) if self.state != State::InDoubt => {
                runtime.spawn(roll_back(connection));
            }
            _ => connection.close(),
        }
    }
}

/// Rolls back a dropped transaction; closes the connection if that fails.
async fn roll_back(mut connection: Connection) {
    let done = bounded(connection.control("ROLLBACK")).await;
    if done.is_err() {
        connection.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::open;
    use futures_util::FutureExt as _;
    use std::path::PathBuf;

    const PUT: &str = "INSERT INTO follow (did, subject_did) VALUES ($1, $2)";
    const COUNT: &str = "SELECT count(*) AS follows FROM follow";
    /// A query without an end.
    const ENDLESS: &str =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";

    /// Runs a test on a SQLite file in a folder of its own.
    async fn on_sqlite(name: &str, test: impl AsyncFnOnce(&Db)) {
        let name = format!("portcullis-tx-{name}-{}", std::process::id());
        let folder: PathBuf = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let db = open::sqlite(&folder.join("relay.db")).await.unwrap();
        test(&db).await;
        db.close().await;
        std::fs::remove_dir_all(&folder).unwrap();
    }

    async fn follows(db: &Db) -> i64 {
        db.row(COUNT, &[])
            .await
            .unwrap()
            .unwrap()
            .get("follows")
            .unwrap()
    }

    /// Prevents the file from growing through the present write connection.
    async fn fill(db: &Db) {
        db.run("PRAGMA max_page_count = 1", &[]).await.unwrap();
    }

    /// Writes more than a page in a transaction.
    async fn write(db: &Db, did: &str) -> Result<(), StoreError> {
        let mut tx = db.begin().await?;
        tx.run(PUT, &[did.into(), "x".repeat(100_000).into()])
            .await?;
        tx.commit().await
    }

    fn is_full(done: &Result<(), StoreError>) -> bool {
        matches!(done, Err(StoreError::Failed { code, .. }) if code == "13")
    }

    #[tokio::test]
    async fn writes_succeed_after_one_that_found_no_room() {
        on_sqlite("full", async |db| {
            write(db, "before").await.unwrap();
            for round in ["first", "second"] {
                fill(db).await;
                let done = write(db, round).await;
                assert!(
                    is_full(&done),
                    "SQLite ended the transaction by itself: {done:?}"
                );
                // the limit is that of the connection, which is not used again
                write(db, round).await.unwrap();
            }
            fill(db).await;
            let done = db
                .run(PUT, &["c".into(), "x".repeat(100_000).into()])
                .await
                .map(drop);
            assert!(is_full(&done), "{done:?}");
            db.run(PUT, &["c".into(), "x".repeat(100_000).into()])
                .await
                .unwrap();
            assert_eq!(follows(db).await, 4);
        })
        .await;
    }

    #[tokio::test]
    async fn a_failed_transaction_neither_goes_on_nor_commits() {
        on_sqlite("failed", async |db| {
            for (why, failing) in [("its text", "SELECT nothing"), ("a constraint", PUT)] {
                let mut tx = db.begin().await.unwrap();
                tx.run(PUT, &["a".into(), "b".into()]).await.unwrap();
                tx.run(failing, &["a".into(), "b".into()])
                    .await
                    .unwrap_err();
                let next = tx.run(PUT, &["a".into(), "c".into()]).await;
                let aborted = Err(StoreError::Unavailable(Cause::Aborted)).map(|()| 0_u64);
                assert_eq!(format!("{next:?}"), format!("{aborted:?}"), "{why}");
                tx.commit().await.unwrap_err();
                assert_eq!(follows(db).await, 0, "{why}");
                write(db, "after").await.unwrap();
                db.run("DELETE FROM follow", &[]).await.unwrap();
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_savepoint_saves_a_transaction_from_a_constraint() {
        on_sqlite("savepoint", async |db| {
            let mut tx = db.begin().await.unwrap();
            tx.run(PUT, &["a".into(), "b".into()]).await.unwrap();
            tx.run("SAVEPOINT s", &[]).await.unwrap();
            tx.run(PUT, &["a".into(), "b".into()]).await.unwrap_err();
            tx.undo("ROLLBACK TO SAVEPOINT s").await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(follows(db).await, 1);
        })
        .await;
    }

    #[tokio::test]
    async fn a_dropped_transaction_leaves_nothing() {
        on_sqlite("dropped", async |db| {
            let mut tx = db.begin().await.unwrap();
            tx.run(PUT, &["a".into(), "b".into()]).await.unwrap();
            drop(tx);
            write(db, "after one between two statements").await.unwrap();
            let mut tx = db.begin().await.unwrap();
            tx.run(PUT, &["a".into(), "b".into()]).await.unwrap();
            let polled = tx.rows(ENDLESS, &[]).now_or_never();
            assert!(polled.is_none(), "it is dropped during a statement");
            tx.commit().await.unwrap_err();
            write(db, "after one during a statement").await.unwrap();
            assert_eq!(follows(db).await, 2);
        })
        .await;
    }

    #[tokio::test]
    async fn a_reader_shows_the_present_after_a_failed_snapshot() {
        on_sqlite("reader", async |db| {
            let mut tx = db.snapshot(TIMEOUT).await.unwrap();
            assert_eq!(tx.rows(COUNT, &[]).await.unwrap().len(), 1);
            let late = within(Duration::from_millis(1), tx.rows(ENDLESS, &[]))
                .await
                .map(drop);
            assert!(
                matches!(late, Err(StoreError::Unavailable(Cause::Timeout))),
                "{late:?}"
            );
            assert!(matches!(tx.state, State::InDoubt));
            tx.rows(COUNT, &[]).await.unwrap_err();
            drop(tx);
            write(db, "later").await.unwrap();
            for _ in 0..8 {
                assert_eq!(follows(db).await, 1, "each reader");
            }
        })
        .await;
    }
}
