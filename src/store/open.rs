//! From a URL to connections: to a SQLite file that this process has for itself, or to PostgreSQL.
//!
//! A commit that returned survives a power cut on both: SQLite runs with WAL and full sync, since
//! WAL alone may lose the newest commits; PostgreSQL waits for its own log unless its
//! administrator switched fsync off. It ends sessions whose peer is gone within half a minute,
//! so that a machine that died keeps neither the chain nor a signer locked.

use super::db::{Db, PATIENCE, bounded};
use super::error::{Cause, StoreError};
use super::{StoreConfig, sql};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, SqlSafeStr as _, SqlitePool};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// 3 s for a free connection, and for SQLite's own lock: less than one step's patience.
const WAIT: Duration = Duration::from_secs(3);
/// 1 min for new tables, and for another process that makes them: it happens at the start only.
const MIGRATING: Duration = Duration::from_secs(60);
/// Connections that read a SQLite file beside the one that writes. For a hundred readers of a feed
/// 4 did more than 2, and 8 no more than 4.
const READERS: u32 = 4;

/// One version of the tables.
struct Version {
    number: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// All versions in order. One that was ever released never changes.
const VERSIONS: [Version; 3] = [
    Version {
        number: 1,
        name: "relay",
        sqlite: include_str!("migrations/sqlite/0001_relay.sql"),
        postgres: include_str!("migrations/postgres/0001_relay.sql"),
    },
    Version {
        number: 2,
        name: "sidecar",
        sqlite: include_str!("migrations/sqlite/0002_sidecar.sql"),
        postgres: include_str!("migrations/postgres/0002_sidecar.sql"),
    },
    Version {
        number: 3,
        name: "search",
        sqlite: include_str!("migrations/sqlite/0003_search.sql"),
        postgres: include_str!("migrations/postgres/0003_search.sql"),
    },
];

/// Where it is kept.
pub(super) enum Place {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

impl Place {
    /// Reads the URL.
    pub(super) fn parse(config: &StoreConfig<'_>) -> Result<Self, StoreError> {
        if let Some(file) = config.url.strip_prefix("sqlite:") {
            if file.is_empty() || file.starts_with(':') {
                return Err(StoreError::Url("it names no file"));
            }
            return Ok(Self::Sqlite(resolve(Path::new(file))?));
        }
        let Some(rest) = config.url.strip_prefix("postgres://") else {
            return Err(StoreError::Url("it begins with neither sqlite: nor postgres://"));
        };
        if rest.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err(StoreError::Url("a password belongs in its file"));
        }
        let mut options: PgConnectOptions = config.url.parse()?;
        if let Some(password) = config.password {
            let text =
                str::from_utf8(password).map_err(|_| StoreError::Url("password: no text"))?;
            options = options.password(text.trim_end_matches(['\r', '\n']));
        }
        let options = options
            .application_name("portcullis")
            .options([("tcp_keepalives_idle", "10"), ("tcp_keepalives_interval", "5")])
            .options([("tcp_keepalives_count", "3"), ("synchronous_commit", "on")])
            // what is read after waiting for the chain's lock must be what is true then
            .options([("default_transaction_isolation", "read committed")])
            .disable_statement_logging();
        Ok(Self::Postgres(Box::new(options)))
    }
}

/// The file under the one name that all processes agree on, whether or not it exists.
fn resolve(file: &Path) -> Result<PathBuf, StoreError> {
    let io = |error| StoreError::Unavailable(Cause::Io(error));
    match file.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = file.file_name().ok_or(StoreError::Url("it names no file"))?;
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(folder.unwrap_or(Path::new(".")).canonicalize().map_err(io)?.join(name))
        }
        found => found.map_err(io),
    }
}

/// The lock that makes a SQLite file one process's own; given back when it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

/// Takes `FILE.lock`. A file of its own: closing any handle of the database itself would drop
/// SQLite's locks on it.
pub(super) fn lock_file(database: &Path) -> Result<FileLock, StoreError> {
    let io = |error| StoreError::Unavailable(Cause::Io(error));
    let mut path = database.to_owned();
    path.add_extension("lock");
    let file = private(OpenOptions::new().create(true).truncate(false)).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(FileLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path)),
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.write(true).mode(0o600)
}

/// Opens a SQLite file for one process, creating it for its owner only.
pub(super) async fn sqlite(file: &Path) -> Result<Db, StoreError> {
    let (writer, readers) = sqlite_pools(file).await?;
    let migrating = migrator(|version| version.sqlite);
    migrated(migrating.run(&writer)).await?;
    Ok(Db::Sqlite { writer, readers })
}

/// Opens a SQLite file beside a process that may have it open. Tables are made only by who has the
/// file for itself.
pub(super) async fn sqlite_beside(file: &Path) -> Result<Db, StoreError> {
    // a new file goes over to WAL first: whoever looks meanwhile is told that it is locked
    if file.metadata().map_or(0, |found| found.len()) == 0 {
        let _lock = lock_file(file)?;
        return sqlite(file).await;
    }
    let (writer, readers) = sqlite_pools(file).await?;
    let db = Db::Sqlite { writer, readers };
    match check_version(&db).await {
        Err(StoreError::NoTables) => {
            db.close().await;
            let _lock = lock_file(file)?;
            sqlite(file).await
        }
        checked => checked.map(|()| db),
    }
}

/// The one connection that writes, which makes the file, and those that read.
async fn sqlite_pools(file: &Path) -> Result<(SqlitePool, SqlitePool), StoreError> {
    match private(OpenOptions::new().create_new(true)).open(file) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(StoreError::Unavailable(Cause::Io(error))),
    }
    let options = sqlite_options(file)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true);
    let writer = bounded(sqlite_pool(1).connect_with(options)).await?;
    let readers = sqlite_options(file).read_only(true);
    Ok((writer, sqlite_pool(READERS).connect_lazy_with(readers)))
}

/// Opens a SQLite file beside a process that may be writing it.
pub(super) async fn sqlite_read_only(file: &Path) -> Result<Db, StoreError> {
    if !file.exists() {
        return Err(StoreError::NoTables);
    }
    let options = sqlite_options(file).read_only(true);
    let readers = bounded(sqlite_pool(READERS).connect_with(options)).await?;
    let db = Db::Sqlite { writer: readers.clone(), readers };
    check_version(&db).await.map(|()| db)
}

fn sqlite_options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(file).busy_timeout(WAIT).disable_statement_logging()
}

fn sqlite_pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(WAIT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Connects to PostgreSQL.
pub(super) async fn postgres(
    options: &PgConnectOptions,
    connections: u32,
) -> Result<Db, StoreError> {
    // a connection of its own: a migration may take longer than a statement of a request
    let mut connection = connect(options).await?;
    let migrating = migrator(|version| version.postgres);
    migrated(migrating.run(&mut connection)).await?;
    bounded(connection.close()).await?;
    Ok(Db::Postgres(postgres_pool(options.clone(), connections)))
}

/// Connects to PostgreSQL and refuses to write.
pub(super) async fn postgres_read_only(options: &PgConnectOptions) -> Result<Db, StoreError> {
    bounded(connect(options).await?.close()).await?;
    let options = options.clone().options([("default_transaction_read_only", "on")]);
    let db = Db::Postgres(postgres_pool(options, READERS));
    check_version(&db).await.map(|()| db)
}

/// Connects to PostgreSQL, and changes no tables that are there.
pub(super) async fn postgres_beside(
    options: &PgConnectOptions,
    connections: u32,
) -> Result<Db, StoreError> {
    bounded(connect(options).await?.close()).await?;
    let db = Db::Postgres(postgres_pool(options.clone(), connections));
    match check_version(&db).await {
        Err(StoreError::NoTables) => {
            db.close().await;
            postgres(options, connections).await
        }
        checked => checked.map(|()| db),
    }
}

/// One connection beside the pool.
pub(super) async fn connect(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    bounded(PgConnection::connect_with(options)).await
}

fn postgres_pool(options: PgConnectOptions, connections: u32) -> sqlx::PgPool {
    let bound = |name: &'static str| (name, PATIENCE.as_millis().to_string());
    let options = options.options(
        ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"].map(bound),
    );
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(WAIT)
        .connect_lazy_with(options)
}

fn migrator(text: impl Fn(&Version) -> &'static str) -> Migrator {
    let migration = |version: &Version| {
        let sql = text(version).into_sql_str();
        Migration::new(version.number, version.name.into(), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(VERSIONS.iter().map(migration).collect())
}

async fn migrated(work: impl Future<Output = Result<(), MigrateError>>) -> Result<(), StoreError> {
    match tokio::time::timeout(MIGRATING, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(StoreError::Unavailable(Cause::Timeout)),
    }
}

/// Refuses tables of another version.
pub(super) async fn check_version(db: &Db) -> Result<(), StoreError> {
    let found = match db.row(sql::VERSION, &[]).await {
        Ok(row) => row.and_then(|row| row.get::<Option<i64>>("version").transpose()).transpose()?,
        Err(StoreError::Failed { .. }) => None,
        Err(error) => return Err(error),
    };
    let ours = VERSIONS.last().map(|version| version.number);
    if found.is_none() {
        return Err(StoreError::NoTables);
    }
    if found != ours { Err(StoreError::Version) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::Row as _;

    #[tokio::test]
    async fn a_commit_to_sqlite_waits_for_the_disk() {
        let name = format!("portcullis-open-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let db = sqlite(&folder.join("relay.db")).await.unwrap();
        let Db::Sqlite { writer, .. } = &db else { panic!("it is SQLite") };
        for (pragma, expected) in [("PRAGMA synchronous", 2_i64), ("PRAGMA foreign_keys", 1)] {
            let row = sqlx::query(pragma).fetch_one(writer).await.unwrap();
            assert_eq!(row.get::<i64, _>(0), expected, "{pragma}");
        }
        let row = sqlx::query("PRAGMA journal_mode").fetch_one(writer).await.unwrap();
        assert_eq!(row.get::<String, _>(0), "wal");
        db.close().await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
