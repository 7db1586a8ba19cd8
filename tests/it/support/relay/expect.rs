//! Invariants of every relay response, and the only copy of its table of reasons in the tests.

use serde_json::Value;

use portcullis_filters::felt::Felt;

use super::user::ID;
use crate::support::check::{assert_every, assert_retry, assert_text, content_type, id_bytes};
use crate::support::response::Response;

/// Reason and status, as in the contract.
const REASONS: [(&str, u16); 64] = [
    ("parse_error", 400),
    ("invalid_request", 400),
    ("batch", 400),
    ("conflicting_framing", 400),
    ("unauthorized", 401),
    ("method_not_allowed", 403),
    ("contract_not_allowed", 403),
    ("entrypoint_not_allowed", 403),
    ("argument_not_allowed", 403),
    ("transaction_version", 403),
    ("tip_not_zero", 403),
    ("paymaster_data", 403),
    ("proof_data", 403),
    ("account_deployment_data", 403),
    ("data_availability_mode", 403),
    ("too_many_calls", 403),
    ("calldata_too_large", 403),
    ("calldata_malformed", 403),
    ("fee_bound_exceeded", 403),
    ("sender_not_allowed", 403),
    ("class_not_approved", 403),
    ("address_mismatch", 403),
    ("public_key_invalid", 403),
    ("signature_invalid", 403),
    ("assurance_not_allowed", 403),
    ("epoch_out_of_range", 403),
    ("confirmation_required", 403),
    ("operation_disabled", 403),
    ("not_found", 404),
    ("wrong_http_method", 405),
    ("request_timeout", 408),
    ("identity_taken", 409),
    ("account_taken", 409),
    ("account_not_deployed", 409),
    ("account_already_deployed", 409),
    ("attestation_replayed", 409),
    ("attestation_not_in_force", 409),
    ("recovery_pending", 409),
    ("recovery_not_pending", 409),
    ("recovery_not_ready", 409),
    ("idempotency_conflict", 409),
    ("nonce_conflict", 409),
    ("rejected", 409),
    ("refused_by_chain", 409),
    ("in_progress", 409),
    ("body_too_large", 413),
    ("unsupported_media_type", 415),
    ("unsupported_encoding", 415),
    ("rate_limited", 429),
    ("faucet_cooldown", 429),
    ("budget_exceeded", 429),
    ("upstream_timeout", 502),
    ("upstream_unreachable", 502),
    ("upstream_redirect", 502),
    ("upstream_status", 502),
    ("upstream_oversized", 502),
    ("upstream_invalid", 502),
    ("draining", 503),
    ("overloaded", 503),
    ("pins_unproven", 503),
    ("faucet_empty", 503),
    ("store_unavailable", 503),
    ("fleet_unavailable", 503),
    ("outcome_unknown", 504),
];

/// Asserts the invariants of every response.
pub(crate) fn common(response: &Response, why: &str) {
    assert_every(response, &[&["www-authenticate"]], why);
    assert_eq!(
        response.header("Cache-Control"),
        Some("no-store"),
        "{why}: nothing is stored"
    );
}

/// Asserts the refusal of an operation, a probe or an unknown path: plain JSON with this reason and
/// its status. Returns the error.
pub(crate) fn refused(response: &Response, reason: &str, why: &str) -> Value {
    let body = response.json();
    assert_eq!(body["ok"], false, "{why}: {body}");
    assert_eq!(
        body.as_object().map(serde_json::Map::len),
        Some(2),
        "{why}: {body}"
    );
    assert_error(response, &body["error"], &body["error"], reason, why);
    body["error"].clone()
}

/// Asserts the refusal of a request to `/rpc`: a JSON-RPC error with the request's id.
pub(crate) fn rpc_refused(response: &Response, reason: &str, id: &str, why: &str) -> Value {
    let body = response.json();
    assert_eq!(body["jsonrpc"], "2.0", "{why}: {body}");
    assert_eq!(
        body.as_object().map(serde_json::Map::len),
        Some(3),
        "{why}: {body}"
    );
    assert!(body["error"]["code"].is_i64(), "{why}: {body}");
    assert_error(
        response,
        &body["error"],
        &body["error"]["data"],
        reason,
        why,
    );
    assert_eq!(
        id_bytes(response),
        id,
        "{why}: the id of the request, byte for byte: {body}"
    );
    body["error"]["data"].clone()
}

fn assert_error(response: &Response, error: &Value, data: &Value, reason: &str, why: &str) {
    common(response, why);
    assert_eq!(data["reason"], reason, "{why}: {}", response.text());
    let row = REASONS
        .iter()
        .find(|row| row.0 == reason)
        .expect("every reason is in the table");
    assert_eq!(response.status, row.1, "{why}: the status of {reason}");
    assert_eq!(content_type(response), "application/json", "{why}");
    // a nonce conflict says so if a later attempt can succeed
    if reason != "nonce_conflict" {
        // what is open, and what was refused in doubt, may end otherwise soon
        let waits = matches!(response.status, 429 | 502..=504)
            || matches!(reason, "in_progress" | "rejected");
        assert_retry(response, waits, why);
    }
    assert_text(response, &error["message"], &data["request_id"], why);
    let asks = (response.status == 401).then_some("Bearer");
    assert_eq!(
        response.header("WWW-Authenticate"),
        asks,
        "{why}: what is requested"
    );
}

/// Asserts that a user's transaction was submitted under its own hash.
pub(crate) fn submitted(response: &Response, hash: Felt, why: &str) {
    common(response, why);
    assert_eq!(response.status, 200, "{why}: {}", response.text());
    let stated = &response.json()["result"]["transaction_hash"];
    assert_eq!(
        *stated,
        hash.to_string(),
        "{why}: the hash that the wallet knows"
    );
    assert_eq!(id_bytes(response), ID, "{why}: the id of the request");
}
