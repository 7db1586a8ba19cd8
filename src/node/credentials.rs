//! Credentials for the URLs of the node: certificates to trust, and headers.
//!
//! In: the files of the configuration, read at the start and on SIGHUP. Out: TLS towards `https://`
//! URLs (host names are verified, HTTP/1.1 only), the program's `User-Agent`, and the headers of
//! `node.header_file`, which are secrets: providers of hosted nodes identify their clients by them.

use crate::config::{NodeLive, NodeUrl, NonEmpty, Scheme};
use crate::secrets::trust::{self, TrustError};
use crate::secrets::{self, SecretError};
use portcullis_filters::node_headers::{MalformedHeaders, NodeHeaders};
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
    /// No certificate authority verifies the `https://` URLs.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl CredentialsError {
    /// The configuration key at fault.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Header(_) | Self::HeaderLine { .. } => "node.header_file",
            Self::Trust(_) => "node.ca_file",
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
        if config.ca_file.is_none() && !urls.iter().any(is_https) {
            return Ok(None);
        }
        let mut tls = trust::client(config.ca_file.as_deref())?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(TlsConnector::from(Arc::new(tls))))
    }

    /// The lines that are sent with each request, each with its CRLF.
    pub(super) fn headers(&self) -> &[u8] {
        self.headers.expose()
    }
}

fn read_headers(path: &Path) -> Result<NodeHeaders, CredentialsError> {
    let text = secrets::read(path)?;
    NodeHeaders::parse(text.expose(), AGENT).map_err(|fault| CredentialsError::HeaderLine {
        path: secrets::locate(path),
        fault,
    })
}
