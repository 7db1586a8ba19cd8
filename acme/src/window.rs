//! The renewal times that an authority suggests: ACME Renewal Information, RFC 9773.

use instant_acme::{Account, CertificateIdentifier, Error};
use portcullis_filters::acme::schedule::Window;
use rustls::pki_types::{CertificateDer, Der};
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

/// Polls the authority; `None` if it has no usable renewal information.
pub(super) async fn ask(
    account: &Account,
    certificate: &CertificateIdentifier<'_>,
) -> Option<(Window, u64)> {
    let (info, again) = match account.renewal_info(certificate).await {
        Ok(answer) => answer,
        Err(Error::Unsupported(_)) => return None,
        Err(error) => {
            log::debug!("no renewal information: {error}");
            return None;
        }
    };
    let [start, end] = [info.suggested_window.start, info.suggested_window.end]
        .map(|time| u64::try_from(time.unix_timestamp()).unwrap_or(0));
    Some((Window { start, end }, again.as_secs()))
}

/// The identifier of a certificate at its authority: RFC 9773, section 4.1. `None` if the
/// certificate does not name the authority's key.
pub(super) fn identifier(der: &CertificateDer<'_>) -> Option<CertificateIdentifier<'static>> {
    let certificate = x509_cert::Certificate::from_der(der).ok()?.tbs_certificate;
    let (_, authority) = certificate.get::<AuthorityKeyIdentifier>().ok()??;
    let key = authority.key_identifier?;
    let serial = certificate.serial_number.as_bytes();
    let id = CertificateIdentifier::new(Der::from_slice(key.as_bytes()), Der::from_slice(serial));
    Some(id.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SerialNumber};

    fn certificate(serial: &[u8]) -> CertificateIdentifier<'static> {
        let key = KeyPair::generate().expect("there is randomness");
        let mut params = CertificateParams::new(["a.test".to_owned()]).expect("a name");
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.use_authority_key_identifier_extension = true;
        let made = params.self_signed(&key).expect("the key can sign");
        identifier(made.der()).expect("it names the key of its authority")
    }

    /// The serial number of the example in RFC 9773, appendix A, whose highest bit is set.
    #[test]
    fn the_identifier_has_the_encoded_serial_number() {
        let found = certificate(&[0x87, 0x65, 0x43, 0x21]).to_string();
        assert_eq!(
            found.split_once('.').map(|(_, serial)| serial),
            Some("AIdlQyE"),
            "{found}"
        );
    }
}
