//! The authorities that servers are verified by: those of the system, or of a file. One trust for
//! all that this program connects to: a node, stores, key sets, collectors and authorities.

use super::certificates::{self, CertificatesError, MAX_ROOTS, TlsClock};
use parking_lot::Mutex;
use portcullis_filters::certificate::Validity;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    WantsVerifier, crypto,
};
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
    Tls(#[from] Error),
    /// A certificate of the system cannot be used as an authority.
    #[error("TLS: {0}")]
    Verifier(#[from] VerifierBuilderError),
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
    Ok(builder()?
        .with_root_certificates(roots(ca_file)?)
        .with_no_client_auth())
}

/// [`client`], and what it sees: when the certificate of a server is valid, trusted or not. It
/// trusts what [`client`] trusts.
///
/// # Errors
/// Returns why no server can be verified.
pub fn observing(ca_file: Option<&Path>) -> Result<(ClientConfig, Arc<Observer>), TrustError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let roots = Arc::new(roots(ca_file)?);
    let observer = Arc::new(Observer {
        verifier: WebPkiServerVerifier::builder_with_provider(roots, provider).build()?,
        validity: Mutex::default(),
    });
    let builder = builder()?.dangerous();
    let verifier = Arc::clone(&observer) as Arc<dyn ServerCertVerifier>;
    let config = builder.with_custom_certificate_verifier(verifier);
    Ok((config.with_no_client_auth(), observer))
}

/// Verifies a server, and remembers when its certificate is valid.
#[derive(Debug)]
pub struct Observer {
    verifier: Arc<WebPkiServerVerifier>,
    validity: Mutex<Option<Validity>>,
}

impl Observer {
    /// When the certificate of the last server is valid; `None` without one.
    pub fn validity(&self) -> Option<Validity> {
        *self.validity.lock()
    }
}

impl ServerCertVerifier for Observer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.validity.lock() = certificates::validity(certificate);
        self.verifier
            .verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    let provider = Arc::new(crypto::ring::default_provider());
    ClientConfig::builder_with_details(provider, Arc::new(TlsClock))
        .with_safe_default_protocol_versions()
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, TrustError> {
    match ca_file {
        Some(path) => Ok(of_file(path)?),
        None => of_system(),
    }
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
