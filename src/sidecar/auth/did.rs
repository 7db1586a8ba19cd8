//! The key of an AT Protocol account, from its DID document. <https://atproto.com/specs/did>
//!
//! A DID is chosen by whoever sends a token, before any signature is checked. So: two methods, one
//! address each, bounded lookups at once and keys kept, and nothing but public hosts.

use super::jwt::keys_unavailable;
use super::kept::{Failure, Kept, Terms};
use super::service_token::KEY;
use super::signature::{self, PublicKey};
use crate::sidecar::fetch::{self, Document, FetchError, Trust};
use portcullis_filters::verdict::{Reason, Refusal};
use quick_cache::sync::Cache;
use serde::Deserialize;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;

/// As the reference implementation keeps documents.
const TERMS: Terms =
    Terms { fresh: Duration::from_secs(60 * 60), stale: Duration::from_secs(24 * 60 * 60) };
/// Accounts whose keys are kept: some three megabytes.
const MAX_KEPT: usize = 10_000;
/// Lookups at once, sixteen in all: strangers' slow hosts must not take the directory's places.
const PLC_LOOKUPS: usize = 8;
const WEB_LOOKUPS: usize = 8;
/// How long a lookup waits for its turn.
const TURN: Duration = Duration::from_secs(3);
const WELL_KNOWN: &str = "/.well-known/did.json";
/// RFC 1035: what a name can have in all, and between two dots.
const MAX_HOST: usize = 253;
const MAX_LABEL: usize = 63;

/// Finds the keys of accounts.
#[derive(Debug)]
pub(super) struct Dids {
    plc_url: String,
    localhost: bool,
    keys: Cache<String, Arc<Kept<PublicKey>>>,
    plc_lookups: Arc<Semaphore>,
    web_lookups: Arc<Semaphore>,
}

/// A DID that can be looked up, and where.
pub(super) struct Did<'a> {
    text: &'a str,
    method: Method<'a>,
}

enum Method<'a> {
    Plc,
    /// The host.
    Web(&'a str),
    /// The port.
    Localhost(u16),
}

impl Dids {
    pub(super) fn new(mut plc_url: String, localhost: bool) -> Self {
        plc_url.truncate(plc_url.trim_end_matches('/').len());
        Self {
            plc_url,
            localhost,
            keys: Cache::new(MAX_KEPT),
            plc_lookups: Arc::new(Semaphore::new(PLC_LOOKUPS)),
            web_lookups: Arc::new(Semaphore::new(WEB_LOOKUPS)),
        }
    }

    /// Reads the DID of an account.
    pub(super) fn parse<'a>(&self, text: &'a str) -> Option<Did<'a>> {
        let (method, id) = text.strip_prefix("did:")?.split_once(':')?;
        let method = match (method, id.strip_prefix("localhost%3A")) {
            ("plc", _) if is_plc(id) => Method::Plc,
            ("web", Some(port)) if self.localhost => Method::Localhost(port.parse().ok()?),
            ("web", None) if is_host(id) => Method::Web(id),
            _ => return None,
        };
        Some(Did { text, method })
    }

    /// The key that signs for an account.
    pub(super) async fn key(
        &self,
        did: &Did<'_>,
        now: SystemTime,
    ) -> Result<Arc<PublicKey>, Refusal> {
        let kept = self.kept(did);
        kept.get(&TERMS, now, self.look_up(did)).await.map_err(|failure| match failure {
            Failure::Absent => {
                let message = "the DID document of the token's issuer has no key for it";
                Refusal::new(Reason::BadJwtIss, message)
            }
            Failure::Unavailable => keys_unavailable(),
        })
    }

    /// The key as it is now, unless that was looked up a short time ago.
    pub(super) async fn newer_key(
        &self,
        did: &Did<'_>,
        seen: &Arc<PublicKey>,
        now: SystemTime,
    ) -> Result<Option<Arc<PublicKey>>, Refusal> {
        match self.kept(did).renew(seen, now, self.look_up(did)).await {
            Err(Failure::Unavailable) => Err(keys_unavailable()),
            Err(Failure::Absent) => Ok(None),
            Ok(newer) => Ok(newer),
        }
    }

    /// Whether both look in the same places.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.plc_url, self.localhost) == (&other.plc_url, other.localhost)
    }

    fn kept(&self, did: &Did<'_>) -> Arc<Kept<PublicKey>> {
        let Ok(kept) =
            self.keys.get_or_insert_with(did.text, || Ok::<_, Infallible>(Arc::default()));
        kept
    }

    async fn look_up(&self, did: &Did<'_>) -> Result<PublicKey, Failure> {
        let (url, trust, lookups) = match did.method {
            Method::Plc => {
                (format!("{}/{}", self.plc_url, did.text), Trust::Operator, &self.plc_lookups)
            }
            Method::Web(host) => {
                (format!("https://{host}{WELL_KNOWN}"), Trust::Public, &self.web_lookups)
            }
            Method::Localhost(port) => {
                (format!("http://localhost:{port}{WELL_KNOWN}"), Trust::Operator, &self.web_lookups)
            }
        };
        let turn = tokio::time::timeout(TURN, Arc::clone(lookups).acquire_owned());
        let turn = turn.await.map_err(|_| Failure::Unavailable)?;
        let document = fetch::document(&url, trust, turn).await?;
        key_of(did.text, &document).ok_or(Failure::Absent)
    }
}

/// 24 characters of base32.
fn is_plc(id: &str) -> bool {
    id.len() == 24 && id.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
}

/// A name of at least two labels, lower case, without port and path. No number: the last label of
/// what a resolver might read as an address begins with a digit.
fn is_host(id: &str) -> bool {
    let is_label = |label: &str| {
        let is_known = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let hyphen = label.starts_with('-') || label.ends_with('-');
        (1..=MAX_LABEL).contains(&label.len()) && !hyphen && label.bytes().all(is_known)
    };
    let last = id.rsplit_once('.').map_or("", |(_, last)| last);
    id.len() <= MAX_HOST
        && last.starts_with(|first: char| first.is_ascii_lowercase())
        && id.split('.').all(is_label)
}

#[derive(Deserialize)]
struct DidDocument {
    id: String,
    #[serde(rename = "verificationMethod", default)]
    methods: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VerificationMethod {
    id: String,
    r#type: String,
    controller: String,
    public_key_multibase: String,
}

/// The account's key: the first that is one.
fn key_of(did: &str, document: &Document) -> Option<PublicKey> {
    let types = ["application/json", "application/did+json", "application/did+ld+json"];
    if !types.contains(&document.media_type.as_str()) {
        return None;
    }
    let document: DidDocument = serde_json::from_slice(&document.body).ok()?;
    if document.id != did {
        return None;
    }
    document.methods.into_iter().find_map(|method| {
        let method: VerificationMethod = serde_json::from_value(method).ok()?;
        let is_ours = method.id.strip_prefix(did).unwrap_or(&method.id) == KEY;
        if !is_ours || method.controller != did {
            return None;
        }
        let text = &method.public_key_multibase;
        match method.r#type.as_str() {
            "Multikey" => PublicKey::multikey(text),
            // older documents: the type says the curve
            "EcdsaSecp256r1VerificationKey2019" => PublicKey::p256(&signature::multibase(text)?),
            "EcdsaSecp256k1VerificationKey2019" => PublicKey::k256(&signature::multibase(text)?),
            _ => None,
        }
    })
}

/// What a failed lookup says about the document.
impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Timeout | FetchError::Unreachable => Self::Unavailable,
            FetchError::Status(429 | 500..) => Self::Unavailable,
            FetchError::Status(_) | FetchError::Refused | FetchError::TooLarge => Self::Absent,
        }
    }
}
