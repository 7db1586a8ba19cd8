//! A reply as bytes: the one place that knows the headers of an answer.
//!
//! Every answer is written here, in one buffer where it is small: it leaves in one write, and no
//! header map is built for it. RFC 9112, section 4.

use super::Reply;
use crate::config::CorsOrigins;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use pingora_core::protocols::http::date;
use portcullis_filters::limit::Standing;

/// 16 KiB: copying that much costs less than another write.
const ONE_PIECE: usize = 16 << 10;

/// What an answer says beside its reply.
pub struct Facts<'a> {
    /// `X-Request-Id`.
    pub request_id: &'a HeaderValue,
    /// `RateLimit-Policy`, and how the client stands; for whoever has a limit.
    pub quota: Option<(&'a HeaderValue, Standing)>,
    /// Which origins may read the answer, and the request's own.
    pub cross_origin: Option<(Cors<'a>, Option<&'a HeaderValue>)>,
    /// Whether the connection goes on.
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
pub fn render(reply: &Reply, facts: &Facts<'_>) -> [Bytes; 3] {
    let length = reply.length();
    let in_one = length <= ONE_PIECE;
    let mut out = Head(Vec::with_capacity(640 + if in_one { length } else { 0 }));
    out.status(reply.status);
    out.field("date", date::get_cached_date().as_bytes());
    out.field("cache-control", reply.cache_control.as_deref().unwrap_or("no-store").as_bytes());
    out.field("x-content-type-options", b"nosniff");
    out.field("x-request-id", facts.request_id.as_bytes());
    if let Some(media_type) = reply.media_type {
        out.field("content-type", media_type.as_bytes());
    }
    // 204 and 304 have no body and no length: RFC 9110, section 8.6
    if reply.rest.is_some() {
        if facts.chunks {
            out.field("transfer-encoding", b"chunked");
        }
    } else if !matches!(reply.status, 204 | 304) {
        out.number("content-length", length);
    }
    for (name, value) in &reply.fields {
        out.field(name, value.as_bytes());
    }
    if let Some(cache) = reply.cache {
        out.field("x-cache", cache.as_bytes());
    }
    if let Some((policy, standing)) = facts.quota {
        out.field("ratelimit-policy", policy.as_bytes());
        out.limits(standing);
    }
    if let Some(allow) = reply.allow {
        out.field("allow", allow.as_bytes());
    }
    if let Some(seconds) = reply.retry_after {
        out.number("retry-after", seconds);
    }
    if reply.www_authenticate {
        // RFC 6750, section 3: no error code when nothing is to be told
        out.field("www-authenticate", b"Bearer");
    }
    if let Some((cors, origin)) = facts.cross_origin {
        out.cross_origin(&cors, origin, reply.status == 204);
    }
    match facts.persistence {
        Persistence::Stays => {}
        Persistence::StaysIfTold => out.field("connection", b"keep-alive"),
        Persistence::Closes => out.field("connection", b"close"),
    }
    let Head(mut bytes) = out;
    bytes.extend_from_slice(b"\r\n");
    let [start, payload, end] = &reply.body;
    if facts.without_body {
        return [bytes.into(), Bytes::new(), Bytes::new()];
    }
    bytes.extend_from_slice(start);
    if in_one {
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(end);
        return [bytes.into(), Bytes::new(), Bytes::new()];
    }
    [bytes.into(), payload.clone(), end.clone()]
}

/// A piece of a body as a chunk; RFC 9112, section 7.1. An empty one would end the body: see
/// [`LAST_CHUNK`].
pub fn chunk(piece: Bytes) -> [Bytes; 3] {
    [format!("{:x}\r\n", piece.len()).into(), piece, Bytes::from_static(b"\r\n")]
}

/// The end of a body in chunks.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A head being written.
struct Head(Vec<u8>);

impl Head {
    fn status(&mut self, status: u16) {
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.0.extend_from_slice(b"HTTP/1.1 ");
        self.0.extend_from_slice(code.as_str().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(code.canonical_reason().unwrap_or_default().as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }

    /// Values are header values or literals: none holds a line end.
    fn field(&mut self, name: &str, value: &[u8]) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, name: &str, number: impl itoa::Integer) {
        self.field(name, itoa::Buffer::new().format(number).as_bytes());
    }

    /// What is left of the quota, and when the oldest counted request leaves the window.
    fn limits(&mut self, standing: Standing) {
        self.0.extend_from_slice(b"ratelimit: \"minute\";r=");
        self.0.extend_from_slice(itoa::Buffer::new().format(standing.remaining).as_bytes());
        self.0.extend_from_slice(b";t=");
        self.0.extend_from_slice(itoa::Buffer::new().format(standing.reset_seconds).as_bytes());
        self.0.extend_from_slice(b"\r\n");
    }

    /// Lets a page of `origin` read the answer, without credentials:
    /// <https://fetch.spec.whatwg.org/#http-cors-protocol>.
    fn cross_origin(&mut self, cors: &Cors<'_>, origin: Option<&HeaderValue>, is_preflight: bool) {
        match cors.origins {
            CorsOrigins::Any => self.field("access-control-allow-origin", b"*"),
            CorsOrigins::List(origins) => {
                self.field("vary", b"origin");
                let listed = origin.filter(|one| origins.iter().any(|listed| listed == *one));
                let Some(origin) = listed else { return };
                self.field("access-control-allow-origin", origin.as_bytes());
            }
        }
        if is_preflight {
            self.field("access-control-allow-methods", cors.methods.as_bytes());
            self.field("access-control-allow-headers", cors.headers.as_bytes());
            self.field("access-control-max-age", b"86400");
        } else {
            self.field("access-control-expose-headers", cors.exposed.as_bytes());
        }
    }
}
