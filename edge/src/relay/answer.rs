//! Converts outcomes to replies: statuses and bodies of `/rpc`, the operations and `/readyz`.

use crate::reply::{ErrorFormat, Reply};
use portcullis_base::io::clock;
use portcullis_filters::chain::{Pin, Proof};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::Endpoint;
use portcullis_filters::txm::outcome::{Details, Outcome, Status};
use portcullis_filters::verdict::{Reason, Refusal};
use serde::Serialize;
use serde_json::value::RawValue;
use std::ops::Not;
use std::time::SystemTime;

/// The parts of a transaction's request that its response contains.
pub(super) struct RpcCall {
    pub(super) id: Box<str>,
    /// The address of the account that the transaction deploys.
    pub(super) deployed: Option<Felt>,
}

#[derive(Serialize)]
struct RpcResponse<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: Submitted,
}

#[derive(Serialize)]
struct Submitted {
    transaction_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract_address: Option<String>,
}

#[derive(Serialize)]
struct Operated<'a> {
    ok: bool,
    /// Empty if nothing was submitted.
    transaction_hash: String,
    idempotent: bool,
    #[serde(skip_serializing_if = "Not::not")]
    pending: bool,
    #[serde(flatten)]
    details: &'a Details,
}

#[derive(Serialize)]
struct FailureDetails<'a> {
    #[serde(flatten)]
    details: &'a Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_hash: Option<String>,
}

#[derive(Serialize)]
struct Readiness<'a> {
    ready: bool,
    checked_at: String,
    pins: &'a [Pin],
}

/// The error format of an endpoint.
pub(crate) fn format(endpoint: Option<Endpoint>) -> ErrorFormat {
    if endpoint == Some(Endpoint::Rpc) {
        ErrorFormat::JsonRpc
    } else {
        ErrorFormat::Plain
    }
}

/// The response to a user's transaction.
pub(super) fn transaction(outcome: &Outcome, call: RpcCall, request_id: &str) -> Reply {
    let RpcCall { id, deployed } = call;
    if let Some(refusal) = outcome.refusal() {
        let refusal = Refusal {
            id: Some(id),
            ..Refusal::clone(refusal)
        };
        return failure(ErrorFormat::JsonRpc, outcome, &refusal, request_id);
    }
    let contract_address = deployed.map(|address| address.to_string());
    let result = Submitted {
        transaction_hash: hash(outcome).unwrap_or_default(),
        contract_address,
    };
    let id = serde_json::from_str(&id).unwrap_or(RawValue::NULL);
    Reply::serialize(
        200,
        &RpcResponse {
            jsonrpc: "2.0",
            id,
            result,
        },
    )
}

/// The response to an operation.
pub(super) fn operation(outcome: &Outcome, request_id: &str) -> Reply {
    if let Some(refusal) = outcome.refusal() {
        return failure(ErrorFormat::Plain, outcome, refusal, request_id);
    }
    let pending = outcome.status == Status::Pending;
    let body = Operated {
        ok: true,
        transaction_hash: hash(outcome).unwrap_or_default(),
        idempotent: outcome.status == Status::Already,
        pending,
        details: &outcome.details,
    };
    Reply::serialize(if pending { 202 } else { 200 }, &body)
}

fn failure(format: ErrorFormat, outcome: &Outcome, refusal: &Refusal, request_id: &str) -> Reply {
    let details = FailureDetails {
        details: &outcome.details,
        transaction_hash: hash(outcome),
    };
    let mut reply = Reply::error(format, refusal, details, request_id);
    reply.retry_after = outcome.retry_after.or(reply.retry_after);
    if reply.status == 502 {
        // the node failed before anything was sent: the same request may pass soon
        reply.retry_after = reply.retry_after.or(Some(1));
    }
    reply
}

fn hash(outcome: &Outcome) -> Option<String> {
    outcome.transaction_hash.map(|hash| hash.to_string())
}

/// The response to `GET /readyz`: every pin, expected and actual. `unresolved` names the accounts
/// that cannot write yet because of what earlier processes left.
pub(super) fn readiness(proof: &Proof, unresolved: Option<Pin>) -> Reply {
    let ready = proof.is_ready() && unresolved.is_none();
    let mut pins = proof.pins.clone();
    pins.extend(unresolved);
    let checked_at = clock::rfc3339_millis(SystemTime::UNIX_EPOCH + proof.checked_at);
    let status = if ready { 200 } else { 503 };
    let mut reply = Reply::serialize(
        status,
        &Readiness {
            ready,
            checked_at,
            pins: &pins,
        },
    );
    if !ready {
        reply.retry_after = Reason::PinsUnproven.retry_after();
    }
    reply
}
