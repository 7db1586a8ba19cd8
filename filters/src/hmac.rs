//! HMAC-SHA-256 with shared secrets: RFC 2104.
//!
//! A webhook's signature and a session's HS256 are compared here alone: in constant time and with
//! every secret, so that response times leak neither a partial match nor which secret matched.

use crate::secret::Secret;
use ::hmac::{Hmac, Mac};
use alloc::vec::Vec;
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

/// The shortest secret, in bytes: the length of the digest, since a shorter key weakens the
/// signature. RFC 2104, section 3.
const MIN_LENGTH: usize = 32;

/// The secrets that sign: the current one, and the next during a rotation.
#[derive(Debug)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// One or two different secrets, each at least 32 bytes; white space around a secret is not
    /// part of it. `None` for anything else.
    pub fn new(secrets: Vec<Secret>) -> Option<Self> {
        let is_long = |secret: &Secret| secret.trimmed().len() >= MIN_LENGTH;
        let fit = match secrets.as_slice() {
            [one] => is_long(one),
            [one, other] => {
                is_long(one) && is_long(other) && !bool::from(one.trimmed().ct_eq(other.trimmed()))
            }
            _ => false,
        };
        fit.then_some(Self(secrets))
    }

    /// Whether this is a signature of the message by one of the secrets. Compares with all of them.
    pub fn verify(&self, message: &[u8], signature: &[u8; 32]) -> bool {
        let none = Choice::from(0);
        let signed = |secret| sign(secret, message).ct_eq(signature);
        self.0
            .iter()
            .map(signed)
            .fold(none, |any, same| any | same)
            .into()
    }
}

/// Signs a message. White space around the secret is not part of it.
pub fn sign(secret: &Secret, message: &[u8]) -> [u8; 32] {
    sign_with(secret.trimmed(), message)
}

/// Signs a message with these very bytes.
pub fn sign_with(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mac = Hmac::<Sha256>::new_from_slice(key);
    let mac = mac.expect("a key of HMAC has any length");
    mac.chain_update(message).finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURRENT: &str = "current-0123456789abcdef01234567";
    const NEXT: &str = "next-0123456789abcdef0123456789a";

    fn secrets(texts: &[&str]) -> Option<Secrets> {
        Secrets::new(
            texts
                .iter()
                .map(|text| Secret::new((*text).into()))
                .collect(),
        )
    }

    #[test]
    fn one_or_two_long_secrets_are_accepted() {
        let padded = format!("  {CURRENT}\r\n");
        let short = format!("{}\n", &CURRENT[1..]);
        for (texts, ok) in [
            (&[CURRENT][..], true),
            (&[CURRENT, NEXT], true),
            (&[&padded], true),
            (&[], false),
            (&[""], false),
            (&["\n"], false),
            (&[CURRENT, ""], false),
            (&["", CURRENT], false),
            (&[&short], false),
            (&[CURRENT, CURRENT], false),
            (&[CURRENT, &padded], false),
            (&[CURRENT, NEXT, "third-0123456789abcdef0123456789a"], false),
        ] {
            assert_eq!(secrets(texts).is_some(), ok, "{texts:?}");
        }
    }

    /// <https://www.rfc-editor.org/rfc/rfc4231>, sections 4.2 to 4.5, 4.7 and 4.8
    #[test]
    fn messages_are_signed_as_rfc_4231_signs_them() {
        let ascending: Vec<u8> = (1..=25).collect();
        let long = b"This is a test using a larger than block-size key and a larger than \
            block-size data. The key needs to be hashed before being used by the HMAC algorithm.";
        for (key, message, expected) in [
            (
                vec![0x0b; 20],
                b"Hi There".to_vec(),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?".to_vec(),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 20],
                vec![0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
            (
                ascending,
                vec![0xcd; 50],
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                vec![0xaa; 131],
                long.to_vec(),
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            ),
        ] {
            let signature = sign(&Secret::new(key.clone()), &message);
            let digits: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits, expected, "{key:02x?}");
        }
    }

    #[test]
    fn either_secret_signs_its_message_alone() {
        let both = secrets(&[CURRENT, NEXT]).unwrap();
        for (secret, message, ok) in [
            (CURRENT, "message", true),
            (NEXT, "message", true),
            ("  next-0123456789abcdef0123456789a\n", "message", true),
            ("third-0123456789abcdef0123456789a", "message", false),
            (CURRENT, "Message", false),
            (CURRENT, "message\n", false),
            (CURRENT, "", false),
        ] {
            let signature = sign(&Secret::new(secret.into()), message.as_bytes());
            assert_eq!(
                both.verify(b"message", &signature),
                ok,
                "{secret:?} {message:?}"
            );
        }
    }

    #[test]
    fn secrets_are_never_printed() {
        let shown = format!("{:?}", secrets(&[CURRENT]).unwrap());
        assert_eq!(shown, "Secrets([Secret(redacted)])");
    }
}
