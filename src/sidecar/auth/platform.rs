//! Sessions of the platform: tokens of its own, signed with a shared secret or a published key.
//!
//! A good signature is not enough: the platform's API keys are tokens under the same secret, and
//! its clients send one where nobody is signed in. A session has a user's role, audience and UUID.

use super::User;
use super::jwks::Jwks;
use super::jwt::{Claims, Jwt, bad_signature, wrong_alg};
use super::signature::Alg;
use crate::secrets::Secret;
use portcullis_filters::hmac::Secrets;
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// How far the clocks of the platform and ours may be apart.
const LEEWAY: Duration = Duration::from_secs(60);
/// Characters of a UUID in the form with hyphens, the only one that is taken.
const UUID_LENGTH: usize = 36;

/// Verifies sessions.
#[derive(Debug)]
pub(super) struct Platform {
    issuer: Option<String>,
    audience: String,
    secrets: Option<Secrets>,
    jwks: Option<Arc<Jwks>>,
}

impl Platform {
    pub(super) fn new(
        issuer: Option<String>,
        audience: String,
        secrets: Vec<Secret>,
        jwks_url: Option<String>,
    ) -> Self {
        let jwks = jwks_url.map(|url| Arc::new(Jwks::new(url)));
        Self { issuer, audience, secrets: Secrets::new(secrets), jwks }
    }

    /// Goes on with the keys that `running` fetched.
    pub(super) fn keep(&mut self, running: &Self) {
        if let (Some(jwks), Some(kept)) = (&mut self.jwks, &running.jwks)
            && jwks.is_at(kept)
        {
            *jwks = Arc::clone(kept);
        }
    }

    pub(super) fn is_configured(&self) -> bool {
        self.secrets.is_some() || self.jwks.is_some()
    }

    /// Whose session this is.
    pub(super) async fn user(&self, jwt: &Jwt<'_>, now: SystemTime) -> Result<User, Refusal> {
        if !self.is_configured() {
            return Err(not_configured());
        }
        let user = self.judge(&jwt.claims, now)?;
        self.verify(jwt, now).await?;
        if jwt.claims.is_anonymous == Some(true) {
            let message = "guests can not do this: sign in with an account";
            return Err(Refusal::new(Reason::Forbidden, message));
        }
        Ok(user)
    }

    /// What the token claims, as far as it costs nothing.
    fn judge(&self, claims: &Claims, now: SystemTime) -> Result<User, Refusal> {
        match claims.role.as_deref() {
            Some("authenticated") => {}
            Some("anon" | "service_role") => {
                let message = "the token is an API key, not the session of a user: sign in";
                return Err(Refusal::new(Reason::BadJwt, message));
            }
            _ => return Err(no_session()),
        }
        claims.in_force(now, LEEWAY, LEEWAY)?;
        if !claims.aud.as_ref().is_some_and(|aud| aud.includes(&self.audience)) {
            let message = "the token is for another audience";
            return Err(Refusal::new(Reason::BadJwtAudience, message));
        }
        if self.issuer.is_some() && self.issuer != claims.iss {
            return Err(Refusal::new(Reason::BadJwtIss, "the token is of another issuer"));
        }
        let sub = claims.sub.as_ref().filter(|sub| sub.len() == UUID_LENGTH);
        let id = sub.and_then(|sub| Uuid::try_parse(sub).ok()).ok_or_else(no_session)?;
        Ok(User { id: id.hyphenated().to_string() })
    }

    /// That the platform signed it. A secret never meets the algorithm of a public key, nor a
    /// public key the algorithm of a secret.
    async fn verify(&self, jwt: &Jwt<'_>, now: SystemTime) -> Result<(), Refusal> {
        let is_good = match (jwt.alg, &self.secrets, &self.jwks) {
            (Alg::Es256k, ..) => return Err(wrong_alg()),
            (Alg::Hs256, Some(secrets), _) => <&[u8; 32]>::try_from(jwt.signature.as_slice())
                .is_ok_and(|signature| secrets.verify(jwt.signed, signature)),
            (Alg::Es256 | Alg::Rs256, _, Some(jwks)) => jwks.verify(jwt, now).await?,
            _ => false,
        };
        if is_good { Ok(()) } else { Err(bad_signature()) }
    }
}

/// There is no key to verify a session with.
pub(super) fn not_configured() -> Refusal {
    let message = "sessions can not be verified: the operator has not configured their keys";
    Refusal::new(Reason::NotConfigured, message)
}

fn no_session() -> Refusal {
    Refusal::new(Reason::BadJwt, "the token is not the session of a signed-in user")
}
