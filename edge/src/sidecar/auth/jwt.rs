//! A JSON Web Token (RFC 7519): a signature and its claims, parsed but not yet verified.
//!
//! A claim that is used must appear once and have its type; other claims are ignored.

use super::jws::{Jws, json};
use super::refuse;
use portcullis_filters::verdict::{Reason, Refusal};
use serde::Deserialize;
use std::time::{Duration, SystemTime};

/// A parsed token.
pub(super) struct Jwt<'a> {
    pub(super) jws: Jws<'a>,
    pub(super) claims: Claims,
}

/// The claims that are used. Instants are seconds since 1970, with or without a fraction.
#[derive(Deserialize)]
pub(super) struct Claims {
    pub(super) iss: Option<String>,
    pub(super) aud: Option<Audience>,
    pub(super) sub: Option<String>,
    pub(super) role: Option<String>,
    pub(super) exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    pub(super) lxm: Option<String>,
    pub(super) is_anonymous: Option<bool>,
}

/// The recipients of a token.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Audience {
    One(String),
    Many(Vec<String>),
}

impl<'a> Jwt<'a> {
    /// Parses a token and checks its type and algorithm.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, Refusal> {
        let jws = Jws::parse(token)?;
        let claims = json(&jws.payload)?;
        Ok(Self { jws, claims })
    }

    /// Whether the issuer claims to be an AT Protocol account.
    pub(super) fn is_service_token(&self) -> bool {
        self.claims
            .iss
            .as_ref()
            .is_some_and(|iss| iss.starts_with("did:"))
    }
}

impl Claims {
    /// Checks that the token is valid now, tolerating a use up to `early` before its start and up
    /// to `late` after its expiry. Returns the expiry.
    pub(super) fn check_time(
        &self,
        now: SystemTime,
        late: Duration,
        early: Duration,
    ) -> Result<f64, Refusal> {
        let missing = || Refusal::new(Reason::BadJwt, "the token has no `exp`");
        let exp = self.exp.ok_or_else(missing)?;
        let now = seconds(now);
        if exp + late.as_secs_f64() <= now {
            return refuse(Reason::JwtExpired, "the token has expired");
        }
        let begins = [self.nbf, self.iat].into_iter().flatten();
        if begins.fold(now, f64::max) > now + early.as_secs_f64() {
            return refuse(Reason::JwtExpired, "the token is not valid yet");
        }
        Ok(exp)
    }
}

impl Audience {
    /// Whether the token is for `recipient`.
    pub(super) fn includes(&self, recipient: &str) -> bool {
        match self {
            Self::One(one) => one == recipient,
            Self::Many(many) => many.iter().any(|one| one == recipient),
        }
    }
}

/// The seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
