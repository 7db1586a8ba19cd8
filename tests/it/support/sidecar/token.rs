//! Sessions of the platform's users, signed by an implementation independent of the one under test.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::stage::SESSION_SECRET;
use crate::support::request::Request;

/// A builder of tokens.
#[derive(Clone)]
pub(crate) struct Token {
    header: Value,
    claims: Map<String, Value>,
    secret: String,
}

impl Token {
    /// A session of this user that is valid for another hour.
    pub(crate) fn of(user: &str) -> Self {
        let claims = json!({
            "iss": "https://project.example/auth/v1",
            "aud": "authenticated",
            "role": "authenticated",
            "sub": user,
            "iat": seconds_from_now(-60),
            "exp": seconds_from_now(3600),
            "is_anonymous": false,
            "email": "nobody@mail.example",
        });
        let claims = claims.as_object().expect("it is an object").clone();
        let header = json!({ "alg": "HS256", "typ": "JWT" });
        Self {
            header,
            claims,
            secret: SESSION_SECRET.to_owned(),
        }
    }

    /// A token for an AT Protocol account's call of a method of this service, without a valid
    /// signature.
    pub(crate) fn of_service(issuer: &str, audience: &str, method: &str) -> Self {
        let claims = json!({
            "iss": issuer,
            "aud": audience,
            "lxm": method,
            "iat": seconds_from_now(-1),
            "exp": seconds_from_now(60),
        });
        let claims = claims.as_object().expect("it is an object").clone();
        let header = json!({ "alg": "ES256K", "typ": "JWT" });
        Self {
            header,
            claims,
            secret: SESSION_SECRET.to_owned(),
        }
    }

    /// Adds or replaces a claim.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.claims.insert(name.to_owned(), value);
        self
    }

    /// Removes this claim.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.claims.remove(name);
        self
    }

    /// Adds or replaces a member of the header.
    pub(crate) fn header(mut self, name: &str, value: Value) -> Self {
        self.header[name] = value;
        self
    }

    /// Signs with another secret.
    pub(crate) fn signed_with(mut self, secret: &str) -> Self {
        secret.clone_into(&mut self.secret);
        self
    }

    /// The encoded token.
    pub(crate) fn text(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        let of_a_curve = matches!(self.header["alg"].as_str(), Some("ES256K" | "ES256"));
        // twice 32 bytes: as long as a signature over either curve
        let times = if of_a_curve { 2 } else { 1 };
        self.signed_by(|message| hmac::sign(&key, message).as_ref().repeat(times))
    }

    /// The encoded token with the signature that `sign` returns.
    pub(crate) fn signed_by(&self, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let claims = Value::Object(self.claims.clone());
        let parts = [self.header.to_string(), claims.to_string()];
        let message = parts
            .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part))
            .join(".");
        let signature = sign(message.as_bytes());
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// The request with this token.
    pub(crate) fn on(&self, request: Request) -> Request {
        request.with("Authorization", &format!("Bearer {}", self.text()))
    }

    /// `GET` of a path with this token.
    pub(crate) fn get(&self, path: &str) -> Request {
        self.on(Request::new("GET", path))
    }

    /// An empty `POST` to a path with this token.
    pub(crate) fn post(&self, path: &str) -> Request {
        self.on(Request::new("POST", path).with("Content-Length", "0"))
    }
}

/// Seconds since 1970, offset from now.
pub(crate) fn seconds_from_now(seconds: i64) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later than 1970");
    i64::try_from(now.as_secs()).expect("it is not so late") + seconds
}

/// A second since 1970 as RFC 3339.
pub(crate) fn rfc3339(second: i64) -> String {
    let date = OffsetDateTime::from_unix_timestamp(second).expect("it is a date");
    date.format(&Rfc3339).expect("its year has four digits")
}

/// The second since 1970 of a date in RFC 3339, if it is one in UTC.
pub(crate) fn second_of(date: &Value) -> Option<i64> {
    let date = date.as_str().filter(|date| date.ends_with('Z'))?;
    OffsetDateTime::parse(date, &Rfc3339)
        .ok()
        .map(OffsetDateTime::unix_timestamp)
}
