//! The servers around PostgreSQL: a pooler in front of it, standbys behind it.

use super::open::{Location, Server};
use super::timeout::bounded;
use super::{Store, StoreError, sql};
use portcullis_base::config::StoreConfig;
use portcullis_base::secrets::Secret;
use sqlx::{Connection as _, PgConnection, Row as _};

/// Concurrent connections that may get the session of the first one. A pooler hands out free
/// sessions, and that one is free.
const OTHERS: usize = 3;

/// How PostgreSQL is reached, and which servers follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Whether a pooler shares a session between connections: then a session's lock excludes no
    /// process.
    pub shares_sessions: bool,
    /// Whether the server follows another one, and accepts no writes.
    pub is_standby: bool,
    /// Number of servers that follow it.
    pub standbys: i64,
    /// Whether commits wait for one of them.
    pub is_synchronous: bool,
}

impl Store {
    /// Examines the path to PostgreSQL; `None` for SQLite. Uses no prepared statements, as some
    /// poolers lose them.
    ///
    /// # Errors
    /// The URL is not usable, or the database is unavailable.
    pub async fn topology(
        config: &StoreConfig,
        password: Option<&Secret>,
    ) -> Result<Option<Topology>, StoreError> {
        let Location::Postgres(server) = Location::parse(config, password)? else {
            return Ok(None);
        };
        let mut connection = server.connect().await?;
        let row = sqlx::raw_sql(sql::TOPOLOGY).fetch_one(&mut connection);
        let row = bounded(row).await?;
        let topology = Topology {
            shares_sessions: shares_sessions(&server, &mut connection).await?,
            is_standby: row.try_get("is_standby")?,
            standbys: row.try_get("standbys")?,
            is_synchronous: row.try_get("is_synchronous")?,
        };
        bounded(connection.close()).await?;
        Ok(Some(topology))
    }
}

/// Whether two open connections share a session, or one connection gets a second session.
async fn shares_sessions(server: &Server, first: &mut PgConnection) -> Result<bool, StoreError> {
    let session = session(first).await?;
    let mut others = Vec::new();
    while others.len() < OTHERS {
        let mut other = server.connect().await?;
        // a transaction occupies the session, so that the next connection gets another one
        bounded(sqlx::raw_sql("BEGIN").execute(&mut other)).await?;
        if self::session(&mut other).await? == session {
            return Ok(true);
        }
        others.push(other);
    }
    Ok(self::session(first).await? != session)
}

async fn session(connection: &mut PgConnection) -> Result<i32, StoreError> {
    let row = bounded(sqlx::raw_sql(sql::SESSION).fetch_one(connection)).await?;
    Ok(row.try_get("session")?)
}
