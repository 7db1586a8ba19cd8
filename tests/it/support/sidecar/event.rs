//! Events of the verifier, signed by an implementation independent of the one under test.

use std::sync::OnceLock;

use ring::hmac;
use serde_json::{Map, Value, json};

use super::expect::answered;
use super::stage::{Stage, WEBHOOK_SECRET, post};
use super::token::{Token, rfc3339, seconds_from_now};
use crate::support::request::Request;
use crate::support::response::Response;

/// The path of sessions.
pub(crate) const SESSION: &str = "/functions/age-verification-session";
/// The path of the verifier's events.
pub(crate) const WEBHOOK: &str = "/functions/age-verifier-webhook";
/// The header of the verifier's signature.
pub(crate) const SIGNATURE: &str = "X-Service-Verifier-Signature";
/// A well-formed reference that the sidecar has not issued.
pub(crate) const NOBODY: &str = "00112233445566778899aabbccddeeff0011223344556677";

/// A builder of events.
#[derive(Clone, Debug)]
pub(crate) struct Event(Map<String, Value>);

impl Event {
    /// About a subject, at the instant `time(second)`.
    pub(crate) fn new(id: &str, subject: &str, status: &str, second: i64) -> Self {
        let at = time(second);
        let verified = status == "verified";
        let event = json!({
            "event_id": id,
            "subject_ref": subject,
            "status": status,
            "age_band": verified.then_some("18_plus"),
            "verified_at": verified.then(|| at.clone()),
            "expires_at": null,
            "occurred_at": at,
        });
        Self(event.as_object().expect("it is an object").clone())
    }

    /// Replaces the value of this field.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Removes this field.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    pub(crate) fn body(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// The request, signed.
    pub(crate) fn request(&self) -> Request {
        signed(self.body())
    }
}

/// An instant, in seconds after a fixed time one hour before the tests.
pub(crate) fn time(second: i64) -> String {
    static START: OnceLock<i64> = OnceLock::new();
    rfc3339(START.get_or_init(|| seconds_from_now(-3_600)) + second)
}

/// A body with the signature of the verifier.
pub(crate) fn signed(body: impl AsRef<[u8]>) -> Request {
    let signature = sign(WEBHOOK_SECRET, &body);
    post(WEBHOOK, body).with(SIGNATURE, &signature)
}

/// HMAC-SHA-256 in hex.
pub(crate) fn sign(secret: &str, body: impl AsRef<[u8]>) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, body.as_ref());
    tag.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Stage {
    /// Starts a session of this user; returns its reference.
    pub(crate) fn session(&self, user: &str) -> String {
        let body = answered(
            &self.ask(&Token::of(user).post(SESSION)),
            201,
            "a new session",
        );
        body["subject_ref"]
            .as_str()
            .expect("a session has a reference")
            .to_owned()
    }

    /// The age status of a user.
    pub(crate) fn standing(&self, user: &str) -> Value {
        answered(
            &self.ask(&Token::of(user).get(SESSION)),
            200,
            "how the user stands",
        )
    }

    pub(crate) fn send(&self, event: &Event) -> Response {
        self.ask(&event.request())
    }
}
