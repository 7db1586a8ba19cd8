//! A JSON Web Token (RFC 7519) in compact serialization (RFC 7515), parsed but not yet verified.
//!
//! Strict base64url without padding. A member that is used must appear once and have its type;
//! other members are ignored.

use super::refuse;
use super::signature::Alg;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_filters::verdict::{Reason, Refusal};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::time::{Duration, SystemTime};

/// The type of a token (RFC 7519, section 5.1). A token without one is a plain JWT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    /// `JWT`.
    Jwt,
    /// `at+jwt`: an access token of OAuth (RFC 9068), such as a session.
    Access,
}

/// A parsed token.
pub(super) struct Jwt<'a> {
    pub(super) typ: TokenType,
    pub(super) alg: Alg,
    /// The id of the key that the token claims to be signed with.
    pub(super) kid: Option<String>,
    pub(super) claims: Claims,
    /// The signed part.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
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
        let malformed = || Refusal::new(Reason::BadJwt, "the token is not a well-formed JWT");
        let mut parts = token.rsplitn(2, |byte| *byte == b'.');
        let (signature, signed) = parts.next().zip(parts.next()).ok_or_else(malformed)?;
        let mut parts = signed.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        let Header {
            alg,
            typ,
            kid,
            crit,
        } = json(header).ok_or_else(malformed)?;
        if crit.is_some() {
            return refuse(
                Reason::BadJwt,
                "the token requires an extension that is not supported",
            );
        }
        let typ = TokenType::parse(typ.as_deref()).ok_or_else(wrong_type)?;
        let alg = Alg::of_header(&alg).ok_or_else(wrong_alg)?;
        let claims = json(claims).ok_or_else(malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        Ok(Self {
            typ,
            alg,
            kid,
            claims,
            signed,
            signature,
        })
    }

    /// Whether the issuer claims to be an AT Protocol account.
    pub(super) fn is_service_token(&self) -> bool {
        self.claims
            .iss
            .as_ref()
            .is_some_and(|iss| iss.starts_with("did:"))
    }
}

impl TokenType {
    /// Parses the media type, whose `application/` may be left out (RFC 7515, section 4.1.9).
    fn parse(typ: Option<&str>) -> Option<Self> {
        let Some(typ) = typ else {
            return Some(Self::Jwt);
        };
        let typ = typ.to_ascii_lowercase();
        match typ.strip_prefix("application/").unwrap_or(&typ) {
            "jwt" => Some(Self::Jwt),
            "at+jwt" => Some(Self::Access),
            _ => None,
        }
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

/// The refusal of a token of another type.
pub(super) fn wrong_type() -> Refusal {
    Refusal::new(Reason::BadJwtType, "the token's type must be `JWT`")
}

/// The refusal of a token whose algorithm no key of the issuer has.
pub(super) fn wrong_alg() -> Refusal {
    Refusal::new(Reason::BadJwtType, "the token's algorithm is not accepted")
}

/// The refusal of a signature that no key of the issuer made.
pub(super) fn bad_signature() -> Refusal {
    Refusal::new(
        Reason::BadJwtSignature,
        "the token's signature is not by a key of its issuer",
    )
}

/// The refusal while the keys cannot be fetched.
pub(super) fn keys_unavailable() -> Refusal {
    Refusal::new(
        Reason::KeysUnavailable,
        "the keys that verify the token cannot be fetched now: try again",
    )
}

fn json<T: DeserializeOwned>(part: &[u8]) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}
