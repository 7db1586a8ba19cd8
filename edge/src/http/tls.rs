//! TLS of the listeners: the certificates that they present, and the versions that they accept.
//!
//! In: the files of the configuration. Out: an [`Identity`] for each listener with a certificate,
//! or every error. TLS 1.2 and 1.3 on ring, with rustls's defaults: no early data, no
//! renegotiation, and clients need no certificate. The gate performs the handshakes, and a reload
//! replaces its [`Certificates`](super::certificates::Certificates); open connections stay.

use portcullis_base::config::{Live, TlsConfig};
use portcullis_base::io::clock::{self, LAST_SECOND};
use portcullis_base::secrets::certificates::{self, CertificatesError, TlsClock};
use portcullis_base::secrets::{self, SecretError};
use portcullis_base::telemetry::{BySurface, Surface};
use portcullis_filters::certificate::{self, Offered, Unfit};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ProducesTickets, WantsServerCert};
use rustls::{ConfigBuilder, InconsistentKeys, ServerConfig, crypto};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use thiserror::Error;
use x509_cert::Version;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Validity;

/// 64 KiB: a dozen certificates.
const MAX_CERTIFICATES: u64 = 64 << 10;
/// 4 KiB: an RSA key of 4096 bits takes 3.2 KiB.
const MAX_KEY: u64 = 4 << 10;

/// The protocol names of RFC 9113, section 3.1, and RFC 7301, section 6.
const HTTP_2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

/// The certificate of a listener.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The configuration of each handshake.
    pub config: Arc<ServerConfig>,
    /// The start of the certificate's validity, in seconds since 1970.
    pub not_before: u64,
    /// The end of the certificate's validity, in seconds since 1970.
    pub not_after: u64,
    /// The certificate in DER.
    certificate: CertificateDer<'static>,
    /// The size of the chain in DER.
    chain_bytes: usize,
    /// The configuration in force. While a certificate for other domains is ordered, this differs
    /// from the configuration that this certificate was read with.
    tls: TlsConfig,
}

/// How a listener treats new connections.
#[derive(Debug, Default)]
pub enum Presented {
    /// The surface has no TLS.
    #[default]
    Nothing,
    /// Has a certificate.
    Identity(Arc<Identity>),
    /// Closes new connections, except those of challenges: the certificate was unusable at the
    /// start, or is ordered. These files are read again.
    Unusable(TlsConfig),
}

impl Presented {
    /// Reads the files of a surface; returns every error in them.
    pub(super) fn load(surface: Surface, config: &TlsConfig) -> (Self, Vec<TlsError>) {
        match Identity::load(config) {
            Ok(identity) => (Self::Identity(Arc::new(identity)), Vec::new()),
            Err(all) => {
                let is_ordered = config.is_ordered();
                let error = |why| TlsError {
                    surface,
                    is_ordered,
                    why,
                };
                (
                    Self::Unusable(config.clone()),
                    all.into_iter().map(error).collect(),
                )
            }
        }
    }

    /// Returns a copy that issues these tickets, if there is a certificate.
    pub(super) fn sealed_by(self: &Arc<Self>, tickets: Arc<dyn ProducesTickets>) -> Arc<Self> {
        match &**self {
            Self::Identity(identity) => {
                Arc::new(Self::Identity(Arc::new(identity.sealed_by(tickets))))
            }
            _ => Arc::clone(self),
        }
    }

    /// Whether both have the same certificate.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.identity()
            .zip(other.identity())
            .is_some_and(|(one, other)| one.is_same(other))
    }

    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        match self {
            Self::Identity(identity) => Some(identity),
            _ => None,
        }
    }

    /// The configuration of the certificate; `None` without TLS.
    pub(super) fn config(&self) -> Option<&TlsConfig> {
        match self {
            Self::Nothing => None,
            Self::Identity(identity) => Some(&identity.tls),
            Self::Unusable(config) => Some(config),
        }
    }

    /// Returns this, or the identity of `before` while this waits for an ordered certificate.
    pub(super) fn or_previous(self: &Arc<Self>, before: &Self) -> Arc<Self> {
        match (&**self, before.identity()) {
            (Self::Unusable(config), Some(identity)) if config.is_ordered() => {
                let identity = Identity {
                    tls: config.clone(),
                    ..(**identity).clone()
                };
                Arc::new(Self::Identity(Arc::new(identity)))
            }
            _ => Arc::clone(self),
        }
    }
}

/// Why a listener has no identity.
#[derive(Debug)]
pub struct TlsError {
    surface: Surface,
    is_ordered: bool,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Certificates(CertificatesError),
    First(PathBuf, WhyUnusable),
    Key(SecretError),
    /// The key belongs to another certificate.
    Mismatch(PathBuf, PathBuf),
    /// Ring does not sign with such a key, or the kernel returned no random bytes.
    Unusable(rustls::Error),
}

/// Why the first certificate of a file is unusable.
#[derive(Debug, Error)]
enum WhyUnusable {
    #[error("its first certificate is not X.509")]
    NotX509,
    /// X.509 v1 or v2.
    #[error(
        "its first certificate is X.509 v{0}, which TLS clients refuse; create one of v3, for \
         example with `openssl req -x509 -addext subjectAltName=DNS:HOST`"
    )]
    OldVersion(u8),
}

impl TlsError {
    /// The configuration key of the file at fault.
    pub fn key(&self) -> String {
        let key = match &self.why {
            _ if self.is_ordered => ".domains",
            Why::Certificates(_) | Why::First(..) => ".certificate_file",
            Why::Key(_) | Why::Mismatch(..) => ".key_file",
            Why::Unusable(_) => "",
        };
        format!("{}.tls{key}", self.surface.name())
    }

    /// Joins the errors on one line.
    pub(super) fn join(all: &[Self]) -> String {
        let all: Vec<_> = all
            .iter()
            .map(|one| format!("{}: {}", one.key(), one.message()))
            .collect();
        all.join("; ")
    }

    /// The file, and why it is unusable.
    pub fn message(&self) -> String {
        self.why.message()
    }
}

impl Why {
    fn message(&self) -> String {
        match self {
            Self::Certificates(error) => error.to_string(),
            Self::First(path, why) => format!("{}: {why}", path.display()),
            Self::Key(error) => error.to_string(),
            Self::Mismatch(key, certificate) => format!(
                "the key in {} is not that of the first certificate in {}",
                key.display(),
                certificate.display()
            ),
            Self::Unusable(error) => error.to_string(),
        }
    }
}

/// The certificate of each listener with TLS.
#[derive(Debug, Default)]
pub struct Identities(pub(super) BySurface<Arc<Presented>>);

/// The surfaces with TLS, each with its configuration.
pub fn configured(live: Live<'_>) -> impl Iterator<Item = (Surface, &TlsConfig)> {
    [
        (Surface::Gateway, live.gateway.map(|gateway| &gateway.tls)),
        (Surface::Relay, live.relay.map(|relay| &relay.tls)),
        (Surface::Sidecar, live.sidecar.map(|sidecar| &sidecar.tls)),
        (Surface::Admin, live.admin.map(|admin| &admin.tls)),
    ]
    .into_iter()
    .filter_map(|(surface, tls)| Some((surface, tls?.as_ref()?)))
}

impl Identities {
    /// Reads the files of every listener with TLS. An unusable certificate is no error if it is
    /// ordered.
    ///
    /// # Errors
    /// Returns every error in the files.
    pub fn load(live: Live<'_>) -> Result<Self, Vec<TlsError>> {
        let (identities, errors) = Self::load_usable(live);
        if errors.is_empty() {
            Ok(identities)
        } else {
            Err(errors)
        }
    }

    /// Reads the files at the start: a listener whose files are unusable stays closed while another
    /// surface serves.
    ///
    /// # Errors
    /// Returns every error in the files if no surface can serve.
    pub fn load_to_start(live: Live<'_>) -> Result<(Self, Vec<TlsError>), Vec<TlsError>> {
        let (identities, errors) = Self::load_usable(live);
        let serves = [
            (Surface::Gateway, live.gateway.is_some()),
            (Surface::Relay, live.relay.is_some()),
            (Surface::Sidecar, live.sidecar.is_some()),
        ]
        .into_iter()
        .any(|(surface, is_on)| {
            is_on && !matches!(*identities.0[surface as usize], Presented::Unusable(_))
        });
        if errors.is_empty() || serves {
            Ok((identities, errors))
        } else {
            Err(errors)
        }
    }

    fn load_usable(live: Live<'_>) -> (Self, Vec<TlsError>) {
        let (mut identities, mut errors) = (Self::default(), Vec::new());
        for (surface, tls) in configured(live) {
            let (presented, wrong) = Presented::load(surface, tls);
            // a new one is ordered, whatever is wrong with the file
            errors.extend(wrong.into_iter().filter(|error| !error.is_ordered));
            identities.0[surface as usize] = Arc::new(presented);
        }
        (identities, errors)
    }

    /// Whether no listener has TLS.
    pub fn are_none(&self) -> bool {
        self.0
            .iter()
            .all(|presented| matches!(**presented, Presented::Nothing))
    }

    /// One warning for each usable certificate that clients reject at `now`, because it has expired
    /// or is not valid yet.
    pub fn warnings(&self, now: SystemTime) -> Vec<String> {
        let now = clock::since_1970(now).as_secs();
        let found = Surface::ALL
            .into_iter()
            .zip(&self.0)
            .filter_map(|(surface, identity)| {
                let identity = identity.identity()?;
                let key = if identity.tls.is_ordered() {
                    "domains"
                } else {
                    "certificate_file"
                };
                let key = format!("{}.tls.{key}", surface.name());
                if identity.not_after < now {
                    return Some(format!(
                        "{key}: the certificate ended on {}",
                        shown(identity.not_after)
                    ));
                }
                let begins = shown(identity.not_before);
                (identity.not_before > now)
                    .then(|| format!("{key}: the certificate does not hold before {begins}"))
            });
        found.collect()
    }
}

/// Seconds since 1970 as a date.
fn shown(seconds: u64) -> String {
    let within = i64::try_from(seconds)
        .ok()
        .filter(|_| seconds <= LAST_SECOND);
    within.map_or_else(|| seconds.to_string(), clock::rfc3339_of)
}

impl Identity {
    fn load(tls: &TlsConfig) -> Result<Self, Vec<Why>> {
        let chain = chain(&tls.certificate_file);
        // one file has both, if the certificate is ordered
        let max = if tls.is_ordered() {
            MAX_CERTIFICATES
        } else {
            MAX_KEY
        };
        let key = key(&tls.key_file, max).map_err(Why::Key);
        match (chain, key) {
            (Ok((chain, validity)), Ok(key)) => {
                Self::new(chain, validity, key, tls).map_err(|why| vec![why])
            }
            (chain, key) => Err([chain.err(), key.err()].into_iter().flatten().collect()),
        }
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        validity: Validity,
        key: PrivateKeyDer<'static>,
        tls: &TlsConfig,
    ) -> Result<Self, Why> {
        let [not_before, not_after] =
            [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
        let certificate = chain
            .first()
            .cloned()
            .expect("a chain begins with a certificate");
        let chain_bytes = chain.iter().map(|one| one.len()).sum();
        let mut server = server(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Why::Mismatch(tls.key_file.clone(), tls.certificate_file.clone())
            }
            error => Why::Unusable(error),
        })?;
        if tls.http2 {
            server.alpn_protocols.push(HTTP_2.to_vec());
        }
        server.alpn_protocols.push(HTTP_1_1.to_vec());
        let config = Arc::new(server);
        Ok(Self {
            config,
            not_before,
            not_after,
            certificate,
            chain_bytes,
            tls: tls.clone(),
        })
    }

    /// Loads an ordered certificate from the file that holds it with its key.
    ///
    /// # Errors
    /// Returns why it cannot be used, in words.
    pub fn read_ordered(tls: &TlsConfig) -> Result<Self, String> {
        Self::load(tls).map_err(|all| {
            let all: Vec<_> = all.iter().map(Why::message).collect();
            all.join("; ")
        })
    }

    /// Parses an ordered certificate and its key in PEM, before they are written to a file.
    ///
    /// # Errors
    /// Returns why they cannot be used, in words.
    pub fn of_ordered(key: &str, chain: &str, tls: &TlsConfig) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let chain = chain.map_err(|error| error.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|error| error.to_string())?;
        let file = &tls.certificate_file;
        let validity = validity(&chain, file);
        let identity = validity.and_then(|validity| Self::new(chain, validity, key, tls));
        identity.map_err(|why| why.message())
    }

    /// When the certificate is valid.
    pub fn validity(&self) -> certificate::Validity {
        certificate::Validity {
            not_before: self.not_before,
            not_after: self.not_after,
        }
    }

    /// Judges an ordered certificate by itself.
    ///
    /// # Errors
    /// It may not be used at `now`, in seconds since 1970.
    pub fn judge(&self, now: u64) -> Result<(), Unfit> {
        let names = self.names();
        let offered = Offered {
            names: &names,
            validity: self.validity(),
            chain_bytes: self.chain_bytes,
        };
        certificate::judge(&offered, &self.tls.domains, now)
    }

    /// The DNS names that the certificate is for.
    pub fn names(&self) -> Vec<String> {
        names(&self.certificate)
    }

    /// The size of the chain in DER.
    pub fn chain_bytes(&self) -> usize {
        self.chain_bytes
    }

    /// Returns a copy that issues these tickets.
    fn sealed_by(&self, tickets: Arc<dyn ProducesTickets>) -> Self {
        let mut server = (*self.config).clone();
        server.ticketer = tickets;
        Self {
            config: Arc::new(server),
            ..self.clone()
        }
    }

    /// Whether both have the same certificate.
    fn is_same(&self, other: &Self) -> bool {
        self.certificate == other.certificate
    }

    /// The certificate in DER.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// When the certificate ends, as a date.
    pub fn end(&self) -> String {
        shown(self.not_after)
    }
}

/// Starts a configuration with the versions and ciphers of every listener, without client
/// certificates.
pub(super) fn builder() -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, rustls::Error> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_details(provider, Arc::new(TlsClock));
    Ok(builder
        .with_safe_default_protocol_versions()?
        .with_no_client_auth())
}

fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    builder()?.with_single_cert(chain, key)
}

/// Reads the certificates of a file, and the validity of the first.
fn chain(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Validity), Why> {
    let chain = certificates::read(path, MAX_CERTIFICATES).map_err(Why::Certificates)?;
    let validity = validity(&chain, path)?;
    Ok((chain, validity))
}

/// The validity of the first certificate of a file.
fn validity(chain: &[CertificateDer<'_>], path: &Path) -> Result<Validity, Why> {
    let unusable = |why| Why::First(path.to_owned(), why);
    let first = chain
        .first()
        .and_then(|first| x509_cert::Certificate::from_der(first).ok());
    let first = first.ok_or_else(|| unusable(WhyUnusable::NotX509))?;
    if first.tbs_certificate.version != Version::V3 {
        // v1 is the number 0: RFC 5280, section 4.1
        return Err(unusable(WhyUnusable::OldVersion(
            first.tbs_certificate.version as u8 + 1,
        )));
    }
    Ok(first.tbs_certificate.validity)
}

/// The DNS names of a certificate: RFC 5280, section 4.2.1.6. Clients ignore its subject.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = x509_cert::Certificate::from_der(certificate) else {
        return Vec::new();
    };
    match certificate.tbs_certificate.get::<SubjectAltName>() {
        Ok(Some((_, SubjectAltName(names)))) => names
            .iter()
            .filter_map(|name| match name {
                GeneralName::DnsName(name) => Some(name.as_str().to_owned()),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn key(path: &Path, max: u64) -> Result<PrivateKeyDer<'static>, SecretError> {
    let text = secrets::read_at_most(path, max)?;
    PrivateKeyDer::from_pem_slice(text.expose())
        .map_err(|_| SecretError::not(path, "a private key in PEM, not encrypted"))
}

/// Whether a client chose HTTP/2.
pub fn is_http2(protocol: Option<&[u8]>) -> bool {
    protocol == Some(HTTP_2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    /// 2024-01-01, the start of the certificate.
    const BEGIN: u64 = 1_704_067_200;

    fn ordered(names: &[&str], domains: &[&str], key: &KeyPair) -> Result<Identity, String> {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(owned(names)).expect("names");
        params.not_before = date_time_ymd(2024, 1, 1);
        params.not_after = date_time_ymd(2024, 3, 31);
        let own = KeyPair::generate().expect("there is randomness");
        let signer = if domains.is_empty() { &own } else { key };
        let made = params.self_signed(signer).expect("the key can sign");
        let tls = TlsConfig {
            domains: owned(domains),
            certificate_file: PathBuf::from("a.pem"),
            key_file: PathBuf::from("a.pem"),
            http2: true,
        };
        Identity::of_ordered(&key.serialize_pem(), &made.pem(), &tls)
    }

    #[test]
    fn an_ordered_certificate_is_for_its_domains_now() {
        let key = KeyPair::generate().expect("there is randomness");
        let made = ordered(&["a.test", "b.test"], &["b.test"], &key).expect("a certificate");
        assert_eq!(made.judge(BEGIN), Ok(()));
        assert_eq!(made.judge(BEGIN - 1), Err(Unfit::NotYetValid));
        assert_eq!(made.judge(BEGIN + 90 * 86_400), Err(Unfit::Expired));
        let other = ordered(&["other.example"], &["b.test"], &key).expect("a certificate");
        assert_eq!(other.judge(BEGIN), Err(Unfit::Name("b.test".to_owned())));
        let why = ordered(&["a.test"], &[], &key).expect_err("the key of another one");
        assert!(why.contains("is not that of"), "{why}");
    }
}
