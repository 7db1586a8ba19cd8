//! Why the store could not do it.
//!
//! A caller asks three things: does trying again help, did somebody else take it, or must a person
//! look? The texts are for the log and name no URL, no statement and no stored value.

use super::IntentId;
use sqlx::migrate::MigrateError;
use std::path::PathBuf;
use std::{fmt, io};

/// What can go wrong.
#[derive(Debug)]
pub enum StoreError {
    /// The place can not be used as it is written, and why.
    Url(&'static str),
    /// The database does not answer, or not in time. What was asked may or may not be done.
    Unavailable(Cause),
    /// Another process uses this SQLite database; the lock file says so.
    Locked(PathBuf),
    /// Another process kept the signer for longer than the caller would wait.
    SignerHeld,
    /// The tables are not those of this program.
    Migration(MigrateError),
    /// The tables are of another version, and a reader does not change them.
    Version,
    /// The database was to be read, and nothing was ever kept in it.
    NoTables,
    /// The database refused a statement: full, read-only, damaged, or not allowed to us.
    Failed {
        /// The database's own code.
        code: String,
        /// What it said.
        message: String,
    },
    /// A row is not what the tables are for; the name says what.
    Corrupt(&'static str),
    /// There is no such intent.
    UnknownIntent(IntentId),
    /// The idempotency key was not claimed.
    UnknownKey,
    /// More than can be stored or asked for; the name says what.
    TooLarge(&'static str),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Cause {
    /// None came in time, or no connection was free.
    Timeout,
    /// The connection, or the file.
    Io(io::Error),
    /// The store was closed.
    Closed,
    /// The database said that it can not now: busy, starting, stopping, out of connections.
    Busy {
        /// The database's own code.
        code: String,
        /// What it said.
        message: String,
    },
    /// It does not speak the protocol, or stopped in the middle of it.
    Protocol,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(why) => write!(f, "the store's URL: {why}"),
            Self::Unavailable(cause) => write!(f, "the database is unavailable: {cause}"),
            Self::Locked(file) => write!(
                f,
                "another process uses this SQLite database (it holds {}); \
                 several need PostgreSQL",
                file.display()
            ),
            Self::SignerHeld => f.write_str("another process holds the signer"),
            Self::Migration(error) => {
                write!(f, "the tables can not be brought up to date: {error}")
            }
            Self::Version => f.write_str("the tables are of another version of this program"),
            Self::NoTables => f.write_str("nothing was ever kept in this database"),
            Self::Failed { code, message } => {
                write!(f, "the database refused: {message} ({code})")
            }
            Self::Corrupt(what) => write!(f, "the database holds what can not be read: {what}"),
            Self::UnknownIntent(id) => write!(f, "there is no intent {id}"),
            Self::UnknownKey => f.write_str("the idempotency key was not claimed"),
            Self::TooLarge(what) => write!(f, "more than can be stored or asked for: {what}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no answer in time"),
            Self::Io(error) => error.fmt(f),
            Self::Closed => f.write_str("the store is closed"),
            Self::Busy { code, message } => write!(f, "{message} ({code})"),
            Self::Protocol => f.write_str("its answer makes no sense"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default().into_owned();
                let message = error.message().to_owned();
                if is_passing(&code) {
                    return Self::Unavailable(Cause::Busy { code, message });
                }
                Self::Failed { code, message }
            }
            sqlx::Error::Io(error) => Self::Unavailable(Cause::Io(error)),
            sqlx::Error::PoolTimedOut => Self::Unavailable(Cause::Timeout),
            sqlx::Error::PoolClosed => Self::Unavailable(Cause::Closed),
            sqlx::Error::Configuration(_) => Self::Url("it can not be read"),
            sqlx::Error::Tls(_) => Self::Url("it asks for TLS, which is not built in"),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                Self::Corrupt("a value of another type")
            }
            _ => Self::Unavailable(Cause::Protocol),
        }
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) => Self::from(error),
            error => Self::Migration(error),
        }
    }
}

impl StoreError {
    /// Whether a row would have broken a rule of its table.
    ///
    /// SQLite: 19 SQLITE_CONSTRAINT in the low byte. PostgreSQL: class 23.
    pub(super) fn is_broken_rule(&self) -> bool {
        let Self::Failed { code, .. } = self else { return false };
        match code.len() {
            5 => code.starts_with("23"),
            _ => code.parse().is_ok_and(|code: u32| code & 0xff == 19),
        }
    }
}

/// Whether trying again may help.
///
/// SQLite: 5 SQLITE_BUSY and 6 SQLITE_LOCKED in the low byte of extended codes, none of which has
/// five digits. PostgreSQL ("Appendix A. Error Codes"): 08 connection, 40 rollback, 53 resources,
/// 57 operator, 55P03 lock, 25P03 idle in a transaction.
fn is_passing(code: &str) -> bool {
    if code.len() == 5 {
        return matches!(code, "55P03" | "25P03")
            || ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class));
    }
    code.parse().is_ok_and(|code: u32| matches!(code & 0xff, 5 | 6))
}
