//! A JSON Web Token, parsed and not verified yet: RFC 7515 in its compact form, RFC 7519.
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

/// A parsed token.
pub(super) struct Jwt<'a> {
    pub(super) alg: Alg,
    /// The id of the issuer's key that it claims to be signed with.
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
        let Header { alg, typ, kid, crit } = json(header).ok_or_else(malformed)?;
        if crit.is_some() {
            return refuse(Reason::BadJwt, "the token requires an extension that is not supported");
        }
        if typ.is_some_and(|typ| !typ.eq_ignore_ascii_case("JWT")) {
            return refuse(Reason::BadJwtType, "the token's type must be `JWT`");
        }
        let alg = Alg::parse(&alg).ok_or_else(wrong_alg)?;
        let claims = json(claims).ok_or_else(malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        Ok(Self { alg, kid, claims, signed, signature })
    }

    /// Whether its issuer claims to be an AT Protocol account.
    pub(super) fn is_service_token(&self) -> bool {
        self.claims.iss.as_ref().is_some_and(|iss| iss.starts_with("did:"))
    }
}

impl Claims {
    /// Checks that the token is valid now: up to `early` before it begins and up to `late` after it
    /// ends. Returns its end.
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
    /// Whether `recipient` is among them.
    pub(super) fn includes(&self, recipient: &str) -> bool {
        match self {
            Self::One(one) => one == recipient,
            Self::Many(many) => many.iter().any(|one| one == recipient),
        }
    }
}

/// The seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// No key of the issuer has the token's algorithm.
pub(super) fn wrong_alg() -> Refusal {
    Refusal::new(Reason::BadJwtType, "the token's algorithm is not accepted")
}

/// The signature is not by a key of the issuer.
pub(super) fn bad_signature() -> Refusal {
    Refusal::new(Reason::BadJwtSignature, "the token's signature is not by a key of its issuer")
}

/// The keys cannot be fetched at present.
pub(super) fn keys_unavailable() -> Refusal {
    Refusal::new(
        Reason::KeysUnavailable,
        "the keys that verify the token cannot be fetched now: try again",
    )
}

fn json<T: DeserializeOwned>(part: &[u8]) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(header: &str, claims: &str, signature: &str) -> Option<Reason> {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let token = format!("{header}.{claims}.{signature}");
        Jwt::parse(token.as_bytes()).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn a_token_is_two_objects_and_a_signature() {
        let (hs256, claims) = (r#"{"alg":"HS256","typ":"JWT"}"#, r#"{"exp":1,"x":[{}]}"#);
        let deep = format!(r#"{{"x":{}}}"#, "[".repeat(3000));
        for (header, claims, signature, expected) in [
            (hs256, claims, "AAAA", None),
            (hs256, claims, "", None),
            (r#"{"alg":"HS256"}"#, claims, "AAAA", None),
            (r#"{"alg":"ES256K","typ":"jwt","kid":"1","jku":"x"}"#, claims, "AAAA", None),
            (hs256, r#"{"exp":1.5,"aud":["a","b"],"is_anonymous":false}"#, "AAAA", None),
            (hs256, r#"{"exp":"1"}"#, "AAAA", Some(Reason::BadJwt)),
            (hs256, r#"{"exp":1e999}"#, "AAAA", Some(Reason::BadJwt)),
            (hs256, r#"{"exp":1,"exp":2}"#, "AAAA", Some(Reason::BadJwt)),
            (hs256, r#"{"iss":"a","i\u0073s":"did:plc:b"}"#, "AAAA", Some(Reason::BadJwt)),
            (hs256, r#"{"aud":1}"#, "AAAA", Some(Reason::BadJwt)),
            (hs256, r#"{"is_anonymous":"false"}"#, "AAAA", Some(Reason::BadJwt)),
            (hs256, "{} {}", "AAAA", Some(Reason::BadJwt)),
            (hs256, "[]", "AAAA", Some(Reason::BadJwt)),
            (hs256, "", "AAAA", Some(Reason::BadJwt)),
            (hs256, "\u{feff}{}", "AAAA", Some(Reason::BadJwt)),
            (hs256, &deep, "AAAA", Some(Reason::BadJwt)),
            (hs256, claims, "AAA=", Some(Reason::BadJwt)),
            (hs256, claims, "AAB", Some(Reason::BadJwt)),
            (hs256, claims, "AA AA", Some(Reason::BadJwt)),
            (hs256, claims, "AA+/", Some(Reason::BadJwt)),
            (hs256, claims, "AAAA.AAAA", Some(Reason::BadJwt)),
            ("{}", claims, "AAAA", Some(Reason::BadJwt)),
            (r#"{"alg":"HS256","alg":"HS256"}"#, claims, "AAAA", Some(Reason::BadJwt)),
            (r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, claims, "AAAA", Some(Reason::BadJwt)),
            (r#"{"alg":"none"}"#, claims, "", Some(Reason::BadJwtType)),
            (r#"{"alg":"hs256"}"#, claims, "AAAA", Some(Reason::BadJwtType)),
            (r#"{"alg":"HS512"}"#, claims, "AAAA", Some(Reason::BadJwtType)),
            (r#"{"alg":"HS256","typ":"at+jwt"}"#, claims, "AAAA", Some(Reason::BadJwtType)),
            (r#"{"alg":"HS256","typ":"refresh+jwt"}"#, claims, "AAAA", Some(Reason::BadJwtType)),
            (r#"{"alg":"ES256","typ":"dpop+jwt"}"#, claims, "AAAA", Some(Reason::BadJwtType)),
        ] {
            assert_eq!(reason(header, claims, signature), expected, "{header} {claims}");
        }
        for token in ["", ".", "..", "a.b", "e30.e30", "e30.e30.e30.e30"] {
            let refusal = Jwt::parse(token.as_bytes()).err().map(|refusal| refusal.reason);
            assert_eq!(refusal, Some(Reason::BadJwt), "{token:?}");
        }
    }
}
