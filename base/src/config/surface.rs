//! Keys that each surface has in its own section: the limits of its clients, and `[<surface>.tls]`.

use std::path::PathBuf;

use ipnet::IpNet;

use super::WHY_MEMORY;
use super::address;
use super::key::Section;
use super::reader::{LiveReader, Reader};
use super::section::keys;
use super::values::{Converted, Value, flag, integer, list, path, text};

pub(super) const LISTEN_FORM: &str = "address:port or unix:/absolute/path";
const NETWORK_FORM: &str = "a network such as \"10.0.0.0/8\" or an IP address";
const DOMAIN_FORM: &str = "a domain such as \"rpc.example.org\"";
/// Let's Encrypt's limit of names in one certificate.
const MAX_DOMAINS: usize = 100;
const WHY_DOMAINS: &str = "authorities issue for no more names at once";
const WHY_RATE: &str = "zero refuses all clients, and the limiter counts in 32 bits";

/// The bounds of a surface's clients. Defaults and reasons are with each surface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientsConfig {
    /// Clients that the rate limiter tracks; at least 1.
    pub max_clients: usize,
    /// Whether each connection begins with a header of the PROXY protocol.
    pub proxy_protocol: bool,
}

/// The limits of a surface's clients, which a reload changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientsLive {
    /// Requests of each client in any 60 seconds; 1 to 1,000,000,000.
    pub requests_per_minute: u32,
    /// Concurrent requests of each client; at least 1.
    pub max_in_flight_per_client: usize,
    /// Peers whose `X-Forwarded-For` and PROXY header are trusted.
    pub trusted_proxies: Vec<IpNet>,
}

pub(super) fn clients(reader: &mut Reader<'_>, surface: &str) -> ClientsConfig {
    let key = |name: &str| format!("{surface}.{name}");
    ClientsConfig {
        max_clients: reader.take(&key("max_clients"), integer(1..=10_000_000, WHY_MEMORY)),
        proxy_protocol: reader.take(&key("proxy_protocol"), flag),
    }
}

pub(super) fn live_clients(reader: &mut LiveReader<'_, '_>, surface: &str) -> ClientsLive {
    let key = |name: &str| format!("{surface}.{name}");
    ClientsLive {
        requests_per_minute: reader.take(&key("requests_per_minute"), rate()),
        max_in_flight_per_client: reader.take(&key("max_in_flight_per_client"), in_flight()),
        trusted_proxies: reader.take(&key("trusted_proxies"), networks()),
    }
}

/// Reads the number of requests in any 60 seconds.
pub(super) fn rate() -> impl Fn(&Value<'_>) -> Converted<u32> {
    integer(1..=1_000_000_000, WHY_RATE)
}

/// Reads the number of concurrent requests.
pub(super) fn in_flight() -> impl Fn(&Value<'_>) -> Converted<usize> {
    integer(1..=1_000_000, WHY_MEMORY)
}

/// Reads a list of networks and addresses, which may be empty.
pub(super) fn networks() -> impl Fn(&Value<'_>) -> Converted<Vec<IpNet>> {
    list(text(NETWORK_FORM, address::network), 0..=usize::MAX, "")
}

/// The certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The domains of a certificate that is ordered by ACME; empty for files of the operator.
    pub domains: Vec<String>,
    /// The certificate in PEM, followed by its intermediate certificates.
    pub certificate_file: PathBuf,
    /// Its private key in PEM.
    pub key_file: PathBuf,
    /// Whether clients may negotiate HTTP/2.
    pub http2: bool,
}

impl TlsConfig {
    /// Whether the certificate is ordered by ACME. Both files are then one, with certificate and
    /// key.
    pub fn is_ordered(&self) -> bool {
        !self.domains.is_empty()
    }
}

/// Reads the section of a surface; without it the listener serves plain HTTP. For an ordered
/// certificate, `acme` sets the files.
pub(super) fn tls(reader: &mut LiveReader<'_, '_>, surface: &str) -> Option<TlsConfig> {
    if !reader.has(&format!("{surface}.tls")) {
        return None;
    }
    let [names, certificate, private_key, http2] =
        ["domains", "certificate_file", "key_file", "http2"]
            .map(|name| reader.key(&format!("{surface}.tls.{name}")));
    let domain = text(DOMAIN_FORM, address::domain);
    let is_ordered = reader.is_set(names);
    let domains = reader.take(names, list(domain, 0..=MAX_DOMAINS, WHY_DOMAINS));
    let mut file = |key| {
        if is_ordered && !reader.is_set(key) {
            return PathBuf::new();
        }
        if !domains.is_empty() {
            let message = "expected certificate_file and key_file, or domains; found both";
            reader.conflict(names, key, message.to_owned());
        }
        reader.take(key, text("a path", path))
    };
    let (certificate_file, key_file) = (file(certificate), file(private_key));
    let http2 = reader.take(http2, flag);
    if domains.is_empty() && certificate_file.as_os_str().is_empty() {
        let message = "expected at least one domain, or certificate_file and key_file";
        reader.conflict(names, certificate, message.to_owned());
        return None;
    }
    Some(TlsConfig {
        domains,
        certificate_file,
        key_file,
        http2,
    })
}

macro_rules! tls_section {
    ($section:literal, $about:literal, $certificate:tt, $key:tt) => {
        Section {
            path: $section,
            about: &[
                concat!(
                    " TLS on the ",
                    $about,
                    " listener; without this section it serves plain HTTP."
                ),
                " Relative paths are first looked up in $CREDENTIALS_DIRECTORY.",
            ],
            keys: keys! { live $section:
                /// Names of a certificate that is ordered and renewed as [tls.acme] says, instead
                /// of both files; [] for none.
                /// Why: either the files are yours, or the names are.
                domains = Default([]);
                /// Required without domains. The certificate in PEM, followed by its intermediate
                /// certificates.
                /// Why: certificate renewal writes files, and SIGHUP applies them.
                certificate_file = Required($certificate);
                /// Required without domains. Its private key in PEM, unencrypted; mode 0600 or
                /// stricter.
                /// Why: a file appears in no process list, and only its owner can read it.
                key_file = Required($key);
                /// Clients may negotiate HTTP/2 by ALPN; false serves HTTP/1.1 only.
                /// Why: one connection for many requests; every limit applies to it, too.
                http2 = Default(true);
            },
        }
    };
}

pub(super) const GATEWAY_TLS: Section =
    tls_section!("gateway.tls", "gateway's", "gateway.pem", "gateway.key");
pub(super) const RELAY_TLS: Section =
    tls_section!("relay.tls", "relay's", "relay.pem", "relay.key");
pub(super) const SIDECAR_TLS: Section =
    tls_section!("sidecar.tls", "sidecar's", "sidecar.pem", "sidecar.key");
pub(super) const ADMIN_TLS: Section = tls_section!("admin.tls", "admin", "admin.pem", "admin.key");
