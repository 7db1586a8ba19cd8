//! A replica of PostgreSQL from which documents are read, while it is known to be recent. So feeds,
//! podcasts and sitemaps, which read the most rows, do not slow down writes, and are served while
//! the primary is away.
//!
//! Clocks are not compared, and an idle primary is no lag: the replay position of the replica is
//! compared with the positions of the primary's log at known times. A replica that has replayed the
//! log up to one of these positions is as recent as its time, and is used until that is [`MAX_LAG`]
//! ago, or that long before the primary was last seen while it does not answer.

use super::db::Db;
use super::hosts::Target;
use super::open::{Location, Server};
use super::row::{FromRow, Row};
use super::{Store, StoreError, sql};
use parking_lot::Mutex;
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::Secret;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum lag: a document may lack the writes of the last 5 s.
const MAX_LAG: Duration = Duration::from_secs(5);
/// Number of stored positions of the primary: those of a minute, at one check a second.
const POSITIONS: usize = 60;

pub(super) struct Replica {
    /// The servers of `store.read_url`, of which one is used.
    servers: Vec<Arc<Store>>,
    used: AtomicUsize,
    progress: Mutex<Progress>,
}

/// The known state of the replica.
#[derive(Debug, Default)]
struct Progress {
    /// Positions of the primary's log with their times, oldest first.
    primary: VecDeque<(Instant, i64)>,
    /// The replica has all writes up to this time.
    recent_at: Option<Instant>,
    /// Whether a read failed since the last check.
    is_suspended: bool,
    /// Whether the primary did not answer the last check.
    is_primary_away: bool,
    /// The database of the primary, as it was last seen.
    database: Option<String>,
}

/// The replica at a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Upper bound of the replica's lag; `None` if it was never known.
    pub lag: Option<Duration>,
    /// Why documents are read from the primary, if they are.
    pub cause: Option<String>,
}

/// A place in the log of a database.
struct Position {
    database: String,
    /// `None` for a server that is no replica.
    bytes: Option<i64>,
}

impl FromRow for Position {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: database bytes;))
    }
}

impl Progress {
    /// Records that the replica had replayed this much, after the primary was queried.
    fn replayed(&mut self, bytes: i64) {
        let covered = self
            .primary
            .iter()
            .rev()
            .find(|(_, written)| *written <= bytes);
        self.recent_at = self.recent_at.max(covered.map(|(at, _)| *at));
        self.is_suspended = false;
    }

    fn written(&mut self, at: Instant, bytes: i64) {
        self.is_primary_away = false;
        if self.primary.len() == POSITIONS {
            self.primary.pop_front();
        }
        self.primary.push_back((at, bytes));
    }

    /// Upper bound of the replica's lag; behind a primary that is away, its lag when that was last
    /// seen: what was written later can be read nowhere.
    fn lag(&self, now: Instant) -> Option<Duration> {
        let until = match self.primary.back() {
            Some((seen, _)) if self.is_primary_away => *seen,
            _ => now,
        };
        self.recent_at.map(|at| until.saturating_duration_since(at))
    }

    fn serves(&self, now: Instant) -> bool {
        !self.is_suspended && self.lag(now).is_some_and(|lag| lag < MAX_LAG)
    }
}

impl Replica {
    /// The replica that is configured, if there is one.
    pub(super) fn of(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Option<Self>, StoreError> {
        let server = Server::of_replica(config, password)?;
        Ok(server.map(|server| Self::new(server, config)))
    }

    /// The replica of `store.read_url`; connects when it is used.
    fn new(server: Server, config: &StoreConfig) -> Self {
        let servers = server.each_to_read(config.max_connections);
        Self {
            servers: servers.map(|one| Arc::new(to_read(one, config))).collect(),
            used: AtomicUsize::new(0),
            progress: Mutex::default(),
        }
    }

    /// All its servers.
    pub(super) fn servers(&self) -> &[Arc<Store>] {
        &self.servers
    }

    /// Compares the position of the replica with those of the primary.
    ///
    /// # Errors
    /// Returns why the replica cannot be compared.
    async fn compare(&self, primary: &Db) -> Result<(), String> {
        let at = Instant::now();
        let written = primary_position(primary).await;
        let database = self.see_primary(at, written)?;
        let replayed = self.replayed(&database).await;
        let mut progress = self.progress.lock();
        match replayed {
            Ok(bytes) => progress.replayed(bytes),
            Err(cause) => {
                progress.is_suspended = true;
                return Err(cause);
            }
        }
        Ok(())
    }

    /// Records the position of the primary, if it answered; returns its database.
    fn see_primary(
        &self,
        at: Instant,
        written: Result<Position, String>,
    ) -> Result<String, String> {
        let mut progress = self.progress.lock();
        match written {
            Ok(Position { database, bytes }) => {
                progress.written(at, bytes.unwrap_or(i64::MAX));
                progress.database = Some(database.clone());
                Ok(database)
            }
            Err(cause) => {
                progress.is_primary_away = true;
                progress.database.clone().ok_or(cause)
            }
        }
    }

    /// How much the replica has replayed: the server in use, or the first other one that can be
    /// used instead.
    async fn replayed(&self, database: &str) -> Result<i64, String> {
        let first = self.used.load(Ordering::Relaxed);
        let mut failure = None;
        for at in (first..self.servers.len()).chain(0..first) {
            match replayed(&self.servers[at], database).await {
                Ok(bytes) => {
                    self.used.store(at, Ordering::Relaxed);
                    return Ok(bytes);
                }
                Err(cause) => failure = failure.or(Some(cause)),
            }
        }
        Err(failure.unwrap_or_else(|| "store.read_url names no server".to_owned()))
    }
}

/// A server of the replica.
fn to_read(server: Server, config: &StoreConfig) -> Store {
    let db = server.db();
    Store {
        is_replica: true,
        ..Store::on(db, Location::Postgres(Box::new(server)), config)
    }
}

async fn replayed(server: &Store, database: &str) -> Result<i64, String> {
    let replayed = position(&server.db, sql::REPLICA_POSITION).await?;
    if replayed.database != database {
        return Err("store.read_url is another database than store.url".to_owned());
    }
    replayed
        .bytes
        .ok_or_else(|| "store.read_url is not a replica, or was promoted".to_owned())
}

async fn primary_position(primary: &Db) -> Result<Position, String> {
    let written = position(primary, sql::PRIMARY_POSITION).await;
    written.map_err(|cause| format!("the primary: {cause}"))
}

async fn position(db: &Db, sql: &'static str) -> Result<Position, String> {
    let found: Option<Position> = db.one(sql, &[]).await.map_err(|error| error.to_string())?;
    found.ok_or_else(|| "no answer".to_owned())
}

impl Store {
    /// Compares the configured replica with its primary once; returns a text for the operator.
    ///
    /// # Errors
    /// Returns why the two cannot be compared.
    pub async fn compare_replica(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<String, String> {
        let text = |error: StoreError| error.to_string();
        let server = Server::of_replica(config, password).map_err(text)?;
        let Some(server) = server else {
            return Err("store.read_url is not set".to_owned());
        };
        let replica = Replica::new(server, config);
        let primary =
            Server::parse(&config.url, Target::Primary, config, password).map_err(text)?;
        // of several hosts, this finds the primary
        drop(primary.connect().await.map_err(text)?);
        let primary = primary.to_read(1).db();
        let written = primary_position(&primary).await?;
        let replayed = replica.replayed(&written.database).await?;
        let behind = written
            .bytes
            .unwrap_or(replayed)
            .saturating_sub(replayed)
            .max(0);
        Ok(format!("is a replica, {behind} bytes behind"))
    }

    /// The replica to read documents from, while it is known to have all writes that are older than
    /// 5 s, or that the primary had 5 s before it was last seen.
    pub fn replica(&self) -> Option<&Arc<Store>> {
        let replica = self.replica.as_ref()?;
        if !replica.progress.lock().serves(Instant::now()) {
            return None;
        }
        replica.servers.get(replica.used.load(Ordering::Relaxed))
    }

    /// Whether this is a replica.
    pub fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// Stops reading from the replica until the next check, after a read failed.
    pub fn suspend_replica(&self) {
        if let Some(replica) = &self.replica {
            replica.progress.lock().is_suspended = true;
        }
    }

    /// Compares the replica with the primary; `None` without a replica. To be called once a second.
    pub async fn check_replica(&self) -> Option<ReplicaStatus> {
        let replica = self.replica.as_ref()?;
        let compared = replica.compare(&self.db).await;
        let progress = replica.progress.lock();
        let now = Instant::now();
        let lag = progress.lag(now);
        let cause = match compared {
            _ if progress.serves(now) => None,
            Err(cause) => Some(cause),
            Ok(()) => Some(match lag {
                Some(lag) => format!("it is {} s behind", lag.as_secs()),
                None => "how far it is behind is not known yet".to_owned(),
            }),
        };
        Some(ReplicaStatus { lag, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_that_is_away_writes_nothing() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let away = |seconds, replayed| {
            let mut progress = Progress::default();
            for second in 0..=10 {
                progress.written(at(second), 100 + i64::try_from(second).unwrap());
            }
            progress.is_primary_away = true;
            progress.replayed(replayed);
            progress.serves(at(seconds))
        };
        assert!(away(11, 110) && away(3_600, 110), "nothing newer exists");
        assert!(away(3_600, 106) && !away(3_600, 105), "it was 5 s behind");
        let mut progress = Progress {
            is_primary_away: true,
            ..Progress::default()
        };
        assert!(!progress.serves(at(0)), "the primary was never seen");
        progress.written(at(10), 110);
        progress.replayed(110);
        assert!(
            progress.serves(at(14)) && !progress.serves(at(15)),
            "it is back"
        );
    }

    #[test]
    fn a_replica_is_as_recent_as_what_it_replayed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = Progress::default();
        progress.written(at(0), 100);
        progress.replayed(99);
        assert_eq!(
            progress.lag(at(1)),
            None,
            "it never had what the primary had"
        );
        assert!(!progress.serves(at(1)));
        progress.replayed(100);
        assert!(progress.serves(at(4)));
        assert!(!progress.serves(at(5)), "whatever the next check says");
        for second in 1..=20 {
            progress.written(at(second), 100);
            progress.replayed(100);
            assert_eq!(
                progress.lag(at(second)),
                Some(Duration::ZERO),
                "an idle primary is no lag"
            );
        }
        for second in 21..=120 {
            progress.written(at(second), 100 + i64::try_from(second).unwrap());
            progress.replayed(100);
        }
        assert_eq!(
            progress.lag(at(120)),
            Some(Duration::from_secs(100)),
            "it stands still"
        );
        progress.replayed(100 + 118);
        assert_eq!(progress.lag(at(120)), Some(Duration::from_secs(2)));
        assert!(progress.serves(at(120)));
        progress.is_suspended = true;
        assert!(!progress.serves(at(120)), "a read failed");
        assert!(progress.primary.len() <= POSITIONS);
    }
}
