//! Replies: the one place that maps a verdict to its status, headers and body.
//!
//! In: an answer, a refusal by the policy or a fault of the node. Out: a [`Reply`], and its bytes
//! from [`render`]. A client learns only what is written here: no address, no internal text.

mod body;
mod error;
mod reasons;
mod wire;

pub use body::{Body, BodyStream, StreamAborted};
pub use error::ErrorFormat;
pub use reasons::{status_and_code, xrpc_name};
pub use wire::{Cors, LAST_CHUNK, Persistence, ResponseContext, chunk, http2_head, render};

use crate::io::MemoryPermit;
use crate::node::Answer;
use http::HeaderValue;
use portcullis_filters::verdict::Reason;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;

/// A response, except for the header fields that every response carries ([`render`] adds them).
#[derive(Debug, Default)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Why the request was refused, if it was.
    pub reason: Option<Reason>,
    /// `Content-Type`, if there is a body.
    pub media_type: Option<&'static str>,
    /// The body, or its start if `rest` follows.
    pub body: Body,
    /// The part of the body that is generated while it is sent.
    pub rest: Option<BodyStream>,
    /// `Cache-Control`; `no-store` by default.
    pub cache_control: Option<Cow<'static, str>>,
    /// Further header fields.
    pub fields: Vec<(&'static str, HeaderValue)>,
    /// `X-Cache`.
    pub cache: Option<&'static str>,
    /// `Allow`.
    pub allow: Option<&'static str>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
    /// The memory reserved for the answer, released once the response is sent.
    pub memory: Option<Arc<MemoryPermit>>,
}

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

impl Reply {
    /// A response with a body of this media type.
    pub fn new(status: u16, media_type: &'static str, body: impl Into<Body>) -> Self {
        Self { status, media_type: Some(media_type), body: body.into(), ..Self::default() }
    }

    /// The response to a liveness probe.
    pub fn health() -> Self {
        Self::text(200, "ok\n")
    }

    /// A response in plain text.
    pub fn text(status: u16, text: &'static str) -> Self {
        Self::new(status, TEXT, text)
    }

    /// A response without a body.
    pub fn no_content() -> Self {
        Self { status: 204, ..Self::default() }
    }

    /// The node's answer to the request with this id; its payload byte for byte.
    pub fn answer(id: &str, answer: Answer) -> Self {
        let Answer { member, payload, memory } = answer;
        let mut start = Vec::with_capacity(32 + id.len() + member.len());
        start.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        start.extend_from_slice(id.as_bytes());
        start.extend_from_slice(b",\"");
        start.extend_from_slice(member.as_bytes());
        start.extend_from_slice(b"\":");
        let body = Body::framed(start, payload, b"}");
        Self { memory: Some(memory), ..Self::new(200, JSON, body) }
    }

    /// `body` as JSON.
    pub fn serialize(status: u16, body: &impl Serialize) -> Self {
        let json = serde_json::to_vec(body).expect("bodies have text keys and serialize to memory");
        Self::new(status, JSON, json)
    }

    /// The same for one user alone: no shared cache may store it.
    pub fn personal(mut self) -> Self {
        self.cache_control = Some("private, no-store".into());
        self.field("vary", "authorization");
        self
    }

    /// Adds a header field; an invalid value is dropped.
    pub fn field(&mut self, name: &'static str, value: impl TryInto<HeaderValue>) {
        if let Ok(value) = value.try_into() {
            self.fields.push((name, value));
        }
    }
}
