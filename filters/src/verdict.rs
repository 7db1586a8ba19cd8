//! What the policy says: a refusal with its reason, or a proof that lets the request go on.
//!
//! The proofs ([`ReadPermit`]) have private fields and are made by [`crate::policy`] alone, so a
//! handler that takes one can be reached by no request that was not judged.

use crate::rpc::{Id, Method, Params};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Why a request was refused or could not be answered. The closed list of what clients, logs and
/// metrics name; the HTTP status and the JSON-RPC code of each stand in one table in the program's
/// `reply` module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The path is none of ours.
    NotFound,
    /// The path does not take this HTTP method.
    WrongHttpMethod,
    /// The client spent its requests of this minute.
    RateLimited,
    /// The client has too many requests under way.
    TooManyInFlight,
    /// The framing headers contradict each other, or frame in a way we do not read.
    ConflictingFraming,
    /// The request's head is larger than configured.
    HeaderTooLarge,
    /// An `Expect` that we do not meet.
    ExpectationFailed,
    /// Not `application/json`.
    UnsupportedMediaType,
    /// The body carries a content coding.
    UnsupportedEncoding,
    /// The body is over 64 KiB.
    BodyTooLarge,
    /// The head or the body did not arrive in time.
    RequestTimeout,
    /// Not one JSON text in UTF-8 within the depth limit.
    ParseError,
    /// JSON, but not a JSON-RPC 2.0 request.
    InvalidRequest,
    /// A JSON-RPC batch.
    Batch,
    /// A method that is not on the allowlist.
    MethodNotAllowed,
    /// The parameters are not those of the method.
    InvalidParams,
    /// The node did not answer within the deadline.
    UpstreamTimeout,
    /// The node could not be reached, or failed before it answered.
    UpstreamUnreachable,
    /// The node answered with a redirect.
    UpstreamRedirect,
    /// The node answered with a status other than 200.
    UpstreamStatus,
    /// The node's answer is over 4 MiB.
    UpstreamOversized,
    /// The node's answer is not one JSON-RPC 2.0 response to our request.
    UpstreamInvalid,
    /// Our own bound on memory or connections is reached.
    Overloaded,
    /// We are shutting down.
    Draining,
}

impl Reason {
    /// Every reason, in the order of the variants.
    pub const ALL: [Self; 24] = [
        Self::NotFound,
        Self::WrongHttpMethod,
        Self::RateLimited,
        Self::TooManyInFlight,
        Self::ConflictingFraming,
        Self::HeaderTooLarge,
        Self::ExpectationFailed,
        Self::UnsupportedMediaType,
        Self::UnsupportedEncoding,
        Self::BodyTooLarge,
        Self::RequestTimeout,
        Self::ParseError,
        Self::InvalidRequest,
        Self::Batch,
        Self::MethodNotAllowed,
        Self::InvalidParams,
        Self::UpstreamTimeout,
        Self::UpstreamUnreachable,
        Self::UpstreamRedirect,
        Self::UpstreamStatus,
        Self::UpstreamOversized,
        Self::UpstreamInvalid,
        Self::Overloaded,
        Self::Draining,
    ];

    /// Whether the request was one that could have been answered: what failed is on our side.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::UpstreamTimeout
                | Self::UpstreamUnreachable
                | Self::UpstreamRedirect
                | Self::UpstreamStatus
                | Self::UpstreamOversized
                | Self::UpstreamInvalid
                | Self::Overloaded
                | Self::Draining
        )
    }

    /// The `snake_case` name that error bodies, logs and metrics carry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::WrongHttpMethod => "wrong_http_method",
            Self::RateLimited => "rate_limited",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::ConflictingFraming => "conflicting_framing",
            Self::HeaderTooLarge => "header_too_large",
            Self::ExpectationFailed => "expectation_failed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::BodyTooLarge => "body_too_large",
            Self::RequestTimeout => "request_timeout",
            Self::ParseError => "parse_error",
            Self::InvalidRequest => "invalid_request",
            Self::Batch => "batch",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::InvalidParams => "invalid_params",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamRedirect => "upstream_redirect",
            Self::UpstreamStatus => "upstream_status",
            Self::UpstreamOversized => "upstream_oversized",
            Self::UpstreamInvalid => "upstream_invalid",
            Self::Overloaded => "overloaded",
            Self::Draining => "draining",
        }
    }
}

/// A request that goes no further, with the text its sender may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What the client reads: what was wrong and what to do, never an internal of ours.
    pub message: Cow<'static, str>,
    /// The request's JSON-RPC id as its bytes were, once it is known.
    pub id: Option<Box<str>>,
    /// The HTTP methods that the path takes, for [`Reason::WrongHttpMethod`].
    pub allow: Option<&'static str>,
}

impl Refusal {
    /// A refusal whose request id is not known (yet).
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, message: message.into(), id: None, allow: None }
    }

    /// The same refusal, answering the request of this id.
    pub(crate) fn with_id(mut self, id: Option<Id<'_>>) -> Self {
        self.id = id.map(|id| Box::from(id.as_str()));
        self
    }
}

/// Proof that a read passed the whole policy. Borrows the request body it was parsed from.
#[derive(Debug)]
pub struct ReadPermit<'a> {
    id: Id<'a>,
    method: Method,
    params: Params,
}

impl<'a> ReadPermit<'a> {
    pub(crate) fn new(id: Id<'a>, method: Method, params: Params) -> Self {
        Self { id, method, params }
    }

    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.id
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The parameters as they were understood.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Appends the request that the node gets: this method and these parameters, by name, with
    /// `id` in place of the client's.
    pub fn write_request(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.to_string().as_bytes());
        out.extend_from_slice(br#","method":""#);
        out.extend_from_slice(self.method.name().as_bytes());
        out.extend_from_slice(br#"","params":"#);
        self.params.write(out);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_listed_once_in_order_with_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{reason:?} stands where its variant stands");
            assert!(names.insert(reason.name()), "{} is taken", reason.name());
        }
    }
}
