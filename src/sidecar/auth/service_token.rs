//! Service tokens of AT Protocol: an account's server signs, with the account's key, that it asks
//! for the account. <https://atproto.com/specs/xrpc>, "Inter-Service Authentication".
//!
//! The id of a token is not kept: a server may ask twice with one, and what is asked for is only
//! read.

use super::did::Dids;
use super::jwt::{Audience, Jwt, bad_signature, seconds, wrong_alg};
use super::signature::{Alg, PublicKey};
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How far the clocks of a server and ours may be apart: strict checks have broken real feeds.
const LEEWAY: Duration = Duration::from_secs(60);
/// The longest life that servers give a token.
const MAX_LIFE: Duration = Duration::from_secs(60 * 60);
/// The service in our DID document that a token may name.
const SERVICE: &str = "#bsky_fg";
/// The key in an account's DID document that signs.
pub(super) const KEY: &str = "#atproto";

/// Verifies service tokens.
#[derive(Debug)]
pub(super) struct ServiceTokens {
    service_did: String,
    dids: Arc<Dids>,
}

impl ServiceTokens {
    pub(super) fn new(service_did: String, plc_url: String, localhost_dids: bool) -> Self {
        Self { service_did, dids: Arc::new(Dids::new(plc_url, localhost_dids)) }
    }

    /// Goes on with the keys that `running` looked up.
    pub(super) fn keep(&mut self, running: &Self) {
        if self.dids.is_like(&running.dids) {
            self.dids = Arc::clone(&running.dids);
        }
    }

    /// Whose token this is: the account's DID.
    pub(super) async fn account(
        &self,
        jwt: &Jwt<'_>,
        lxm: &str,
        now: SystemTime,
    ) -> Result<String, Refusal> {
        self.judge(jwt, lxm, now)?;
        let unknown = || {
            let message = "the token's issuer is no DID of an account that can be looked up";
            Refusal::new(Reason::BadJwtIss, message)
        };
        let iss = jwt.claims.iss.as_deref().unwrap_or_default();
        let did = self.dids.parse(iss).ok_or_else(unknown)?;
        let signed = |key: &PublicKey| key.verify(jwt.alg, jwt.signed, &jwt.signature);
        let key = self.dids.key(&did, now).await?;
        if signed(&key) {
            return Ok(iss.to_owned());
        }
        // the account may have changed its key
        match self.dids.newer_key(&did, &key, now).await? {
            Some(newer) if signed(&newer) => Ok(iss.to_owned()),
            _ => Err(bad_signature()),
        }
    }

    /// What the token claims, as far as it costs nothing.
    fn judge(&self, jwt: &Jwt<'_>, lxm: &str, now: SystemTime) -> Result<(), Refusal> {
        if !matches!(jwt.alg, Alg::Es256 | Alg::Es256k) {
            return Err(wrong_alg());
        }
        // a token is made for one request: it is not taken a moment longer than it says
        let exp = jwt.claims.in_force(now, Duration::ZERO, LEEWAY)?;
        if exp > seconds(now + MAX_LIFE + LEEWAY) {
            let message = "the token lives longer than one hour";
            return Err(Refusal::new(Reason::BadJwt, message));
        }
        match &jwt.claims.aud {
            Some(Audience::One(aud)) if self.is_us(aud) => {}
            _ => {
                let message = "the token is for another service";
                return Err(Refusal::new(Reason::BadJwtAudience, message));
            }
        }
        if jwt.claims.lxm.as_deref() != Some(lxm) {
            let message = format!("the token is not for the method {lxm}");
            return Err(Refusal::new(Reason::BadJwtLexiconMethod, message));
        }
        if jwt.kid.as_ref().is_some_and(|kid| kid != KEY) {
            let message = "the token is signed with another key than `#atproto`";
            return Err(Refusal::new(Reason::BadJwtSignature, message));
        }
        Ok(())
    }

    fn is_us(&self, aud: &str) -> bool {
        aud.strip_prefix(&*self.service_did).is_some_and(|rest| matches!(rest, "" | SERVICE))
    }
}
