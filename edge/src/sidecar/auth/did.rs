//! The signing key of an AT Protocol account, from its DID document.
//! <https://atproto.com/specs/did>
//!
//! The sender of a token chooses the DID, and its signature cannot be verified before the lookup.
//! So only two DID methods are supported, with one address each; concurrent lookups are bounded in
//! all, and per client where a stranger chose the host; results are cached; and only public hosts
//! are contacted.

use super::jws::keys_unavailable;
use super::key_cache::{Failure, KeyCache, Lifetime};
use super::signature::{self, PublicKey};
use crate::sidecar::turns::{Turn, Turns};
use portcullis_base::config::SessionLive;
use portcullis_base::fetch::{self, Document, FetchError, Trust};
use portcullis_filters::client::ClientKey;
use portcullis_filters::verdict::{Reason, Refusal};
use portcullis_store::syntax::{is_domain, is_plc};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How long a key is used, as in the reference implementation.
const LIFETIME: Lifetime = Lifetime {
    fresh: Duration::from_secs(60 * 60),
    stale: Duration::from_secs(24 * 60 * 60),
};
/// Accounts in the cache: some three megabytes.
const MAX_CACHED: usize = 10_000;
/// Concurrent lookups in the directory, which the operator chose: 200 new viewers take two seconds
/// where each takes 400 ms.
const PLC_LOOKUPS: usize = 48;
/// Lookups that no single client may use up. Bluesky requests feeds from few addresses, so one
/// client may have all others.
const PLC_RESERVE: usize = 8;
/// Concurrent lookups at hosts of strangers, which may be slow.
const WEB_LOOKUPS: usize = 8;
/// The id of the signing key in an account's DID document.
pub(super) const KEY: &str = "#atproto";
const WELL_KNOWN: &str = "/.well-known/did.json";

/// Looks up the keys of accounts.
#[derive(Debug)]
pub(super) struct Dids {
    plc_url: String,
    localhost: bool,
    keys: KeyCache<PublicKey>,
    plc_lookups: Arc<Turns>,
    web_lookups: Arc<Turns>,
}

/// A DID with a supported method.
#[derive(Clone, Copy)]
pub(super) struct Did<'a> {
    text: &'a str,
    method: Method<'a>,
}

#[derive(Clone, Copy)]
enum Method<'a> {
    Plc,
    /// The host.
    Web(&'a str),
    /// The port.
    Localhost(u16),
}

impl Dids {
    pub(super) fn new(config: &SessionLive) -> Self {
        Self {
            plc_url: config.plc_url.trim_end_matches('/').to_owned(),
            localhost: config.localhost_dids,
            keys: KeyCache::new(MAX_CACHED, LIFETIME),
            plc_lookups: Turns::with_reserve(PLC_LOOKUPS, PLC_RESERVE),
            web_lookups: Turns::equal(WEB_LOOKUPS),
        }
    }

    /// Parses the DID of an account.
    pub(super) fn parse<'a>(&self, text: &'a str) -> Option<Did<'a>> {
        let (method, id) = text.strip_prefix("did:")?.split_once(':')?;
        let method = match (method, id.strip_prefix("localhost%3A")) {
            ("plc", _) if is_plc(id) => Method::Plc,
            ("web", Some(port)) if self.localhost => Method::Localhost(port.parse().ok()?),
            ("web", None) if is_domain(id) => Method::Web(id),
            _ => return None,
        };
        Some(Did { text, method })
    }

    /// The signing key of an account. A lookup takes a slot for this `client`.
    pub(super) async fn key(
        &self,
        did: Did<'_>,
        client: ClientKey,
    ) -> Result<Arc<PublicKey>, Refusal> {
        let turn = self.turns(did).take(client);
        let key = self
            .keys
            .get(did.text, turn, |turn| self.look_up(did, turn))
            .await;
        key.map_err(|failure| match failure {
            Failure::Absent => Refusal::new(
                Reason::BadJwtIss,
                "the DID document of the token's issuer has no signing key",
            ),
            Failure::Unavailable => keys_unavailable(),
        })
    }

    /// The account's current key if it differs from `seen`; looked up at most every 30 seconds.
    pub(super) async fn newer_key(
        &self,
        did: Did<'_>,
        seen: &Arc<PublicKey>,
        client: ClientKey,
    ) -> Result<Option<Arc<PublicKey>>, Refusal> {
        let turn = self.turns(did).take(client);
        match self
            .keys
            .renew(did.text, seen, turn, |turn| self.look_up(did, turn))
            .await
        {
            Err(Failure::Unavailable) => Err(keys_unavailable()),
            Err(Failure::Absent) => Ok(None),
            Ok(newer) => Ok(newer),
        }
    }

    /// Whether both use the same directory and methods.
    pub(super) fn has_same_sources(&self, other: &Self) -> bool {
        (&self.plc_url, self.localhost) == (&other.plc_url, other.localhost)
    }

    fn turns(&self, did: Did<'_>) -> &Arc<Turns> {
        match did.method {
            Method::Plc => &self.plc_lookups,
            Method::Web(_) | Method::Localhost(_) => &self.web_lookups,
        }
    }

    fn look_up(
        &self,
        did: Did<'_>,
        turn: Option<Turn>,
    ) -> impl Future<Output = Result<PublicKey, Failure>> + Send + use<> {
        let (url, trust) = match did.method {
            Method::Plc => (format!("{}/{}", self.plc_url, did.text), Trust::Operator),
            Method::Web(host) => (format!("https://{host}{WELL_KNOWN}"), Trust::Public),
            Method::Localhost(port) => (
                format!("http://localhost:{port}{WELL_KNOWN}"),
                Trust::Operator,
            ),
        };
        let text = did.text.to_owned();
        async move {
            let document = fetch::document(&url, trust, turn).await?;
            key_of(&text, &document).ok_or(Failure::Absent)
        }
    }
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

/// The key in the first verification method with the id of the signing key.
fn key_of(did: &str, document: &Document) -> Option<PublicKey> {
    let types = [
        "application/json",
        "application/did+json",
        "application/did+ld+json",
    ];
    if !types.contains(&document.media_type.as_str()) {
        return None;
    }
    let document: DidDocument = serde_json::from_slice(&document.body).ok()?;
    if document.id != did {
        return None;
    }
    document.methods.into_iter().find_map(|method| {
        let method: VerificationMethod = serde_json::from_value(method).ok()?;
        let is_signing_key = method.id.strip_prefix(did).unwrap_or(&method.id) == KEY;
        if !is_signing_key || method.controller != did {
            return None;
        }
        let text = &method.public_key_multibase;
        match method.r#type.as_str() {
            "Multikey" => PublicKey::multikey(text),
            // in older documents the type names the curve
            "EcdsaSecp256r1VerificationKey2019" => PublicKey::p256(&signature::multibase(text)?),
            "EcdsaSecp256k1VerificationKey2019" => PublicKey::k256(&signature::multibase(text)?),
            _ => None,
        }
    })
}

/// A fetch that may succeed later is `Unavailable`; after any other failure there is no document.
impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        match error {
            FetchError::Timeout | FetchError::Unreachable | FetchError::Tls(_) => Self::Unavailable,
            FetchError::Status(429 | 500..) => Self::Unavailable,
            FetchError::Status(_) | FetchError::Refused | FetchError::TooLarge => Self::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_did_is_a_domain() {
        for host in ["host.example", "a-b.1.xn--p1ai"] {
            assert!(is_domain(host), "{host}");
        }
    }
}
