//! A GET whose failure is explained in words, for a person or a supervisor.

use super::{RUNNING, Trust, agent_with, on_thread};
use crate::secrets::certificates::{self, Remedies};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use ureq::Error;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const NO_ADDRESS: &str = "the name has no address";
const REMEDIES: Remedies = Remedies {
    authority: "name its authority's certificate with --ca-file",
    name: "use a name that it lists",
};

/// The certificates that a server's is signed by; the public authorities if there are none.
#[derive(Clone, Debug, Default)]
pub struct Roots(Option<Arc<Vec<Certificate<'static>>>>);

impl Roots {
    /// Reads the certificates of a private authority.
    ///
    /// # Errors
    /// The file has none, and why.
    pub fn read(path: &std::path::Path) -> Result<Self, certificates::CertificatesError> {
        let read = certificates::read(path, certificates::MAX_ROOTS)?;
        let roots = read.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
        Ok(Self(Some(Arc::new(roots))))
    }
}

/// The status of the response to a GET, which may be a redirect's.
///
/// # Errors
/// Why there is no response within `timeout`, with a remedy where there is one.
pub async fn probe(url: &str, roots: Roots, timeout: Duration) -> Result<u16, String> {
    let url = url.to_owned();
    let request = move |left| {
        let mut tls = TlsConfig::builder();
        if let Some(roots) = roots.0 {
            tls = tls.root_certs(RootCerts::Specific(roots));
        }
        let response = agent_with(Trust::Operator, left, tls.build()).get(&url).call();
        Ok(response.map(|response| response.status().as_u16()).map_err(|error| cause(&error)))
    };
    on_thread(&RUNNING, timeout, request).await.unwrap_or_else(|error| Err(error.to_string()))
}

fn cause(error: &Error) -> String {
    match error {
        Error::Timeout(_) => "no answer in time".to_owned(),
        Error::HostNotFound => NO_ADDRESS.to_owned(),
        Error::Rustls(error) => tls_cause(error),
        Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => tls_cause(error),
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

fn tls_cause(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => {
            format!("certificate: {}", certificates::refusal_with(error, &REMEDIES))
        }
        rustls::Error::InvalidMessage(_) => "it does not speak TLS; use http://".to_owned(),
        _ => format!("TLS: {error}"),
    }
}
