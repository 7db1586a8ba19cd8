//! Replies: the one place that maps a verdict to its status, headers and body.
//!
//! In: an answer, a refusal by the policy or a fault of the node. Out: a [`Reply`], and its bytes
//! from [`render`]. A client learns only what is written here: no address, no internal text.
//!
//! An HTTP/1 response is written without a header map (RFC 9112, section 4), and a small one into
//! one buffer, so that it is sent with one write. HTTP/2 takes the same fields as a map.

pub mod coding;
mod error;

pub use error::ErrorFormat;

use crate::node::Answer;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use coding::Coding;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use portcullis_base::config::CorsOrigins;
use portcullis_base::io::MemoryPermit;
use portcullis_base::io::clock;
use portcullis_base::io::gzip::GzipForm;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::position::ChainPosition;
use portcullis_filters::verdict::Reason;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// A body up to this size is sent in one piece: copying it costs less than another write or frame.
const ONE_PIECE: usize = 16 << 10;

/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

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
    /// Whether `Accept-Encoding` matters.
    pub coding: Coding,
    /// The gzip form of the payload.
    pub gzip: GzipForm,
    /// `Cache-Control`; `no-store` by default.
    pub cache_control: Option<Cow<'static, str>>,
    /// Further header fields.
    pub fields: Vec<(&'static str, HeaderValue)>,
    /// `X-Cache`.
    pub cache: Option<&'static str>,
    /// `X-Chain-Position`: the position of the answer, or an earlier one.
    pub chain_position: Option<ChainPosition>,
    /// `Allow`.
    pub allow: Option<&'static str>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
    /// The memory reserved for the answer, released once the response is sent.
    pub memory: Option<Arc<MemoryPermit>>,
}

impl Reply {
    /// A response with a body of this media type.
    pub fn new(status: u16, media_type: &'static str, body: impl Into<Body>) -> Self {
        Self {
            status,
            media_type: Some(media_type),
            body: body.into(),
            ..Self::default()
        }
    }

    /// The response to a liveness probe.
    pub fn health() -> Self {
        Self::text(200, "ok\n")
    }

    /// A response in plain text.
    pub fn text(status: u16, text: &'static str) -> Self {
        Self::new(status, TEXT, text)
    }

    /// A page that contains its `style` and may load nothing: <https://www.w3.org/TR/CSP3/>.
    pub fn page(html: Bytes, style: &str) -> Self {
        let mut reply = Self::new(200, "text/html; charset=utf-8", html);
        let style = BASE64_STANDARD.encode(Sha256::digest(style));
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        reply.field("content-security-policy", policy);
        reply
    }

    /// A response without a body.
    pub fn no_content() -> Self {
        Self {
            status: 204,
            ..Self::default()
        }
    }

    /// The node's answer to the request with this id, with its payload byte for byte.
    pub fn answer(id: &str, answer: Answer) -> Self {
        let Answer {
            member,
            payload,
            memory,
            gzip,
            ..
        } = answer;
        // of its exact size, because `Bytes` allocates again to share a vector with spare capacity
        let pieces = [r#"{"jsonrpc":"2.0","id":"#, id, ",\"", member, "\":"];
        let mut start = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        for piece in pieces {
            start.extend_from_slice(piece.as_bytes());
        }
        let body = Body::framed(start, payload, b"}");
        Self {
            memory: Some(memory),
            gzip,
            ..Self::new(200, JSON, body)
        }
    }

    /// A response with `body` as JSON.
    pub fn serialize(status: u16, body: &impl Serialize) -> Self {
        let json = serde_json::to_vec(body).expect("bodies have text keys and serialize to memory");
        Self::new(status, JSON, json)
    }

    /// Marks the reply as for one user only: no shared cache may store it.
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

/// A body in up to three pieces, so that a cached payload is framed without being copied.
#[derive(Clone, Debug, Default)]
pub struct Body([Bytes; 3]);

impl Body {
    /// A body that consists of `start`, `payload` and `end`.
    pub fn framed(start: impl Into<Bytes>, payload: Bytes, end: &'static [u8]) -> Self {
        Self([start.into(), payload, Bytes::from_static(end)])
    }

    /// The length in bytes.
    pub fn length(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// The pieces, in order; an unused piece is empty.
    pub fn pieces(&self) -> &[Bytes; 3] {
        &self.0
    }

    /// The pieces; a small body is joined into one.
    pub fn in_few_pieces(&self) -> [Bytes; 3] {
        let [_, second, third] = &self.0;
        if self.length() > ONE_PIECE || (second.is_empty() && third.is_empty()) {
            return self.0.clone();
        }
        Self::from(self.0.concat()).into_pieces()
    }

    /// Takes the pieces.
    pub fn into_pieces(self) -> [Bytes; 3] {
        self.0
    }
}

/// Creates a body in one piece.
impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self([bytes.into(), Bytes::new(), Bytes::new()])
    }
}

/// The part of a body that is generated while it is sent.
pub struct BodyStream(pub Pin<Box<dyn Stream<Item = Result<Bytes, StreamAborted>> + Send>>);

impl BodyStream {
    /// Streams `pieces`.
    pub fn new(pieces: impl Stream<Item = Result<Bytes, StreamAborted>> + Send + 'static) -> Self {
        Self(Box::pin(pieces))
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyStream")
    }
}

/// The rest of the body is unavailable: the response ends early, and the client can detect that.
#[derive(Clone, Copy, Debug)]
pub struct StreamAborted;

/// The request and the connection that a reply is rendered for.
pub struct ResponseContext<'a> {
    /// `X-Request-Id`.
    pub request_id: &'a str,
    /// `RateLimit-Policy` and the client's rate limit, if it has one.
    pub quota: Option<(&'a HeaderValue, RateLimitStatus)>,
    /// The origins that may read the response, and the request's origin.
    pub cross_origin: Option<(Cors<'a>, Option<&'a HeaderValue>)>,
    /// Whether the connection stays open; HTTP/2 ignores it.
    pub persistence: Persistence,
    /// Whether a streamed body is sent in chunks: HTTP/1.0 ends it with the connection.
    pub chunks: bool,
    /// Whether the body is left out, because the request is a HEAD.
    pub without_body: bool,
}

impl<'a> ResponseContext<'a> {
    /// The context of a response without rate limit or CORS, after which the connection closes.
    pub fn closing(request_id: &'a str) -> Self {
        Self {
            request_id,
            quota: None,
            cross_origin: None,
            persistence: Persistence::Close,
            chunks: false,
            without_body: false,
        }
    }
}

/// The web pages that may read responses, and what they may send.
#[derive(Clone, Copy, Debug)]
pub struct Cors<'a> {
    /// The origins of the pages.
    pub origins: &'a CorsOrigins,
    /// `Access-Control-Allow-Methods`.
    pub methods: &'static str,
    /// `Access-Control-Allow-Headers`.
    pub headers: &'static str,
    /// `Access-Control-Expose-Headers`.
    pub exposed: &'static str,
}

/// Whether the connection stays open after the response; RFC 9112, section 9.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The connection stays open, the default of HTTP/1.1.
    KeepAlive,
    /// The connection stays open, which has to be stated to an HTTP/1.0 client.
    ExplicitKeepAlive,
    /// The connection is closed.
    Close,
}

/// Renders the response in pieces, to be sent in order. Keep `reply` until they are sent: it holds
/// the permit for their memory.
pub fn render(reply: &Reply, context: &ResponseContext<'_>) -> [Bytes; 3] {
    let length = reply.body.length();
    let in_one = length <= ONE_PIECE;
    let mut out = Text(Vec::with_capacity(640 + if in_one { length } else { 0 }));
    out.status(reply.status);
    head(&mut out, reply, context, length);
    if reply.rest.is_some() && context.chunks {
        out.literal("transfer-encoding", "chunked");
    }
    match context.persistence {
        Persistence::KeepAlive => {}
        Persistence::ExplicitKeepAlive => out.literal("connection", "keep-alive"),
        Persistence::Close => out.literal("connection", "close"),
    }
    let Text(mut bytes) = out;
    bytes.extend_from_slice(b"\r\n");
    let [start, payload, end] = reply.body.pieces();
    if context.without_body {
        return Body::from(bytes).into_pieces();
    }
    bytes.extend_from_slice(start);
    if in_one {
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(end);
        return Body::from(bytes).into_pieces();
    }
    [bytes.into(), payload.clone(), end.clone()]
}

/// The response head for HTTP/2, without fields of the connection; RFC 9113, section 8.2.2.
pub fn http2_head(reply: &Reply, context: &ResponseContext<'_>) -> Response<()> {
    let mut out = HeaderMap::with_capacity(16);
    head(&mut out, reply, context, reply.body.length());
    let mut response = Response::new(());
    *response.status_mut() = code(reply.status);
    *response.headers_mut() = out;
    response
}

/// Writes every field except those of the connection, for all versions of HTTP.
fn head(out: &mut impl Fields, reply: &Reply, context: &ResponseContext<'_>, length: usize) {
    out.value("date", &clock::date_field());
    match &reply.cache_control {
        None => out.literal("cache-control", "no-store"),
        Some(Cow::Borrowed(policy)) => out.literal("cache-control", policy),
        Some(Cow::Owned(policy)) => out.field("cache-control", policy.as_bytes()),
    }
    out.literal("x-content-type-options", "nosniff");
    out.field("x-request-id", context.request_id.as_bytes());
    if let Some(media_type) = reply.media_type {
        out.literal("content-type", media_type);
    }
    // 204 and 304 have no body and no length: RFC 9110, section 8.6
    if reply.rest.is_none() && !matches!(reply.status, 204 | 304) {
        number(out, "content-length", length);
    }
    if reply.coding == Coding::Gzip {
        out.literal("content-encoding", "gzip");
    }
    if let Some(vary) = vary(reply.coding, context) {
        out.literal("vary", vary);
    }
    for (name, value) in &reply.fields {
        out.value(name, value);
    }
    if let Some(cache) = reply.cache {
        out.literal("x-cache", cache);
    }
    if let Some(ChainPosition { epoch, height }) = reply.chain_position {
        let (mut of_epoch, mut of_height) = (itoa::Buffer::new(), itoa::Buffer::new());
        let [epoch, height] = [of_epoch.format(epoch), of_height.format(height)];
        out.pieces(
            "x-chain-position",
            [epoch.as_bytes(), b".", height.as_bytes()],
        );
    }
    if let Some((policy, standing)) = context.quota {
        out.value("ratelimit-policy", policy);
        limits(out, standing);
    }
    if let Some(allow) = reply.allow {
        out.literal("allow", allow);
    }
    if let Some(seconds) = reply.retry_after {
        number(out, "retry-after", seconds);
    }
    if let Some((cors, origin)) = context.cross_origin {
        cross_origin(out, &cors, origin, reply.status);
    }
}

/// `Vary`: the request fields that the response depends on, in one field.
fn vary(coding: Coding, context: &ResponseContext<'_>) -> Option<&'static str> {
    let cors = context.cross_origin.as_ref().map(|(cors, _)| cors.origins);
    match (coding, cors) {
        (Coding::Only, Some(CorsOrigins::List(_))) => Some("origin"),
        (Coding::Only, _) => None,
        (_, Some(CorsOrigins::List(_))) => Some("origin, Accept-Encoding"),
        _ => Some("Accept-Encoding"),
    }
}

/// A piece of a body as a chunk; RFC 9112, section 7.1. An empty one would be [`LAST_CHUNK`].
pub fn chunk(piece: Bytes) -> Body {
    Body::framed(format!("{:x}\r\n", piece.len()), piece, b"\r\n")
}

/// A head to which fields are written. Values are header values or literals, so that none has a
/// line end.
trait Fields {
    /// Writes a field whose value, in pieces, is specific to this response.
    fn pieces<const N: usize>(&mut self, name: &'static str, pieces: [&[u8]; N]);

    /// Writes a field whose value is specific to this response.
    #[inline(always)]
    fn field(&mut self, name: &'static str, value: &[u8]) {
        self.pieces(name, [value]);
    }

    /// Writes a field with one of a few values.
    #[inline(always)]
    fn literal(&mut self, name: &'static str, value: &'static str) {
        self.field(name, value.as_bytes());
    }

    /// Writes a field with a value that other responses share.
    #[inline(always)]
    fn value(&mut self, name: &'static str, value: &HeaderValue) {
        self.field(name, value.as_bytes());
    }
}

/// A head in the form of HTTP/1.
struct Text(Vec<u8>);

impl Text {
    fn status(&mut self, status: u16) {
        let code = code(status);
        self.0.extend_from_slice(b"HTTP/1.1 ");
        self.0.extend_from_slice(code.as_str().as_bytes());
        self.0.push(b' ');
        self.0
            .extend_from_slice(code.canonical_reason().unwrap_or_default().as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }
}

impl Fields for Text {
    // inlined, so that literals are copied without a call each
    #[inline(always)]
    fn pieces<const N: usize>(&mut self, name: &'static str, pieces: [&[u8]; N]) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        for piece in pieces {
            self.0.extend_from_slice(piece);
        }
        self.0.extend_from_slice(b"\r\n");
    }
}

// Over HTTP/2, ready values are not allocated again, and values that are specific to one response
// are never indexed (RFC 7541, section 6.2.3): they would only evict the others from the table.
// That saves 2,300 of 80,500 instructions of a read, and costs 35 bytes.
impl Fields for HeaderMap {
    fn pieces<const N: usize>(&mut self, name: &'static str, pieces: [&[u8]; N]) {
        if let Ok(mut value) = HeaderValue::from_maybe_shared(Bytes::from(pieces.concat())) {
            value.set_sensitive(true);
            self.append(HeaderName::from_static(name), value);
        }
    }

    fn literal(&mut self, name: &'static str, value: &'static str) {
        self.append(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }

    fn value(&mut self, name: &'static str, value: &HeaderValue) {
        self.append(HeaderName::from_static(name), value.clone());
    }
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn number(out: &mut impl Fields, name: &'static str, number: impl itoa::Integer) {
    out.field(name, itoa::Buffer::new().format(number).as_bytes());
}

/// Writes the rest of the quota, and when the oldest counted request leaves the window.
fn limits(out: &mut impl Fields, standing: RateLimitStatus) {
    let (mut remaining, mut reset) = (itoa::Buffer::new(), itoa::Buffer::new());
    let remaining = remaining.format(standing.remaining).as_bytes();
    let reset = reset.format(standing.reset_seconds).as_bytes();
    out.pieces("ratelimit", [b"\"minute\";r=", remaining, b";t=", reset]);
}

/// The status that only the response to a preflight has.
const PREFLIGHT: u16 = 204;

/// Permits a page of `origin` to read the response, without credentials:
/// <https://fetch.spec.whatwg.org/#http-cors-protocol>.
fn cross_origin(out: &mut impl Fields, cors: &Cors<'_>, origin: Option<&HeaderValue>, status: u16) {
    match cors.origins {
        CorsOrigins::Any => out.literal("access-control-allow-origin", "*"),
        CorsOrigins::List(origins) => {
            let listed = origin.filter(|one| origins.iter().any(|listed| listed == *one));
            let Some(origin) = listed else { return };
            out.value("access-control-allow-origin", origin);
        }
    }
    if status == PREFLIGHT {
        out.literal("access-control-allow-methods", cors.methods);
        out.literal("access-control-allow-headers", cors.headers);
        out.literal("access-control-max-age", "86400");
    } else {
        out.literal("access-control-expose-headers", cors.exposed);
    }
}
