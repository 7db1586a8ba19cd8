//! Credentials for the URLs of the node: certificates to trust, and headers.
//!
//! In: the files of the configuration, read at the start and on SIGHUP. Out: TLS towards `https://`
//! URLs (host names are verified, HTTP/1.1 only), the program's `User-Agent`, and the headers of
//! `node.header_file`, which are secrets: providers of hosted nodes identify their clients by them.

use crate::config::{NodeLive, NodeUrl, NonEmpty, Scheme};
use crate::secrets::certificates::{self, CertificatesError, MAX_ROOTS, TlsClock};
use crate::secrets::{self, SecretError};
use portcullis_filters::node_headers::{MalformedHeaders, NodeHeaders};
use rustls::{ClientConfig, RootCertStore, crypto};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// The `User-Agent` of requests to the node: firewalls refuse requests without one.
const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));

/// The credentials of a request.
pub struct Credentials {
    /// `None` without an `https://` URL.
    pub(super) tls: Option<TlsConnector>,
    headers: NodeHeaders,
}

/// Why a file of the credentials is unusable.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// `node.header_file` is unreadable.
    #[error(transparent)]
    Header(#[from] SecretError),
    /// A line of `node.header_file` cannot be sent.
    #[error("secret file {}: {fault}", path.display())]
    HeaderLine {
        /// The file.
        path: PathBuf,
        /// Which line, and why.
        fault: MalformedHeaders,
    },
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
            Self::Header(_) | Self::HeaderLine { .. } => "node.header_file",
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
    /// Reads the files, for requests to these URLs.
    ///
    /// # Errors
    /// Returns every file that is unusable.
    pub fn load(
        config: &NodeLive,
        urls: &NonEmpty<NodeUrl>,
    ) -> Result<Self, Vec<CredentialsError>> {
        let headers = match &config.header_file {
            Some(path) => read_headers(path),
            None => Ok(NodeHeaders::of_program(AGENT)),
        };
        match (headers, Self::tls(config, urls)) {
            (Ok(headers), Ok(tls)) => Ok(Self { tls, headers }),
            (headers, tls) => Err(headers.err().into_iter().chain(tls.err()).collect()),
        }
    }

    fn tls(
        config: &NodeLive,
        urls: &NonEmpty<NodeUrl>,
    ) -> Result<Option<TlsConnector>, CredentialsError> {
        let is_https = |url: &NodeUrl| url.scheme == Scheme::Https;
        let roots = match &config.ca_file {
            Some(path) => read_roots(path)?,
            None if urls.iter().any(is_https) => system_roots()?,
            None => return Ok(None),
        };
        Ok(Some(connector(roots)?))
    }

    /// The lines that are sent with each request, each with its CRLF.
    pub(super) fn headers(&self) -> &[u8] {
        self.headers.expose()
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

fn read_headers(path: &Path) -> Result<NodeHeaders, CredentialsError> {
    let text = secrets::read(path)?;
    NodeHeaders::parse(text.expose(), AGENT).map_err(|fault| CredentialsError::HeaderLine {
        path: secrets::locate(path),
        fault,
    })
}
