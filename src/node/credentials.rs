//! Credentials for the URLs of the node: certificates to trust, and a header.
//!
//! In: the files of the configuration, read at the start and on SIGHUP. Out: TLS towards `https://`
//! URLs (host names are verified, HTTP/1.1 only), and the header of `node.header_file`, which is a
//! secret: providers of hosted nodes identify their clients by it.

use crate::config::{NodeConfig, NodeUrl, Scheme};
use crate::secrets::certificates::{self, CertificatesError, MAX_ROOTS, TlsClock};
use crate::secrets::{self, Secret, SecretError};
use rustls::{ClientConfig, RootCertStore, crypto};
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;
use tokio_rustls::TlsConnector;

const HEADER_FORM: &str = "one line `Name: value`, a header that the program does not set itself";
/// Headers that this client sets itself, or that concern one connection only (RFC 9110, section
/// 7.6.1).
const OWN_HEADERS: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The credentials of a request.
pub struct Credentials {
    /// `None` without an `https://` URL.
    pub(super) tls: Option<TlsConnector>,
    header: Option<Secret>,
}

/// Why a file of the credentials is unusable.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// `node.header_file` is unusable.
    #[error(transparent)]
    Header(#[from] SecretError),
    /// `node.ca_file` is unusable.
    #[error(transparent)]
    Roots(#[from] CertificatesError),
    /// No certificate authority verifies the `https://` URLs.
    #[error("the system has no root certificates: name a file of them")]
    NoRoots,
    /// TLS cannot be set up.
    #[error("TLS to the node: {0}")]
    Tls(#[from] rustls::Error),
}

impl CredentialsError {
    /// The configuration key at fault.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Header(_) => "node.header_file",
            Self::Roots(_) | Self::NoRoots | Self::Tls(_) => "node.ca_file",
        }
    }

    /// The errors on one line, each with its key.
    pub(super) fn join(errors: &[Self]) -> String {
        let errors = errors
            .iter()
            .map(|error| format!("{}: {error}", error.key()));
        errors.collect::<Vec<_>>().join("; ")
    }
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Returns every file that is unusable.
    pub fn load(config: &NodeConfig) -> Result<Self, Vec<CredentialsError>> {
        let header = config.header_file.as_deref().map(read_header).transpose();
        match (header, Self::tls(config)) {
            (Ok(header), Ok(tls)) => Ok(Self { tls, header }),
            (header, tls) => {
                let header = header.err().map(CredentialsError::from);
                Err(header.into_iter().chain(tls.err()).collect())
            }
        }
    }

    fn tls(config: &NodeConfig) -> Result<Option<TlsConnector>, CredentialsError> {
        let is_https = |url: &NodeUrl| url.scheme == Scheme::Https;
        let roots = match &config.ca_file {
            Some(path) => read_roots(path)?,
            None if config.url.iter().any(is_https) => system_roots()?,
            None => return Ok(None),
        };
        Ok(Some(connector(roots)?))
    }

    /// The header's line, including CRLF; empty without a header.
    pub(super) fn header(&self) -> &[u8] {
        self.header.as_ref().map_or(&[], Secret::expose)
    }
}

fn connector(roots: RootCertStore) -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_details(provider, Arc::new(TlsClock))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn system_roots() -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    // some may have an unsupported form; the others suffice
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        Err(CredentialsError::NoRoots)
    } else {
        Ok(roots)
    }
}

fn read_roots(path: &Path) -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates::read(path, MAX_ROOTS)? {
        roots
            .add(certificate)
            .map_err(|_| CertificatesError::not_x509(path))?;
    }
    Ok(roots)
}

/// Reads the header's line, and ends it with CRLF.
fn read_header(path: &Path) -> Result<Secret, SecretError> {
    let malformed = || SecretError::not(path, HEADER_FORM);
    let secret = secrets::read(path)?;
    let line = secret.expose().trim_ascii();
    let colon = line
        .iter()
        .position(|byte| *byte == b':')
        .ok_or_else(malformed)?;
    let (name, value) = line.split_at(colon);
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_value = |byte: &u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t');
    let is_own = OWN_HEADERS
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own.as_bytes()));
    if name.is_empty() || value.is_empty() || is_own {
        return Err(malformed());
    }
    if !name.iter().all(is_token) || !value.iter().all(is_value) {
        return Err(malformed());
    }
    // never grows: a copy left behind would not be wiped
    let mut header = Vec::with_capacity(name.len() + value.len() + 4);
    for piece in [name, b": ", value, b"\r\n"] {
        header.extend_from_slice(piece);
    }
    Ok(Secret::new(header))
}
