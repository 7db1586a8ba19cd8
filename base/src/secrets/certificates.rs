//! Files of certificates: found where secrets are, but public, so their mode does not matter. Also
//! texts for the operator about why a peer's certificate is refused, and the clock for its
//! validity.

use super::{locate, searched};
use portcullis_filters::certificate::Validity;
use rustls::CertificateError;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;
use x509_cert::der::Decode as _;

/// 1 MiB for the roots that a peer is verified by: a system has some 150 of them in 250 KiB.
pub const MAX_ROOTS: u64 = 1 << 20;

/// The clock for the validity of certificates. It returns 1970 for any time before, where that of
/// rustls panics.
#[derive(Debug)]
pub struct TlsClock;

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Some(UnixTime::since_unix_epoch(since_1970.unwrap_or_default()))
    }
}

/// A file without usable certificates, and why.
#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
pub struct CertificatesError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug, Error)]
enum Cause {
    /// The error, and where a relative path was searched.
    #[error("{0}{1}")]
    Unreadable(io::Error, String),
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it must hold certificates in PEM")]
    NotPem,
    #[error("a certificate in it is not X.509")]
    NotX509,
}

impl CertificatesError {
    /// The error for the file at `path`, in which a certificate is not X.509.
    pub fn not_x509(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            cause: Cause::NotX509,
        }
    }
}

/// Why a peer's certificate is refused.
pub fn refusal(error: &CertificateError) -> String {
    let words = match error {
        CertificateError::UnknownIssuer => "unknown issuer",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "not for this host name"
        }
        other => return other.to_string(),
    };
    words.to_owned()
}

/// The advice for a certificate that is refused.
#[derive(Debug)]
pub struct Remedies {
    /// Text for a certificate of an unknown authority.
    pub authority: &'static str,
    /// Text for a certificate of another host name.
    pub name: &'static str,
}

/// [`refusal`], with the advice that fits.
pub fn refusal_with(error: &CertificateError, remedies: &Remedies) -> String {
    let remedy = match error {
        // a bad signature means that an authority of the same name has another key
        CertificateError::UnknownIssuer | CertificateError::BadSignature => remedies.authority,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            remedies.name
        }
        _ => return refusal(error),
    };
    format!("{}; {remedy}", refusal(error))
}

/// Reads at least one certificate from a file of at most `max` bytes.
///
/// # Errors
/// Returns why it has none.
pub fn read(path: &Path, max: u64) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    read_with_text(path, max).map(|(certificates, _)| certificates)
}

/// The text of a file of roots in PEM, for libraries that parse it themselves.
///
/// # Errors
/// Returns why it has no certificates.
pub fn read_roots_text(path: &Path) -> Result<Vec<u8>, CertificatesError> {
    read_with_text(path, MAX_ROOTS).map(|(_, text)| text)
}

/// When a certificate is valid, in seconds since 1970; `None` if it is not X.509.
pub fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let validity = certificate.tbs_certificate.validity;
    Some(Validity {
        not_before: validity.not_before.to_unix_duration().as_secs(),
        not_after: validity.not_after.to_unix_duration().as_secs(),
    })
}

fn read_with_text(
    path: &Path,
    max: u64,
) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), CertificatesError> {
    let failed = |cause| CertificatesError {
        path: path.to_owned(),
        cause,
    };
    let mut text = Vec::new();
    File::open(locate(path))
        .and_then(|file| file.take(max + 1).read_to_end(&mut text))
        .map_err(|error| failed(Cause::Unreadable(error, searched(path))))?;
    if text.len() as u64 > max {
        return Err(failed(Cause::TooLarge(max)));
    }
    match CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok((certificates, text)),
        _ => Err(failed(Cause::NotPem)),
    }
}
