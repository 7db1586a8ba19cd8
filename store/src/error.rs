//! Errors of the store.
//!
//! The variants answer three questions: does a retry help, does another process hold the store, or
//! must a person act? The texts are for the log and name no URL, no statement and no stored value.

use super::IntentId;
use super::versions::NEWEST;
use portcullis_base::secrets::certificates::{self, CertificatesError, Remedies};
use sqlx::migrate::MigrateError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why the store failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The URL is unusable, for this reason.
    #[error("store.url: {0}")]
    Url(&'static str),
    /// The URL of the replica is unusable, for this reason.
    #[error("store.read_url: {0}")]
    ReadUrl(&'static str),
    /// The file of certificates is unusable, for this reason.
    #[error("store.ca_file: {0}")]
    CaFile(#[from] CertificatesError),
    /// The database gave no answer in time. A write may have been done.
    #[error("the database is unavailable: {0}")]
    Unavailable(Cause),
    /// A commit was not answered, for this reason: its writes may be stored.
    #[error("a commit was not confirmed: {0}")]
    Unconfirmed(Box<Self>),
    /// Another process uses this SQLite database and holds this lock file.
    #[error(
        "another process uses this SQLite database and holds {}; use PostgreSQL to run several",
        .0.display()
    )]
    Locked(PathBuf),
    /// Another process held the signer's lock for longer than the caller waits.
    #[error("another process holds the signer's lock")]
    SignerHeld,
    /// The lock is not held: it was never acquired, or its connection broke.
    #[error("the lock is not held")]
    NotHeld,
    /// A migration failed.
    #[error("the tables cannot be migrated: {0}")]
    Migration(MigrateError),
    /// The tables have another version.
    #[error(
        "the tables belong to another version of this program: theirs is {found}, this one uses \
         {known}"
    )]
    Version {
        /// The version of the tables.
        found: i64,
        /// The version that this program uses.
        known: i64,
    },
    /// The database has no tables.
    #[error("the database has no tables of this program")]
    NoTables,
    /// The database refused a statement or a session: full, read-only, damaged, permission denied,
    /// or a wrong password.
    #[error("the database refused a statement: {message} ({code}){}", remedy(.code))]
    Failed {
        /// The database's error code.
        code: String,
        /// The database's message.
        message: String,
    },
    /// The stored value with this name is malformed.
    #[error("the database holds a malformed value: {0}")]
    Corrupt(&'static str),
    /// No intent has this id.
    #[error("no intent has the id {0}")]
    UnknownIntent(IntentId),
    /// The argument with this name exceeds its limit.
    #[error("{0} exceeds its limit")]
    TooLarge(&'static str),
}

/// Why the database is unavailable.
#[derive(Debug, Error)]
pub enum Cause {
    /// No answer in time, or no free connection.
    #[error("timeout")]
    Timeout,
    /// The connection or the file failed.
    #[error("{}", io_reason(.0))]
    Io(io::Error),
    /// Less than a second ago no new connection could be made, or the store is not prepared yet,
    /// for this reason.
    #[error("{0}")]
    Outage(Arc<str>),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The database is busy, starting, stopping, or out of connections.
    #[error("{message} ({code})")]
    Busy {
        /// The database's error code.
        code: String,
        /// The database's message.
        message: String,
    },
    /// The TLS session failed or is untrusted: the cause and its remedy.
    #[error("{0}")]
    Tls(String),
    /// The server broke the protocol.
    #[error("the server broke the protocol")]
    Protocol,
    /// An earlier statement of the transaction failed.
    #[error("an earlier statement of the transaction failed")]
    Aborted,
}

impl Cause {
    fn shared(&self) -> Self {
        match self {
            Self::Timeout => Self::Timeout,
            Self::Io(error) => Self::Io(io::Error::new(error.kind(), error.to_string())),
            Self::Outage(cause) => Self::Outage(Arc::clone(cause)),
            Self::Closed => Self::Closed,
            Self::Busy { code, message } => Self::Busy {
                code: code.clone(),
                message: message.clone(),
            },
            Self::Tls(cause) => Self::Tls(cause.clone()),
            Self::Protocol => Self::Protocol,
            Self::Aborted => Self::Aborted,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default().into_owned();
                let message = error.message().to_owned();
                if is_transient(&code) {
                    return Self::Unavailable(Cause::Busy { code, message });
                }
                Self::Failed { code, message }
            }
            sqlx::Error::Io(error) => {
                match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                    Some(error) => Self::Unavailable(Cause::Tls(tls_reason(error))),
                    None => error.into(),
                }
            }
            sqlx::Error::PoolTimedOut => Self::Unavailable(Cause::Timeout),
            sqlx::Error::PoolClosed => Self::Unavailable(Cause::Closed),
            sqlx::Error::Configuration(_) => Self::Url("malformed"),
            // the server declined TLS: nothing is sent to it without TLS
            sqlx::Error::Tls(error) => Self::Unavailable(Cause::Tls(format!(
                "TLS: {error}; set ssl = on at PostgreSQL, or store.tls = \"off\""
            ))),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                Self::Corrupt("unexpected column type")
            }
            _ => Self::Unavailable(Cause::Protocol),
        }
    }
}

const REMEDIES: Remedies = Remedies {
    authority: "set store.ca_file to its authority's certificate",
    name: "connect to a name that it lists",
};

/// The problem with a TLS session, and its remedy.
fn tls_reason(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(error) = error else {
        return format!("TLS: {error}");
    };
    format!(
        "certificate of PostgreSQL: {}",
        certificates::refusal_with(error, &REMEDIES)
    )
}

/// Formats `connection refused` as for the node, and any other error in the words of the system.
fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        kind @ io::ErrorKind::ConnectionRefused => kind.to_string(),
        _ => error.to_string(),
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::Unavailable(Cause::Io(error))
    }
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) => Self::from(error),
            // a newer program migrated the tables: their newest version may be newer still
            MigrateError::VersionMissing(found) => Self::Version {
                found,
                known: NEWEST,
            },
            error => Self::Migration(error),
        }
    }
}

impl StoreError {
    /// Logs the error, for a caller whose response does not report it. A closed store is no error:
    /// the process stops.
    pub fn log(&self) {
        let is_closed = matches!(self, Self::Unavailable(Cause::Closed));
        let level = if is_closed {
            log::Level::Debug
        } else {
            log::Level::Error
        };
        log::log!(level, "store: {self}");
    }

    /// The cause alone, for messages that name the outage themselves.
    pub(super) fn cause(&self) -> Arc<str> {
        match self {
            Self::Unavailable(cause) => cause.to_string().into(),
            error => error.to_string().into(),
        }
    }

    /// Converts the error to one of the replica: a mistake in the URL is one in `store.read_url`.
    pub(super) fn of_replica(self) -> Self {
        match self {
            Self::Url(why) => Self::ReadUrl(why),
            other => other,
        }
    }

    /// Whether only the statement failed, because of a constraint, its text or its values: its
    /// connection and the rest of its transaction are unaffected. Any other failure leaves both in
    /// doubt.
    ///
    /// SQLite, in the low byte: 1 SQLITE_ERROR, 18 SQLITE_TOOBIG, 19 SQLITE_CONSTRAINT, 20
    /// SQLITE_MISMATCH, 25 SQLITE_RANGE. PostgreSQL: the classes 22 data exception, 23 constraint,
    /// 42 syntax or access rule, P0 raised by a function.
    pub(super) fn is_of_statement(&self) -> bool {
        let Self::Failed { code, .. } = self else {
            return false;
        };
        if code.len() == 5 {
            return ["22", "23", "42", "P0"]
                .iter()
                .any(|class| code.starts_with(class));
        }
        code.parse()
            .is_ok_and(|code: u32| matches!(code & 0xff, 1 | 18 | 19 | 20 | 25))
    }

    /// Whether a statement named a table that does not exist.
    ///
    /// SQLite: 1 SQLITE_ERROR. PostgreSQL: 42P01 undefined_table.
    pub(super) fn misses_table(&self) -> bool {
        matches!(self, Self::Failed { code, .. } if ["1", "42P01"].contains(&code.as_str()))
    }

    /// The failure of a group, for one more of its commands.
    pub(super) fn shared(&self) -> Self {
        match self {
            Self::Unavailable(cause) => Self::Unavailable(cause.shared()),
            Self::Unconfirmed(error) => Self::Unconfirmed(Box::new(error.shared())),
            Self::Failed { code, message } => Self::Failed {
                code: code.clone(),
                message: message.clone(),
            },
            Self::Corrupt(what) => Self::Corrupt(what),
            Self::TooLarge(what) => Self::TooLarge(what),
            // no transaction fails so
            other => Self::Unavailable(Cause::Outage(other.cause())),
        }
    }

    /// Whether one command of a group may have caused the failure, so that the others succeed
    /// without it.
    pub(super) fn is_of_one(&self) -> bool {
        self.is_of_statement() || matches!(self, Self::Corrupt(_) | Self::TooLarge(_))
    }

    /// Converts the failure of a commit: to [`StoreError::Unconfirmed`], unless the database
    /// reported a rollback, so that nothing is stored.
    ///
    /// SQLite: 13 SQLITE_FULL, after which its log lacks the complete last page of the commit.
    /// PostgreSQL: the classes 23 constraint, 40 rollback, 53 resources.
    pub(super) fn of_commit(self) -> Self {
        let (Self::Failed { code, .. } | Self::Unavailable(Cause::Busy { code, .. })) = &self
        else {
            return Self::Unconfirmed(Box::new(self));
        };
        let is_rolled_back = match code.len() {
            5 => ["23", "40", "53"]
                .iter()
                .any(|class| code.starts_with(class)),
            _ => code == "13",
        };
        if is_rolled_back {
            self
        } else {
            Self::Unconfirmed(Box::new(self))
        }
    }

    /// Converts the failure of a decided change: a violated constraint contradicts the facts.
    pub(super) fn of_decided(self) -> Self {
        if self.is_constraint_violation() {
            Self::Corrupt("a row contradicts the rules")
        } else {
            self
        }
    }

    /// Whether PostgreSQL refused the password of a new connection.
    pub(super) fn is_of_password(&self) -> bool {
        matches!(self, Self::Failed { code, .. } if matches!(&**code, "28000" | "28P01"))
    }

    /// Whether a row violated a constraint.
    ///
    /// SQLite: 19 SQLITE_CONSTRAINT in the low byte. PostgreSQL: class 23.
    pub(super) fn is_constraint_violation(&self) -> bool {
        let Self::Failed { code, .. } = self else {
            return false;
        };
        match code.len() {
            5 => code.starts_with("23"),
            _ => code.parse().is_ok_and(|code: u32| code & 0xff == 19),
        }
    }
}

/// The remedy for an error of PostgreSQL that a person has to correct ("Appendix A. Error
/// Codes"): 25006 read_only_sql_transaction, 28 authorization, 3D000 invalid_catalog_name, 42501
/// insufficient_privilege.
fn remedy(code: &str) -> &'static str {
    match code {
        "25006" => "; it is a standby, or read-only: name the primary in store.url",
        "28000" | "28P01" => "; correct store.password_file, or the role at PostgreSQL",
        "3D000" => "; create the database, or correct store.url",
        "42501" => "; grant the role of store.url its rights on the database",
        _ => "",
    }
}

/// Whether a retry may help.
///
/// SQLite: 5 SQLITE_BUSY and 6 SQLITE_LOCKED in the low byte of extended codes, none of which has
/// five digits. PostgreSQL ("Appendix A. Error Codes"): 08 connection, 40 rollback, 53 resources,
/// 57 operator, 55P03 lock, 25P03 idle in a transaction.
fn is_transient(code: &str) -> bool {
    if code.len() == 5 {
        return matches!(code, "55P03" | "25P03")
            || ["08", "40", "53", "57"]
                .iter()
                .any(|class| code.starts_with(class));
    }
    code.parse()
        .is_ok_and(|code: u32| matches!(code & 0xff, 5 | 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_a_statement_spare_its_connection() {
        for (code, is_of_statement, why) in [
            ("1", true, "SQLite: its text"),
            ("2067", true, "SQLite: a unique index"),
            ("1555", true, "SQLite: a primary key"),
            ("20", true, "SQLite: a type"),
            ("5", false, "SQLite: busy"),
            ("7", false, "SQLite: no memory, which ends a transaction"),
            ("8", false, "SQLite: read-only"),
            ("10", false, "SQLite: the disk, which ends a transaction"),
            ("266", false, "SQLite: a read"),
            ("11", false, "SQLite: damaged"),
            ("13", false, "SQLite: full, which ends a transaction"),
            ("22021", true, "PostgreSQL: a value"),
            ("23505", true, "PostgreSQL: a unique index"),
            ("42P01", true, "PostgreSQL: no such table"),
            ("P0001", true, "PostgreSQL: a trigger"),
            ("25P02", false, "PostgreSQL: the transaction has failed"),
            ("25006", false, "PostgreSQL: read-only, as after a failover"),
            ("40001", false, "PostgreSQL: rolled back"),
            ("53100", false, "PostgreSQL: full"),
            ("57P01", false, "PostgreSQL: stopping"),
            ("58030", false, "PostgreSQL: the disk"),
            ("XX001", false, "PostgreSQL: damaged"),
        ] {
            let error = StoreError::Failed {
                code: code.to_owned(),
                message: String::new(),
            };
            assert_eq!(error.is_of_statement(), is_of_statement, "{why}");
        }
        let timeout = StoreError::Unavailable(Cause::Timeout);
        assert!(!timeout.is_of_statement(), "what it did is unknown");
    }

    #[test]
    fn a_commit_is_confirmed_or_known_to_be_rolled_back() {
        for (code, is_rolled_back, why) in [
            ("13", true, "SQLite: full"),
            ("10", false, "SQLite: the disk, which may have it"),
            ("1034", false, "SQLite: not synced"),
            ("40001", true, "PostgreSQL: not serializable"),
            ("53100", true, "PostgreSQL: full"),
            ("57P01", false, "PostgreSQL: stopping, perhaps after it"),
            ("08006", false, "PostgreSQL: the connection"),
        ] {
            let failed = StoreError::Failed {
                code: code.to_owned(),
                message: String::new(),
            };
            let busy = Cause::Busy {
                code: code.to_owned(),
                message: String::new(),
            };
            for error in [failed, StoreError::Unavailable(busy)] {
                let is_unconfirmed = matches!(error.of_commit(), StoreError::Unconfirmed(_));
                assert_eq!(is_unconfirmed, !is_rolled_back, "{why}");
            }
        }
        let timeout = StoreError::Unavailable(Cause::Timeout).of_commit();
        assert!(
            matches!(timeout, StoreError::Unconfirmed(_)),
            "what it did is unknown"
        );
    }

    #[test]
    fn only_a_missing_table_is_reported_as_missing() {
        for (code, misses, why) in [
            ("1", true, "SQLite: no such table"),
            ("42P01", true, "PostgreSQL: undefined table"),
            ("13", false, "SQLite: the disk is full"),
            ("42501", false, "PostgreSQL: permission denied"),
            (
                "XX000",
                false,
                "PostgreSQL: a session finds no room for its first file",
            ),
        ] {
            let failed = StoreError::Failed {
                code: code.to_owned(),
                message: String::new(),
            };
            assert_eq!(failed.misses_table(), misses, "{why}");
        }
    }

    #[test]
    fn a_server_that_does_not_run_is_named() {
        let cause = |kind: io::ErrorKind| StoreError::from(io::Error::from(kind)).to_string();
        assert!(cause(io::ErrorKind::ConnectionRefused).ends_with(": connection refused"));
    }
}
