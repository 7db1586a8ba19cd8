//! Invariants of every sidecar response, and the only copy of its table of errors in the tests.

use serde_json::Value;

use crate::support::check::{
    CROSS_ORIGIN, assert_every, assert_quota, assert_refusal, assert_text, request_id,
};
use crate::support::edge::AMPLE;
use crate::support::response::Response;

/// Name and status, as in the contract.
const ERRORS: [(&str, u16); 30] = [
    ("InvalidRequest", 400),
    ("UnknownFeed", 400),
    ("AuthenticationRequired", 401),
    ("BadJwt", 401),
    ("BadJwtAudience", 401),
    ("BadJwtIss", 401),
    ("BadJwtLexiconMethod", 401),
    ("BadJwtSignature", 401),
    ("BadJwtType", 401),
    ("InvalidSignature", 401),
    ("JwtExpired", 401),
    ("Forbidden", 403),
    ("NotFound", 404),
    ("UnknownSubject", 404),
    ("MethodNotAllowed", 405),
    ("RequestTimeout", 408),
    ("EventConflict", 409),
    ("InvalidTransition", 409),
    ("StaleTransition", 409),
    ("Gone", 410),
    ("PayloadTooLarge", 413),
    ("UnsupportedMediaType", 415),
    ("ExpectationFailed", 417),
    ("RateLimitExceeded", 429),
    ("HeaderTooLarge", 431),
    ("MethodNotImplemented", 501),
    ("KeysUnavailable", 503),
    ("NotConfigured", 503),
    ("NotEnoughResources", 503),
    ("StoreUnavailable", 503),
];

/// The only further headers that a response may have.
const HEADERS: [&str; 5] = [
    "etag",
    "last-modified",
    "link",
    "transfer-encoding",
    "www-authenticate",
];

/// Asserts the invariants of every response, with the harness's own quota.
pub(crate) fn common(response: &Response, why: &str) {
    common_with_quota(response, AMPLE, why);
}

/// Asserts the common fields of a sidecar with this quota.
pub(crate) fn common_with_quota(response: &Response, quota: u32, why: &str) {
    assert_every(response, &[&CROSS_ORIGIN, &HEADERS], why);
    assert!(
        response.header("Cache-Control").is_some(),
        "{why}: nothing is left to guess"
    );
    assert_quota(response, quota, why);
}

/// Asserts a refusal of this name. Returns the message.
pub(crate) fn refused(response: &Response, name: &str, why: &str) -> String {
    refused_with_quota(response, name, AMPLE, why)
}

/// Asserts the refusal of a sidecar with this quota.
pub(crate) fn refused_with_quota(response: &Response, name: &str, quota: u32, why: &str) -> String {
    let body = response.json();
    assert_eq!(body["error"], name, "{why}: {} {body}", response.status);
    common_with_quota(response, quota, why);
    head_of_refusal(response, name, why);
    assert_eq!(
        body.as_object().map(serde_json::Map::len),
        Some(3),
        "{why}: {body}"
    );
    assert_text(response, &body["message"], &body["request_id"], why);
    body["message"].as_str().unwrap_or_default().to_owned()
}

/// Asserts the head of a refusal of this name, which is the whole response to a `HEAD`.
pub(crate) fn head_of_refusal(response: &Response, name: &str, why: &str) {
    let row = ERRORS
        .iter()
        .find(|row| row.0 == name)
        .expect("every error is in the table");
    assert_eq!(response.status, row.1, "{why}: the status of {name}");
    assert_refusal(response, why);
    let cached = response.header("Cache-Control").unwrap_or_default();
    assert!(
        ["no-store", "private, no-store"].contains(&cached),
        "{why}: {cached}"
    );
    let asks = response.status == 401 && name != "InvalidSignature";
    let requested = response.header("WWW-Authenticate");
    assert_eq!(
        requested,
        asks.then_some("Bearer"),
        "{why}: what is requested"
    );
    let stated = response.header("Allow").is_some();
    assert_eq!(
        stated,
        response.status == 405,
        "{why}: which methods there are"
    );
}

/// Asserts a JSON response with this status. Returns its body.
pub(crate) fn answered(response: &Response, status: u16, why: &str) -> Value {
    common(response, why);
    assert_eq!(response.status, status, "{why}: {}", response.text());
    let kind = response.header("Content-Type");
    assert_eq!(kind, Some("application/json"), "{why}: answers are JSON");
    response.json()
}

/// The headers that do not differ from request to request.
pub(crate) fn lasting_headers(response: &Response) -> Vec<(String, String)> {
    let passing = [
        "connection",
        "date",
        "keep-alive",
        "ratelimit",
        "x-request-id",
    ];
    let named = response
        .headers
        .iter()
        .map(|(name, value)| (name.to_lowercase(), value.clone()));
    let mut headers: Vec<_> = named
        .filter(|(name, _)| !passing.contains(&name.as_str()))
        .collect();
    headers.sort();
    headers
}

/// The response without values that differ from request to request.
pub(crate) fn anonymous(response: &Response) -> (u16, String, Vec<(String, String)>) {
    let body = response.text().replace(request_id(response), "ID");
    (response.status, body, lasting_headers(response))
}
