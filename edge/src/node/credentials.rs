//! Credentials for the URLs of the node: certificates to trust, and headers.
//!
//! In: the files of the configuration, read at the start and on SIGHUP. Out: TLS towards `https://`
//! URLs (host names are verified, HTTP/1.1 only), the program's `User-Agent`, and the headers of
//! `node.header_file`, which are secrets: providers of hosted nodes identify their clients by them.

use portcullis_base::config::{NodeLive, NodeUrl, NonEmpty, Scheme};
use portcullis_base::secrets::headers::{self, AGENT, HeadersError};
use portcullis_base::secrets::trust::{self, TrustError};
use portcullis_filters::header_lines::HeaderLines;
use std::sync::Arc;
use thiserror::Error;
use tokio_rustls::TlsConnector;

/// The credentials of a request.
pub struct Credentials {
    /// `None` without an `https://` URL.
    pub(super) tls: Option<TlsConnector>,
    headers: HeaderLines,
}

/// Why a file of the credentials is unusable.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// `node.header_file` is unusable.
    #[error(transparent)]
    Header(#[from] HeadersError),
    /// No certificate authority verifies the `https://` URLs.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

impl CredentialsError {
    /// The configuration key at fault.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Header(_) => "node.header_file",
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
            Some(path) => headers::of_file(path).map_err(CredentialsError::Header),
            None => Ok(HeaderLines::of_program(AGENT)),
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
