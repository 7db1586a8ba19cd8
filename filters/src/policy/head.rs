//! The checks of a head that the policies share: client, rate, framing, media type, coding, size.

use crate::client::{Client, TrustedProxies};
use crate::head::{Head, X_FORWARDED_FOR};
use crate::limit::RateLimitStatus;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use http::{HeaderMap, Version, header};

/// 64 KiB: the contract's bound on the body of a JSON-RPC request.
pub const MAX_BODY: usize = 65_536;

/// Refuses a body of more than `max` bytes; also called while the body is read.
///
/// # Errors
/// `body_too_large`.
pub fn within_size(bytes: usize, max: usize) -> Result<(), Refusal> {
    if bytes > max {
        return Err(Refusal::new(
            Reason::BodyTooLarge,
            format!("the body must be at most {max} bytes"),
        ));
    }
    Ok(())
}

/// The client that sent a head.
pub(super) fn client(head: &Head<'_>, trusted: &TrustedProxies) -> Client {
    let forwarded = head.headers.get_all(&X_FORWARDED_FOR).iter().map(|value| value.as_bytes());
    Client::identify(head.peer, forwarded, trusted)
}

/// Refuses an HTTP method that is not in `allow`, the value of an `Allow` field.
pub(super) fn allowed_method(head: &Head<'_>, allow: &'static str) -> Result<(), Refusal> {
    if allow.split(", ").any(|method| method == head.method) {
        return Ok(());
    }
    let message = format!("this path takes {allow}");
    Err(Refusal { allow: Some(allow), ..Refusal::new(Reason::WrongHttpMethod, message) })
}

pub(super) fn within_rate(status: RateLimitStatus) -> Result<(), Refusal> {
    if status.admitted {
        return Ok(());
    }
    Err(Refusal::new(Reason::RateLimited, "too many requests: wait for Retry-After seconds"))
}

pub(super) fn too_many_in_flight() -> Refusal {
    Refusal::new(
        Reason::TooManyInFlight,
        "too many requests in flight: wait for responses before you send more",
    )
}

/// Judges framing and host, of requests with and without a body.
pub(super) fn any_headers(head: &Head<'_>) -> Result<(), Refusal> {
    framing(head)?;
    if head.version >= Version::HTTP_11 && !head.headers.contains_key(header::HOST) {
        // RFC 9112, section 3.2; over HTTP/2 it is `:authority`
        return Err(Refusal::new(Reason::InvalidRequest, "HTTP/1.1 requires a Host header"));
    }
    Ok(())
}

/// The same, and expectation, media type and coding of a body. Returns whether the client waits for
/// `100 Continue`.
pub(super) fn body_headers(head: &Head<'_>) -> Result<bool, Refusal> {
    any_headers(head)?;
    let expects_continue = expects_continue(head)?;
    if media_type(head) != MediaType::Json {
        return Err(not_json());
    }
    no_coding(head)?;
    Ok(expects_continue)
}

/// Whether the client waits for `100 Continue`; any other expectation is refused.
pub(super) fn expects_continue(head: &Head<'_>) -> Result<bool, Refusal> {
    match head.single(header::EXPECT) {
        // RFC 9110, section 10.1.1: ignored in a request of HTTP/1.0
        _ if head.version < Version::HTTP_11 => Ok(false),
        None => Ok(false),
        Some(Some(value)) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => Ok(true),
        Some(_) => {
            let message = "the only supported expectation is 100-continue";
            Err(Refusal::new(Reason::ExpectationFailed, message))
        }
    }
}

/// Refuses a body in any content coding.
pub(super) fn no_coding(head: &Head<'_>) -> Result<(), Refusal> {
    match head.single(header::CONTENT_ENCODING) {
        None => Ok(()),
        Some(Some(value)) if value.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(()),
        Some(_) => {
            let message = "the body must have no content coding";
            Err(Refusal::new(Reason::UnsupportedEncoding, message))
        }
    }
}

/// One framing only: with two, parsers may disagree on where the next request begins. RFC 9112,
/// sections 6.1 and 11.2.
pub(super) fn framing(head: &Head<'_>) -> Result<(), Refusal> {
    let Some(coding) = head.single(header::TRANSFER_ENCODING) else { return Ok(()) };
    let message = if head.was_sent(&header::CONTENT_LENGTH) {
        "send Content-Length or Transfer-Encoding, not both"
    } else if coding.is_none_or(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        "the only supported transfer coding is chunked"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Reason::ConflictingFraming, message))
}

/// The media type that a request declares for its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`, with any parameters.
    Json,
    /// Another, several, or none.
    Other,
}

pub(super) fn media_type(head: &Head<'_>) -> MediaType {
    let essence = head.single(header::CONTENT_TYPE).flatten().and_then(|value| {
        value.as_bytes().split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii)
    });
    match essence {
        Some(essence) if essence.eq_ignore_ascii_case(b"application/json") => MediaType::Json,
        _ => MediaType::Other,
    }
}

pub(crate) fn not_json() -> Refusal {
    Refusal::new(Reason::UnsupportedMediaType, "send Content-Type: application/json")
}

/// Refuses a declared size early; the body itself is measured too. The framing has refused a length
/// that is not a number.
pub(super) fn declared_size(head: &Head<'_>, max: usize) -> Result<(), Refusal> {
    within_size(declared_length(head.headers).unwrap_or(0), max)
}

/// The declared length of a body in bytes, if it is a number.
pub fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
