//! Invariants of every sidecar response, and the only copy of its table of errors in the tests.

use serde_json::Value;

use crate::support::check::rate_limit;
use crate::support::edge::AMPLE;
use crate::support::response::{Framing, Response};

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

/// The only headers that a response may have.
const HEADERS: [&str; 23] = [
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "allow",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "link",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "transfer-encoding",
    "vary",
    "www-authenticate",
    "x-content-type-options",
    "x-request-id",
];

/// Asserts the invariants of every response, with the harness's own quota.
pub(crate) fn common(response: &Response, why: &str) {
    common_with_quota(response, AMPLE, why);
}

/// The same for a sidecar with this quota.
pub(crate) fn common_with_quota(response: &Response, quota: u32, why: &str) {
    assert_eq!(response.version, "HTTP/1.1", "{why}: our version, whatever the client's");
    let sniff = response.header("X-Content-Type-Options");
    assert_eq!(sniff, Some("nosniff"), "{why}: no content sniffing");
    assert!(response.header("Cache-Control").is_some(), "{why}: nothing is left to guess");
    let id = request_id(response);
    let plain = id.bytes().all(|own| own.is_ascii_alphanumeric() || own == b'-');
    assert!((8..=64).contains(&id.len()) && plain, "{why}: no request id: {response:?}");
    for (name, value) in &response.headers {
        let known = HEADERS.contains(&name.to_ascii_lowercase().as_str());
        assert!(known, "{why}: the header {name}: {value} is nothing the sidecar says");
    }
    assert_ne!(response.framing, Framing::Close, "{why}: an answer tells its own end");
    let policy = format!("\"minute\";q={quota};w=60");
    assert_eq!(response.header("RateLimit-Policy"), Some(policy.as_str()), "{why}: the quota");
    let (left, seconds) = rate_limit(response, why);
    assert!(left <= quota && seconds <= 60, "{why}: {left} left, {seconds} s to wait");
}

/// The response's `X-Request-Id`.
pub(crate) fn request_id(response: &Response) -> &str {
    response.header("X-Request-Id").unwrap_or_default()
}

/// Asserts a refusal of this name. Returns the message.
pub(crate) fn refused(response: &Response, name: &str, why: &str) -> String {
    refused_with_quota(response, name, AMPLE, why)
}

/// The same by a sidecar with this quota.
pub(crate) fn refused_with_quota(response: &Response, name: &str, quota: u32, why: &str) -> String {
    let body = response.json();
    assert_eq!(body["error"], name, "{why}: {} {body}", response.status);
    common_with_quota(response, quota, why);
    head_of_refusal(response, name, why);
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(3), "{why}: {body}");
    assert_eq!(body["request_id"], request_id(response), "{why}: one id in head and body");
    let message = body["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{why}: a message that people can read");
    message.to_owned()
}

/// Asserts the head of a refusal of this name, which is the whole response to a `HEAD`.
pub(crate) fn head_of_refusal(response: &Response, name: &str, why: &str) {
    let row = ERRORS.iter().find(|row| row.0 == name).expect("every error is in the table");
    assert_eq!(response.status, row.1, "{why}: the status of {name}");
    assert_eq!(response.header("Content-Type"), Some("application/json"), "{why}: errors are JSON");
    let cached = response.header("Cache-Control").unwrap_or_default();
    assert!(["no-store", "private, no-store"].contains(&cached), "{why}: {cached}");
    let retry = response.header("Retry-After").map(str::parse::<u32>);
    let waits = matches!(response.status, 429 | 503);
    assert_eq!(waits, matches!(retry, Some(Ok(1..))), "{why}: Retry-After is {retry:?}");
    let asks = response.status == 401 && name != "InvalidSignature";
    let asked = response.header("WWW-Authenticate");
    assert_eq!(asked, asks.then_some("Bearer"), "{why}: what is asked for");
    let told = response.header("Allow").is_some();
    assert_eq!(told, response.status == 405, "{why}: which methods there are");
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
    let passing = ["connection", "date", "keep-alive", "ratelimit", "x-request-id"];
    let named = response.headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
    let mut headers: Vec<_> = named.filter(|(name, _)| !passing.contains(&name.as_str())).collect();
    headers.sort();
    headers
}

/// The response without values that differ from request to request.
pub(crate) fn anonymous(response: &Response) -> (u16, String, Vec<(String, String)>) {
    let body = response.text().replace(request_id(response), "ID");
    (response.status, body, lasting_headers(response))
}
