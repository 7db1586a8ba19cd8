//! Requests whose failure is explained in words, for a person or a supervisor.

use super::{MAX_DOCUMENT, RUNNING, Trust, agent_with, on_thread};
use crate::secrets::certificates::{self, Remedies};
use crate::secrets::trust;
use bytes::Bytes;
use rustls::crypto::{CryptoProvider, ring};
use std::io::{self, Read as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use ureq::Error;
use ureq::http::uri::Scheme;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const NO_ADDRESS: &str = "the name has no address";
const REMEDIES: Remedies = Remedies {
    authority: "name its authority's certificate with --ca-file",
    name: "use a name that it lists",
};
const OF_ACME: Remedies = Remedies {
    authority: "name the certificate that signed it with tls.acme.ca_file",
    name: "use a name that it lists in tls.acme.directory",
};
const OF_SYSTEM: Remedies = Remedies {
    authority: "add its authority to the system's, or name a file of authorities in SSL_CERT_FILE",
    name: "use a name that it lists",
};

/// The provider of every agent: agents of one provider share connections.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(ring::default_provider()));
/// The authorities of the system, as they were at the first request.
static SYSTEM: LazyLock<Arc<Vec<Certificate<'static>>>> = LazyLock::new(|| {
    let roots = trust::system();
    let roots = roots
        .iter()
        .map(|root| Certificate::from_der(root).to_owned());
    Arc::new(roots.collect())
});

/// The root certificates for servers; those of the system by default.
#[derive(Clone, Debug, Default)]
pub struct Roots(Option<Arc<Vec<Certificate<'static>>>>);

impl Roots {
    /// Reads the certificates of a private authority.
    ///
    /// # Errors
    /// Returns why the file has none.
    pub fn read(path: &std::path::Path) -> Result<Self, certificates::CertificatesError> {
        let read = certificates::read(path, certificates::MAX_ROOTS)?;
        let roots = read
            .iter()
            .map(|root| Certificate::from_der(root).to_owned())
            .collect();
        Ok(Self(Some(Arc::new(roots))))
    }
}

/// Sends a GET, and returns the status of the response, which may be a redirect's.
///
/// # Errors
/// Returns why there is no response within `timeout`, with a remedy where there is one.
pub async fn probe(url: &str, roots: Roots, timeout: Duration) -> Result<u16, String> {
    let url = url.to_owned();
    let request = move |left| {
        let response = agent_with(Trust::Operator, left, tls(roots))
            .get(&url)
            .call();
        let status = response.map(|response| response.status().as_u16());
        Ok(status.map_err(|error| cause(&error, &REMEDIES)))
    };
    on_thread(&RUNNING, timeout, request)
        .await
        .unwrap_or_else(|error| Err(error.to_string()))
}

/// Sends a request to an ACME authority over https, and returns the response. A body that is longer
/// than [`MAX_DOCUMENT`] is cut off one byte later.
///
/// # Errors
/// Returns why there is no such response within `timeout`, with a remedy where there is one.
pub async fn exchange(
    request: Request<Bytes>,
    roots: Roots,
    timeout: Duration,
) -> Result<Response<Bytes>, String> {
    let exchanged = move |left| {
        let run = || {
            if request.uri().scheme() != Some(&Scheme::HTTPS) {
                return Err(Error::RequireHttpsOnly(request.uri().to_string()));
            }
            let agent = agent_with(Trust::Operator, left, tls(roots));
            let response = match request.body().is_empty() {
                true => agent.run(request.map(|_| ()))?,
                false => agent.run(request.map(|body| body.to_vec()))?,
            };
            let (head, mut answer) = response.into_parts();
            let mut body = Vec::new();
            let mut bounded = answer.as_reader().take(MAX_DOCUMENT as u64 + 1);
            bounded.read_to_end(&mut body)?;
            Ok(Response::from_parts(head, Bytes::from(body)))
        };
        Ok(run().map_err(|error| cause(&error, &OF_ACME)))
    };
    on_thread(&RUNNING, timeout, exchanged)
        .await
        .unwrap_or_else(|error| Err(error.to_string()))
}

pub(super) fn tls(roots: Roots) -> TlsConfig {
    let roots = roots.0.unwrap_or_else(|| Arc::clone(&SYSTEM));
    TlsConfig::builder()
        .root_certs(RootCerts::Specific(roots))
        .unversioned_rustls_crypto_provider(Arc::clone(&PROVIDER))
        .build()
}

/// Why TLS failed, if it did.
pub(super) fn tls_failure(error: &Error) -> Option<String> {
    let failure = match error {
        Error::Rustls(error) => error,
        Error::Io(error) => error.get_ref()?.downcast_ref()?,
        _ => return None,
    };
    Some(tls_cause(failure, &OF_SYSTEM))
}

fn cause(error: &Error, remedies: &Remedies) -> String {
    match error {
        Error::Timeout(_) => "no answer in time".to_owned(),
        Error::HostNotFound => NO_ADDRESS.to_owned(),
        Error::Rustls(error) => tls_cause(error, remedies),
        Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => tls_cause(error, remedies),
            None => io_cause(error),
        },
        Error::ConnectionFailed => "no connection".to_owned(),
        Error::Protocol(_) | Error::Http(_) => {
            "the response is not HTTP; does it take https://?".to_owned()
        }
        error => error.to_string(),
    }
}

fn io_cause(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "the connection ended before the response; does it take https://?".to_owned()
        }
        // without the number of the system's error
        kind @ io::ErrorKind::ConnectionRefused => kind.to_string(),
        _ => match error.to_string() {
            text if text.starts_with("failed to lookup address") => NO_ADDRESS.to_owned(),
            text => text,
        },
    }
}

fn tls_cause(error: &rustls::Error, remedies: &Remedies) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => {
            format!(
                "certificate: {}",
                certificates::refusal_with(error, remedies)
            )
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS; use http://".to_owned(),
        _ => format!("TLS: {error}"),
    }
}
