//! How much one client may ask of a surface, and whose word is taken for who it is: the same four
//! keys in each surface's section.

use super::address;
use super::check::WHY_MEMORY;
use super::file::Reader;
use super::values::{distinct, integer, text};
use ipnet::IpNet;

/// The limits of a surface's clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientsConfig {
    /// Requests of one client in any 60 seconds; 1 to 1,000,000,000.
    pub requests_per_minute: u32,
    /// Clients that the limiter remembers; at least 1.
    pub max_clients: usize,
    /// Requests of one client at a time; at least 1.
    pub max_in_flight_per_client: usize,
    /// Peers whose `X-Forwarded-For` is believed; empty means none.
    pub trusted_proxies: Vec<IpNet>,
}

/// The paths of the four keys in a section.
pub(super) struct Paths(pub(super) [&'static str; 4]);

/// The four paths of one section.
macro_rules! paths {
    ($section:literal) => {
        $crate::config::clients::Paths([
            concat!($section, ".requests_per_minute"),
            concat!($section, ".max_clients"),
            concat!($section, ".max_in_flight_per_client"),
            concat!($section, ".trusted_proxies"),
        ])
    };
}
pub(super) use paths;

/// Reads the four keys.
pub(super) fn clients(reader: &mut Reader<'_>, Paths(paths): Paths) -> ClientsConfig {
    let [requests_per_minute, max_clients, max_in_flight_per_client, trusted_proxies] = paths;
    ClientsConfig {
        requests_per_minute: reader.take(
            requests_per_minute,
            integer(1..=1_000_000_000, "zero refuses everyone, and the limiter counts in 32 bits"),
        ),
        max_clients: reader.take(max_clients, integer(1..=10_000_000, WHY_MEMORY)),
        max_in_flight_per_client: reader
            .take(max_in_flight_per_client, integer(1..=1_000_000, WHY_MEMORY)),
        trusted_proxies: reader.take_list(
            trusted_proxies,
            text("a network such as \"10.0.0.0/8\" or an IP address", address::network),
            |networks| distinct(networks, ToString::to_string),
        ),
    }
}
