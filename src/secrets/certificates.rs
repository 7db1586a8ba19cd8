//! Files of certificates: found where secrets are, but public, so their mode does not matter. And
//! why a peer's certificate is refused, in words for the operator.

use super::{locate, searched};
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Why a file gives no certificates.
#[derive(Debug)]
pub enum CertificatesError {
    /// It cannot be read.
    Unreadable(io::Error),
    /// It is larger than this many bytes.
    TooLarge(u64),
    /// It is not PEM, or holds no certificate.
    NotPem,
}

impl CertificatesError {
    /// Where a missing file of a relative path was searched, to follow the error's text.
    pub fn searched(&self, path: &Path) -> String {
        if matches!(self, Self::Unreadable(_)) { searched(path) } else { String::new() }
    }
}

impl fmt::Display for CertificatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => error.fmt(f),
            Self::TooLarge(max) => write!(f, "it is larger than {max} bytes"),
            Self::NotPem => f.write_str("it must hold certificates in PEM"),
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

/// Reads the certificates of a file of at most `max` bytes: at least one.
///
/// # Errors
/// Why it has none.
pub fn read(path: &Path, max: u64) -> Result<Vec<CertificateDer<'static>>, CertificatesError> {
    let file = File::open(locate(path)).map_err(CertificatesError::Unreadable)?;
    let mut text = Vec::new();
    file.take(max + 1).read_to_end(&mut text).map_err(CertificatesError::Unreadable)?;
    if text.len() as u64 > max {
        return Err(CertificatesError::TooLarge(max));
    }
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|_| CertificatesError::NotPem)?;
    if certificates.is_empty() { Err(CertificatesError::NotPem) } else { Ok(certificates) }
}
