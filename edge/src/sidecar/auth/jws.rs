//! A JSON Web Signature (RFC 7515) in compact serialization, parsed but not yet verified.
//!
//! Strict base64url without padding, and UTF-8. A header member that is used must appear once and
//! have its type; other members are ignored.

use super::refuse;
use super::signature::Alg;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_filters::verdict::{Reason, Refusal};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};

/// The type of a token (RFC 7519, section 5.1). A token without one is a plain JWT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenType {
    /// `JWT`.
    Jwt,
    /// `at+jwt`: an access token of OAuth (RFC 9068), such as a session.
    Access,
}

/// A parsed signature with its payload.
pub(super) struct Jws<'a> {
    pub(super) typ: TokenType,
    pub(super) alg: Alg,
    /// The id of the key that the token claims to be signed with.
    pub(super) kid: Option<String>,
    pub(super) payload: Vec<u8>,
    /// The signed part.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    typ: Option<String>,
    kid: Option<String>,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

/// Whether a member is there, even as `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> Jws<'a> {
    /// Parses a token and checks its type and algorithm.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, Refusal> {
        let mut parts = token.rsplitn(2, |byte| *byte == b'.');
        let (signature, signed) = parts.next().zip(parts.next()).ok_or_else(malformed)?;
        let mut parts = signed.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        let Header {
            alg,
            typ,
            kid,
            crit,
        } = json(&decode(header)?)?;
        if crit {
            return refuse(
                Reason::BadJwt,
                "the token requires an extension that is not supported",
            );
        }
        Ok(Self {
            typ: TokenType::parse(typ.as_deref()).ok_or_else(wrong_type)?,
            alg: Alg::of_header(&alg).ok_or_else(wrong_alg)?,
            kid,
            payload: decode(payload)?,
            signed,
            signature: decode(signature)?,
        })
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

/// Parses a JSON object. Invalid UTF-8 is refused in members that are ignored, too.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
    serde_json::from_str(text).map_err(|_| malformed())
}

fn decode(part: &[u8]) -> Result<Vec<u8>, Refusal> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed())
}

fn malformed() -> Refusal {
    Refusal::new(Reason::BadJwt, "the token is not a well-formed JWT")
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
