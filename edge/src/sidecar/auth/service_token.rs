//! Service tokens of AT Protocol, by which an account's server acts for the account. The account's
//! key signs them. <https://atproto.com/specs/xrpc>, "Inter-Service Authentication".
//!
//! Token ids are not stored: a server may send a token twice, since requests only read.

use super::did::{Dids, KEY};
use super::jws::{TokenType, bad_signature, wrong_alg, wrong_type};
use super::jwt::{Audience, Jwt, seconds};
use super::refuse;
use super::signature::{Alg, PublicKey};
use portcullis_base::config::SessionLive;
use portcullis_filters::client::ClientKey;
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Accepted difference between a server's clock and ours: strict checks have broken real feeds.
const LEEWAY: Duration = Duration::from_secs(60);
/// The longest lifetime of a token.
const MAX_LIFE: Duration = Duration::from_secs(60 * 60);
/// The service in our DID document that a token may name.
const SERVICE: &str = "#bsky_fg";

/// Verifies service tokens.
#[derive(Debug)]
pub(super) struct ServiceTokens {
    service_did: String,
    dids: Arc<Dids>,
}

impl ServiceTokens {
    pub(super) fn new(config: &SessionLive, service_did: String) -> Self {
        Self {
            service_did,
            dids: Arc::new(Dids::new(config)),
        }
    }

    /// Takes the cached keys of `running` if they have the same source.
    pub(super) fn adopt_cache(&mut self, running: &Self) {
        if self.dids.has_same_sources(&running.dids) {
            self.dids = Arc::clone(&running.dids);
        }
    }

    /// The DID of the account that issued this token.
    pub(super) async fn account(
        &self,
        jwt: &Jwt<'_>,
        lxm: &str,
        client: ClientKey,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        self.check_claims(jwt, lxm, now)?;
        let unknown = || {
            Refusal::new(
                Reason::BadJwtIss,
                "the token's issuer must be a DID of the method plc or web",
            )
        };
        let iss = jwt.claims.iss.as_deref().unwrap_or_default();
        let did = self.dids.parse(iss).ok_or_else(unknown)?;
        let signed = |key: &PublicKey| key.verify(jwt.jws.alg, jwt.jws.signed, &jwt.jws.signature);
        let key = self.dids.key(did, client).await?;
        if signed(&key) {
            return Ok(iss.to_owned());
        }
        // the account may have a new key
        match self.dids.newer_key(did, &key, client).await? {
            Some(newer) if signed(&newer) => Ok(iss.to_owned()),
            _ => Err(bad_signature()),
        }
    }

    /// Checks the claims, which is cheap, before any lookup.
    fn check_claims(&self, jwt: &Jwt<'_>, lxm: &str, now: SystemTime) -> Result<(), Refusal> {
        // an access token of the account is for its own server
        if jwt.jws.typ != TokenType::Jwt {
            return Err(wrong_type());
        }
        if !matches!(jwt.jws.alg, Alg::Es256 | Alg::Es256k) {
            return Err(wrong_alg());
        }
        // a token is made for one request: no leeway after its end
        let exp = jwt.claims.check_time(now, Duration::ZERO, LEEWAY)?;
        if exp > seconds(now + MAX_LIFE + LEEWAY) {
            return refuse(Reason::BadJwt, "the token is valid for more than one hour");
        }
        match &jwt.claims.aud {
            Some(Audience::One(aud)) if self.is_us(aud) => {}
            _ => {
                return refuse(Reason::BadJwtAudience, "the token is for another service");
            }
        }
        if jwt.claims.lxm.as_deref() != Some(lxm) {
            return refuse(
                Reason::BadJwtLexiconMethod,
                format!("the token is not for the method {lxm}"),
            );
        }
        if jwt.jws.kid.as_ref().is_some_and(|kid| kid != KEY) {
            return refuse(
                Reason::BadJwtSignature,
                "the token must be signed with the key `#atproto`",
            );
        }
        Ok(())
    }

    fn is_us(&self, aud: &str) -> bool {
        aud.strip_prefix(&*self.service_did)
            .is_some_and(|rest| matches!(rest, "" | SERVICE))
    }
}
