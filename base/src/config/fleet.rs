//! `[fleet]`: what several instances share.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo as _};

use super::section::section;
use super::values::{
    Converted, Value, choice, duration, expected, integer, optional_path, path, refused, text,
};
use super::{MINUTE, SECOND};

const WHY_FLOOR: &str = "zero refuses all clients, and the limiter counts in 32 bits";
const WHY_LEASE: &str = "shorter leases cost more messages, longer ones refuse others for longer";
const NAME_FORM: &str = "1 to 32 letters, digits, - or _";

section! {
    /// The store of what instances share: limits, and one watch of the chain. Leave it out for one.
    "fleet" FleetConfig {
        /// Required. valkey:// or redis:// with HOST:PORT/DATABASE, valkeys:// or rediss:// by TLS;
        /// or unix:/path. Without a password. Of several, HOST:PORT,HOST:PORT, the primary is used;
        /// some servers of a cluster name all of it.
        /// Why: no address can be assumed; Redis 6 and Valkey 7 or later have what is needed.
        url: FleetUrl = Required("valkey://127.0.0.1:6379"), store_url;
        /// The file with the store's password; "" for none.
        /// Why: secrets live in files; configurations are shown and shared.
        password_file: Option<PathBuf> = Default(""), text("a path", optional_path), reconnect;
        /// The file of certificates (PEM) that the store is verified by; "" for the system's.
        /// Why: the system trusts public authorities; a private store has one of its own.
        ca_file: Option<PathBuf> = Default(""), text("a path", optional_path), reconnect;
        /// Required. The file with a secret of 32 bytes or more, the same for all instances.
        /// Why: the store knows clients by a keyed digest, so that it holds no addresses.
        secret_file: PathBuf = Required("fleet.secret"), text("a path", path), reread;
        /// The instances of one name share their limits.
        /// Why: another fleet on the same store has another name.
        name: String = Default("portcullis"), text(NAME_FORM, name);
        /// While the store is unavailable: share (each instance admits its part of a quota), local
        /// (each admits the whole quota) or refuse (503).
        /// Why: a part keeps clients served, and all instances together near the quota.
        when_down: WhenDown = Default("share"), choice(WHEN_DOWN);
        /// Requests per minute that a client's part of its quota is at least; 1 to 1,000,000.
        /// Why: a part of many would serve nobody; a wallet sends some 24 requests per minute.
        floor_per_minute: u32 = Default(30), integer(1..=1_000_000, WHY_FLOOR);
        /// How long an instance may use what it leased for a client; 1s to 5m.
        /// Why: an instance that dies with a lease withholds it for this long and a minute.
        lease: Duration = Default("30s"), duration(SECOND..=MINUTE.saturating_mul(5), WHY_LEASE);
    }
}

const WHEN_DOWN: &[(&str, WhenDown)] = &[
    ("share", WhenDown::Share),
    ("local", WhenDown::Local),
    ("refuse", WhenDown::Refuse),
];

/// The admission of an instance while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenDown {
    /// Each instance admits its part of each quota.
    Share,
    /// Each instance admits the whole of each quota.
    Local,
    /// No instance admits anything.
    Refuse,
}

fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_name = (1..=32).contains(&text.len()) && text.chars().all(fits);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(String::new())
    }
}

/// Parses the URL of the store. Messages do not show the value, which may contain a password.
fn store_url(value: &Value<'_>) -> Converted<FleetUrl> {
    const FORM: &str = "valkey://HOST:PORT/DATABASE, valkeys://…, redis://…, rediss://… or \
                        unix:/path";
    match value.get_ref().as_str().map(FleetUrl::parse) {
        Some(Ok(url)) => Ok(url),
        Some(Err(why)) => refused(value, format!("expected {FORM}: {why}")),
        None => refused(value, expected(FORM, value)),
    }
}

/// The address of a server of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetServer {
    /// A host, by name or address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for FleetServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How the servers of the store are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FleetTransport {
    /// In plain text.
    Plain,
    /// Encrypted by TLS.
    Tls,
}

/// The servers of the store; displayed as they are configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetUrl {
    text: String,
    /// The servers, in the order in which they are tried; at least one.
    pub servers: Vec<FleetServer>,
    /// How they are spoken to.
    pub transport: FleetTransport,
    /// The user; `None` for the store's default one.
    pub user: Option<String>,
    /// The number of the database.
    pub database: i64,
}

impl FleetUrl {
    /// Parses the value of `fleet.url`.
    ///
    /// # Errors
    /// Why it is no such URL, in words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text.split_once(':') {
            Some(("unix", path)) => Self::of_socket(text, path),
            Some(("valkey" | "redis", rest)) => Self::of_hosts(text, FleetTransport::Plain, rest),
            Some(("valkeys" | "rediss", rest)) => Self::of_hosts(text, FleetTransport::Tls, rest),
            _ => Err("the scheme must be valkey, valkeys, redis, rediss or unix"),
        }
    }

    fn of_socket(text: &str, path: &str) -> Result<Self, &'static str> {
        if !path.starts_with('/') || path.contains(['?', '#', '\0']) {
            return Err("the path of a socket must be absolute");
        }
        Ok(Self {
            text: text.to_owned(),
            servers: vec![FleetServer::Unix(path.into())],
            transport: FleetTransport::Plain,
            user: None,
            database: 0,
        })
    }

    fn of_hosts(text: &str, transport: FleetTransport, rest: &str) -> Result<Self, &'static str> {
        const INVALID: &str = "its host, port or number of a database is invalid";
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if user.contains(':') {
            return Err("a password belongs in the file of fleet.password_file");
        }
        if rest.contains(['?', '#']) {
            return Err("a query or a fragment is not accepted");
        }
        let mut url = Self {
            text: text.to_owned(),
            servers: Vec::new(),
            transport,
            user: None,
            database: 0,
        };
        for host in hosts.split(',') {
            let one = format!("redis://{user}@{host}/{database}");
            let parsed = one.into_connection_info().map_err(|_| INVALID)?;
            let ConnectionAddr::Tcp(host, port) = parsed.addr() else {
                return Err(INVALID);
            };
            let host = host.trim_matches(['[', ']']).to_owned();
            url.servers.push(FleetServer::Tcp(host, *port));
            url.user = parsed.redis_settings().username().map(str::to_owned);
            url.database = parsed.redis_settings().db();
        }
        Ok(url)
    }
}

impl fmt::Display for FleetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_one_server_or_several() {
        let cases = [
            ("redis://10.0.0.5", vec!["10.0.0.5:6379"]),
            (
                "valkeys://me@a:1,b:2,[::1]:3/4",
                vec!["a:1", "b:2", "[::1]:3"],
            ),
            ("redis://a,b", vec!["a:6379", "b:6379"]),
            ("unix:/run/valkey.sock", vec!["unix:/run/valkey.sock"]),
        ];
        for (text, expected) in cases {
            let url = FleetUrl::parse(text).unwrap();
            let servers: Vec<_> = url.servers.iter().map(ToString::to_string).collect();
            assert_eq!(servers, expected, "{text}");
        }
        let url = FleetUrl::parse("valkeys://me@a:1,b:2/4").unwrap();
        assert_eq!((url.user.as_deref(), url.database), (Some("me"), 4));
        assert_eq!(url.transport, FleetTransport::Tls);
    }

    #[test]
    fn a_url_that_is_none_says_why() {
        for (text, why) in [
            ("redis://a:1,:2", "its host, port"),
            ("redis://a:1,", "its host, port"),
            ("redis://a:x", "its host, port"),
            ("redis://a/x", "its host, port"),
            ("redis://me:secret@a", "a password belongs"),
            ("redis://a?protocol=3", "a query"),
            ("unix:run", "must be absolute"),
            ("http://a", "the scheme"),
        ] {
            let refused = FleetUrl::parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
