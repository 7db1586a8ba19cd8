//! A configuration key: its path, its default, its text, and whether a reload applies it.
//!
//! Each section is written once, as rows of [`section!`] next to the struct they fill: `acme.rs`,
//! `fleet.rs`, `gateway.rs`, `relay.rs`, `sidecar.rs`, `process.rs`, `surface.rs` and `trace.rs`.
//! The rows generate the fields, the [`Key`]s with names and defaults, the code that reads them,
//! and `conf/portcullis.toml` ([`example`]).

use std::fmt::Write as _;

use super::error::{closest, distance};
use super::{acme, fleet, gateway, process, relay, sidecar, surface, trace};

/// The prefix of every environment variable that overrides a key.
pub(super) const ENV_PREFIX: &str = "PORTCULLIS__";
/// The prefix of every variable that may be meant to override a key.
pub(super) const NAME_PREFIX: &str = "PORTCULLIS_";

/// Variables of OpenTelemetry, and the keys that they override unless our own variables do.
const STANDARD: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "trace.endpoint"),
    ("OTEL_SERVICE_NAME", "trace.service_name"),
    ("OTEL_TRACES_SAMPLER_ARG", "trace.ratio"),
];

/// The maximum edit distance of a name that is similar to a key's.
const SIMILAR: usize = 2;

/// A table of the file.
pub(super) struct Section {
    /// Its name in brackets.
    pub(super) path: &'static str,
    /// The comment above it; empty for further keys of a section that already has one.
    pub(super) about: &'static [&'static str],
    pub(super) keys: &'static [Key],
}

pub(super) struct Key {
    /// The full path, such as `gateway.listen`.
    pub(super) path: &'static str,
    pub(super) default: DefaultValue,
    /// The lines of the comment above it: its meaning, then the reason for its default.
    pub(super) doc: &'static [&'static str],
    /// Whether a running process applies a change on SIGHUP.
    pub(super) live: bool,
}

/// The value of a key that is not set, as a TOML literal.
pub(super) enum DefaultValue {
    Default(&'static str),
    /// No default: the key is required. The literal is what the example file shows.
    Required(&'static str),
}

/// All sections, in the order of the example file.
pub(super) const SECTIONS: [Section; 30] = [
    process::ServerConfig::SECTION,
    process::LogConfig::SECTION,
    process::NodeConfig::SECTION,
    process::SecretsConfig::SECTION,
    gateway::GatewayConfig::SECTION,
    gateway::CLIENTS,
    surface::GATEWAY_TLS,
    gateway::CacheConfig::SECTION,
    gateway::ConnectionsConfig::SECTION,
    relay::RelayConfig::SECTION,
    relay::CLIENTS,
    surface::RELAY_TLS,
    relay::RelayPolicyConfig::SECTION,
    relay::PinsConfig::SECTION,
    relay::CONTRACTS,
    relay::KeysConfig::SECTION,
    sidecar::SidecarConfig::SECTION,
    sidecar::CLIENTS,
    surface::SIDECAR_TLS,
    sidecar::FeedsConfig::SECTION,
    sidecar::SessionConfig::SECTION,
    sidecar::AgeConfig::SECTION,
    sidecar::RobotsConfig::SECTION,
    sidecar::HealthConfig::SECTION,
    process::StoreConfig::SECTION,
    fleet::FleetConfig::SECTION,
    trace::TraceConfig::SECTION,
    process::AdminConfig::SECTION,
    surface::ADMIN_TLS,
    acme::AcmeConfig::SECTION,
];

/// Rows of keys: `name = Default(literal) live;` under the lines of its comment. A key without
/// `live` needs a restart.
macro_rules! keys {
    ($section:literal: $(
        $(#[doc = $doc:literal])+
        $key:ident = $kind:ident($literal:tt) $($live:ident)?;
    )*) => {
        &[$($crate::config::keys::Key {
            path: concat!($section, ".", stringify!($key)),
            default: $crate::config::keys::DefaultValue::$kind(stringify!($literal)),
            doc: &[$($doc),+],
            live: $crate::config::keys::keys!(@ $($live)?),
        }),*]
    };
    (@ live) => { true };
    (@) => { false };
}
pub(super) use keys;

/// A section with its struct: `name: Type = Default(literal), conversion, live;` under the lines of
/// its comment. Other fields follow in `with reader { … }`.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $section:literal $name:ident {$(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ty = $kind:ident($literal:tt), $convert:expr $(, $live:ident)?;
        )*}
        $(with $reader:ident {$(
            $(#[doc = $part_doc:literal])+
            $part:ident: $part_type:ty = $read:expr;
        )+})?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $key: $type,)*
            $($($(#[doc = $part_doc])+ pub $part: $part_type,)+)?
        }

        impl $name {
            pub(super) const SECTION: $crate::config::keys::Section =
                $crate::config::keys::Section {
                    path: $section,
                    about: &[$($about),+],
                    keys: $crate::config::keys::keys! { $section:
                        $($(#[doc = $doc])+ $key = $kind($literal) $($live)?;)*
                    },
                };

            pub(super) fn read(reader: &mut $crate::config::reader::Reader<'_>) -> Self {
                $(let $key = reader.take(concat!($section, ".", stringify!($key)), $convert);)*
                $(let $reader = reader; $(let $part = $read;)+)?
                Self { $($key,)* $($($part,)+)? }
            }
        }
    };
}
pub(super) use section;

impl Key {
    /// The TOML literal that the example file shows.
    pub(super) fn literal(&self) -> &'static str {
        match self.default {
            DefaultValue::Default(literal) | DefaultValue::Required(literal) => literal,
        }
    }

    /// The environment variable that overrides this key.
    pub(super) fn variable(&self) -> String {
        variable(self.path)
    }

    /// Its section's path, and its name there.
    pub(super) fn split(&self) -> (&'static str, &'static str) {
        self.path.rsplit_once('.').unwrap_or(("", self.path))
    }
}

/// Every key, in the order of the example file.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    const { &SECTIONS }.iter().flat_map(|section| section.keys)
}

pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// The key that a variable of OpenTelemetry overrides.
pub(super) fn of_standard(variable: &str) -> Option<&'static Key> {
    let (_, path) = STANDARD.iter().find(|(name, _)| *name == variable)?;
    find(path)
}

/// The paths of all sections.
pub(super) fn sections() -> impl Iterator<Item = &'static str> {
    let named = const { &SECTIONS }.iter().filter(|section| !section.about.is_empty());
    named.map(|section| section.path)
}

/// Whether the names of some sections begin with this one, as `tls.acme` does with `tls`.
pub(super) fn is_around_section(path: &str) -> bool {
    sections().any(|section| section.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The environment variable that overrides the key of this path.
pub fn variable(path: &str) -> String {
    format!("{ENV_PREFIX}{}", path.replace('.', "__").to_ascii_uppercase())
}

/// The key that a variable's name spells with other underscores, or in lower case.
pub(super) fn with_same_letters(name: &str) -> Option<&'static Key> {
    let words = joined_words(name);
    all().find(|key| joined_words(&key.variable()) == words)
}

/// The key that a variable's name spells with at most [`SIMILAR`] wrong letters.
pub(super) fn with_similar_letters(name: &str) -> Option<&'static Key> {
    let words = joined_words(name);
    let distance = |key: &&Key| distance(&words, &joined_words(&key.variable()));
    all().min_by_key(distance).filter(|key| distance(key) <= SIMILAR)
}

/// A name in lower case, with one underscore between its words.
fn joined_words(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let words = name.split('_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// The message for an unknown key; `shown` formats a suggested path.
pub(super) fn unknown_key(path: &str, shown: impl Fn(&str) -> String) -> String {
    if let Some(near) = closest(path, all().map(|key| key.path), last_segment) {
        return format!("unknown key; did you mean {}?", shown(near));
    }
    let parent = path.rsplit_once('.').map(|(parent, _)| parent);
    match sections().find(|section| Some(*section) == parent) {
        Some(section) => {
            let own = all().map(Key::split).filter(|(of, _)| *of == section);
            let names: Vec<_> = own.map(|(_, name)| name).collect();
            format!("unknown key; [{section}] has {}", names.join(", "))
        }
        None => format!("unknown key; the sections are {}", section_list()),
    }
}

/// The message for an unknown section.
pub(super) fn unknown_section(path: &str) -> String {
    match closest(path, sections(), last_segment) {
        Some(near) => format!("unknown section; did you mean [{near}]?"),
        None => format!("unknown section; the sections are {}", section_list()),
    }
}

fn section_list() -> String {
    sections().collect::<Vec<_>>().join(", ")
}

fn last_segment(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// The annotated example file: every section and key with its meaning, its reason and its default.
pub fn example() -> String {
    let mut text = String::from(EXAMPLE_HEAD);
    let mut write = |line: &str| {
        // writing to a String does not fail
        let _ = writeln!(text, "{line}");
    };
    for section in &SECTIONS {
        if !section.about.is_empty() {
            write("");
            section.about.iter().for_each(|line| write(&format!("#{line}")));
            write(&format!("[{}]", section.path));
        }
        for key in section.keys {
            write("");
            key.doc.iter().for_each(|line| write(&format!("#{line}")));
            if key.live {
                write("# Applied on SIGHUP.");
            }
            write(&assignment(key.split().1, key.literal()));
        }
    }
    text
}

/// `name = literal`, a long list with a line for each item.
fn assignment(name: &str, literal: &str) -> String {
    let line = format!("{name} = {literal}");
    if line.len() <= 100 {
        return line;
    }
    let items = literal.trim_matches(['[', ']']).split(',').map(str::trim);
    format!("{name} = [\n    {},\n]", items.collect::<Vec<_>>().join(",\n    "))
}

const EXAMPLE_HEAD: &str = r#"# The configuration of Portcullis: every key with its meaning, its default and the reason for it.
#
# Required are node.url, at least one of [gateway], [relay], [sidecar] and [admin], and the keys
# marked so. Durations ("500ms", "8s", "2m", "1h"), sizes ("100 B", "64 KiB", "4 MiB", "1 GiB") and
# amounts ("10 STRK", "0.5 STRK", "1000 fri") have a unit. A list of one item may be written as that
# item.
# An environment variable overrides each key: PORTCULLIS__GATEWAY__LISTEN is gateway.listen. Its
# value needs no quotes; a list is written as here.
# Relative paths are relative to the working directory; secrets and certificates are first looked up
# in $CREDENTIALS_DIRECTORY.
# SIGHUP applies the keys marked so; the others need a restart.
# `portcullis check --config FILE` reports every mistake at once.
"#;
