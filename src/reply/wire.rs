//! Replies on the wire: the one place that writes response headers.
//!
//! An HTTP/1 response is written here without a header map (RFC 9112, section 4), and a small one
//! into one buffer, so that it is sent with one write. HTTP/2 takes the same fields as a map.

use super::{Body, Reply};
use crate::config::CorsOrigins;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use pingora::protocols::http::date;
use portcullis_filters::limit::RateLimitStatus;

/// A body up to this size is copied behind its head: that costs less than another write.
const ONE_PIECE: usize = 16 << 10;

/// The request and the connection that a reply is rendered for.
pub struct ResponseContext<'a> {
    /// `X-Request-Id`.
    pub request_id: &'a str,
    /// `RateLimit-Policy` and the client's rate limit, if it has one.
    pub quota: Option<(&'a HeaderValue, RateLimitStatus)>,
    /// The origins that may read the response, and the request's origin.
    pub cross_origin: Option<(Cors<'a>, Option<&'a HeaderValue>)>,
    /// The fate of the connection; HTTP/2 ignores it.
    pub persistence: Persistence,
    /// Whether a streamed body is sent in chunks: HTTP/1.0 ends it with the connection.
    pub chunks: bool,
    /// Whether the body is left out: the request is a HEAD.
    pub without_body: bool,
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

/// The fate of the connection after the response; RFC 9112, section 9.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It stays open, the default of HTTP/1.1.
    KeepAlive,
    /// It stays open, which an HTTP/1.0 client must be sent.
    ExplicitKeepAlive,
    /// It is closed.
    Close,
}

/// The response in pieces, to be sent in order. Keep `reply` until they are sent: it holds the
/// reservation of their memory.
pub fn render(reply: &Reply, context: &ResponseContext<'_>) -> [Bytes; 3] {
    let length = reply.body.length();
    let in_one = length <= ONE_PIECE;
    let mut out = Text(Vec::with_capacity(640 + if in_one { length } else { 0 }));
    out.status(reply.status);
    head(&mut out, reply, context, length);
    if reply.rest.is_some() && context.chunks {
        out.field("transfer-encoding", b"chunked");
    }
    match context.persistence {
        Persistence::KeepAlive => {}
        Persistence::ExplicitKeepAlive => out.field("connection", b"keep-alive"),
        Persistence::Close => out.field("connection", b"close"),
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
    out.field("date", date::get_cached_date().as_bytes());
    out.field("cache-control", reply.cache_control.as_deref().unwrap_or("no-store").as_bytes());
    out.field("x-content-type-options", b"nosniff");
    out.field("x-request-id", context.request_id.as_bytes());
    if let Some(media_type) = reply.media_type {
        out.field("content-type", media_type.as_bytes());
    }
    // 204 and 304 have no body and no length: RFC 9110, section 8.6
    if reply.rest.is_none() && !matches!(reply.status, 204 | 304) {
        number(out, "content-length", length);
    }
    for (name, value) in &reply.fields {
        out.field(name, value.as_bytes());
    }
    if let Some(cache) = reply.cache {
        out.field("x-cache", cache.as_bytes());
    }
    if let Some((policy, standing)) = context.quota {
        out.field("ratelimit-policy", policy.as_bytes());
        limits(out, standing);
    }
    if let Some(allow) = reply.allow {
        out.field("allow", allow.as_bytes());
    }
    if let Some(seconds) = reply.retry_after {
        number(out, "retry-after", seconds);
    }
    if let Some((cors, origin)) = context.cross_origin {
        cross_origin(out, &cors, origin, reply.status == 204);
    }
}

/// A piece of a body as a chunk; RFC 9112, section 7.1. An empty one would be [`LAST_CHUNK`].
pub fn chunk(piece: Bytes) -> Body {
    Body::framed(format!("{:x}\r\n", piece.len()), piece, b"\r\n")
}

/// The end of a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A head to which fields are written. Values are header values or literals, so that none has a
/// line end.
trait Fields {
    /// Writes a field whose value is in pieces.
    fn pieces<const N: usize>(&mut self, name: &'static str, pieces: [&[u8]; N]);

    /// Writes a field.
    #[inline(always)]
    fn field(&mut self, name: &'static str, value: &[u8]) {
        self.pieces(name, [value]);
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
        self.0.extend_from_slice(code.canonical_reason().unwrap_or_default().as_bytes());
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

impl Fields for HeaderMap {
    fn pieces<const N: usize>(&mut self, name: &'static str, pieces: [&[u8]; N]) {
        if let Ok(value) = HeaderValue::from_bytes(&pieces.concat()) {
            self.append(HeaderName::from_static(name), value);
        }
    }
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn number(out: &mut impl Fields, name: &'static str, number: impl itoa::Integer) {
    out.field(name, itoa::Buffer::new().format(number).as_bytes());
}

/// The rest of the quota, and when the oldest counted request leaves the window.
fn limits(out: &mut impl Fields, standing: RateLimitStatus) {
    let (mut remaining, mut reset) = (itoa::Buffer::new(), itoa::Buffer::new());
    let remaining = remaining.format(standing.remaining).as_bytes();
    let reset = reset.format(standing.reset_seconds).as_bytes();
    out.pieces("ratelimit", [b"\"minute\";r=", remaining, b";t=", reset]);
}

/// Permits a page of `origin` to read the response, without credentials:
/// <https://fetch.spec.whatwg.org/#http-cors-protocol>.
fn cross_origin(
    out: &mut impl Fields,
    cors: &Cors<'_>,
    origin: Option<&HeaderValue>,
    is_preflight: bool,
) {
    match cors.origins {
        CorsOrigins::Any => out.field("access-control-allow-origin", b"*"),
        CorsOrigins::List(origins) => {
            out.field("vary", b"origin");
            let listed = origin.filter(|one| origins.iter().any(|listed| listed == *one));
            let Some(origin) = listed else { return };
            out.field("access-control-allow-origin", origin.as_bytes());
        }
    }
    if is_preflight {
        out.field("access-control-allow-methods", cors.methods.as_bytes());
        out.field("access-control-allow-headers", cors.headers.as_bytes());
        out.field("access-control-max-age", b"86400");
    } else {
        out.field("access-control-expose-headers", cors.exposed.as_bytes());
    }
}
