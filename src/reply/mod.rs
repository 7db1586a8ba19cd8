//! Verdict to status and body: the one place that knows them.
//!
//! In comes an answer, a refusal of the policy or a fault of the node; out goes a [`Reply`], and
//! from [`render`] its bytes. What a client reads here is all it learns: no address, no internal
//! text.

mod reasons;
mod wire;

pub use reasons::{status_and_code, xrpc_name};
pub use wire::{Cors, Facts, LAST_CHUNK, Persistence, chunk, http2_head, render};

use crate::io::memory::MemoryPermit;
use crate::node::{Answer, NodeError};
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderValue;
use portcullis_filters::verdict::{Reason, Refusal};
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

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
    /// What comes after them, for a body that is made while it is sent.
    pub rest: Option<Rest>,
    /// `Cache-Control`, where it is not `no-store`.
    pub cache_control: Option<Cow<'static, str>>,
    /// Other fields of the head.
    pub fields: Vec<(&'static str, HeaderValue)>,
    /// `X-Cache`.
    pub cache: Option<&'static str>,
    /// `Allow`.
    pub allow: Option<&'static str>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
    /// Whether to say that a bearer token is asked for.
    pub www_authenticate: bool,
    /// The answer's share of memory, held until it is sent.
    pub memory: Option<Arc<MemoryPermit>>,
}

/// The rest of a body, piece by piece.
pub struct Rest(pub Pin<Box<dyn Stream<Item = Result<Bytes, Cut>> + Send>>);

/// The rest of a body can not be had: it ends too soon, and the client can tell.
#[derive(Clone, Copy, Debug)]
pub struct Cut;

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rest")
    }
}

/// How an error is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A JSON-RPC 2.0 error.
    JsonRpc,
    /// `{"ok":false,"error":…}`, as the relay's operations answer.
    Plain,
    /// `{"error":"Name","message":…}`, as XRPC answers: <https://atproto.com/specs/xrpc>.
    Xrpc,
}

const JSON: Option<&str> = Some("application/json");
const TEXT: Option<&str> = Some("text/plain; charset=utf-8");

impl Reply {
    /// The liveness answer.
    pub fn health() -> Self {
        Self::text(200, "ok\n")
    }

    /// An answer in plain text.
    pub fn text(status: u16, text: &'static str) -> Self {
        let body = [Bytes::from_static(text.as_bytes()), Bytes::new(), Bytes::new()];
        Self { status, media_type: TEXT, body, ..Self::default() }
    }

    /// An answer without a body.
    pub fn no_content() -> Self {
        Self { status: 204, ..Self::default() }
    }

    /// The node's answer to the request of this id, its payload as the node wrote it.
    pub fn answer(id: &str, answer: Answer) -> Self {
        let Answer { member, payload, memory } = answer;
        let mut start = Vec::with_capacity(32 + id.len() + member.len());
        start.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        start.extend_from_slice(id.as_bytes());
        start.extend_from_slice(b",\"");
        start.extend_from_slice(member.as_bytes());
        start.extend_from_slice(b"\":");
        let body = [start.into(), payload, Bytes::from_static(b"}")];
        Self { status: 200, media_type: JSON, body, memory: Some(memory), ..Self::default() }
    }

    /// A refusal.
    pub fn refusal(style: Style, refusal: &Refusal, request_id: &str) -> Self {
        let Refusal { reason, message, id, allow } = refusal;
        let mut reply = Self::error(style, *reason, message, id.as_deref(), "", request_id);
        reply.allow = *allow;
        reply
    }

    /// A fault of the node, in answer to the request of this JSON-RPC id.
    pub fn fault(style: Style, fault: NodeError, id: Option<&str>, request_id: &str) -> Self {
        let (reason, message) = fault_words(fault);
        Self::error(style, reason, message, id, "", request_id)
    }

    /// An error. `more` are members of its data, as JSON text, each with a comma before it.
    pub fn error(
        style: Style,
        reason: Reason,
        message: &str,
        id: Option<&str>,
        more: &str,
        request_id: &str,
    ) -> Self {
        let (status, code) = status_and_code(reason);
        let id = id.unwrap_or("null");
        let message = serde_json::Value::from(message);
        let name = reason.name();
        let body = match style {
            Style::JsonRpc => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{{"reason":"{name}","request_id":"{request_id}"{more}}}}}}}"#
            ),
            Style::Plain => format!(
                r#"{{"ok":false,"error":{{"reason":"{name}","message":{message},"request_id":"{request_id}"{more}}}}}"#
            ),
            Style::Xrpc => format!(
                r#"{{"error":"{}","message":{message},"request_id":"{request_id}"{more}}}"#,
                xrpc_name(reason)
            ),
        };
        Self {
            reason: Some(reason),
            retry_after: matches!(status, 429 | 503).then_some(1),
            www_authenticate: status == 401 && reason != Reason::BadWebhookSignature,
            ..Self::json(status, body)
        }
    }

    /// An answer in JSON.
    pub fn json(status: u16, body: String) -> Self {
        let body = [body.into(), Bytes::new(), Bytes::new()];
        Self { status, media_type: JSON, body, ..Self::default() }
    }

    /// The same, kept by no cache: it is one user's.
    pub fn personal(mut self) -> Self {
        self.cache_control = Some("private, no-store".into());
        self.field("vary", "authorization");
        self
    }

    /// Adds a field, unless its value is none of a header.
    pub fn field(&mut self, name: &'static str, value: impl TryInto<HeaderValue>) {
        if let Ok(value) = value.try_into() {
            self.fields.push((name, value));
        }
    }

    /// Bytes of the body.
    pub fn length(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }
}

/// What is said of a fault of the node.
pub fn fault_words(fault: NodeError) -> (Reason, &'static str) {
    match fault {
        NodeError::Timeout => (Reason::UpstreamTimeout, "the node did not answer in time"),
        NodeError::Unreachable | NodeError::Cut => {
            (Reason::UpstreamUnreachable, "the node can not be reached")
        }
        NodeError::Redirect => (Reason::UpstreamRedirect, "the node answered with a redirect"),
        NodeError::Status => (Reason::UpstreamStatus, "the node answered with an error status"),
        NodeError::Oversized => (Reason::UpstreamOversized, "the node's answer is over 4 MiB"),
        NodeError::Invalid => (Reason::UpstreamInvalid, "the node's answer is not valid"),
        NodeError::Overloaded => (Reason::Overloaded, "too much is under way: try again soon"),
    }
}
