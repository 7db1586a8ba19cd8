//! The authorities that servers are verified by: those of the system, or of a file. One trust for
//! all that this program connects to: a node, stores, key sets, collectors and authorities.

use super::certificates::{self, CertificatesError, MAX_ROOTS, TlsClock};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore, crypto};
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Why no server can be verified.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The file of certificates is unusable.
    #[error(transparent)]
    Roots(#[from] CertificatesError),
    /// The system trusts no authority.
    #[error("the system has no root certificates: name a file of them")]
    NoRoots,
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Reads the certificates of the system's authorities. `SSL_CERT_FILE` and
/// `SSL_CERT_DIR` name others.
pub fn system() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// A client's side of TLS that trusts the authorities of `ca_file`; of the system without one.
/// Names of hosts are verified.
///
/// # Errors
/// Returns why no server can be verified.
pub fn client(ca_file: Option<&Path>) -> Result<ClientConfig, TrustError> {
    let roots = match ca_file {
        Some(path) => of_file(path)?,
        None => of_system()?,
    };
    let provider = Arc::new(crypto::ring::default_provider());
    Ok(
        ClientConfig::builder_with_details(provider, Arc::new(TlsClock))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

fn of_system() -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    // some may have an unsupported form; the others suffice
    roots.add_parsable_certificates(system());
    if roots.is_empty() {
        Err(TrustError::NoRoots)
    } else {
        Ok(roots)
    }
}

fn of_file(path: &Path) -> Result<RootCertStore, CertificatesError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates::read(path, MAX_ROOTS)? {
        roots
            .add(certificate)
            .map_err(|_| CertificatesError::not_x509(path))?;
    }
    Ok(roots)
}
