//! A reply as bytes: the one place that knows the headers of an answer.
//!
//! Over HTTP/1 every answer is written here, in one buffer where it is small: it leaves in one
//! write, and no header map is built for it (RFC 9112, section 4). HTTP/2 takes the same fields as
//! a map.

use super::{Body, Reply};
use crate::config::CorsOrigins;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use pingora_core::protocols::http::date;
use portcullis_filters::limit::Standing;

/// 16 KiB: copying that much costs less than another write.
const ONE_PIECE: usize = 16 << 10;

/// What an answer says beside its reply.
pub struct ResponseContext<'a> {
    /// `X-Request-Id`.
    pub request_id: &'a str,
    /// `RateLimit-Policy`, and how the client stands; for whoever has a limit.
    pub quota: Option<(&'a HeaderValue, Standing)>,
    /// Which origins may read the answer, and the request's own.
    pub cross_origin: Option<(Cors<'a>, Option<&'a HeaderValue>)>,
    /// Whether the connection goes on; HTTP/2 tells that elsewhere.
    pub persistence: Persistence,
    /// Whether a body without a known end comes in chunks: HTTP/1.0 ends it with the connection.
    pub chunks: bool,
    /// Whether the body is only described: the answer to a HEAD.
    pub without_body: bool,
}

/// Which web pages may read answers, and what they may send.
#[derive(Clone, Copy, Debug)]
pub struct Cors<'a> {
    /// Whose pages.
    pub origins: &'a CorsOrigins,
    /// `Access-Control-Allow-Methods`.
    pub methods: &'static str,
    /// `Access-Control-Allow-Headers`.
    pub headers: &'static str,
    /// `Access-Control-Expose-Headers`.
    pub exposed: &'static str,
}

/// What becomes of the connection; RFC 9112, section 9.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// It stays, as HTTP/1.1 connections do.
    Stays,
    /// It stays, which an HTTP/1.0 client wants to be told.
    StaysIfTold,
    /// It is closed.
    Closes,
}

/// The answer in pieces, to be sent one after the other. The lease on its memory stays with
/// `reply`: keep that until they are sent.
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
        Persistence::Stays => {}
        Persistence::StaysIfTold => out.field("connection", b"keep-alive"),
        Persistence::Closes => out.field("connection", b"close"),
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

/// The head of the answer over HTTP/2, where nothing is said of the connection or of chunks; RFC
/// 9113, section 8.2.2. The body is `reply`'s.
pub fn http2_head(reply: &Reply, context: &ResponseContext<'_>) -> Response<()> {
    let mut out = HeaderMap::with_capacity(16);
    head(&mut out, reply, context, reply.body.length());
    let mut response = Response::new(());
    *response.status_mut() = code(reply.status);
    *response.headers_mut() = out;
    response
}

/// Every field of an answer but what is said of its connection, for all versions of HTTP.
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

/// A piece of a body as a chunk; RFC 9112, section 7.1. An empty one would end the body: see
/// [`LAST_CHUNK`].
pub fn chunk(piece: Bytes) -> Body {
    Body::framed(format!("{:x}\r\n", piece.len()), piece, b"\r\n")
}

/// The end of a body in chunks.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Where the fields of a head are written. Values are header values or literals: none holds a line
/// end.
trait Fields {
    /// A field whose value comes in pieces.
    fn pieces<const N: usize>(&mut self, name: &'static str, pieces: [&[u8]; N]);

    /// A field.
    #[inline(always)]
    fn field(&mut self, name: &'static str, value: &[u8]) {
        self.pieces(name, [value]);
    }
}

/// A head as HTTP/1 writes it.
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
    // so that names and values that are known are copied without a call for each
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

/// What is left of the quota, and when the oldest counted request leaves the window.
fn limits(out: &mut impl Fields, standing: Standing) {
    let (mut remaining, mut reset) = (itoa::Buffer::new(), itoa::Buffer::new());
    let remaining = remaining.format(standing.remaining).as_bytes();
    let reset = reset.format(standing.reset_seconds).as_bytes();
    out.pieces("ratelimit", [b"\"minute\";r=", remaining, b";t=", reset]);
}

/// Lets a page of `origin` read the answer, without credentials:
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
