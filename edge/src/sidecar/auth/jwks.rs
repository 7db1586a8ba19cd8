//! The platform's public keys: RFC 7517.
//!
//! Unusable keys are skipped: those of another type or curve, shared secrets, and keys that are not
//! for signatures.

use super::jws::{Jws, keys_unavailable};
use super::key_cache::{Failure, KeyCache, Lifetime};
use super::signature::{Alg, PublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_base::fetch::{self, Trust};
use portcullis_filters::verdict::Refusal;
use serde::Deserialize;
use serde_json::Value;
use std::future::ready;
use std::time::Duration;

/// Fresh for ten minutes, as in the platform's own clients. Stale keys bridge an outage of up to an
/// hour.
const LIFETIME: Lifetime = Lifetime {
    fresh: Duration::from_secs(10 * 60),
    stale: Duration::from_secs(60 * 60),
};

/// Cache entries; one key set and its failures need no more.
const CACHE: usize = 8;

/// The key set at a URL.
#[derive(Debug)]
pub(super) struct Jwks {
    url: String,
    keys: KeyCache<KeySet>,
}

impl Jwks {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            keys: KeyCache::new(CACHE, LIFETIME),
        }
    }

    /// Whether both have the same URL.
    pub(super) fn has_same_source(&self, other: &Self) -> bool {
        self.url == other.url
    }

    /// Whether one of the keys signed the token. If its key id is unknown, the set is fetched
    /// again.
    pub(super) async fn verify(&self, jws: &Jws<'_>) -> Result<bool, Refusal> {
        // one key set needs no permit
        let (permit, fetch) = (|| ready(Some(())), |_| fetch_keys(self.url.clone()));
        let mut keys = self.keys.get(&self.url, permit(), fetch).await;
        if let Ok(known) = &keys
            && known.named(jws).next().is_none()
        {
            let newer = self.keys.renew(&self.url, known, permit(), fetch).await;
            keys = newer.transpose().unwrap_or(keys);
        }
        let keys = keys.map_err(|_| keys_unavailable())?;
        Ok(keys.verify(jws))
    }
}

async fn fetch_keys(url: String) -> Result<KeySet, Failure> {
    let keys = match fetch::document(&url, Trust::Operator, ()).await {
        Ok(document) => {
            KeySet::parse(&document.body).ok_or("the response is not a key set".to_owned())
        }
        Err(error) => Err(error.to_string()),
    };
    keys.map_err(|cause| {
        log::warn!(
            cause = cause.as_str();
            "cannot fetch the keys of sessions from sidecar.session.jwks_url"
        );
        Failure::Unavailable
    })
}

/// Keys with their ids.
#[derive(Debug)]
pub(super) struct KeySet(Vec<(Option<String>, PublicKey)>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl KeySet {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let set: Set = serde_json::from_slice(body).ok()?;
        let keys = set.keys.into_iter().filter_map(|key| {
            let jwk: Jwk = serde_json::from_value(key).ok()?;
            Some((jwk.kid.clone(), jwk.key()?))
        });
        Some(Self(keys.collect()))
    }

    /// Whether one of the keys signed the token.
    pub(super) fn verify(&self, jws: &Jws<'_>) -> bool {
        self.named(jws)
            .any(|key| key.verify(jws.alg, jws.signed, &jws.signature))
    }

    /// The candidates for a token: the key it names, or all if it names none.
    fn named(&self, jws: &Jws<'_>) -> impl Iterator<Item = &PublicKey> {
        let keys = self
            .0
            .iter()
            .filter(|(kid, _)| jws.kid.is_none() || *kid == jws.kid);
        keys.map(|(_, key)| key)
    }
}

/// RFC 7518, section 6.2.1.2: a coordinate of P-256 has its full size.
const COORDINATE: usize = 32;

impl Jwk {
    fn verifies(&self) -> bool {
        match &self.key_ops {
            Some(ops) => ops.iter().any(|op| op == "verify"),
            None => true,
        }
    }

    /// The key, if it may verify signatures (RFC 7517, sections 4.2 and 4.3).
    fn key(&self) -> Option<PublicKey> {
        let number = |part: &Option<String>| URL_SAFE_NO_PAD.decode(part.as_ref()?).ok();
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-256")) => {
                let x = number(&self.x)?;
                let y = number(&self.y)?;
                if x.len() != COORDINATE || y.len() != COORDINATE {
                    return None;
                }
                PublicKey::p256(&[&[4], &*x, &*y].concat())
            }
            ("OKP", Some("Ed25519")) => {
                let point = number(&self.x)?.try_into().ok()?;
                Some(PublicKey::Ed25519(point))
            }
            ("RSA", _) => PublicKey::rsa(&number(&self.n)?, &number(&self.e)?),
            _ => None,
        };
        key.filter(|key| {
            self.r#use.as_ref().is_none_or(|purpose| purpose == "sig")
                && self.verifies()
                && self
                    .alg
                    .as_ref()
                    .is_none_or(|alg| Alg::of_header(alg) == Some(key.alg()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The generator of P-256, SEC 2, section 2.4.2.
    const POINT: &str = "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296\
        4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";

    #[test]
    fn only_a_key_that_may_verify_is_used() {
        let point = hex::decode(POINT).unwrap();
        let part = |from: usize, to: usize| URL_SAFE_NO_PAD.encode(&point[from..to]);
        for (name, value, coordinates, is_used) in [
            ("kid", json!("a"), [0, 32, 64], true),
            ("use", json!("sig"), [0, 32, 64], true),
            ("use", json!("enc"), [0, 32, 64], false),
            ("key_ops", json!(["verify"]), [0, 32, 64], true),
            ("key_ops", json!(["sign", "verify"]), [0, 32, 64], true),
            ("key_ops", json!(["sign"]), [0, 32, 64], false),
            ("key_ops", json!(["deriveKey"]), [0, 32, 64], false),
            ("key_ops", json!([]), [0, 32, 64], false),
            ("kid", json!("a"), [0, 64, 64], false),
            ("kid", json!("a"), [0, 33, 64], false),
        ] {
            let [from, middle, to] = coordinates;
            let mut key = json!({
                "kty": "EC",
                "crv": "P-256",
                "x": part(from, middle),
                "y": part(middle, to),
            });
            key[name] = value.clone();
            let set = json!({ "keys": [key] }).to_string();
            let KeySet(keys) = KeySet::parse(set.as_bytes()).unwrap();
            assert_eq!(keys.len() == 1, is_used, "{name} {value} {coordinates:?}");
        }
    }
}
