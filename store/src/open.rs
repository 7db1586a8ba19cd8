//! Opens connections by URL: to a SQLite file that belongs to this process, or to PostgreSQL.
//!
//! A commit that returned survives a power cut on both: SQLite runs with WAL and full sync, since
//! WAL alone may lose the newest commits; PostgreSQL waits for its WAL unless its administrator
//! disabled fsync. Keepalives end the sessions of a dead machine within half a minute, so that it
//! keeps neither the journal nor a signer locked.

use super::db::Db;
use super::error::StoreError;
use super::hosts::{self, Hosts, Target};
use super::sql;
use super::timeout::{TIMEOUT, bounded, within};
use super::versions::{NEWEST, migrator};
use parking_lot::RwLock;
use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_base::io::cold;
use portcullis_base::secrets::certificates::{self, MAX_ROOTS};
use portcullis_base::secrets::{self, Secret};
use sha2::{Digest as _, Sha256};
use sqlx::migrate::Migrate as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, Row as _, SqliteConnection, SqlitePool,
};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a free connection or SQLite's own lock: less than the timeout of a
/// statement.
const WAIT: Duration = Duration::from_secs(3);
/// Timeout of the first connection to a SQLite file, which creates or recovers it: a disk that is
/// busy for some seconds must not end the start.
const OPENING: Duration = Duration::from_secs(30);
/// Timeout of migrations, including those of another process: they run only at the start, and one
/// may write hundreds of thousands of rows and their indexes.
const MIGRATING: Duration = Duration::from_secs(600);
/// Timeout of a copy of a SQLite file: far more than a disk needs.
const COPYING: Duration = Duration::from_secs(3_600);
/// Bytes that a check for room writes, more than any transaction of a request.
const ROOM: usize = 65_536;
/// Read connections to a SQLite file. For a hundred readers of a feed, 4 serve more requests than
/// 2, and 8 no more than 4.
pub(super) const READERS: u32 = 4;

/// Where the database is.
pub(super) enum Location {
    Sqlite(PathBuf),
    Postgres(Box<Server>),
}

/// A PostgreSQL server.
pub(super) struct Server {
    /// Options for the host that is used; their password can be replaced.
    options: RwLock<PgConnectOptions>,
    /// The hosts of the URL.
    hosts: Vec<(String, u16)>,
    /// Maximum number of connections in the pool.
    connections: u32,
    /// Age at which a connection is replaced.
    pub(super) lifetime: Duration,
}

impl Location {
    /// Parses the URL.
    pub(super) fn parse(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Self, StoreError> {
        let url = &*config.url;
        if let Some(file) = url.strip_prefix("sqlite:") {
            if file.is_empty() || file.starts_with(':') {
                return Err(StoreError::Url("no file name after sqlite:"));
            }
            return Ok(Self::Sqlite(resolve(Path::new(file))?));
        }
        let server = Server::parse(url, Target::Primary, config, password)?;
        Ok(Self::Postgres(Box::new(server)))
    }
}

impl Server {
    /// Parses the URL of a server with the other settings of the store.
    pub(super) fn parse(
        url: &str,
        target: Target,
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Self, StoreError> {
        let Hosts { options, all } = hosts::parse(url, target)?;
        let mut options = with_tls(options, config)?;
        if let Some(password) = password {
            options = options.password(text_of(password)?);
        }
        let options = options
            .application_name("portcullis")
            .options([
                ("tcp_keepalives_idle", "10"),
                ("tcp_keepalives_interval", "5"),
            ])
            .options([("tcp_keepalives_count", "3"), ("synchronous_commit", "on")])
            // reads after waiting for the journal's lock must see the newest commits
            .options([("default_transaction_isolation", "read committed")])
            .disable_statement_logging();
        let (connections, lifetime) = (config.max_connections, config.connection_lifetime);
        Ok(Self {
            options: RwLock::new(options),
            hosts: all,
            connections,
            lifetime,
        })
    }

    /// Uses this password for new connections from now on.
    pub(super) fn set_password(&self, password: &Secret) -> Result<(), StoreError> {
        let text = text_of(password)?;
        let mut options = self.options.write();
        *options = options.clone().password(text);
        Ok(())
    }
}

/// The text of a password, without the end of its line.
pub(super) fn text_of(password: &Secret) -> Result<&str, StoreError> {
    let text = str::from_utf8(password.expose());
    let text = text.map_err(|_| StoreError::Url("the password is not UTF-8"))?;
    Ok(text.trim_end_matches(['\r', '\n']))
}

/// Applies `store.tls` to every connection; sqlx alone would accept any certificate, or none.
fn with_tls(
    options: PgConnectOptions,
    config: &StoreConfig,
) -> Result<PgConnectOptions, StoreError> {
    // from the URL or PGSSLMODE; Prefer if neither sets it
    let mode = options.get_ssl_mode();
    let is_off = matches!(mode, PgSslMode::Disable | PgSslMode::Allow);
    if config.tls == StoreTls::Off {
        return match mode {
            PgSslMode::Require | PgSslMode::VerifyCa | PgSslMode::VerifyFull => Err(
                StoreError::Url("sslmode requires TLS; set store.tls = \"verify-full\""),
            ),
            _ => Ok(options.ssl_mode(PgSslMode::Disable)),
        };
    }
    if is_off {
        return Err(StoreError::Url("store.tls requires TLS; leave sslmode out"));
    }
    if options.get_socket().is_some() || options.get_host().starts_with('/') {
        return Err(StoreError::Url(
            "a Unix socket has no TLS; set store.tls = \"off\"",
        ));
    }
    let options = options.ssl_mode(PgSslMode::VerifyFull);
    let Some(path) = &config.ca_file else {
        return Ok(options);
    };
    certificates::read(path, MAX_ROOTS)?;
    // read again for each connection, so that a renewed authority needs no restart
    Ok(options.ssl_root_cert(secrets::locate(path)))
}

/// The canonical path of the file, identical for all processes; the file need not exist.
fn resolve(file: &Path) -> Result<PathBuf, StoreError> {
    match file.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = file
                .file_name()
                .ok_or(StoreError::Url("no file name after sqlite:"))?;
            let folder = file
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        found => Ok(found?),
    }
}

/// Checks that [`ROOM`] bytes, which no file system can compress, can be written next to a SQLite
/// file.
pub(super) fn check_room(file: &Path) -> Result<(), StoreError> {
    let mut path = file.to_owned();
    path.add_extension("room");
    let digests = (0_u32..).flat_map(|at| Sha256::digest(at.to_be_bytes()));
    let bytes: Vec<u8> = digests.take(ROOM).collect();
    let written = private(OpenOptions::new().create(true).truncate(true))
        .open(&path)
        .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_data()));
    let removed = match std::fs::remove_file(&path) {
        // another check has removed it already
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    Ok(written.and(removed)?)
}

/// The lock that gives a SQLite file to one process, until dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

/// Locks `FILE.lock`. It is a separate file, as closing any handle of the database would drop
/// SQLite's own locks.
pub(super) fn lock_file(database: &Path) -> Result<FileLock, StoreError> {
    let path = lock_path(database);
    let file = private(OpenOptions::new().create(true).truncate(false)).open(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(FileLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path)),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

pub(super) fn lock_path(database: &Path) -> PathBuf {
    let mut path = database.to_owned();
    path.add_extension("lock");
    path
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.write(true).mode(0o600)
}

/// Opens a SQLite file for one process; a new file is readable by its owner only.
pub(super) async fn sqlite(file: &Path) -> Result<Db, StoreError> {
    let (writer, readers) = sqlite_pools(file).await?;
    if let Err(error) = migrate_sqlite(&writer).await {
        // before another attempt opens the file
        writer.close().await;
        return Err(error);
    }
    Ok(Db::Sqlite { writer, readers })
}

async fn migrate_sqlite(writer: &SqlitePool) -> Result<(), StoreError> {
    // deferred: with nothing to apply it only reads, and waits for no other process that writes
    let mut creating = bounded(writer.begin()).await?;
    within(
        MIGRATING,
        migrator(|version| version.sqlite).run(&mut *creating),
    )
    .await?;
    within(MIGRATING, creating.commit()).await
}

/// Opens a SQLite file next to a process that may have it open. Creating tables takes the lock.
pub(super) async fn sqlite_shared(file: &Path) -> Result<Db, StoreError> {
    // a new file switches to WAL first: other processes meanwhile get `Locked`
    if file.metadata().map_or(0, |found| found.len()) == 0 {
        let _lock = lock_file(file)?;
        return sqlite(file).await;
    }
    let (writer, readers) = sqlite_pools(file).await?;
    with_tables(Db::Sqlite { writer, readers }, async {
        let _lock = lock_file(file)?;
        sqlite(file).await
    })
    .await
}

/// Returns `db` if its tables have this version. If it has none, closes it and returns the database
/// that `created` opens.
async fn with_tables(
    db: Db,
    created: impl Future<Output = Result<Db, StoreError>>,
) -> Result<Db, StoreError> {
    match check_version(&db).await {
        Err(StoreError::NoTables) => {
            db.close().await;
            created.await
        }
        checked => checked.map(|()| db),
    }
}

/// The write connection, which creates the file, and the read connections.
async fn sqlite_pools(file: &Path) -> Result<(SqlitePool, SqlitePool), StoreError> {
    match private(OpenOptions::new().create_new(true)).open(file) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.into()),
    }
    let options = sqlite_options(file)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        // overwrites deleted rows, and the old values of changed ones
        .pragma("secure_delete", "ON");
    let first = within(OPENING, SqliteConnection::connect_with(&options)).await?;
    let writer = bounded(sqlite_pool(1).connect_with(options)).await?;
    bounded(first.close()).await?;
    let readers = sqlite_options(file).read_only(true);
    Ok((writer, sqlite_pool(READERS).connect_lazy_with(readers)))
}

/// Opens a SQLite file for reading, next to a process that may write it.
pub(super) async fn sqlite_read_only(file: &Path) -> Result<Db, StoreError> {
    if !file.exists() {
        return Err(StoreError::NoTables);
    }
    let db = sqlite_to_read(file).await?;
    check_version(&db).await.map(|()| db)
}

/// Opens a SQLite file of any version for reading.
pub(super) async fn sqlite_to_read(file: &Path) -> Result<Db, StoreError> {
    let options = sqlite_options(file).read_only(true);
    let readers = bounded(sqlite_pool(READERS).connect_with(options)).await?;
    Ok(Db::Sqlite {
        writer: readers.clone(),
        readers,
    })
}

/// Runs the statement `copy` with the argument `to` on a connection of its own, which only reads.
pub(super) async fn sqlite_copy(
    file: &Path,
    copy: &'static str,
    to: &str,
) -> Result<(), StoreError> {
    let options = sqlite_options(file).read_only(true);
    let mut connection = bounded(SqliteConnection::connect_with(&options)).await?;
    within(COPYING, sqlx::query(copy).bind(to).execute(&mut connection)).await?;
    bounded(connection.close()).await
}

fn sqlite_options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(WAIT)
        .disable_statement_logging()
}

fn sqlite_pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(WAIT)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

/// Connects to PostgreSQL, and migrates its tables.
pub(super) async fn postgres(server: &Server) -> Result<Db, StoreError> {
    prepare_postgres(server).await?;
    Ok(server.db())
}

/// Connects to PostgreSQL, and applies the migrations that are missing.
pub(super) async fn prepare_postgres(server: &Server) -> Result<(), StoreError> {
    // a connection of its own, as a migration may exceed the timeout of a statement
    let mut connection = server.connect().await?;
    let migrating = async {
        connection.lock().await?;
        let mut creating = connection.begin().await?;
        migrator(|version| version.postgres)
            .run(&mut *creating)
            .await?;
        creating.commit().await?;
        connection.unlock().await
    };
    within(MIGRATING, migrating).await?;
    bounded(connection.close()).await
}

/// Checks that transactions of PostgreSQL may write; fails as a write does if not.
pub(super) async fn check_writable(server: &Server) -> Result<(), StoreError> {
    let mut connection = server.connect().await?;
    let checked = check_session(&mut connection).await;
    bounded(connection.close()).await?;
    checked
}

async fn check_session(connection: &mut PgConnection) -> Result<(), StoreError> {
    let row = bounded(sqlx::raw_sql(sql::READ_ONLY).fetch_one(connection)).await?;
    if row.try_get("is_read_only")? {
        return Err(StoreError::Failed {
            code: "25006".to_owned(),
            message: "its transactions are read-only".to_owned(),
        });
    }
    Ok(())
}

/// A connection to a server that accepts writes.
async fn connect_to_write(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let mut connection = bounded(cold(PgConnection::connect_with(options))).await?;
    check_session(&mut connection).await?;
    Ok(connection)
}

/// Connects to PostgreSQL for reading.
pub(super) async fn postgres_read_only(server: &Server) -> Result<Db, StoreError> {
    let db = postgres_to_read(server).await?;
    check_version(&db).await.map(|()| db)
}

/// Connects to PostgreSQL for reading, with tables of any version.
pub(super) async fn postgres_to_read(server: &Server) -> Result<Db, StoreError> {
    bounded(server.connect().await?.close()).await?;
    Ok(server.to_read(READERS).db())
}

/// Connects to PostgreSQL; creates missing tables, but does not migrate existing ones.
pub(super) async fn postgres_shared(server: &Server) -> Result<Db, StoreError> {
    bounded(server.connect().await?.close()).await?;
    with_tables(server.db(), postgres(server)).await
}

impl Server {
    /// A connection outside the pool. Of several hosts, to the one that accepts writes, which is
    /// used from now on.
    ///
    /// # Errors
    /// Returns why no connection can be used; of several hosts, that of the last one that answers.
    pub(super) async fn connect(&self) -> Result<PgConnection, StoreError> {
        let options = self.options.read().clone();
        if self.hosts.len() < 2 {
            return bounded(cold(PgConnection::connect_with(&options))).await;
        }
        let used = (options.get_host().to_owned(), options.get_port());
        let others = self.hosts.iter().filter(|host| **host != used);
        let mut failure = None;
        for (host, port) in [&used].into_iter().chain(others) {
            let options = options.clone().host(host).port(*port);
            match connect_to_write(&options).await {
                Ok(connection) => {
                    *self.options.write() = options;
                    return Ok(connection);
                }
                Err(error @ StoreError::Failed { .. }) => failure = Some(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(StoreError::Url("the host is missing")))
    }

    /// Whether the URL has several hosts.
    pub(super) fn has_others(&self) -> bool {
        self.hosts.len() > 1
    }

    /// The servers of `store.read_url`.
    pub(super) fn of_replica(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Option<Self>, StoreError> {
        let parsed = config
            .read_url
            .as_deref()
            .map(|url| Self::parse(url, Target::Standby, config, password));
        parsed.transpose().map_err(StoreError::of_replica)
    }

    /// Each host for reading, with this many connections.
    pub(super) fn each_to_read(self, connections: u32) -> impl Iterator<Item = Self> {
        let hosts = self.hosts.clone().into_iter();
        hosts.map(move |(host, port)| {
            let one = self.to_read(connections);
            let options = one.options.into_inner().host(&host).port(port);
            Self {
                options: RwLock::new(options),
                ..one
            }
        })
    }

    /// This server for reading, with this many connections.
    pub(super) fn to_read(&self, connections: u32) -> Self {
        let options = self.options.read().clone();
        let options = options.options([("default_transaction_read_only", "on")]);
        Self {
            options: RwLock::new(options),
            hosts: Vec::new(),
            connections,
            lifetime: self.lifetime,
        }
    }

    /// A pool of connections to the server, opened when they are needed.
    pub(super) fn db(&self) -> Db {
        Db::Postgres(self.pool(), Arc::default())
    }

    /// The options of the pool's connections.
    pub(super) fn pool_options(&self) -> PgConnectOptions {
        let bound = |name: &'static str| (name, TIMEOUT.as_millis().to_string());
        self.options.read().clone().options(
            [
                "statement_timeout",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
            ]
            .map(bound),
        )
    }

    pub(super) fn pool(&self) -> sqlx::PgPool {
        PgPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(WAIT)
            .max_lifetime(self.lifetime)
            .connect_lazy_with(self.pool_options())
    }
}

/// Checks that the tables have the newest version.
pub(super) async fn check_version(db: &Db) -> Result<(), StoreError> {
    match version(db).await {
        Ok(None) => Err(StoreError::NoTables),
        Err(error) if error.misses_table() => Err(StoreError::NoTables),
        Ok(Some(NEWEST)) => Ok(()),
        Ok(Some(found)) => Err(StoreError::Version {
            found,
            known: NEWEST,
        }),
        Err(error) => Err(error),
    }
}

/// The version of the tables.
pub(super) async fn version(db: &Db) -> Result<Option<i64>, StoreError> {
    let row = db.row(sql::VERSION, &[]).await?;
    row.and_then(|row| row.get::<Option<i64>>("version").transpose())
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_to_sqlite_waits_for_the_disk() {
        let name = format!("portcullis-open-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let db = sqlite(&folder.join("relay.db")).await.unwrap();
        let Db::Sqlite { writer, .. } = &db else {
            panic!("it is SQLite")
        };
        for (pragma, expected) in [("PRAGMA synchronous", 2_i64), ("PRAGMA foreign_keys", 1)] {
            let row = sqlx::query(pragma).fetch_one(writer).await.unwrap();
            assert_eq!(row.get::<i64, _>(0), expected, "{pragma}");
        }
        let row = sqlx::query("PRAGMA journal_mode")
            .fetch_one(writer)
            .await
            .unwrap();
        assert_eq!(row.get::<String, _>(0), "wal");
        db.close().await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
