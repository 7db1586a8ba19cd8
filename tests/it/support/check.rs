//! Invariants of every response: those that all surfaces share, and those of the gateway.
//!
//! In: a response, and the expected reason. Out: nothing, or a failed test that names the violated
//! rule. The only copy of the gateway's table of reasons in the tests.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::support::edge::AMPLE;
use crate::support::response::{Framing, Response};
use crate::support::script::SECRET;

/// Reason, HTTP status and JSON-RPC code: the gateway's table of errors.
pub(crate) const REASONS: [(&str, u16, i64); 28] = [
    ("parse_error", 400, -32700),
    ("invalid_request", 400, -32600),
    ("batch", 400, -32600),
    ("conflicting_framing", 400, -32600),
    ("invalid_params", 400, -32602),
    ("blocked", 403, -32600),
    ("method_not_allowed", 403, -32601),
    ("not_found", 404, -32600),
    ("wrong_http_method", 405, -32600),
    ("request_timeout", 408, -32600),
    ("body_too_large", 413, -32600),
    ("unsupported_media_type", 415, -32600),
    ("unsupported_encoding", 415, -32600),
    ("expectation_failed", 417, -32600),
    ("rate_limited", 429, -32005),
    ("too_many_in_flight", 429, -32005),
    ("header_too_large", 431, -32600),
    ("upstream_timeout", 502, -32603),
    ("upstream_unreachable", 502, -32603),
    ("upstream_redirect", 502, -32603),
    ("upstream_status", 502, -32603),
    ("upstream_oversized", 502, -32603),
    ("upstream_invalid", 502, -32603),
    ("overloaded", 503, -32603),
    ("draining", 503, -32603),
    ("fleet_unavailable", 503, -32603),
    ("chain_position_behind", 503, -32603),
    ("node_starting", 503, -32603),
];

/// The only headers that a response of any surface may have.
const HEADERS: [&str; 12] = [
    "allow",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "date",
    "keep-alive",
    "ratelimit",
    "ratelimit-policy",
    "retry-after",
    "x-content-type-options",
    "x-request-id",
];

/// The only further ones of a surface that web pages may call and whose answers are compressed.
pub(crate) const CROSS_ORIGIN: [&str; 7] = [
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
    "content-encoding",
    "vary",
];

/// Checks every row, even if some fail, and then fails the test with the number of failures.
pub(crate) fn each<T>(rows: impl IntoIterator<Item = T>, check: impl Fn(T)) {
    let failed = |row| catch_unwind(AssertUnwindSafe(|| check(row))).is_err();
    let failures = rows
        .into_iter()
        .filter_map(|row| failed(row).then_some(()))
        .count();
    assert_eq!(failures, 0, "rows failed: see the panics above");
}

/// Asserts a refusal or failure: the reason, its status and code, and this id.
pub(crate) fn assert_error(response: &Response, reason: &str, id: &str, why: &str) {
    assert_one_of(response, &[reason], id, why);
}

/// Asserts a refusal where the contract permits more than one reason.
pub(crate) fn assert_one_of(response: &Response, reasons: &[&str], id: &str, why: &str) {
    assert_common(response, why);
    let body = response.json();
    let reason = body["error"]["data"]["reason"].as_str().unwrap_or_default();
    let status = response.status;
    assert!(
        reasons.contains(&reason),
        "{why}: {reasons:?} expected, got {status} {body}"
    );
    let row = REASONS
        .iter()
        .find(|row| row.0 == reason)
        .expect("every reason is in the table");
    assert_eq!(response.status, row.1, "{why}: the status of {reason}");
    assert_eq!(body["error"]["code"], row.2, "{why}: the code of {reason}");
    assert_eq!(
        id_bytes(response),
        id,
        "{why}: the id of the request, byte for byte, in {body}"
    );
    assert_eq!(
        body["jsonrpc"], "2.0",
        "{why}: an error is a JSON-RPC response"
    );
    assert_text(
        response,
        &body["error"]["message"],
        &body["error"]["data"]["request_id"],
        why,
    );
    assert_members(&body, &["jsonrpc", "id", "error"], why);
    assert_members(&body["error"], &["code", "message", "data"], why);
    let data = &body["error"]["data"];
    match data.get("hint") {
        Some(hint) => {
            assert!(
                hint.as_str().is_some_and(|text| !text.is_empty()),
                "{why}: {hint}"
            );
            assert_members(data, &["reason", "request_id", "hint"], why);
        }
        None => assert_members(data, &["reason", "request_id"], why),
    }
    assert_refusal(response, why);
    let retry = response
        .header("Retry-After")
        .and_then(|value| value.parse::<u32>().ok());
    assert!(
        retry.is_none_or(|seconds| seconds <= 60),
        "{why}: Retry-After is {retry:?}"
    );
}

/// Asserts the head of a refusal by any surface: JSON, and when a retry makes sense.
pub(crate) fn assert_refusal(response: &Response, why: &str) {
    assert_eq!(
        content_type(response),
        "application/json",
        "{why}: errors are JSON"
    );
    let text = response.text();
    let is_open = ["in_progress", "outcome_unknown"]
        .iter()
        .any(|reason| text.contains(reason));
    assert_retry(
        response,
        matches!(response.status, 429 | 503) || is_open,
        why,
    );
}

/// Asserts whether a refusal says when to retry.
pub(crate) fn assert_retry(response: &Response, waits: bool, why: &str) {
    let retry = response.header("Retry-After").map(str::parse::<u32>);
    assert_eq!(
        waits,
        matches!(retry, Some(Ok(1..))),
        "{why}: Retry-After is {retry:?}"
    );
}

/// Asserts the text of a refusal by any surface, and its request id.
pub(crate) fn assert_text(response: &Response, message: &Value, stated: &Value, why: &str) {
    let message = message.as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{why}: a message that people can read");
    assert_eq!(
        *stated,
        request_id(response),
        "{why}: one request id in head and body"
    );
}

/// Asserts a successful response: 200, this id, and exactly this result.
pub(crate) fn assert_result(response: &Response, id: &str, result: &str, why: &str) {
    assert_common(response, why);
    assert_eq!(response.status, 200, "{why}: {}", response.text());
    assert_eq!(
        content_type(response),
        "application/json",
        "{why}: answers are JSON"
    );
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    let (came, all) = (response.text(), expected.len());
    let shown = came.chars().take(300).collect::<String>();
    assert!(
        came == expected,
        "{why}: {all} bytes expected, {} came: {shown}",
        came.len()
    );
}

/// Asserts the invariants of every gateway response, with the harness's own quota.
pub(crate) fn assert_common(response: &Response, why: &str) {
    assert_common_with_quota(response, AMPLE, why);
}

/// Asserts the invariants of every response of a gateway with this quota.
pub(crate) fn assert_common_with_quota(response: &Response, quota: u32, why: &str) {
    assert_every(
        response,
        &[&CROSS_ORIGIN, &["x-cache", "x-chain-position"]],
        why,
    );
    assert_eq!(
        response.header("Cache-Control"),
        Some("no-store"),
        "{why}: nothing is stored"
    );
    assert_quota(response, quota, why);
}

/// Asserts the invariants of every response of any surface, which has no headers but those that all
/// have and these `further` ones.
pub(crate) fn assert_every(response: &Response, further: &[&[&str]], why: &str) {
    assert_eq!(
        response.version, "HTTP/1.1",
        "{why}: our version, whatever the client's"
    );
    let sniff = response.header("X-Content-Type-Options");
    assert_eq!(sniff, Some("nosniff"), "{why}: no content sniffing");
    let request_id = request_id(response);
    let fits = (8..=64).contains(&request_id.len());
    let plain = request_id
        .bytes()
        .all(|own| own.is_ascii_alphanumeric() || own == b'-');
    assert!(
        fits && plain,
        "{why}: {request_id:?} is no request id: {response:?}"
    );
    for (name, value) in &response.headers {
        let name = name.to_ascii_lowercase();
        let is_known = |known: &&[&str]| known.contains(&name.as_str());
        let known = is_known(&&HEADERS[..]) || further.iter().any(is_known);
        assert!(
            known,
            "{why}: the header {name}: {value} is nothing the edge says"
        );
    }
    assert!(
        !String::from_utf8_lossy(&response.body).contains(SECRET),
        "{why}: the node leaks"
    );
    assert_ne!(
        response.framing,
        Framing::Close,
        "{why}: an answer tells its own end"
    );
}

/// Asserts the rate limit in every response of a surface for anyone, with this quota.
pub(crate) fn assert_quota(response: &Response, quota: u32, why: &str) {
    let policy = format!("\"minute\";q={quota};w=60");
    assert_eq!(
        response.header("RateLimit-Policy"),
        Some(policy.as_str()),
        "{why}: the quota"
    );
    let (left, seconds) = rate_limit(response, why);
    assert!(
        left <= quota && seconds <= 60,
        "{why}: {left} left, {seconds} s to wait"
    );
}

/// The response's `X-Request-Id`.
pub(crate) fn request_id(response: &Response) -> &str {
    response.header("X-Request-Id").unwrap_or_default()
}

/// The values of `RateLimit`: remaining requests, and seconds until the next one is available.
pub(crate) fn rate_limit(response: &Response, why: &str) -> (u32, u32) {
    let stated = response.header("RateLimit").unwrap_or_default();
    let parts = stated
        .strip_prefix("\"minute\";r=")
        .and_then(|rest| rest.split_once(";t="));
    let numbers = parts.and_then(|(r, t)| Some((r.parse().ok()?, t.parse().ok()?)));
    numbers.unwrap_or_else(|| panic!("{why}: RateLimit is {stated:?}"))
}

/// The id of the response, as raw text.
pub(crate) fn id_bytes(response: &Response) -> String {
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(response.text()).expect("an envelope is an object");
    members
        .get("id")
        .map(|id| id.get().to_owned())
        .unwrap_or_default()
}

pub(crate) fn content_type(response: &Response) -> &str {
    response.header("Content-Type").unwrap_or_default()
}

fn assert_members(value: &Value, expected: &[&str], why: &str) {
    let members: Vec<&str> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    let same = members.len() == expected.len() && expected.iter().all(|own| members.contains(own));
    assert!(same, "{why}: {members:?} instead of {expected:?}");
}
