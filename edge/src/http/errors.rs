//! Responses to requests that reach no app; in plain text for the listeners outside the proxy: the
//! operator's, and the one for ACME challenges.

use super::context::ServerContext;
use super::rendered::Rendered;
use crate::reply::{Body, Reply, ResponseContext};
use bytes::Bytes;
use http::Version;
use portcullis_base::telemetry::{HttpLine, RequestLine, RequestRecord, Surface};
use portcullis_filters::client::{Client, TrustedProxies};
use portcullis_filters::verdict::Reason;
use std::net::IpAddr;
use std::time::Duration;

/// Responses to requests that reach no app: over the cap, too slow, too large or malformed.
pub trait ErrorResponder: Send + Sync + 'static {
    /// The response for this version of HTTP. Logs and counts the refusal.
    fn respond(&self, reason: Reason, peer: Option<IpAddr>, version: Version) -> Rendered;
}

/// The message of a refusal by the gate.
pub fn message_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Overloaded => "too many connections",
        Reason::TooManyInFlight => "too many requests at a time: wait for responses",
        Reason::HeaderTooLarge => "the request head is too large",
        Reason::RequestTimeout => "the request head did not arrive in time",
        Reason::WrongHttpMethod => "this is not a forward proxy",
        Reason::ConflictingFraming => "Content-Length or Transfer-Encoding is not usable",
        Reason::InvalidRequest => "the request head is malformed",
        _ => "the request cannot be served",
    }
}

/// An error responder in plain text.
pub struct TextErrors {
    /// Request ids and the log.
    pub process: ServerContext,
    /// The listener.
    pub surface: Surface,
    /// Adds the header fields that every response of the listener has.
    pub guard: fn(Reply) -> Reply,
}

impl ErrorResponder for TextErrors {
    fn respond(&self, reason: Reason, peer: Option<IpAddr>, version: Version) -> Rendered {
        let request_id = self.process.request_ids.mint();
        let status = reason.status();
        let reply = (self.guard)(Reply {
            reason: Some(reason),
            body: Body::framed(message_of(reason), Bytes::new(), b"\n"),
            allow: (status == 405).then_some("GET, HEAD"),
            retry_after: reason.retry_after(),
            ..Reply::text(status, "")
        });
        self.process.log_request(&RequestLine {
            surface: self.surface,
            request_id: request_id.as_str(),
            client: Client::identify(peer, std::iter::empty(), &TrustedProxies::default()),
            record: &RequestRecord::default(),
            http: HttpLine::default(),
            reason: reply.reason,
            status,
            bytes: reply.body.length(),
            total: Duration::ZERO,
        });
        let context = ResponseContext::closing(request_id.as_str());
        Rendered::new(version, &reply, &context)
    }
}
