//! Who asks: a user of the platform, or an AT Protocol account.
//!
//! In: the value of `Authorization`, and the time. Out: who it is, or the refusal. The token, not
//! verified yet, says who is to verify it (an issuer that is a DID: its account's key; any other:
//! the platform's keys), and then only that one does. What costs nothing is judged first, so that
//! no key is looked up for a token that is refused anyway. No message holds a part of a token.
//!
//! Reading order: `jwt.rs` (what a token is), `platform.rs` and `jwks.rs`, `service_token.rs` and
//! `did.rs`, `signature.rs` (keys), `kept.rs` (fetched by one, kept for all).

mod did;
mod jwks;
mod jwt;
mod kept;
mod platform;
mod service_token;
mod signature;
#[cfg(test)]
mod tests;

use crate::secrets::Secret;
use jwt::Jwt;
use platform::Platform;
use portcullis_filters::verdict::{Reason, Refusal};
use service_token::ServiceTokens;
use std::time::SystemTime;

/// 8 KiB: sessions have one or two, service tokens less than one.
const MAX_AUTHORIZATION: usize = 8 << 10;

/// Whose tokens are taken.
#[derive(Debug)]
pub struct AuthSettings {
    /// The `iss` that a platform session must have; any when there is none.
    pub issuer: Option<String>,
    /// The `aud` that it must have.
    pub audience: String,
    /// What it is signed with: one or two different secrets of at least 32 bytes. None, or others,
    /// and no session is taken that a secret signed.
    pub hs256_secrets: Vec<Secret>,
    /// Where the public keys are that it is signed with.
    pub jwks_url: Option<String>,
    /// Where the documents of `did:plc` are.
    pub plc_url: String,
    /// Who service tokens must be for.
    pub service_did: String,
    /// `did:web:localhost%3APORT` is looked up over http: for development.
    pub localhost_dids: bool,
}

/// A user of the platform who is signed in, and not as a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The UUID, lower case.
    pub id: String,
}

/// Whoever looks at a personal feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// A user of the platform.
    User(User),
    /// An AT Protocol account: its DID.
    Did(String),
}

/// Finds out who asks.
#[derive(Debug)]
pub struct Auth {
    platform: Platform,
    service_tokens: ServiceTokens,
}

impl Auth {
    /// By these settings.
    pub fn new(settings: AuthSettings) -> Self {
        let AuthSettings { issuer, audience, hs256_secrets, jwks_url, .. } = settings;
        let AuthSettings { plc_url, service_did, localhost_dids, .. } = settings;
        Self {
            platform: Platform::new(issuer, audience, hs256_secrets, jwks_url),
            service_tokens: ServiceTokens::new(service_did, plc_url, localhost_dids),
        }
    }

    /// Goes on with what `running` looked up, where it would look in the same place: a change of
    /// other settings must not sign everybody out while keys can not be had.
    pub fn keep(&mut self, running: &Self) {
        self.platform.keep(&running.platform);
        self.service_tokens.keep(&running.service_tokens);
    }

    /// Whether the keys of platform sessions are known.
    pub fn is_configured(&self) -> bool {
        self.platform.is_configured()
    }

    /// The user whose session this is. `authorization` is the header's only value.
    ///
    /// # Errors
    /// `not_configured`, `unauthorized` without a token, `forbidden` for a guest,
    /// `keys_unavailable`; else one of `bad_jwt…` or `jwt_expired` tells what is wrong with it.
    pub async fn user(
        &self,
        authorization: Option<&[u8]>,
        now: SystemTime,
    ) -> Result<User, Refusal> {
        if !self.is_configured() {
            return Err(platform::not_configured());
        }
        let jwt = Jwt::parse(bearer(authorization)?)?;
        if jwt.is_service_token() {
            let message = "this takes a session of the platform, not a service token";
            return Err(Refusal::new(Reason::BadJwtIss, message));
        }
        self.platform.user(&jwt, now).await
    }

    /// Whoever looks at a personal feed by the XRPC method `lxm`. `authorization` is the header's
    /// only value.
    ///
    /// # Errors
    /// As [`Self::user`]; `not_configured` only for a session of the platform.
    pub async fn viewer(
        &self,
        authorization: Option<&[u8]>,
        lxm: &str,
        now: SystemTime,
    ) -> Result<Viewer, Refusal> {
        let jwt = Jwt::parse(bearer(authorization)?)?;
        if jwt.is_service_token() {
            self.service_tokens.account(&jwt, lxm, now).await.map(Viewer::Did)
        } else {
            self.platform.user(&jwt, now).await.map(Viewer::User)
        }
    }
}

/// The token: `Bearer` in any case, one space, and what follows.
fn bearer(authorization: Option<&[u8]>) -> Result<&[u8], Refusal> {
    let split = authorization.and_then(|value| value.split_at_checked(b"Bearer ".len()));
    match split {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            if token.len() > MAX_AUTHORIZATION - scheme.len() {
                return Err(Refusal::new(Reason::BadJwt, "the token is larger than 8 KiB"));
            }
            Ok(token)
        }
        _ => Err(Refusal::new(Reason::Unauthorized, "sign in: this needs a bearer token")),
    }
}
