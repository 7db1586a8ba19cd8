//! Pending ACME challenges, which prove to an authority that this process controls a domain.
//!
//! Every TLS listener answers `tls-alpn-01` (RFC 8737): a handshake that offers `acme-tls/1` alone
//! gets the certificate of the challenge for the domain it names, and the connection ends. The
//! listener of `tls.acme.http_address` answers `http-01` (RFC 8555, section 8.3). While nothing is
//! pending, a handshake costs one atomic load more.

use super::tls;
use arc_swap::ArcSwapOption;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;

/// RFC 8737, section 6.2.
const ACME_TLS_1: &[u8] = b"acme-tls/1";

/// The challenges that an order waits for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Challenges(Arc<ArcSwapOption<Pending>>);

/// The pending challenges: one for each domain of the order that is under way.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Configurations for handshakes, by domain.
    tls: HashMap<String, Arc<ServerConfig>>,
    /// Responses, by token.
    http: HashMap<String, String>,
}

/// The certificate of a challenge cannot be made: the kernel returned no random bytes, or the
/// domain is invalid.
#[derive(Debug, Error)]
#[error("cannot make the certificate of a challenge")]
pub struct ChallengeError;

impl From<rcgen::Error> for ChallengeError {
    fn from(_: rcgen::Error) -> Self {
        Self
    }
}

impl From<rustls::Error> for ChallengeError {
    fn from(_: rustls::Error) -> Self {
        Self
    }
}

impl Pending {
    /// Adds a challenge `tls-alpn-01` with the SHA-256 digest of its key authorization.
    ///
    /// # Errors
    /// Returns [`ChallengeError`] if its certificate cannot be made.
    pub fn add_tls(&mut self, domain: &str, digest: &[u8]) -> Result<(), ChallengeError> {
        let mut params = CertificateParams::new(vec![domain.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        let key = any_supported_type(&PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
        // taken unparsed: only an authority accepts its critical extension
        let certified = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
        let mut config = tls::builder()?.with_cert_resolver(Arc::new(certified));
        config.alpn_protocols = vec![ACME_TLS_1.to_vec()];
        self.tls
            .insert(domain.to_ascii_lowercase(), Arc::new(config));
        Ok(())
    }

    /// Adds a challenge `http-01` with its key authorization.
    pub fn add_http(&mut self, token: &str, key_authorization: &str) {
        self.http
            .insert(token.to_owned(), key_authorization.to_owned());
    }

    /// Returns the answer to a handshake that is a challenge: it offers no other protocol (RFC
    /// 8737, section 3).
    pub(super) fn answer(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut offered = hello.alpn()?;
        let is_challenge = offered.next() == Some(ACME_TLS_1) && offered.next().is_none();
        let domain = hello.server_name().filter(|_| is_challenge)?;
        self.tls.get(&domain.to_ascii_lowercase()).cloned()
    }
}

impl Challenges {
    /// Replaces the pending challenges.
    pub fn set(&self, pending: Pending) {
        self.0.store(Some(Arc::new(pending)));
    }

    /// Removes all pending challenges.
    pub fn clear(&self) {
        self.0.store(None);
    }

    /// The pending challenges, if there are any.
    pub(super) fn pending(&self) -> Option<Arc<Pending>> {
        self.0.load_full()
    }

    /// The answer to the challenge `http-01` of this token.
    pub fn http_answer(&self, token: &str) -> Option<String> {
        self.0.load().as_ref()?.http.get(token).cloned()
    }
}

/// Whether a handshake that negotiated this protocol was a challenge.
pub(super) fn is_challenge(protocol: Option<&[u8]>) -> bool {
    protocol == Some(ACME_TLS_1)
}
