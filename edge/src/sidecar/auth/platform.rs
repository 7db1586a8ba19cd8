//! Sessions of the platform: its own tokens, signed with a shared secret or a published key.
//!
//! A valid signature is not enough: the platform's API keys are tokens under the same secret, and
//! its clients send one when no user is signed in. A session has a user's role, audience and UUID.

use super::jwks::Jwks;
use super::jws::{Jws, bad_signature, wrong_alg};
use super::jwt::{Claims, Jwt};
use super::signature::Alg;
use super::{User, refuse};
use portcullis_base::config::SessionLive;
use portcullis_base::secrets::Secret;
use portcullis_filters::hmac::Secrets;
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// Accepted difference between the platform's clock and ours.
const LEEWAY: Duration = Duration::from_secs(60);
/// The length of a UUID with hyphens, the only accepted form.
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
    pub(super) fn new(config: &SessionLive, secrets: Vec<Secret>) -> Self {
        let SessionLive {
            issuer,
            audience,
            jwks_url,
            ..
        } = config.clone();
        let jwks = jwks_url.map(|url| Arc::new(Jwks::new(url)));
        Self {
            issuer,
            audience,
            secrets: Secrets::new(secrets),
            jwks,
        }
    }

    /// Takes the cached keys of `running` if they have the same source.
    pub(super) fn adopt_cache(&mut self, running: &Self) {
        if let (Some(jwks), Some(cached)) = (&mut self.jwks, &running.jwks)
            && jwks.has_same_source(cached)
        {
            *jwks = Arc::clone(cached);
        }
    }

    pub(super) fn is_configured(&self) -> bool {
        self.secrets.is_some() || self.jwks.is_some()
    }

    /// The user of this session.
    pub(super) async fn user(&self, jwt: &Jwt<'_>, now: SystemTime) -> Result<User, Refusal> {
        if !self.is_configured() {
            return Err(not_configured());
        }
        let user = self.check_claims(&jwt.claims, now)?;
        self.verify(&jwt.jws).await?;
        if jwt.claims.is_anonymous == Some(true) {
            return refuse(
                Reason::Forbidden,
                "guests cannot do this: sign in with an account",
            );
        }
        Ok(user)
    }

    /// Checks the claims, which is cheap, before the signature.
    fn check_claims(&self, claims: &Claims, now: SystemTime) -> Result<User, Refusal> {
        match claims.role.as_deref() {
            Some("authenticated") => {}
            Some("anon" | "service_role") => {
                return refuse(
                    Reason::BadJwt,
                    "the token is an API key, not a user's session: sign in",
                );
            }
            _ => return Err(no_session()),
        }
        claims.check_time(now, LEEWAY, LEEWAY)?;
        if !claims
            .aud
            .as_ref()
            .is_some_and(|aud| aud.includes(&self.audience))
        {
            return refuse(Reason::BadJwtAudience, "the token is for another audience");
        }
        if self.issuer.is_some() && self.issuer != claims.iss {
            return refuse(Reason::BadJwtIss, "the token is from another issuer");
        }
        let sub = claims.sub.as_ref().filter(|sub| sub.len() == UUID_LENGTH);
        let id = sub
            .and_then(|sub| Uuid::try_parse(sub).ok())
            .ok_or_else(no_session)?;
        Ok(User {
            id: id.hyphenated().to_string(),
        })
    }

    /// Checks the platform's signature. A secret is never used with the algorithm of a public key,
    /// nor a public key with the algorithm of a secret.
    pub(super) async fn verify(&self, jws: &Jws<'_>) -> Result<(), Refusal> {
        let is_good = match (jws.alg, &self.secrets, &self.jwks) {
            (Alg::Es256k, ..) => return Err(wrong_alg()),
            (Alg::Hs256, Some(secrets), _) => <&[u8; 32]>::try_from(jws.signature.as_slice())
                .is_ok_and(|signature| secrets.verify(jws.signed, signature)),
            (Alg::Es256 | Alg::Rs256 | Alg::EdDsa, _, Some(jwks)) => jwks.verify(jws).await?,
            _ => false,
        };
        if is_good {
            Ok(())
        } else {
            Err(bad_signature())
        }
    }
}

/// The refusal while no key for sessions is configured.
pub(super) fn not_configured() -> Refusal {
    Refusal::new(
        Reason::NotConfigured,
        "sessions cannot be verified: the operator has not configured their keys",
    )
}

fn no_session() -> Refusal {
    Refusal::new(
        Reason::BadJwt,
        "the token is not the session of a signed-in user",
    )
}
