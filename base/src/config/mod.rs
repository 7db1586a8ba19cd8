//! The configuration: a TOML file and environment variables, parsed once into typed values.
//!
//! In: the text of the file and the environment. Out: a [`Config`] with no string left to parse,
//! or [`Errors`]: every mistake at once, each with its key, its place and what is accepted.
//! It opens one file, and resolves, binds and starts nothing.
//!
//! Each key is one row of its section, in `acme.rs`, `process.rs`, `fleet.rs`, `gateway.rs`,
//! `relay.rs`, `sidecar.rs`, `surface.rs` or `trace.rs`. `section.rs` defines rows, `registry.rs`
//! lists the sections, `keys.rs` finds keys by name, `check.rs` relates keys to each other,
//! `reader.rs` finds values, `effective.rs` shows them; `values.rs`, `units.rs`, `address.rs`
//! convert them.

mod acme;
mod address;
mod applied;
mod check;
mod clients;
mod effective;
mod error;
mod fleet;
mod gateway;
mod key;
mod keys;
mod process;
mod reader;
mod registry;
mod relay;
mod schema;
mod section;
mod sidecar;
mod surface;
mod trace;
mod units;
mod values;

use crate::secrets;
use effective::Setting;
use registry::KEYS;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use acme::AcmeConfig;
pub use address::{CorsOrigins, Listen, NodeUrl, NonEmpty, Scheme};
pub use applied::{AppliedConfig, Change, LastReload, NamedFile, Values};
pub use clients::NetworkLimits;
pub use error::{ConfigError, Errors, LoadError, Origin};
pub use fleet::{FleetConfig, FleetServer, FleetTransport, FleetUrl, WhenDown};
pub use gateway::{CacheConfig, CacheLive, ConnectionsConfig, GatewayConfig, GatewayLive};
pub use key::{Effect, variable};
pub use process::{
    AdminConfig, AdminLive, LogClients, LogConfig, LogFormat, LogLive, NodeConfig, NodeLive,
    SecretsLive, ServerConfig, StoreConfig, StoreTls,
};
pub use registry::example;
pub use relay::{
    EventsLive, KeysConfig, PinnedContract, PinsConfig, RelayConfig, RelayLive, RelayPolicyLive,
};
pub use schema::schema;
pub use sidecar::{
    AgeLive, FeedsLive, HealthLive, PodcastsLive, Provider, RobotsLive, SessionLive, SidecarConfig,
    SidecarLive, parse_origin,
};
pub use surface::{ClientsConfig, ClientsLive, TlsConfig};
pub use trace::{Ratio, TraceConfig};
pub use units::{Amount, Elapsed, Readable, Size, duration};

/// The gateway's contract: an answer or an error within this time.
pub const MAX_NODE_TIMEOUT: Duration = Duration::from_secs(8);

/// The gateway's contract: an answer of the node has at most 4 MiB, and one must always fit.
pub const MIN_ANSWER_MEMORY: Size = Size::from_mib(4);

/// 1 MiB: far beyond any honest file, and a bound on reading a device by mistake.
const MAX_FILE: u64 = 1 << 20;

/// A shorter timeout would end honest requests on a slow network.
const SHORTEST: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);
const WHY_TIMEOUTS: &str =
    "shorter ends honest work on a slow network, longer occupies resources for nothing";
const WHY_MEMORY: &str = "zero refuses all clients, and each one takes memory";

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The process.
    pub server: ServerConfig,
    /// The log.
    pub log: LogConfig,
    /// The files of secrets.
    pub secrets: SecretsLive,
    /// The private node.
    pub node: NodeConfig,
    /// The public read gateway, unless it is switched off.
    pub gateway: Option<GatewayConfig>,
    /// The protected write path, unless it is switched off.
    pub relay: Option<RelayConfig>,
    /// The service endpoints, unless they are switched off.
    pub sidecar: Option<SidecarConfig>,
    /// Where the relay and the sidecar persist their data, if either is on.
    pub store: Option<StoreConfig>,
    /// The state that several instances share, if there are several.
    pub fleet: Option<FleetConfig>,
    /// Which requests are traced, and where traces are sent, if any are.
    pub trace: Option<TraceConfig>,
    /// The operator's page, metrics and probes, unless they are switched off.
    pub admin: Option<AdminConfig>,
    /// How certificates are ordered, if any are.
    pub acme: Option<AcmeConfig>,
    /// Each key's value as text, to show what a reload changes.
    pub values: Values,
    /// Values that are accepted, but most likely not meant.
    pub warnings: Vec<ConfigError>,
}

impl Config {
    /// The key of each listener, and where it listens.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, &Listen)> {
        let listeners = [
            (
                "gateway.listen",
                self.gateway.as_ref().map(|gateway| &gateway.listen),
            ),
            (
                "relay.listen",
                self.relay.as_ref().map(|relay| &relay.listen),
            ),
            (
                "sidecar.listen",
                self.sidecar.as_ref().map(|sidecar| &sidecar.listen),
            ),
            (
                "admin.listen",
                self.admin.as_ref().map(|admin| &admin.listen),
            ),
            (
                "tls.acme.http_address",
                self.acme
                    .as_ref()
                    .and_then(|acme| acme.http_address.as_ref()),
            ),
        ];
        listeners
            .into_iter()
            .filter_map(|(key, listen)| Some((key, listen?)))
    }

    /// The section of each surface that has clients, with their bounds and limits.
    fn clients(&self) -> impl Iterator<Item = (&'static str, &ClientsConfig, &ClientsLive)> {
        let gateway = self.gateway.as_ref();
        let relay = self.relay.as_ref();
        let sidecar = self.sidecar.as_ref();
        let clients = [
            gateway.map(|of| ("gateway", &of.clients, &of.live.clients)),
            relay.map(|of| ("relay", &of.clients, &of.live.clients)),
            sidecar.map(|of| ("sidecar", &of.clients, &of.live.clients)),
        ];
        clients.into_iter().flatten()
    }

    /// All that a reload hands over to the running parts.
    pub fn live(&self) -> Live<'_> {
        Live {
            log: &self.log.live,
            node: &self.node.live,
            gateway: self.gateway.as_ref().map(|gateway| &gateway.live),
            relay: self.relay.as_ref().map(|relay| &relay.live),
            sidecar: self.sidecar.as_ref().map(|sidecar| &sidecar.live),
            admin: self.admin.as_ref().map(|admin| &admin.live),
        }
    }
}

/// The keys that a reload applies, by section. The policy for secrets applies as it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live<'c> {
    /// The log.
    pub log: &'c LogLive,
    /// The private node.
    pub node: &'c NodeLive,
    /// The public read gateway.
    pub gateway: Option<&'c GatewayLive>,
    /// The protected write path.
    pub relay: Option<&'c RelayLive>,
    /// The service endpoints.
    pub sidecar: Option<&'c SidecarLive>,
    /// The operator's page, metrics and probes.
    pub admin: Option<&'c AdminLive>,
}

/// A configuration with its mistakes. A wrong or missing value is replaced by the default, or by
/// that of the example file.
#[derive(Debug)]
pub struct Draft {
    /// The configuration.
    pub config: Config,
    /// Each value that is used, and where it is set.
    settings: Vec<Setting>,
    /// Every mistake, if there are any.
    pub mistakes: Result<(), Errors>,
}

impl Config {
    /// Reads a file; `env` overrides it (pass `std::env::vars_os()`).
    pub fn load(
        path: &Path,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, LoadError> {
        let draft = Draft::load(path, env)?;
        let invalid = |errors| LoadError::Invalid {
            path: path.to_owned(),
            errors,
        };
        draft.mistakes.map(|()| draft.config).map_err(invalid)
    }

    /// Reads the text of a file; `env` overrides it.
    pub fn parse(
        text: &str,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Errors> {
        let draft = Draft::parse(text, env)?;
        draft.mistakes.map(|()| draft.config)
    }
}

impl Draft {
    /// Reads a file, and replaces mistakes; `env` overrides it. Its policy for the files of secrets
    /// applies from now on.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not TOML.
    pub fn load(
        path: &Path,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, LoadError> {
        let text = read(path).map_err(|error| LoadError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        let draft = Self::parse(&text, env).map_err(|errors| LoadError::Invalid {
            path: path.to_owned(),
            errors,
        })?;
        secrets::set_group_read(draft.config.secrets.group_read());
        Ok(draft)
    }

    /// Reads the text of a file, and replaces mistakes; `env` overrides it.
    ///
    /// # Errors
    /// Fails if the text is not TOML.
    pub fn parse(
        text: &str,
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, Errors> {
        let variables = reader::variables(env, KEYS);
        let mut reader = reader::Reader::new(text, &variables, KEYS)?;
        let mut config = check::config(&mut reader);
        let settings = reader.settings();
        let (mistakes, warnings) = reader.finish();
        config.warnings = warnings;
        Ok(Self {
            config,
            settings,
            mistakes,
        })
    }

    /// The configuration that is used, as a file: each value with the place where it is set.
    pub fn effective(&self) -> String {
        effective::file(&self.settings, self.config.values.hash())
    }
}

/// The paths of the configuration without `--config`, in order of preference.
pub const DEFAULT_PATHS: [&str; 2] = ["/etc/portcullis/portcullis.toml", "portcullis.toml"];

/// The first of [`DEFAULT_PATHS`] that exists. One that cannot be checked counts as existing, so
/// that its error is reported.
///
/// # Errors
/// Fails if none exists.
pub fn default_path() -> Result<PathBuf, LoadError> {
    let exists = |path: &&Path| path.try_exists().unwrap_or(true);
    let found = DEFAULT_PATHS.iter().map(Path::new).find(exists);
    found.map(Path::to_owned).ok_or(LoadError::NoFile)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is larger than 1 MiB",
        ));
    }
    Ok(text)
}
