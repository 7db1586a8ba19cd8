//! The platform's public keys: RFC 7517.
//!
//! A key that can not be used here (another type or curve, a secret one, not for signatures) is
//! passed over.

use super::jwt::{Jwt, keys_unavailable};
use super::kept::{Failure, Kept, Terms};
use super::signature::PublicKey;
use crate::sidecar::fetch::{self, Trust};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_filters::verdict::Refusal;
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// Ten minutes: what the platform tells its own clients. An outage of an hour is outlived.
const TERMS: Terms =
    Terms { fresh: Duration::from_secs(10 * 60), stale: Duration::from_secs(60 * 60) };

/// The keys at a URL.
#[derive(Debug)]
pub(super) struct Jwks {
    url: String,
    keys: Kept<KeySet>,
}

impl Jwks {
    pub(super) fn new(url: String) -> Self {
        Self { url, keys: Kept::default() }
    }

    /// Whether these are the keys at the same place.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        self.url == other.url
    }

    /// Whether one of the keys signed the token. A key that is not known may be a new one.
    pub(super) async fn verify(&self, jwt: &Jwt<'_>, now: SystemTime) -> Result<bool, Refusal> {
        let mut keys =
            self.keys.get(&TERMS, now, self.fetch()).await.map_err(|_| keys_unavailable())?;
        if !keys.named(jwt).any(|_| true)
            && let Some(newer) =
                self.keys.renew(&keys, now, self.fetch()).await.map_err(|_| keys_unavailable())?
        {
            keys = newer;
        }
        Ok(keys.named(jwt).any(|key| key.verify(jwt.alg, jwt.signed, &jwt.signature)))
    }

    async fn fetch(&self) -> Result<KeySet, Failure> {
        let document = fetch::document(&self.url, Trust::Operator, ()).await;
        let keys = document.ok().and_then(|document| KeySet::parse(&document.body));
        if keys.is_none() {
            log::warn!("the keys of sessions can not be had from sidecar.session.jwks_url");
        }
        keys.ok_or(Failure::Unavailable)
    }
}

/// Keys, with their names.
#[derive(Debug)]
struct KeySet(Vec<(Option<String>, PublicKey)>);

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl KeySet {
    fn parse(body: &[u8]) -> Option<Self> {
        let set: Set = serde_json::from_slice(body).ok()?;
        let keys = set.keys.into_iter().filter_map(|key| {
            let jwk: Jwk = serde_json::from_value(key).ok()?;
            Some((jwk.kid.clone(), jwk.key()?))
        });
        Some(Self(keys.collect()))
    }

    /// The keys that a token may mean: the one that it names, or any if it names none.
    fn named(&self, jwt: &Jwt<'_>) -> impl Iterator<Item = &PublicKey> {
        let keys = self.0.iter().filter(|(kid, _)| jwt.kid.is_none() || *kid == jwt.kid);
        keys.map(|(_, key)| key)
    }
}

impl Jwk {
    fn key(&self) -> Option<PublicKey> {
        let number = |part: &Option<String>| URL_SAFE_NO_PAD.decode(part.as_ref()?).ok();
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-256")) => {
                PublicKey::p256(&[&[4], &*number(&self.x)?, &*number(&self.y)?].concat())
            }
            ("RSA", _) => PublicKey::rsa(&number(&self.n)?, &number(&self.e)?),
            _ => None,
        };
        key.filter(|key| {
            self.r#use.as_ref().is_none_or(|purpose| purpose == "sig")
                && self.alg.as_ref().is_none_or(|alg| alg == key.alg().name())
        })
    }
}
