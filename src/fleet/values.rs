//! Values that the instances share, sealed: the store sees neither certificates nor their keys.
//!
//! A value is sealed by AES-256-GCM with a key that is derived from the fleet's secret, a random
//! nonce, and its name as associated data, so that none can be put in the place of another.

use super::store::Store;
use super::{Fleet, FleetError};
use crate::io::clock::millis;
use portcullis_filters::hmac;
use portcullis_filters::secret::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::time::Duration;

/// What the key is derived for: RFC 5869, section 3.2.
const PURPOSE: &[u8] = b"portcullis: values of a fleet, AES-256-GCM";

/// Seals values with the secret of a fleet.
pub(super) struct Seal(LessSafeKey);

impl Seal {
    pub(super) fn new(secret: &Secret) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &hmac::sign(secret, PURPOSE));
        Self(LessSafeKey::new(key.expect("a digest has as many bytes as the key")))
    }

    fn seal(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, FleetError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| FleetError::Random)?;
        let mut sealed = value.to_vec();
        let tag = self.0.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name),
            &mut sealed,
        );
        sealed.extend_from_slice(tag.map_err(|_| FleetError::Sealed)?.as_ref());
        Ok([&nonce[..], &sealed].concat())
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, FleetError> {
        let (nonce, sealed) = sealed.split_first_chunk().ok_or(FleetError::Sealed)?;
        let mut value = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(name), &mut value);
        let length = opened.map_err(|_| FleetError::Sealed)?.len();
        value.truncate(length);
        Ok(value)
    }
}

impl Fleet {
    /// The value that the instances share by this name.
    ///
    /// # Errors
    /// The store does not answer, or holds something else.
    pub async fn value(&self, name: &str) -> Result<Option<Vec<u8>>, FleetError> {
        let key = self.store.key_of(name);
        let sealed: Option<Vec<u8>> = self.store.call(redis::cmd("GET").arg(key)).await?;
        sealed.map(|sealed| self.store.seal.open(name, &sealed)).transpose()
    }

    /// Shares a value by this name, for `life` if that is limited.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn share(
        &self,
        name: &str,
        value: &[u8],
        life: Option<Duration>,
    ) -> Result<(), FleetError> {
        let mut call = redis::cmd("SET");
        call.arg(self.store.key_of(name)).arg(self.store.seal.seal(name, value)?);
        if let Some(life) = life {
            call.arg("PX").arg(millis(life));
        }
        self.store.call(&call).await
    }

    /// Shares no value by this name any more.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn unshare(&self, name: &str) -> Result<(), FleetError> {
        self.store.call(redis::cmd("DEL").arg(self.store.key_of(name))).await
    }

    /// Holds something for this instance alone, for this long from now on; `false` if another
    /// instance holds it.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn hold(&self, name: &str, life: Duration) -> Result<bool, FleetError> {
        self.store.hold(name, millis(life)).await
    }

    /// Lets another instance hold it.
    ///
    /// # Errors
    /// The store does not answer: the hold ends by itself.
    pub async fn release(&self, name: &str) -> Result<(), FleetError> {
        self.store.hold(name, 0).await.map(drop)
    }
}

impl Store {
    /// The key of a shared value. Instances with another secret have others.
    fn key_of(&self, name: &str) -> String {
        format!("pc:{}:value:{}", self.name, self.digest(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(secret: &str) -> Seal {
        Seal::new(&Secret::new(secret.as_bytes().to_vec()))
    }

    #[test]
    fn a_value_is_opened_by_its_name_and_secret_alone() {
        let one = seal("fleet-0123456789abcdef0123456789");
        let sealed = one.seal("a", b"key").unwrap();
        assert_eq!(one.open("a", &sealed).unwrap(), b"key");
        assert_ne!(one.seal("a", b"key").unwrap(), sealed, "a nonce is used once");
        let mut changed = sealed.clone();
        changed[NONCE_LEN] ^= 1;
        for (why, opened) in [
            ("another name", one.open("b", &sealed)),
            ("another secret", seal("other-0123456789abcdef0123456789").open("a", &sealed)),
            ("a changed byte", one.open("a", &changed)),
            ("nothing but a nonce", one.open("a", &sealed[..NONCE_LEN])),
            ("less than a nonce", one.open("a", &sealed[..3])),
        ] {
            assert!(matches!(opened, Err(FleetError::Sealed)), "{why}");
        }
    }
}
