//! `[server]`, `[log]`, `[node]`, `[store]` and `[admin]`: the process and what it connects to.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;
use portcullis_filters::chain::NodeMode;
use portcullis_filters::client::Shown;
use portcullis_filters::felt::Felt;
use toml::de::DeValue;

use super::address::{Listen, NodeUrl, NonEmpty};
use super::section::section;
use super::surface::{LISTEN_FORM, TlsConfig, tls};
use super::units::{self, Size};
use super::values::{
    Converted, Value, choice, duration, expected, flag, integer, list, node_url, non_empty,
    optional_path, refused, size, text,
};
use crate::secrets::GroupRead;

use super::{DAY, HOUR, MAX_NODE_TIMEOUT, MIN_ANSWER_MEMORY, SECOND, SHORTEST, WHY_TIMEOUTS};

/// A local address has this many ports for connections to one peer.
const PORTS: u64 = 65_535;
const WHY_PORTS: &str = "zero cannot work, and one address has no more ports to one node";
/// The lowest `node.max_block_age`: three polls of the newest block.
const SHORTEST_AGE: Duration = Duration::from_secs(30);
const WHY_DRAIN: &str = "a stop must end within an hour";
const WHY_MEMORY: &str = "one answer of the node may take 4 MiB, and no machine has more to spare";
const WHY_NODE: &str = "clients are promised an answer or an error within 8s";
const CHAIN_FORM: &str = "1 to 31 printable ASCII characters, or \"\"";
const NODE_TIMEOUTS: RangeInclusive<Duration> = SHORTEST..=MAX_NODE_TIMEOUT;
const WHY_STORE: &str = "one waits while another writes, and a database has few to offer";

section! {
    /// The process.
    "server" ServerConfig {
        /// Worker threads of the gateway, at most 1024; 0 means one per core.
        /// Why: the work spreads over all cores; set fewer to leave some to other programs.
        threads: Option<NonZeroUsize> = Default(0), threads;
        /// After SIGTERM, /readyz fails while requests are still served for this long; at most 1h.
        /// Why: one machine has no load balancer; behind one, set it longer than its probes.
        drain_delay: Duration = Default("0s"), duration(Duration::ZERO..=HOUR, WHY_DRAIN);
        /// Then listeners close, and requests in flight have this long to finish; at most 1h.
        /// Why: the node may take 8s and a receipt 10s, and the response has to be sent.
        grace_period: Duration = Default("15s"), duration(Duration::ZERO..=HOUR, WHY_DRAIN);
        /// Memory for the node's answers, in flight and cached; 4 MiB (one answer) to 1024 GiB.
        /// Why: room for the cache and 48 answers of the largest size; beyond that, 503.
        answer_memory: Size = Default("256 MiB"),
            size(MIN_ANSWER_MEMORY..=Size::from_mib(1 << 20), WHY_MEMORY);
    }
}

fn threads(value: &Value<'_>) -> Converted<Option<NonZeroUsize>> {
    let why = "0 is one per core, and more than 1024 only compete with each other";
    integer(0..=1024, why)(value).map(NonZeroUsize::new)
}

section! {
    /// The log on standard error: one line per request, repeated refusals in one.
    "log" LogConfig {
        /// json for machines, text for people.
        /// Why: log collectors parse JSON.
        format: LogFormat = Default("json"),
            choice(&[("json", LogFormat::Json), ("text", LogFormat::Text)]);
        /// Client addresses in the log: full, or truncated to the network (IPv4 /24, IPv6 /48).
        /// Why: limits and abuse are per address; truncate where it is personal data.
        clients: LogClients = Default("full"),
            choice(&[("full", LogClients::Full), ("truncated", LogClients::Truncated)]);
    }
    with reader {
        /// All that a reload changes.
        live: LogLive = LogLive::read(&mut reader.live());
    }
}

section! {
    /// The part of `[log]` that a reload changes.
    more live "log" LogLive {
        /// The least severe level that is logged: error, warn, info or debug.
        /// Why: info has one line per request; debug is for finding a fault.
        level: LevelFilter = Default("info"), choice(LEVELS);
        /// Of the requests that gateway and sidecar answered, one in this many has a line; 1 to
        /// 1,000,000. All others have theirs: refusals, failures, writes.
        /// Why: every request can be found by its id; 1,000 reads a second are 30 GB a day.
        sample_rate: NonZeroU32 = Default(1), sample_rate;
    }
}

fn sample_rate(value: &Value<'_>) -> Converted<NonZeroU32> {
    let number = integer(
        1..=1_000_000,
        "1 is every request, and fewer lines show nothing",
    )(value)?;
    Ok(NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN))
}

const LEVELS: &[(&str, LevelFilter)] = &[
    ("error", LevelFilter::Error),
    ("warn", LevelFilter::Warn),
    ("info", LevelFilter::Info),
    ("debug", LevelFilter::Debug),
];

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Plain text, for people.
    Text,
}

/// How client addresses are written to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogClients {
    /// The whole address.
    Full,
    /// The network only: IPv4 /24, IPv6 /48.
    Truncated,
}

impl From<LogClients> for Shown {
    fn from(clients: LogClients) -> Self {
        match clients {
            LogClients::Full => Self::Full,
            LogClients::Truncated => Self::Truncated,
        }
    }
}

section! {
    /// The private Starknet node.
    "node" NodeConfig {
        /// Required. One URL, or a list of up to 8 in order of preference; http:// or https://.
        /// Why: no address can be assumed; within a private network TLS is not needed.
        url: NonEmpty<NodeUrl> = Required("http://127.0.0.1:5050/rpc"),
            non_empty(list(node_url, 1..=8, "one deadline leaves no time for more"));
        /// The chain id, as text; "" takes that of the first URL that answers.
        /// A URL of another chain gets no request.
        /// Why: one URL is its own chain; with several, a failover must not change the chain.
        chain_id: Option<Felt> = Default(""), text(CHAIN_FORM, optional_chain_id);
        /// The number of the block that identifies the chain. To the relay another anchor is
        /// another chain: change it while no write is open.
        /// Why: the first block of every chain; choose a later one if the node no longer has it.
        anchor: u64 = Default(0), integer(0..=u64::MAX, "a block number has 64 bits");
        /// With several URLs: failover (the first one serves that answers and is not behind) or
        /// replicas (all serve, from one common block on nodes that keep history).
        /// Why: replicas must be nodes that follow one chain; a failover is right for any.
        mode: NodeMode = Default("failover"), choice(MODES);
        /// With several URLs: one that is more blocks behind the others gets no request;
        /// 1 to 1,000,000.
        /// Why: nodes that follow a chain are a block or two apart.
        max_lag: u64 = Default(8), integer(1..=1_000_000, "such a node does not follow the chain");
        /// A URL whose newest block is older is reported (node_stalled); "" for never, else 30s to
        /// 24h. Set it for a live chain, such as "5m".
        /// Why: a development node has new blocks only when something is sent.
        max_block_age: Option<Duration> = Default(""), text(AGE_FORM, optional_age);
        /// Time limit for one answer, from the first connect to the last byte; 100ms to 8s.
        /// Why: the public contract; it can only be shortened.
        timeout: Duration = Default("8s"), duration(NODE_TIMEOUTS, WHY_NODE);
        /// Time limit for one connect with its TLS handshake, within node.timeout; 100ms to 8s.
        /// Why: a running node accepts in milliseconds; the rest is left for the next URL.
        connect_timeout: Duration = Default("2s"), duration(NODE_TIMEOUTS, WHY_NODE);
        /// A pooled connection that was idle for longer is not used again; 100ms to 1h.
        /// Why: closing before the server does avoids a retry on a dead connection.
        idle_timeout: Duration = Default("30s"), duration(SHORTEST..=HOUR, WHY_TIMEOUTS);
        /// A pooled connection of this age is not used again; 100ms to 24h.
        /// Why: a changed DNS name is noticed, however busy its connections are.
        connection_lifetime: Duration = Default("10m"), duration(SHORTEST..=DAY, WHY_TIMEOUTS);
        /// Idle connections in the pool of each URL; 1 to 65535.
        /// Why: a burst of reads reuses the connections of the last one.
        max_idle: usize = Default(256), integer(1..=PORTS, WHY_PORTS);
        /// Concurrent connections to each URL, of gateway and relay each; 1 to 65535. Katana and
        /// Madara refuse the 101st: set 48 there.
        /// Why: more concurrent calls only queue inside the node.
        max_connections: usize = Default(1024), integer(1..=PORTS, WHY_PORTS);
    }
    with reader {
        /// All that a reload changes.
        live: NodeLive = NodeLive::read(&mut reader.live());
    }
}

section! {
    /// The part of `[node]` that a reload changes.
    more live "node" NodeLive {
        /// The file of certificates (PEM) that https:// URLs are verified by; "" for the system's.
        /// Why: the system trusts public authorities; a private node has one of its own.
        ca_file: Option<PathBuf> = Default(""), text("a path", optional_path);
        /// The file of headers of requests to every URL, each a line `Name: value`; "" for none.
        /// A User-Agent there replaces portcullis/VERSION.
        /// Why: hosted nodes know their clients by a key, and keys live in files.
        header_file: Option<PathBuf> = Default(""), text("a path", optional_path);
    }
}

const MODES: &[(&str, NodeMode)] = &[
    ("failover", NodeMode::Failover),
    ("replicas", NodeMode::Replicas),
];

section! {
    /// The files of tokens, keys and passwords.
    live "secrets" SecretsLive {
        /// Whether group and others may read them, as Kubernetes (0440) and Docker (0444) mount
        /// them. Only their owner may write to their folder then.
        /// Why: elsewhere, a secret that others can read may be known already.
        allow_group_read: bool = Default(false), flag;
    }
}

impl SecretsLive {
    /// The policy for files that group and others can read.
    pub fn group_read(&self) -> GroupRead {
        if self.allow_group_read {
            GroupRead::Accepted
        } else {
            GroupRead::Refused
        }
    }
}

/// The form of [`NodeConfig::max_block_age`].
const AGE_FORM: &str = "a duration such as \"5m\", 30s to 24h, or \"\"";

fn optional_age(text: &str) -> Result<Option<Duration>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match units::duration(text) {
        Some(age) if (SHORTEST_AGE..=DAY).contains(&age) => Ok(Some(age)),
        _ => Err(String::new()),
    }
}

fn optional_chain_id(text: &str) -> Result<Option<Felt>, String> {
    match text {
        "" => Ok(None),
        _ => Felt::from_short_string(text)
            .map(Some)
            .ok_or_else(String::new),
    }
}

section! {
    /// The database of the relay and the sidecar; unused when both are off.
    "store" StoreConfig {
        /// sqlite:FILE, or postgres://USER@HOST:PORT/DATABASE without a password. Of several hosts,
        /// HOST:PORT,HOST:PORT, the one that accepts writes is used.
        /// Why: a file needs no server; two processes on one store need PostgreSQL.
        url: String = Default("sqlite:portcullis.db"), store_url;
        /// postgres://… of a replica, or of several hosts. Feeds, podcasts and the sitemap are read
        /// from one that is less than 5 s behind, also while the primary is away; "" for none.
        /// Why: one server is enough for most; users read their own writes where they were written.
        read_url: Option<String> = Default(""), replica_url;
        /// The file with PostgreSQL's password; "" for none.
        /// Why: secrets live in files; configurations are shown and shared.
        password_file: Option<PathBuf> = Default(""), text("a path", optional_path), reconnect;
        /// Connections to PostgreSQL; 2 to 100.
        /// Why: a query takes milliseconds, and PostgreSQL has 100 for all its clients.
        max_connections: u32 = Default(8), integer(2..=100, WHY_STORE);
        /// A pooled connection of this age is replaced; 1s to 24h.
        /// Why: a changed DNS name is noticed, and a promoted server gets its share.
        connection_lifetime: Duration = Default("10m"), duration(SECOND..=DAY, WHY_TIMEOUTS);
        /// TLS to PostgreSQL: off, or verify-full: its certificate must be for the URL's host name.
        /// Why: on one machine nobody can eavesdrop; between machines, set verify-full.
        tls: StoreTls = Default("off"),
            choice(&[("off", StoreTls::Off), ("verify-full", StoreTls::VerifyFull)]);
        /// The file of certificates (PEM) that verify it, in addition to the system's; "" for none.
        /// Why: a private database has an authority of its own.
        ca_file: Option<PathBuf> = Default(""), text("a path", optional_path), reconnect;
    }
}

/// Whether connections to PostgreSQL are encrypted. There is no weaker TLS: if it is optional or
/// verifies nothing, it does not stop an attacker on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreTls {
    /// Connections are not encrypted.
    Off,
    /// Encrypted, with the certificate and its host name verified.
    VerifyFull,
}

impl StoreConfig {
    /// Whether only one process can use the store: SQLite.
    pub fn is_for_one(&self) -> bool {
        self.url.starts_with("sqlite:")
    }
}

/// Parses the URL of the store. Messages do not show the value, which may contain a password.
fn store_url(value: &Value<'_>) -> Converted<String> {
    const FORM: &str = "sqlite:FILE or postgres://USER@HOST:PORT/DATABASE";
    let DeValue::String(url) = value.get_ref() else {
        return refused(value, expected(FORM, value));
    };
    let why = if let Some(file) = url.strip_prefix("sqlite:") {
        let is_file = !file.is_empty() && !file.starts_with("//") && !file.contains(['?', '\0']);
        (!is_file).then_some("it names no file")
    } else if let Some(rest) = ["postgres://", "postgresql://"]
        .into_iter()
        .find_map(|scheme| url.strip_prefix(scheme))
    {
        let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
        let has_password = user.contains(':') || rest.to_ascii_lowercase().contains("password=");
        has_password.then_some("a password belongs in the file of store.password_file")
    } else {
        Some("the scheme is neither sqlite: nor postgres://")
    };
    match why {
        Some(why) => refused(value, format!("expected {FORM}: {why}")),
        None => Ok(url.to_string()),
    }
}

/// Parses the URL of a replica in PostgreSQL, or "" for none.
fn replica_url(value: &Value<'_>) -> Converted<Option<String>> {
    match value.get_ref() {
        DeValue::String(url) if url.is_empty() => Ok(None),
        DeValue::String(url) if url.starts_with("sqlite:") => refused(
            value,
            "expected postgres://USER@HOST:PORT/DATABASE or \"\"".to_owned(),
        ),
        _ => store_url(value).map(Some),
    }
}

section! {
    /// The operator's page, metrics and probes. Leave the section out to switch them off.
    "admin" AdminConfig {
        /// Loopback address:port or unix:/path; any other address requires admin.token_file.
        /// Why: it shows how the service is used, which is for this machine only.
        listen: Listen = Default("127.0.0.1:8083"), text(LISTEN_FORM, Listen::parse);
        /// Whether /readyz fails while no URL of the node answers.
        /// Why: instances share the node; a balancer that takes all of them out serves nobody.
        ready_needs_node: bool = Default(false), flag;
    }
    with reader {
        /// All that a reload changes.
        live: AdminLive = AdminLive::read(&mut reader.live());
    }
}

section! {
    /// The part of `[admin]` that a reload changes.
    more live "admin" AdminLive {
        /// The file with a token (32 characters or more) for all but the probes; "" for none.
        /// Why: a local listener is open to local users; a remote one needs a token.
        token_file: Option<PathBuf> = Default(""), text("a path", optional_path);
    }
    with reader {
        /// TLS, unless its section is left out.
        tls: Option<TlsConfig> = tls(reader, "admin");
    }
}
