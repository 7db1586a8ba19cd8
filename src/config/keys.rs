//! Every key of the configuration: its path, its default and its meaning, in one table.
//!
//! The reader takes defaults and known names from here, and [`example`] renders the annotated
//! `conf/portcullis.toml`, so the three cannot drift apart. Types and ranges are in `check.rs`.

use std::fmt::Write as _;

use super::suggest::closest;

/// The start of every environment variable that overrides a key.
pub(super) const ENV_PREFIX: &str = "PORTCULLIS__";

/// A table of the file.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name as it stands in brackets.
    pub(super) path: &'static str,
    /// What it is for.
    doc: &'static str,
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// The full path, such as `gateway.listen`.
    pub(super) path: &'static str,
    /// What it is when the file does not say, as a TOML literal.
    pub(super) preset: Preset,
    /// What it means.
    doc: &'static str,
}

/// The value of a key that is not given.
#[derive(Debug)]
pub(super) enum Preset {
    /// The default.
    Default(&'static str),
    /// None, the key is required; the literal is what the example file shows.
    Required(&'static str),
}

impl Key {
    /// The TOML literal that the example file shows.
    pub(super) fn literal(&self) -> &'static str {
        match self.preset {
            Preset::Default(literal) | Preset::Required(literal) => literal,
        }
    }

    /// Whether a running process takes over a change of it, on SIGHUP.
    pub(super) fn is_live(&self) -> bool {
        LIVE.contains(&self.path)
    }

    /// The environment variable that overrides this key.
    pub(super) fn variable(&self) -> String {
        variable(self.path)
    }
}

pub(super) const SECTIONS: &[Section] = &[
    section("server", "The process."),
    section("log", "The log on standard error: one line per request."),
    section("node", "The private Starknet node."),
    section(
        "gateway",
        "The public read gateway: POST /rpc. Leave the section out to switch it off.",
    ),
    section("gateway.connections", "Bounds on each client connection of the gateway."),
    section("admin", "Metrics and probes for operators. Leave the section out to switch it off."),
];

/// The keys that a running process takes over on SIGHUP.
const LIVE: [&str; 6] = [
    "log.level",
    "gateway.requests_per_minute",
    "gateway.max_in_flight_per_client",
    "gateway.trusted_proxies",
    "gateway.methods",
    "gateway.cors_origins",
];

pub(super) const KEYS: &[Key] = &[
    key(
        "server.threads",
        "0",
        "Worker threads of the gateway, at most 1024; 0 means one per core.",
    ),
    key(
        "server.drain_delay",
        r#""0s""#,
        "After SIGTERM: /readyz fails and requests are still served for this long, at most 1h.",
    ),
    key(
        "server.grace_period",
        r#""15s""#,
        "Then new requests get 503 and those in flight have this long to finish, at most 1h.",
    ),
    key(
        "server.answer_memory",
        r#""256 MiB""#,
        "Memory for node answers in flight, over all clients; 4 MiB (one answer) to 1024 GiB.",
    ),
    key(
        "log.level",
        r#""info""#,
        "The least severe level that is written: error, warn, info, debug.",
    ),
    key("log.format", r#""json""#, "json for machines, text for people."),
    key(
        "log.clients",
        r#""full""#,
        "Client addresses in the log: full, or truncated to the network (IPv4 /24, IPv6 /48).",
    ),
    Key {
        path: "node.url",
        preset: Preset::Required(r#""http://127.0.0.1:5050/rpc""#),
        doc: "Required. One URL, or a list of up to 8 in order of preference. http:// only.",
    },
    key(
        "node.timeout",
        r#""8s""#,
        "For one answer in all, from the first connect to the last byte; 100ms to 8s.",
    ),
    key("node.connect_timeout", r#""2s""#, "For one connect, within node.timeout; 100ms to 8s."),
    key(
        "node.idle_timeout",
        r#""30s""#,
        "A pooled connection that was idle this long is not used again.",
    ),
    key("node.max_idle", "256", "Pooled idle connections kept per URL; 1 to 65535."),
    key("node.max_connections", "1024", "Connections to one URL at a time; 1 to 65535."),
    key(
        "gateway.listen",
        r#""127.0.0.1:8080""#,
        "address:port, or unix:/absolute/path. Port 0 takes a free one and logs it.",
    ),
    key(
        "gateway.requests_per_minute",
        "180",
        "Requests that one client (IPv4 address or IPv6 /64) may send in any 60 seconds.",
    ),
    key(
        "gateway.max_clients",
        "100000",
        "Clients that the limiter remembers; the least recently seen is forgotten when full.",
    ),
    key("gateway.max_in_flight_per_client", "64", "Requests of one client at a time."),
    key(
        "gateway.trusted_proxies",
        r#"["127.0.0.0/8", "::1/128"]"#,
        "Peers whose X-Forwarded-For is believed: networks, or single addresses. [] is none.",
    ),
    key(
        "gateway.methods",
        r#"[
    "starknet_specVersion",
    "starknet_chainId",
    "starknet_blockNumber",
    "starknet_getBlockWithTxHashes",
    "starknet_getTransactionByHash",
    "starknet_getTransactionReceipt",
    "starknet_getTransactionStatus",
    "starknet_getClassHashAt",
    "starknet_getClass",
    "starknet_getClassAt",
    "starknet_getNonce",
    "starknet_call",
    "starknet_estimateFee",
]"#,
        "The methods that are answered. The list can only be narrowed.",
    ),
    key(
        "gateway.cors_origins",
        r#"["*"]"#,
        "Web pages that may read answers: \"*\" for all, or origins (\"https://app.example\").",
    ),
    key("gateway.connections.max", "20000", "Connections at a time, over all clients."),
    key(
        "gateway.connections.max_per_client",
        "256",
        "Connections of one client at a time; trusted proxies are exempt.",
    ),
    key(
        "gateway.connections.header_size",
        r#""16 KiB""#,
        "Size of a request head; 1 KiB to 256 KiB.",
    ),
    key("gateway.connections.header_timeout", r#""10s""#, "To receive a whole request head."),
    key("gateway.connections.body_timeout", r#""10s""#, "To receive a whole request body."),
    key("gateway.connections.write_timeout", r#""60s""#, "For a client to take a whole answer."),
    key("gateway.connections.idle_timeout", r#""60s""#, "Between two requests of a connection."),
    key(
        "gateway.connections.lifetime",
        r#""1h""#,
        "A connection is closed after the request that it serves at this age; at most 24h.",
    ),
    key("admin.listen", r#""127.0.0.1:8083""#, "Loopback address:port or unix:/path only."),
];

const fn section(path: &'static str, doc: &'static str) -> Section {
    Section { path, doc }
}

const fn key(path: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key { path, preset: Preset::Default(default), doc }
}

/// The key of this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The section of this path.
pub(super) fn find_section(path: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.path == path)
}

/// The environment variable that overrides the key of this path.
pub(super) fn variable(path: &str) -> String {
    format!("{ENV_PREFIX}{}", path.replace('.', "__").to_ascii_uppercase())
}

/// The sentence on a key that is not in the table; `shown` writes a suggested path.
pub(super) fn unknown_key(path: &str, shown: impl Fn(&str) -> String) -> String {
    let paths = || KEYS.iter().map(|key| key.path);
    if let Some(near) = closest(path, paths(), last_segment) {
        return format!("unknown key; did you mean {}?", shown(near));
    }
    match path.rsplit_once('.').and_then(|(parent, _)| find_section(parent)) {
        Some(section) => {
            let names: Vec<_> = keys_of(section).map(|key| last_segment(key.path)).collect();
            format!("unknown key; [{}] takes {}", section.path, names.join(", "))
        }
        None => format!("unknown key; the sections are {}", section_list()),
    }
}

/// The sentence on a table that is not a section.
pub(super) fn unknown_section(path: &str) -> String {
    let paths = SECTIONS.iter().map(|section| section.path);
    match closest(path, paths, last_segment) {
        Some(near) => format!("unknown section; did you mean [{near}]?"),
        None => format!("unknown section; the sections are {}", section_list()),
    }
}

fn section_list() -> String {
    SECTIONS.iter().map(|section| section.path).collect::<Vec<_>>().join(", ")
}

fn keys_of(section: &Section) -> impl Iterator<Item = &'static Key> {
    let path = section.path;
    KEYS.iter().filter(move |key| key.path.rsplit_once('.').is_some_and(|(of, _)| of == path))
}

fn last_segment(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// The annotated example file: every section and key with its meaning and default.
pub fn example() -> String {
    let mut text = String::from(EXAMPLE_HEAD);
    for section in SECTIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n# {}\n[{}]", section.doc, section.path);
        for key in keys_of(section) {
            let live = if key.is_live() { " Taken over on SIGHUP." } else { "" };
            let name = last_segment(key.path);
            let _ = writeln!(text, "\n# {}{live}\n{name} = {}", key.doc, key.literal());
        }
    }
    text
}

const EXAMPLE_HEAD: &str = r#"# The configuration of Portcullis: every key, with its default.
#
# Required are node.url and at least one of the sections [gateway] and [admin].
# Durations ("500ms", "8s", "2m", "1h") and sizes ("100 B", "64 KiB", "4 MiB", "1 GiB") carry
# their unit. A list of one may be written as that one value.
# An environment variable overrides each key: PORTCULLIS__GATEWAY__LISTEN is gateway.listen.
# `portcullis check --config FILE` names every mistake at once.
"#;
