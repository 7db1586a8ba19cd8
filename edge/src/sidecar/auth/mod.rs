//! Authentication: a user of the platform, or an AT Protocol account.
//!
//! In: the value of `Authorization`, and the time. Out: the identity, or the refusal. The issuer,
//! not yet verified, selects the key: that of the account if the issuer is a DID, else the
//! platform's. Claims are checked first, so that no key is fetched for a token that is refused
//! anyway. No message contains a part of a token.
//!
//! Reading order: `jws.rs` and `jwt.rs`, `platform.rs` and `jwks.rs`, `service_token.rs` and
//! `did.rs`, `signature.rs`, `key_cache.rs`.

mod did;
mod jwks;
mod jws;
mod jwt;
mod key_cache;
mod platform;
mod service_token;
mod signature;
#[cfg(test)]
mod wycheproof;

use jwt::Jwt;
use platform::Platform;
use portcullis_base::config::SessionLive;
use portcullis_base::secrets::Secret;
use portcullis_filters::client::ClientKey;
use portcullis_filters::policy::Authorization;
use portcullis_filters::verdict::{Reason, Refusal};
use service_token::ServiceTokens;
use std::borrow::Cow;
use std::time::SystemTime;

/// 8 KiB: sessions have one or two KiB, service tokens less than one.
const MAX_AUTHORIZATION: usize = 8 << 10;

/// A signed-in user of the platform who is not a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The UUID in lower case.
    pub id: String,
}

/// The reader of a personal feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// A user of the platform.
    User(User),
    /// An AT Protocol account: its DID.
    Did(String),
}

/// Authenticates requests.
#[derive(Debug)]
pub struct Auth {
    platform: Platform,
    service_tokens: ServiceTokens,
}

impl Auth {
    /// Verifies sessions with one of `secrets`: none, or one or two different ones of at least 32
    /// bytes. The audience of service tokens is `service_did`.
    pub fn new(config: &SessionLive, secrets: Vec<Secret>, service_did: String) -> Self {
        Self {
            platform: Platform::new(config, secrets),
            service_tokens: ServiceTokens::new(config, service_did),
        }
    }

    /// Takes the cached keys of `running` where the source is the same, so that a reload during an
    /// outage of that source signs nobody out.
    pub(super) fn adopt_cache(&mut self, running: &Self) {
        self.platform.adopt_cache(&running.platform);
        self.service_tokens.adopt_cache(&running.service_tokens);
    }

    /// The user of a session.
    ///
    /// # Errors
    /// Returns `not_configured`, `unauthorized` without a token, `forbidden` for a guest,
    /// `keys_unavailable`, or the fault of the token: `bad_jwt…` or `jwt_expired`.
    pub async fn user(
        &self,
        authorization: &Authorization,
        now: SystemTime,
    ) -> Result<User, Refusal> {
        if !self.platform.is_configured() {
            return Err(platform::not_configured());
        }
        let jwt = Jwt::parse(bearer(authorization)?)?;
        if jwt.is_service_token() {
            return refuse(
                Reason::BadJwtIss,
                "send a session of the platform, not a service token",
            );
        }
        self.platform.user(&jwt, now).await
    }

    /// The reader of a personal feed who calls the XRPC method `lxm` from this `client`.
    ///
    /// # Errors
    /// Fails as [`Self::user`] does, but with `not_configured` only for a session of the platform.
    pub async fn viewer(
        &self,
        authorization: &Authorization,
        lxm: &str,
        client: ClientKey,
        now: SystemTime,
    ) -> Result<Viewer, Refusal> {
        let jwt = Jwt::parse(bearer(authorization)?)?;
        if jwt.is_service_token() {
            self.service_tokens
                .account(&jwt, lxm, client, now)
                .await
                .map(Viewer::Did)
        } else {
            self.platform.user(&jwt, now).await.map(Viewer::User)
        }
    }
}

/// The token after `Bearer`, in any case, and one space. Two `Authorization` headers are refused.
fn bearer(authorization: &Authorization) -> Result<&[u8], Refusal> {
    let value = match authorization {
        Authorization::Absent => None,
        Authorization::Present(value) => Some(value.expose()),
        Authorization::Duplicate => {
            return refuse(Reason::Unauthorized, "send one Authorization header");
        }
    };
    match value.and_then(|value| value.split_at_checked(b"Bearer ".len())) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            if token.len() > MAX_AUTHORIZATION - scheme.len() {
                return refuse(Reason::BadJwt, "the token is larger than 8 KiB");
            }
            Ok(token)
        }
        _ => refuse(Reason::Unauthorized, "sign in: this needs a bearer token"),
    }
}

fn refuse<T>(reason: Reason, message: impl Into<Cow<'static, str>>) -> Result<T, Refusal> {
    Err(Refusal::new(reason, message))
}
