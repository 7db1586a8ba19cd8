//! `[fleet]`: what several instances share.

use std::path::PathBuf;
use std::time::Duration;

use redis::IntoConnectionInfo as _;
use toml::de::DeValue;

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
        /// or unix:/path. Without a password.
        /// Why: no address can be assumed; Redis 6 and Valkey 7 or later have what is needed.
        url: String = Required("valkey://127.0.0.1:6379"), store_url;
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
fn store_url(value: &Value<'_>) -> Converted<String> {
    const FORM: &str = "valkey://HOST:PORT/DATABASE, valkeys://…, redis://…, rediss://… or \
                        unix:/path";
    const SCHEMES: [&str; 4] = ["valkey", "valkeys", "redis", "rediss"];
    let DeValue::String(url) = value.get_ref() else {
        return refused(value, expected(FORM, value));
    };
    let why = match url.split_once(':') {
        Some(("unix", path)) if !path.starts_with('/') || path.contains(['?', '#', '\0']) => {
            Some("the path of a socket must be absolute")
        }
        Some(("unix", _)) => None,
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => {
            let authority = rest
                .trim_start_matches('/')
                .split('/')
                .next()
                .unwrap_or_default();
            let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
            if user.contains(':') {
                Some("a password belongs in the file of fleet.password_file")
            } else if rest.contains(['?', '#']) {
                Some("a query or a fragment is not accepted")
            } else {
                let parsed = (&**url).into_connection_info();
                parsed
                    .err()
                    .map(|_| "its host, port or number of a database is invalid")
            }
        }
        _ => Some("the scheme must be valkey, valkeys, redis, rediss or unix"),
    };
    match why {
        Some(why) => refused(value, format!("expected {FORM}: {why}")),
        None => Ok(url.to_string()),
    }
}
