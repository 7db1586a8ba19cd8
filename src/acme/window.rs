//! The renewal times that an authority suggests: ACME Renewal Information, RFC 9773.

use super::schedule::Window;
use instant_acme::{Account, CertificateIdentifier, Error};
use rustls::pki_types::{CertificateDer, Der};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

/// Shortest and longest time between polls, in seconds: RFC 9773, section 4.3.2.
const POLLS: [u64; 2] = [60, 24 * 3_600];
/// Seconds to the next poll after no answer, or if the authority has no such information.
const WITHOUT_ANSWER: u64 = 6 * 3_600;

/// The last answer for each certificate, by its file.
#[derive(Debug, Default)]
pub(super) struct Windows(HashMap<PathBuf, Known>);

#[derive(Clone, Debug)]
struct Known {
    certificate: CertificateIdentifier<'static>,
    window: Option<Window>,
    ask_at: u64,
}

impl Windows {
    /// The known window of this certificate; `None` if the authority must be polled now.
    pub(super) fn known(
        &self,
        file: &Path,
        certificate: &CertificateIdentifier<'_>,
        now: u64,
    ) -> Option<Option<Window>> {
        let known = self
            .0
            .get(file)
            .filter(|known| known.certificate == *certificate)?;
        let is_fresh = now < known.ask_at && known.ask_at <= now.saturating_add(POLLS[1]);
        is_fresh.then_some(known.window)
    }

    /// Stores an answer and returns its window. Without an answer, the last window of this
    /// certificate remains.
    pub(super) fn learn(
        &mut self,
        file: &Path,
        certificate: CertificateIdentifier<'static>,
        answer: Option<(Window, Duration)>,
        now: u64,
    ) -> Option<Window> {
        let last = self
            .0
            .get(file)
            .filter(|known| known.certificate == certificate);
        let [shortest, longest] = POLLS;
        let (window, pause) = match answer {
            Some((window, after)) => (Some(window), after.as_secs().clamp(shortest, longest)),
            None => (last.and_then(|known| known.window), WITHOUT_ANSWER),
        };
        let known = Known {
            certificate,
            window,
            ask_at: now.saturating_add(pause),
        };
        self.0.insert(file.to_owned(), known);
        window
    }
}

/// Polls the authority; `None` if it has no usable renewal information.
pub(super) async fn ask(
    account: &Account,
    certificate: &CertificateIdentifier<'_>,
) -> Option<(Window, Duration)> {
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
    Some((Window { start, end }, again))
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

    const NOW: u64 = 1_700_000_000;

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

    #[test]
    fn an_answer_is_used_until_the_next_one() {
        let (file, other) = (Path::new("a.pem"), certificate(&[2]));
        let one = certificate(&[1]);
        let window = Window {
            start: NOW,
            end: NOW + 10,
        };
        let mut windows = Windows::default();
        assert_eq!(windows.known(file, &one, NOW), None, "it is to be asked");
        let answer = Some((window, Duration::from_secs(600)));
        assert_eq!(windows.learn(file, one.clone(), answer, NOW), Some(window));
        assert_eq!(windows.known(file, &one, NOW + 599), Some(Some(window)));
        assert_eq!(windows.known(file, &one, NOW + 600), None, "asked again");
        assert_eq!(windows.known(file, &one, 0), None, "the clock was set back");
        assert_eq!(
            windows.known(file, &other, NOW),
            None,
            "another certificate"
        );
        let kept = windows.learn(file, one.clone(), None, NOW + 600);
        assert_eq!(kept, Some(window), "silence changes nothing");
        assert_eq!(windows.learn(file, other, None, NOW), None);
    }

    #[test]
    fn authorities_are_not_asked_more_often_than_each_minute() {
        let (file, one) = (Path::new("a.pem"), certificate(&[1]));
        let window = Window {
            start: NOW,
            end: NOW + 10,
        };
        for (after, last) in [(0, 59), (60, 59), (u64::MAX, 86_399)] {
            let mut windows = Windows::default();
            let answer = Some((window, Duration::from_secs(after)));
            windows.learn(file, one.clone(), answer, NOW);
            assert_eq!(
                windows.known(file, &one, NOW + last),
                Some(Some(window)),
                "{after}"
            );
            assert_eq!(windows.known(file, &one, NOW + last + 1), None, "{after}");
        }
    }
}
