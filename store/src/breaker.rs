//! Fails calls at once while the database cannot be used, with the cause.
//!
//! A pool retries a refused connection until its caller's timeout, and then reports only the
//! timeout. So a caller that waits for longer than [`PROMPT`] tries a connection of its own. If
//! that is refused, all callers are refused; one per [`RECHECK`] tries again, until a connection
//! succeeds. A connection that hangs proves nothing, because a busy server is slow as well: callers
//! wait.
//!
//! All calls to a store that is not prepared yet are refused, too (`late.rs`). While the password
//! is replaced, a connection that is refused for it is opened with the other one.

use super::error::{Cause, StoreError};
use super::timeout::within;
use parking_lot::Mutex;
use portcullis_base::io::cold;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Postgres};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long to wait for the pool before a trial: it hands out or opens a connection within a few
/// milliseconds.
const PROMPT: Duration = Duration::from_millis(200);
/// Shortest time between two trials of a connection.
const RECHECK: Duration = Duration::from_millis(500);
/// Timeout of a trial.
const CONNECTING: Duration = Duration::from_secs(2);

/// Whether a database is known to be unusable.
#[derive(Debug)]
pub(super) struct ConnectBreaker {
    state: Mutex<State>,
    /// Held by the caller that tries a connection, so that only one does.
    trial: tokio::sync::Mutex<()>,
    /// While the password is replaced, the options with the one that the pool does not use: the
    /// server may know only that.
    other: Mutex<Option<PgConnectOptions>>,
}

/// The state of a [`ConnectBreaker`].
#[derive(Clone, Debug)]
enum State {
    /// The tables may be missing, for this cause.
    Unprepared(Arc<str>),
    /// Calls pass. A connection was last tried at this time, if ever.
    Closed(Option<Instant>),
    /// New connections fail for this cause, as of this time.
    Open(Arc<str>, Instant),
}

/// The next step of a caller that needs a connection.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    /// Takes a connection from the pool.
    Granted,
    /// Tries whether new connections are accepted again.
    Trial,
    /// Fails for this cause.
    Refused(Arc<str>),
}

impl Admission {
    /// Fails if the caller is refused.
    fn result(self) -> Result<(), StoreError> {
        match self {
            Self::Refused(cause) => Err(refused(cause)),
            Self::Granted | Self::Trial => Ok(()),
        }
    }
}

impl State {
    fn admit(&self, now: Instant) -> Admission {
        match self {
            Self::Closed(_) => Admission::Granted,
            Self::Open(_, at) if now.saturating_duration_since(*at) >= RECHECK => Admission::Trial,
            Self::Unprepared(cause) | Self::Open(cause, _) => Admission::Refused(Arc::clone(cause)),
        }
    }

    /// Admits a caller while another one tries a connection.
    fn during_trial(&self) -> Admission {
        match self {
            Self::Closed(_) => Admission::Granted,
            Self::Unprepared(cause) | Self::Open(cause, _) => Admission::Refused(Arc::clone(cause)),
        }
    }

    /// Decides whether a caller that has waited for longer than [`PROMPT`] may continue to wait.
    fn admit_waiting(&self, now: Instant) -> Admission {
        match self {
            Self::Closed(Some(at)) if now.saturating_duration_since(*at) < RECHECK => {
                Admission::Granted
            }
            Self::Closed(_) => Admission::Trial,
            Self::Unprepared(cause) | Self::Open(cause, _) => Admission::Refused(Arc::clone(cause)),
        }
    }

    /// The state after a trial, and the caller's error if that concerns all callers.
    fn after(&self, tried: Result<(), StoreError>, now: Instant) -> (Self, Result<(), StoreError>) {
        let error = match tried {
            Err(error) if is_outage(&error, self) => error,
            // the pool itself reports any other failure, such as a wrong password
            _ => return (Self::Closed(Some(now)), Ok(())),
        };
        (Self::Open(error.cause(), now), Err(error))
    }
}

/// Whether an error proves that no new connection can be made. A timeout neither proves an outage
/// nor ends one.
fn is_outage(error: &StoreError, state: &State) -> bool {
    match error {
        StoreError::Unavailable(Cause::Io(_) | Cause::Tls(_)) => true,
        // PostgreSQL is starting or stopping
        StoreError::Unavailable(Cause::Busy { code, .. }) => code == "57P03",
        StoreError::Unavailable(Cause::Timeout) => matches!(state, State::Open(..)),
        _ => false,
    }
}

impl Default for ConnectBreaker {
    fn default() -> Self {
        Self {
            state: Mutex::new(State::Closed(None)),
            trial: tokio::sync::Mutex::default(),
            other: Mutex::default(),
        }
    }
}

impl ConnectBreaker {
    /// Refuses every call for this cause, until the store is [prepared](Self::prepare).
    pub(super) fn unprepared(cause: Arc<str>) -> Self {
        Self {
            state: Mutex::new(State::Unprepared(cause)),
            trial: tokio::sync::Mutex::default(),
            other: Mutex::default(),
        }
    }

    /// Admits calls if the store is prepared now; otherwise refuses them for the new cause.
    pub(super) fn prepare(&self, prepared: &Result<(), StoreError>) {
        *self.state.lock() = match prepared {
            Ok(()) => State::Closed(None),
            Err(error) => State::Unprepared(error.cause()),
        };
    }

    /// Whether the tables are known to be there.
    pub(super) fn is_prepared(&self) -> bool {
        !matches!(&*self.state.lock(), State::Unprepared(_))
    }

    /// Uses these options for new connections.
    pub(super) fn connect_with(&self, pool: &PgPool, options: PgConnectOptions) {
        *self.other.lock() = None;
        pool.set_connect_options(options);
    }

    /// Uses these options with another password for new connections, and the former ones for as
    /// long as the server refuses it.
    pub(super) fn replace_password(&self, pool: &PgPool, options: PgConnectOptions) {
        let mut other = self.other.lock();
        *other = Some(pool.connect_options().as_ref().clone());
        pool.set_connect_options(options);
    }

    /// Uses the other password from now on, unless another caller does since the pool had the
    /// options in `used`. Returns false if none is known.
    fn use_other_password(&self, pool: &PgPool, used: &Arc<PgConnectOptions>) -> bool {
        let mut other = self.other.lock();
        if !Arc::ptr_eq(used, &pool.connect_options()) {
            return true;
        }
        let Some(options) = other.replace(used.as_ref().clone()) else {
            *other = None;
            return false;
        };
        pool.set_connect_options(options);
        true
    }

    /// Takes a connection from the pool.
    pub(super) async fn acquire(
        &self,
        pool: &PgPool,
    ) -> Result<PoolConnection<Postgres>, StoreError> {
        let used = pool.connect_options();
        match self.acquire_once(pool).await {
            Err(error) if error.is_of_password() && self.use_other_password(pool, &used) => {
                cold(self.acquire_once(pool)).await
            }
            acquired => acquired,
        }
    }

    async fn acquire_once(&self, pool: &PgPool) -> Result<PoolConnection<Postgres>, StoreError> {
        let admission = self.state.lock().admit(Instant::now());
        match admission {
            Admission::Trial => cold(self.retry(pool)).await?,
            known => known.result()?,
        }
        let mut acquiring = pin!(pool.acquire());
        if let Ok(acquired) = timeout(PROMPT, &mut acquiring).await {
            return Ok(acquired?);
        }
        tokio::select! {
            acquired = &mut acquiring => Ok(acquired?),
            outage = cold(self.find_outage(pool)) => Err(outage),
        }
    }

    /// Tries a connection after an outage, unless another caller does or did.
    async fn retry(&self, pool: &PgPool) -> Result<(), StoreError> {
        let Ok(_turn) = self.trial.try_lock() else {
            return self.state.lock().during_trial().result();
        };
        let admission = self.state.lock().admit(Instant::now());
        match admission {
            Admission::Trial => self.record(connect(pool).await),
            known => known.result(),
        }
    }

    /// Tries a connection every [`RECHECK`], until one proves an outage.
    async fn find_outage(&self, pool: &PgPool) -> StoreError {
        loop {
            let turn = self.trial.lock().await;
            let admission = self.state.lock().admit_waiting(Instant::now());
            let outcome = match admission {
                Admission::Trial => self.record(connect(pool).await),
                known => known.result(),
            };
            drop(turn);
            if let Err(outage) = outcome {
                return outage;
            }
            sleep(RECHECK).await;
        }
    }

    fn record(&self, tried: Result<(), StoreError>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let (next, result) = state.after(tried, Instant::now());
        *state = next;
        result
    }
}

fn refused(cause: Arc<str>) -> StoreError {
    StoreError::Unavailable(Cause::Outage(cause))
}

async fn connect(pool: &PgPool) -> Result<(), StoreError> {
    let options = pool.connect_options();
    within(CONNECTING, async { options.connect().await?.close().await }).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn io(kind: io::ErrorKind) -> StoreError {
        io::Error::from(kind).into()
    }

    fn busy(code: &str) -> StoreError {
        StoreError::Unavailable(Cause::Busy {
            code: code.to_owned(),
            message: String::new(),
        })
    }

    #[test]
    fn one_caller_in_a_while_tries_a_connection() {
        let start = Instant::now();
        let closed = State::Closed(None);
        assert_eq!(closed.admit(start), Admission::Granted);
        let refusal = Err(io(io::ErrorKind::ConnectionRefused));
        let (open, error) = closed.after(refusal, start);
        assert!(
            error
                .unwrap_err()
                .to_string()
                .ends_with(": connection refused")
        );
        let Admission::Refused(cause) = open.admit(start) else {
            panic!("{open:?}")
        };
        assert_eq!(&*cause, "connection refused", "the cause alone");
        assert_eq!(open.admit(start + RECHECK), Admission::Trial);
        let (still, _) = open.after(Err(busy("57P03")), start + RECHECK);
        assert!(
            matches!(still.admit(start + RECHECK), Admission::Refused(_)),
            "{still:?}"
        );
        let (again, error) = still.after(Ok(()), start + 2 * RECHECK);
        assert_eq!(again.admit(start + 2 * RECHECK), Admission::Granted);
        assert!(error.is_ok());
    }

    #[test]
    fn callers_that_wait_share_their_trials() {
        let start = Instant::now();
        assert_eq!(State::Closed(None).admit_waiting(start), Admission::Trial);
        let tried = State::Closed(Some(start));
        assert_eq!(
            tried.admit_waiting(start),
            Admission::Granted,
            "it works, so the pool is busy"
        );
        assert_eq!(tried.admit_waiting(start + RECHECK), Admission::Trial);
        assert_eq!(tried.during_trial(), Admission::Granted);
        let refused = || Admission::Refused("connection refused".into());
        let open = State::Open("connection refused".into(), start);
        assert_eq!(
            open.admit_waiting(start + RECHECK),
            refused(),
            "others try again"
        );
        assert_eq!(open.during_trial(), refused());
    }

    #[test]
    fn a_store_that_is_not_prepared_refuses_everybody() {
        let unprepared = State::Unprepared("timeout".into());
        let later = Instant::now() + 10 * RECHECK;
        let refused = Admission::Refused("timeout".into());
        let found = [unprepared.admit(later), unprepared.admit_waiting(later)];
        assert_eq!(
            [&found[0], &found[1], &unprepared.during_trial()],
            [&refused; 3]
        );
    }

    #[test]
    fn only_a_proof_refuses_everybody() {
        let timeout = || StoreError::Unavailable(Cause::Timeout);
        let password = || StoreError::Failed {
            code: "28P01".to_owned(),
            message: String::new(),
        };
        for (error, is_open, refuses, why) in [
            (
                io(io::ErrorKind::ConnectionRefused),
                false,
                true,
                "it does not run",
            ),
            (
                io(io::ErrorKind::NotFound),
                false,
                true,
                "there is no socket",
            ),
            (busy("57P03"), false, true, "it starts"),
            (
                busy("53300"),
                false,
                false,
                "it has no room for another connection",
            ),
            (
                timeout(),
                false,
                false,
                "it is slow, and connections of the pool may work",
            ),
            (timeout(), true, true, "no proof that it works again"),
            (password(), false, false, "the pool says so itself"),
            (password(), true, false, "it runs"),
        ] {
            let now = Instant::now();
            let before = match is_open {
                true => State::Open("connection refused".into(), now),
                false => State::Closed(None),
            };
            let (after, result) = before.after(Err(error), now);
            assert_eq!(matches!(after, State::Open(..)), refuses, "{why}");
            assert_eq!(result.is_err(), refuses, "{why}");
        }
    }
}
