//! Verdict to status and body: the one place that knows them.
//!
//! In comes an answer, a refusal of the policy or a fault of the node; out goes a [`Reply`], and
//! from [`render`] its bytes. What a client reads here is all it learns: no address, no internal
//! text.

mod wire;

pub use wire::{Facts, Persistence, render};

use crate::node::{Answer, Fault, Lease};
use bytes::Bytes;
use portcullis_filters::verdict::{Reason, Refusal};

/// What goes back to a client, but for what every answer carries ([`render`] adds that).
#[derive(Debug, Default)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Why it is no answer.
    pub reason: Option<Reason>,
    /// `Content-Type`, of a reply with a body.
    pub media_type: Option<&'static str>,
    /// The body, in pieces.
    pub body: [Bytes; 3],
    /// `Allow`.
    pub allow: Option<&'static str>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
    /// The answer's share of memory, held until it is sent.
    pub lease: Option<Lease>,
}

const JSON: Option<&str> = Some("application/json");
const TEXT: Option<&str> = Some("text/plain; charset=utf-8");

impl Reply {
    /// The liveness answer.
    pub fn health() -> Self {
        let body = [Bytes::from_static(b"ok\n"), Bytes::new(), Bytes::new()];
        Self { status: 200, media_type: TEXT, body, ..Self::default() }
    }

    /// An answer without a body.
    pub fn no_content() -> Self {
        Self { status: 204, ..Self::default() }
    }

    /// The node's answer to the request of this id, its payload as the node wrote it.
    pub fn answer(id: &str, answer: Answer) -> Self {
        let Answer { member, payload, lease } = answer;
        let mut start = Vec::with_capacity(32 + id.len() + member.len());
        for piece in [r#"{"jsonrpc":"2.0","id":"#, id, ",\"", member, "\":"] {
            start.extend_from_slice(piece.as_bytes());
        }
        let body = [start.into(), payload, Bytes::from_static(b"}")];
        Self { status: 200, media_type: JSON, body, lease: Some(lease), ..Self::default() }
    }

    /// A refusal, as a JSON-RPC error. `retry_after` is told where waiting helps.
    pub fn refusal(refusal: &Refusal, retry_after: u32, request_id: &str) -> Self {
        let mut reply =
            Self::error(refusal.reason, &refusal.message, refusal.id.as_deref(), request_id);
        reply.allow = refusal.allow;
        if refusal.reason == Reason::RateLimited {
            reply.retry_after = Some(retry_after);
        }
        reply
    }

    /// A fault of the node, as a JSON-RPC error to the request of this id.
    pub fn fault(fault: Fault, id: &str, request_id: &str) -> Self {
        let (reason, message) = match fault {
            Fault::Timeout => (Reason::UpstreamTimeout, "the node did not answer in time"),
            Fault::Unreachable => (Reason::UpstreamUnreachable, "the node can not be reached"),
            Fault::Redirect => (Reason::UpstreamRedirect, "the node answered with a redirect"),
            Fault::Status => (Reason::UpstreamStatus, "the node answered with an error status"),
            Fault::Oversized => (Reason::UpstreamOversized, "the node's answer is over 4 MiB"),
            Fault::Invalid => (Reason::UpstreamInvalid, "the node's answer is not valid"),
            Fault::Overloaded => (Reason::Overloaded, "too much is under way: try again soon"),
        };
        Self::error(reason, message, Some(id), request_id)
    }

    /// A JSON-RPC error.
    pub fn error(reason: Reason, message: &str, id: Option<&str>, request_id: &str) -> Self {
        let (status, code) = status_and_code(reason);
        let id = id.unwrap_or("null");
        let message = serde_json::Value::from(message);
        let reason_name = reason.name();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{{"reason":"{reason_name}","request_id":"{request_id}"}}}}}}"#
        );
        let waiting_helps = matches!(status, 429 | 503);
        Self {
            status,
            reason: Some(reason),
            media_type: JSON,
            body: [body.into(), Bytes::new(), Bytes::new()],
            retry_after: waiting_helps.then_some(1),
            ..Self::default()
        }
    }

    /// Bytes of the body.
    pub fn length(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }
}

/// The HTTP status and the JSON-RPC code of each reason. Codes: JSON-RPC 2.0, section 5.1; -32005
/// is the "limit exceeded" that Ethereum's EIP-1474 brought into use.
pub fn status_and_code(reason: Reason) -> (u16, i32) {
    match reason {
        Reason::ParseError => (400, -32700),
        Reason::InvalidRequest | Reason::Batch | Reason::ConflictingFraming => (400, -32600),
        Reason::InvalidParams => (400, -32602),
        Reason::MethodNotAllowed => (403, -32601),
        Reason::NotFound => (404, -32600),
        Reason::WrongHttpMethod => (405, -32600),
        Reason::RequestTimeout => (408, -32600),
        Reason::BodyTooLarge => (413, -32600),
        Reason::UnsupportedMediaType | Reason::UnsupportedEncoding => (415, -32600),
        Reason::ExpectationFailed => (417, -32600),
        Reason::RateLimited | Reason::TooManyInFlight => (429, -32005),
        Reason::HeaderTooLarge => (431, -32600),
        Reason::UpstreamTimeout
        | Reason::UpstreamUnreachable
        | Reason::UpstreamRedirect
        | Reason::UpstreamStatus
        | Reason::UpstreamOversized
        | Reason::UpstreamInvalid => (502, -32603),
        Reason::Overloaded | Reason::Draining => (503, -32603),
    }
}
