//! All sections of the configuration, and the example file that they make.

use std::fmt::Write as _;

use super::key::{Effect, Section};
use super::keys::Keys;
use super::{acme, fleet, gateway, process, relay, sidecar, surface, trace};

pub(super) const KEYS: Keys = Keys(SECTIONS);

/// All sections, in the order of the example file.
const SECTIONS: &[Section] = &[
    process::ServerConfig::SECTION,
    process::LogConfig::SECTION,
    process::LogLive::SECTION,
    process::NodeConfig::SECTION,
    process::NodeLive::SECTION,
    process::SecretsLive::SECTION,
    gateway::GatewayConfig::SECTION,
    gateway::GatewayLive::SECTION,
    gateway::LIVE_CLIENTS,
    gateway::CLIENTS,
    surface::GATEWAY_TLS,
    gateway::CacheLive::SECTION,
    gateway::CacheConfig::SECTION,
    gateway::ConnectionsConfig::SECTION,
    relay::RelayConfig::SECTION,
    relay::RelayLive::SECTION,
    relay::LIVE_CLIENTS,
    relay::CLIENTS,
    surface::RELAY_TLS,
    relay::V2Config::SECTION,
    relay::RelayPolicyLive::SECTION,
    relay::PinsConfig::SECTION,
    relay::CONTRACTS,
    relay::KeysConfig::SECTION,
    relay::EventsLive::SECTION,
    sidecar::SidecarConfig::SECTION,
    sidecar::SidecarLive::SECTION,
    sidecar::LIVE_CLIENTS,
    sidecar::CLIENTS,
    surface::SIDECAR_TLS,
    sidecar::FeedsLive::SECTION,
    sidecar::SessionLive::SECTION,
    sidecar::AgeLive::SECTION,
    sidecar::PodcastsLive::SECTION,
    sidecar::RobotsLive::SECTION,
    sidecar::HealthLive::SECTION,
    process::StoreConfig::SECTION,
    fleet::FleetConfig::SECTION,
    trace::TraceConfig::SECTION,
    process::AdminConfig::SECTION,
    process::AdminLive::SECTION,
    surface::ADMIN_TLS,
    acme::AcmeConfig::SECTION,
];

/// The annotated example file: every section and key with its meaning, its reason and its default.
pub fn example() -> String {
    let mut text = String::from(EXAMPLE_HEAD);
    let mut write = |line: &str| {
        // writing to a String does not fail
        let _ = writeln!(text, "{line}");
    };
    for section in SECTIONS {
        if !section.about.is_empty() {
            write("");
            section
                .about
                .iter()
                .for_each(|line| write(&format!("#{line}")));
            write(&format!("[{}]", section.path));
        }
        for key in section.keys {
            write("");
            key.doc.iter().for_each(|line| write(&format!("#{line}")));
            if key.effect == Effect::Live {
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
    format!(
        "{name} = [\n    {},\n]",
        items.collect::<Vec<_>>().join(",\n    ")
    )
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
