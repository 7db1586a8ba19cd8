//! Secrets: wiped when dropped, and never printed.
//!
//! Neither type can be compared, copied, printed or serialised. While the STARK library computes
//! with a key, copies of it are on the stack; those are not wiped.

use crate::felt::Felt;
use crate::stark;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use zeroize::Zeroizing;

/// Secret bytes.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the bytes. A vector that grew before has left unwiped copies.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the code that has to use them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The bytes without the white space around them: a file ends with a newline.
    pub(crate) fn trimmed(&self) -> &[u8] {
        self.0.trim_ascii()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// The private key of an account. On the heap, because a move would leave a copy behind.
pub struct SecretKey(Box<Zeroizing<[u8; 32]>>);

impl SecretKey {
    /// Parses `0x` and hexadecimal digits, with any white space around them; `None` unless the
    /// number is at least 1 and below the order of the curve.
    pub fn parse(text: &Secret) -> Option<Self> {
        let key = Felt::parse(str::from_utf8(text.trimmed()).ok()?)?;
        stark::is_scalar(key).then(|| Self(Box::new(Zeroizing::new(key.to_bytes_be()))))
    }

    /// The address of the bytes, fixed for as long as the key lives, to lock them in memory.
    pub fn location(&self) -> *const [u8; 32] {
        &raw const **self.0
    }

    /// The public key.
    pub fn public_key(&self) -> Felt {
        stark::public_key(self.felt())
    }

    /// Signs a hash deterministically; returns `[r, s]`.
    pub fn sign(&self, hash: Felt) -> [Felt; 2] {
        stark::sign(self.felt(), hash)
    }

    fn felt(&self) -> Felt {
        Felt::from_bytes_be(&self.0).expect("it was a felt when it was parsed")
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_is_below_the_curve_order() {
        let order = "0x800000000000010ffffffffffffffffb781126dcae7b2321e66a241adc64d2f";
        let below = "0x800000000000010ffffffffffffffffb781126dcae7b2321e66a241adc64d2e";
        for (text, ok) in [
            ("0x1", true),
            (" \t0x1\r\n", true),
            (below, true),
            (order, false),
            ("0x0", false),
            ("", false),
            ("1", false),
            ("0x1 0x2", false),
            ("\u{feff}0x1", false),
        ] {
            let key = SecretKey::parse(&Secret::new(text.into()));
            assert_eq!(key.is_some(), ok, "{text:?}");
        }
    }

    #[test]
    fn the_public_key_matches_the_node_s() {
        // the first account of a development node started with seed 0
        let secret = Secret::new("0x71d7bb07b9a64f6f78ac4c816aff4da9".into());
        let key = SecretKey::parse(&secret).unwrap();
        let public = "0x39d9e6ce352ad4530a0ef5d5a18fd3303c3606a7fa6ac5b620020ad681cc33b";
        assert_eq!(key.public_key(), Felt::parse(public).unwrap());
    }

    #[test]
    fn secrets_are_never_printed() {
        let secret = Secret::new("0x1234567".into());
        let key = SecretKey::parse(&secret).unwrap();
        assert_eq!(
            format!("{secret:?} {key:?}"),
            "Secret(redacted) SecretKey(redacted)"
        );
    }
}
