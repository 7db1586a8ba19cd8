//! What each key means: its type, its range and the reason for it, then what keys mean together.
//!
//! In: the [`Reader`] with every value given. Out: the [`Config`]; mistakes stay in the reader.
//! Every key of `keys.rs` is taken here, once.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use log::LevelFilter;
use portcullis_filters::rpc::Method;

use super::address::{CorsOrigins, Listen, NodeUrl, NonEmpty};
use super::clients::{clients, paths};
use super::error::Origin;
use super::file::Reader;
use super::tls::{tls, tls_paths};
use super::units::Size;
use super::values::{
    choice, cors_origins, distinct, duration, flag, integer, method, node_url, size, text,
};
use super::{
    AdminConfig, CacheConfig, Config, ConnectionsConfig, GatewayConfig, LogClients, LogConfig,
    LogFormat, MAX_NODE_TIMEOUT, MIN_ANSWER_MEMORY, NodeConfig, ServerConfig,
};
use super::{relay, sidecar, store};

/// Shorter ones would end honest requests on a slow network.
pub(super) const SHORTEST: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);

const TIMEOUTS: RangeInclusive<Duration> = SHORTEST..=HOUR;
pub(super) const WHY_TIMEOUTS: &str =
    "shorter ends honest work on a slow network, longer holds resources for nothing";

/// A local address has this many ports for connections to one peer.
const PORTS: u64 = 65_535;
const WHY_PORTS: &str = "none cannot work, and one address has no more ports to one node";

pub(super) const WHY_MEMORY: &str = "zero refuses everyone, and each one takes memory";
const WHY_SOCKETS: &str = "zero refuses everyone, and each one takes a file descriptor";
const WHY_DRAIN: &str = "a stop that takes longer is no stop";

/// More URLs than this would not all be tried within one request's deadline.
const MAX_NODE_URLS: usize = 8;

pub(super) const LISTEN_FORM: &str = "address:port or unix:/absolute/path";

/// The whole configuration. A surface whose section is left out is switched off.
pub(super) fn config(reader: &mut Reader<'_>) -> Config {
    let config = Config {
        server: server(reader),
        log: log(reader),
        node: node(reader),
        gateway: reader.has("gateway").then(|| gateway(reader)),
        relay: reader.has("relay").then(|| relay::relay(reader)),
        sidecar: reader.has("sidecar").then(|| sidecar::sidecar(reader)),
        store: (reader.has("relay") || reader.has("sidecar")).then(|| store::store(reader)),
        admin: reader.has("admin").then(|| admin(reader)),
        values: reader.texts(),
    };
    together(&config, reader);
    config
}

fn server(reader: &mut Reader<'_>) -> ServerConfig {
    let threads =
        integer(0..=1024, "0 is one per core, and more than 1024 only get in each other's way");
    ServerConfig {
        threads: NonZeroUsize::new(reader.take("server.threads", threads)),
        drain_delay: reader.take("server.drain_delay", duration(Duration::ZERO..=HOUR, WHY_DRAIN)),
        grace_period: reader
            .take("server.grace_period", duration(Duration::ZERO..=HOUR, WHY_DRAIN)),
        answer_memory: reader.take(
            "server.answer_memory",
            size(
                MIN_ANSWER_MEMORY..=Size::from_mib(1 << 20),
                "one answer of the node may take 4 MiB, and no machine has more than this to spare",
            ),
        ),
    }
}

fn log(reader: &mut Reader<'_>) -> LogConfig {
    const LEVELS: &[(&str, LevelFilter)] = &[
        ("error", LevelFilter::Error),
        ("warn", LevelFilter::Warn),
        ("info", LevelFilter::Info),
        ("debug", LevelFilter::Debug),
    ];
    const FORMATS: &[(&str, LogFormat)] = &[("json", LogFormat::Json), ("text", LogFormat::Text)];
    const CLIENTS: &[(&str, LogClients)] =
        &[("full", LogClients::Full), ("truncated", LogClients::Truncated)];
    LogConfig {
        level: reader.take("log.level", choice(LEVELS)),
        format: reader.take("log.format", choice(FORMATS)),
        clients: reader.take("log.clients", choice(CLIENTS)),
    }
}

fn node(reader: &mut Reader<'_>) -> NodeConfig {
    const WHY: &str = "clients are promised an answer or an error within 8s";
    let timeouts = SHORTEST..=MAX_NODE_TIMEOUT;
    NodeConfig {
        urls: reader.take_list("node.url", node_url, node_urls),
        timeout: reader.take("node.timeout", duration(timeouts.clone(), WHY)),
        connect_timeout: reader.take("node.connect_timeout", duration(timeouts, WHY)),
        idle_timeout: reader.take("node.idle_timeout", duration(TIMEOUTS, WHY_TIMEOUTS)),
        max_idle: reader.take("node.max_idle", integer(1..=PORTS, WHY_PORTS)),
        max_connections: reader.take("node.max_connections", integer(1..=PORTS, WHY_PORTS)),
    }
}

fn gateway(reader: &mut Reader<'_>) -> GatewayConfig {
    GatewayConfig {
        listen: reader.take("gateway.listen", text(LISTEN_FORM, Listen::parse)),
        tls: tls(reader, tls_paths!("gateway")),
        clients: clients(reader, paths!("gateway")),
        methods: reader.take_list("gateway.methods", method, methods),
        cors_origins: reader.take_list(
            "gateway.cors_origins",
            text("\"*\" or an origin such as \"https://app.example\"", CorsOrigins::parse_item),
            cors_origins,
        ),
        single_flight: reader.take("gateway.single_flight", flag),
        cache: cache(reader),
        connections: connections(reader),
    }
}

fn cache(reader: &mut Reader<'_>) -> CacheConfig {
    const MINUTE: Duration = Duration::from_secs(60);
    CacheConfig {
        enabled: reader.take("gateway.cache.enabled", flag),
        size: reader.take(
            "gateway.cache.size",
            size(
                Size::from_mib(1)..=Size::from_mib(1 << 20),
                "less holds no class, and no machine has more than this to spare",
            ),
        ),
        max_entries: reader.take("gateway.cache.max_entries", integer(16..=10_000_000, WHY_MEMORY)),
        watch_interval: reader.take(
            "gateway.cache.watch_interval",
            duration(
                SHORTEST..=MINUTE,
                "shorter only keeps the node busy, and for so long a block that was taken back \
                 may still be told",
            ),
        ),
    }
}

fn connections(reader: &mut Reader<'_>) -> ConnectionsConfig {
    let timeout = || duration(TIMEOUTS, WHY_TIMEOUTS);
    ConnectionsConfig {
        max: reader.take("gateway.connections.max", integer(1..=1_000_000, WHY_SOCKETS)),
        max_per_client: reader
            .take("gateway.connections.max_per_client", integer(1..=1_000_000, WHY_SOCKETS)),
        header_size: reader.take(
            "gateway.connections.header_size",
            size(
                Size::from_kib(1)..=Size::from_kib(256),
                "browsers send about 1 KiB, and every connection may hold this much",
            ),
        ),
        header_timeout: reader.take("gateway.connections.header_timeout", timeout()),
        body_timeout: reader.take("gateway.connections.body_timeout", timeout()),
        write_timeout: reader.take("gateway.connections.write_timeout", timeout()),
        idle_timeout: reader.take("gateway.connections.idle_timeout", timeout()),
        lifetime: reader
            .take("gateway.connections.lifetime", duration(SHORTEST..=DAY, WHY_TIMEOUTS)),
    }
}

fn admin(reader: &mut Reader<'_>) -> AdminConfig {
    let config = AdminConfig {
        listen: reader.take("admin.listen", text(LISTEN_FORM, Listen::parse)),
        token_file: reader.take("admin.token_file", text("a path", relay::optional_path)),
        tls: tls(reader, tls_paths!("admin")),
    };
    if config.token_file.is_none() && !config.listen.is_local() {
        let message = "Loopback or Unix socket only: whoever reaches it needs no token, unless \
                       admin.token_file names one";
        reader.clash("admin.listen", "admin.token_file", message.to_owned());
    }
    config
}

fn node_urls(urls: Vec<NodeUrl>) -> Result<NonEmpty<NodeUrl>, String> {
    let count = urls.len();
    let urls = NonEmpty::new(distinct(urls, ToString::to_string)?);
    urls.filter(|_| count <= MAX_NODE_URLS).ok_or_else(|| {
        format!(
            "expected 1 to {MAX_NODE_URLS} URLs (a deadline has room for no more), found {count}"
        )
    })
}

fn methods(methods: Vec<Method>) -> Result<NonEmpty<Method>, String> {
    let methods = distinct(methods, |method| method.name().to_owned())?;
    NonEmpty::new(methods).ok_or_else(|| {
        "expected at least one method, found none; leave [gateway] out to switch it off".to_owned()
    })
}

/// What no key can tell alone.
fn together(config: &Config, reader: &mut Reader<'_>) {
    listeners(config, reader);
    let memory = config.server.answer_memory;
    let cache = config.gateway.as_ref().map(|gateway| &gateway.cache);
    if let Some(cache) = cache.filter(|cache| cache.enabled)
        && cache.size.bytes().saturating_add(MIN_ANSWER_MEMORY.bytes()) > memory.bytes()
    {
        let message = format!(
            "expected at most server.answer_memory ({memory}) less {MIN_ANSWER_MEMORY}, which one \
             answer may take beside a full cache, found {}",
            cache.size
        );
        reader.clash("gateway.cache.size", "server.answer_memory", message);
    }
}

fn listeners(config: &Config, reader: &mut Reader<'_>) {
    let listeners = [
        ("gateway.listen", config.gateway.as_ref().map(|gateway| &gateway.listen)),
        ("relay.listen", config.relay.as_ref().map(|relay| &relay.listen)),
        ("sidecar.listen", config.sidecar.as_ref().map(|sidecar| &sidecar.listen)),
        ("admin.listen", config.admin.as_ref().map(|admin| &admin.listen)),
    ];
    let listeners = listeners.map(|(key, listen)| listen.map(|listen| (key, listen)));
    let listeners: Vec<_> = listeners.into_iter().flatten().collect();
    if listeners.is_empty() {
        let message = "expected [gateway], [relay], [sidecar] or [admin]: without them \
                       nothing is served";
        reader.report("gateway", Origin::Absent, message.to_owned());
    }
    for (at, (other, taken)) in listeners.iter().enumerate() {
        for (key, listen) in listeners.iter().skip(at + 1) {
            if taken.collides(listen) {
                let message =
                    format!("expected another address than {other} ({taken}), found {listen}");
                reader.clash(key, other, message);
            }
        }
    }
}
