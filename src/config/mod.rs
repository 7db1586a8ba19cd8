//! The configuration: a TOML file and environment variables, parsed once into plain typed values.
//!
//! In: the text of the file and the environment. Out: a [`Config`] with no string left to parse,
//! or [`Errors`]: every mistake at once, each with its key, its place and what is accepted.
//! It opens one file, and resolves, binds and starts nothing.
//!
//! `keys.rs` is the table of all keys and defaults, `check.rs` says what each one means; `file.rs`
//! reads values with their places, `values.rs`, `units.rs` and `address.rs` convert them.

mod address;
mod changes;
mod check;
mod clients;
mod error;
mod file;
mod in_force;
mod keys;
mod relay;
mod sidecar;
mod store;
mod suggest;
#[cfg(test)]
mod tests;
mod tls;
mod units;
mod values;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::LevelFilter;
use portcullis_filters::rpc::Method;

pub use address::{CorsOrigins, Listen, NodeUrl, NonEmpty};
pub use changes::{Change, Values};
pub use clients::ClientsConfig;
pub use error::{ConfigError, Errors, LoadError, Origin};
pub use in_force::{InForce, LastRead};
pub use keys::example;
pub use relay::{KeysConfig, PinnedContract, PinsConfig, RelayConfig, RelayPolicyConfig};
pub use sidecar::{
    AgeConfig, FeedsConfig, HealthConfig, Provider, RobotsConfig, SessionConfig, SidecarConfig,
    parse_origin,
};
pub use store::StoreConfig;
pub use tls::TlsConfig;
pub use units::{Amount, Readable, Size};

/// The gateway's contract: an answer or an error within this time.
pub const MAX_NODE_TIMEOUT: Duration = Duration::from_secs(8);

/// The gateway's contract: an answer of the node has at most 4 MiB, and one must always fit.
pub const MIN_ANSWER_MEMORY: Size = Size::from_mib(4);

/// 1 MiB: far beyond any honest file, and the end of reading a device by mistake.
const MAX_FILE: u64 = 1 << 20;

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The process.
    pub server: ServerConfig,
    /// The log.
    pub log: LogConfig,
    /// The private node.
    pub node: NodeConfig,
    /// The public read gateway, unless it is switched off.
    pub gateway: Option<GatewayConfig>,
    /// The protected write path, unless it is switched off.
    pub relay: Option<RelayConfig>,
    /// The service endpoints, unless they are switched off.
    pub sidecar: Option<SidecarConfig>,
    /// Where the relay and the sidecar keep things, if there is either.
    pub store: Option<StoreConfig>,
    /// The operator's page, metrics and probes, unless they are switched off.
    pub admin: Option<AdminConfig>,
    /// Each key's value as text, to tell what a reload changes.
    pub values: Values,
}

/// `[server]`: the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Worker threads of the gateway; none given means one per core.
    pub threads: Option<NonZeroUsize>,
    /// How long requests are still served after SIGTERM, while readiness fails.
    pub drain_delay: Duration,
    /// How long requests in flight then have to finish, while new ones get 503.
    pub grace_period: Duration,
    /// Bound on the memory of node answers, in flight over all clients and kept.
    pub answer_memory: Size,
}

/// `[log]`: the log on standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The least severe level that is written.
    pub level: LevelFilter,
    /// How a line is written.
    pub format: LogFormat,
    /// How client addresses are written.
    pub clients: LogClients,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
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

/// `[node]`: the private Starknet node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// 1 to 8 distinct URLs in order of preference.
    pub urls: NonEmpty<NodeUrl>,
    /// From the first connect to the last byte of an answer; at most [`MAX_NODE_TIMEOUT`].
    pub timeout: Duration,
    /// For one connect, within `timeout`.
    pub connect_timeout: Duration,
    /// A pooled connection is kept idle at most this long.
    pub idle_timeout: Duration,
    /// Pooled idle connections kept per URL; at least 1.
    pub max_idle: usize,
    /// Connections to one URL at a time; at least 1.
    pub max_connections: usize,
}

/// `[gateway]`: the public read gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Where it listens.
    pub listen: Listen,
    /// What its connections are secured with, if they are.
    pub tls: Option<TlsConfig>,
    /// How much one client may ask.
    pub clients: ClientsConfig,
    /// The methods that are answered, distinct.
    pub methods: NonEmpty<Method>,
    /// Which web pages may read answers.
    pub cors_origins: CorsOrigins,
    /// Whether identical reads at a time are one call to the node.
    pub single_flight: bool,
    /// The cache of answers that can not change.
    pub cache: CacheConfig,
    /// Bounds on each client connection.
    pub connections: ConnectionsConfig,
}

/// `[gateway.cache]`: answers that can not change are given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Whether it is switched on.
    pub enabled: bool,
    /// Memory for it, out of that for answers.
    pub size: Size,
    /// Answers in it; at least 16.
    pub max_entries: usize,
    /// How often the chain is looked at.
    pub watch_interval: Duration,
}

/// `[gateway.connections]`: bounds on client connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionsConfig {
    /// Connections at a time, over all clients; at least 1.
    pub max: usize,
    /// Connections of one client at a time, at least 1; trusted proxies are exempt.
    pub max_per_client: usize,
    /// Size of a request head; 1 KiB to 256 KiB.
    pub header_size: Size,
    /// To receive a whole request head.
    pub header_timeout: Duration,
    /// To receive a whole request body.
    pub body_timeout: Duration,
    /// For a client to take a whole answer.
    pub write_timeout: Duration,
    /// Between two requests of a connection.
    pub idle_timeout: Duration,
    /// Age at which a connection is closed, after the request that it serves.
    pub lifetime: Duration,
}

/// `[admin]`: the operator's page, metrics and probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens: loopback or a Unix socket, unless there is a token.
    pub listen: Listen,
    /// A file with the operator's token, if one is asked for.
    pub token_file: Option<PathBuf>,
    /// What its connections are secured with, if they are.
    pub tls: Option<TlsConfig>,
}

impl ConnectionsConfig {
    /// Those of the relay's listener: a backend with some instances.
    pub const BACKEND: Self = Self {
        max: 4_096,
        max_per_client: 1_024,
        write_timeout: Duration::from_secs(60),
        ..Self::OPERATOR
    };

    /// Those of the sidecar's listener: whoever reads feeds and crawls.
    pub const PUBLIC: Self = Self { max: 10_000, max_per_client: 256, ..Self::BACKEND };

    /// Those of the operator's listener: a few local clients with small requests.
    pub const OPERATOR: Self = Self {
        max: 256,
        max_per_client: 256,
        header_size: Size::from_kib(16),
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(10),
        write_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(60),
        lifetime: Duration::from_secs(3600),
    };
}

impl Config {
    /// Reads a file; `env` overrides it (pass `std::env::vars_os()`).
    pub fn load(
        path: &Path,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, LoadError> {
        let text =
            read(path).map_err(|error| LoadError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&text, env)
            .map_err(|errors| LoadError::Invalid { path: path.to_owned(), errors })
    }

    /// Reads the text of a file; `env` overrides it.
    pub fn parse(
        text: &str,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Errors> {
        let variables = file::variables(env);
        let mut reader = file::Reader::new(text, &variables)?;
        let config = check::config(&mut reader);
        reader.finish(config)
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(text)
}
