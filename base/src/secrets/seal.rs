//! Authenticated encryption with AES-256-GCM (NIST SP 800-38D), bound to a context that is not
//! stored. Each result begins with its nonce, which is random.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// A key that seals.
pub struct Seal(LessSafeKey);

impl Seal {
    /// The number of bytes of a key.
    pub(crate) const KEY_LEN: usize = 32;

    /// Creates a seal with this key.
    pub fn new(key: &[u8; Self::KEY_LEN]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the cipher's keys have 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Seals a text; `None` if the kernel returned no random bytes.
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = text.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .seal_in_place_append_tag(unique, Aad::from(context), &mut sealed)
            .ok()?;
        Some([&nonce[..], &sealed].concat())
    }

    /// Opens what this key has sealed for this context; `None` for anything else.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk()?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self
            .0
            .open_in_place(nonce, Aad::from(context), &mut text)
            .ok()?
            .len();
        text.truncate(length);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_opened_by_its_key_and_context_alone() {
        let [one, other] = [1, 2].map(|byte| Seal::new(&[byte; Seal::KEY_LEN]));
        let sealed = one.seal(b"a", b"text").unwrap();
        assert_eq!(one.open(b"a", &sealed).unwrap(), b"text");
        assert_ne!(
            one.seal(b"a", b"text").unwrap(),
            sealed,
            "a nonce is used once"
        );
        let mut changed = sealed.clone();
        changed[NONCE_LEN] ^= 1;
        for (why, opened) in [
            ("another context", one.open(b"b", &sealed)),
            ("another key", other.open(b"a", &sealed)),
            ("a changed byte", one.open(b"a", &changed)),
            ("nothing but a nonce", one.open(b"a", &sealed[..NONCE_LEN])),
            ("less than a nonce", one.open(b"a", &sealed[..3])),
        ] {
            assert_eq!(opened, None, "{why}");
        }
    }
}
