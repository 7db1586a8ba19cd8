//! Addresses of the configuration: where to listen, which node to call, which proxies and which web
//! pages to trust.
//!
//! In: the text of one value. Out: the typed address, or the reason why it is invalid. Resolves no
//! name and opens no socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

/// A list of at least one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonEmpty<T>(Vec<T>);

impl<T> NonEmpty<T> {
    /// The list, unless it is empty.
    pub fn new(items: Vec<T>) -> Option<Self> {
        (!items.is_empty()).then_some(Self(items))
    }

    /// The first item, which always exists.
    pub fn first(&self) -> &T {
        &self.0[0]
    }
}

impl<T> Deref for NonEmpty<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// The address of a listener; displayed as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address; port 0 picks a free port.
    Tcp(SocketAddr),
    /// A Unix socket at an absolute path.
    Unix(PathBuf),
}

impl Listen {
    /// Linux has 108 bytes for a socket's path, the last of which is zero.
    const LONGEST_PATH: usize = 107;

    /// Reads `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/portcullis.sock`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::parse_unix(path);
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            let why = match text.rsplit_once(':') {
                _ if text.parse::<IpAddr>().is_ok() => "the port is missing",
                Some(("", _)) => "the address is missing; 0.0.0.0 and [::] mean all addresses",
                Some((_, port)) if port.parse::<u16>().is_err() => "the port is not 0 to 65535",
                Some(_) => "host names are not accepted; write the address, such as 127.0.0.1:8080",
                None => "it is neither an address nor a socket",
            };
            why.to_owned()
        })
    }

    fn parse_unix(path: &str) -> Result<Self, String> {
        if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
            return Err("the path of a socket must be absolute and name a file".to_owned());
        }
        if path.len() > Self::LONGEST_PATH {
            let (longest, length) = (Self::LONGEST_PATH, path.len());
            return Err(format!(
                "the path of a socket has at most {longest} bytes, not {length}"
            ));
        }
        Ok(Self::Unix(Path::new(path).to_owned()))
    }

    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Whether only a privileged process can bind it: ip(7).
    pub fn is_privileged(&self) -> bool {
        matches!(self, Self::Tcp(address) if (1..1024).contains(&address.port()))
    }

    /// Whether the two cannot be bound at the same time.
    pub fn collides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(a), Self::Tcp(b)) => {
                let same_ip = a.ip() == b.ip() || covers(a.ip(), b.ip()) || covers(b.ip(), a.ip());
                a.port() != 0 && a.port() == b.port() && same_ip
            }
            (a, b) => a == b,
        }
    }
}

/// Whether `all` is a wildcard address that includes `one`; `[::]` includes IPv4 as well.
fn covers(all: IpAddr, one: IpAddr) -> bool {
    all.is_unspecified() && (all.is_ipv6() || one.is_ipv4())
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The transport towards a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The endpoint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeUrl {
    /// Whether TLS is used.
    pub scheme: Scheme,
    /// A host name in lower case or an IP address, without brackets.
    pub host: String,
    /// The port; the scheme's default if the URL has none.
    pub port: u16,
    /// The path, at least `/`.
    pub path: String,
    /// The text of the `Host` header: IPv6 in brackets, without the scheme's default port.
    pub authority: String,
}

impl NodeUrl {
    /// Reads `http://host[:port][/path]` or the same with `https://`, and nothing else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or("it does not start with http:// or https://")?;
        let scheme = [Scheme::Http, Scheme::Https]
            .into_iter()
            .find(|known| scheme.eq_ignore_ascii_case(known.name()))
            .ok_or("only http:// and https:// are supported")?;
        if rest.contains(['?', '#']) {
            return Err("a query or a fragment is not accepted".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("a user name or a password is not accepted".to_owned());
        }
        if !path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte))
        {
            return Err("the path contains characters that must be percent-encoded".to_owned());
        }
        let (host, port) = host_and_port(authority)?;
        let port = port.unwrap_or(scheme.default_port());
        let authority = authority_of(
            &host,
            Some(port).filter(|port| *port != scheme.default_port()),
        );
        let path = if path.is_empty() { "/" } else { path }.to_owned();
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self {
            scheme,
            host,
            port,
            path,
            authority,
        })
    }
}

impl NodeUrl {
    /// Path segments that are not secret.
    const WORDS: [&str; 8] = [
        "api", "json-rpc", "mainnet", "public", "rpc", "sepolia", "starknet", "version",
    ];

    /// Whether the path only names the API. Providers may put keys into it.
    pub(super) fn has_plain_path(&self) -> bool {
        let is_version = |segment: &str| {
            let digits = segment.strip_prefix('v').unwrap_or(segment);
            let is_part = |part: &str| part.len() <= 2 && part.bytes().all(|b| b.is_ascii_digit());
            digits.split(['.', '_']).all(is_part) && digits.len() <= 8
        };
        let is_plain = |segment: &str| Self::WORDS.contains(&segment) || is_version(segment);
        self.path.split('/').all(is_plain)
    }

    /// The URL as logs, metrics and the operator's page show it: without a path that may contain a
    /// key.
    pub fn shown(&self) -> String {
        match self.has_plain_path() {
            true => self.to_string(),
            false => format!("{}://{}/…", self.scheme.name(), self.authority),
        }
    }
}

impl fmt::Display for NodeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}://{}{}",
            self.scheme.name(),
            self.authority,
            self.path
        )
    }
}

/// Which web pages may read answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorsOrigins {
    /// Pages of every origin.
    Any,
    /// Pages of the listed origins, each exactly as a browser sends it; empty means none.
    List(Vec<String>),
}

impl CorsOrigins {
    /// Accepts `*` alone, or a list without it.
    pub(super) fn new(origins: Vec<String>) -> Result<Self, String> {
        match origins.iter().any(|origin| origin == "*") {
            true if origins.len() == 1 => Ok(Self::Any),
            true => Err("expected \"*\" alone or a list of origins, found both".to_owned()),
            false => Ok(Self::List(origins)),
        }
    }

    /// Reads `*`, or one origin exactly as a browser sends it.
    pub(super) fn parse_item(text: &str) -> Result<String, String> {
        if text == "*" {
            return Ok(text.to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let scheme = scheme.to_ascii_lowercase();
        let symbol = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(symbol) {
            return Err("the scheme is not valid".to_owned());
        }
        let (authority, _path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = host_and_port(authority)?;
        let default_port = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        let port = port.filter(|port| Some(*port) != default_port);
        let origin = format!("{scheme}://{}", authority_of(&host, port));
        if origin == text {
            Ok(origin)
        } else {
            Err(format!("a browser sends {origin}"))
        }
    }
}

/// Reads a network, or a single address as a network of one.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address));
    }
    let network: IpNet = text.parse().map_err(|_| String::new())?;
    if network != network.trunc() {
        return Err(format!(
            "bits are set after the prefix; write {}",
            network.trunc()
        ));
    }
    Ok(network)
}

/// Parses a domain into lower case. ACME's challenges prove single names: addresses and wildcards
/// are refused.
pub(super) fn domain(text: &str) -> Result<String, String> {
    if text.starts_with("*.") {
        return Err(
            "a wildcard requires the challenge dns-01, which is not supported: list each \
                    name"
                .to_owned(),
        );
    }
    if text.parse::<IpAddr>().is_ok() || text.starts_with('[') {
        return Err(
            "an address has no certificate here; use a name that resolves to it".to_owned(),
        );
    }
    if text.contains("://") || text.contains(['/', ':']) {
        return Err("it is a name alone, without scheme, port or path".to_owned());
    }
    if !text.is_ascii() {
        return Err("write it in ASCII, as xn--…".to_owned());
    }
    let is_label = |label: &str| {
        let symbol = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_short = (1..=63).contains(&label.len());
        is_short && label.bytes().all(symbol) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    let last = text.rsplit('.').next().unwrap_or(text);
    if text.len() > 253 || !text.split('.').all(is_label) || is_number(last) {
        return Err("it is not a host name".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

/// Parses a host into lower case, IPv6 in brackets, and a port from 1 if there is one.
fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let end = authority
        .rfind(':')
        .filter(|colon| !authority[*colon..].contains(']'));
    let (host, port) = authority.split_at(end.unwrap_or(authority.len()));
    let port = match port.strip_prefix(':') {
        None => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let port = digits.parse::<u16>().ok().filter(|port| *port != 0);
            Some(port.ok_or("the port is not 1 to 65535")?)
        }
        Some(_) => return Err("the port is not 1 to 65535".to_owned()),
    };
    Ok((parse_host(host)?, port))
}

fn parse_host(host: &str) -> Result<String, String> {
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    if let Some(inner) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let address: Ipv6Addr = inner
            .parse()
            .map_err(|_| "the host is not a valid IPv6 address".to_owned())?;
        return Ok(format!("[{address}]"));
    }
    let last_label = host.rsplit('.').next().unwrap_or(host);
    if last_label.bytes().all(|byte| byte.is_ascii_digit()) {
        let address: Ipv4Addr = host
            .parse()
            .map_err(|_| "the host is not a valid IPv4 address".to_owned())?;
        return Ok(address.to_string());
    }
    let label = |label: &str| {
        let symbol = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(symbol)
    };
    if host.len() > 253 || !host.split('.').all(label) {
        return Err("the host is not a valid name".to_owned());
    }
    Ok(host.to_ascii_lowercase())
}

fn authority_of(host: &str, port: Option<u16>) -> String {
    match port {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
