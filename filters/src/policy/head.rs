//! What both policies ask of a head: framing, media type, coding, declared size.

use crate::head::Head;
use crate::limit::Standing;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use http::{Version, header};

/// 64 KiB: the contract's bound on a JSON-RPC request, in bytes of the body on the wire.
pub const MAX_BODY: usize = 65_536;

/// Refuses a body of more than `max` bytes; also to be asked while the body comes in.
///
/// # Errors
/// `body_too_large`.
pub fn within_size(bytes: usize, max: usize) -> Result<(), Refusal> {
    if bytes > max {
        return Err(Refusal::new(Reason::BodyTooLarge, format!("the body is at most {max} bytes")));
    }
    Ok(())
}

pub(super) fn wrong_method(allow: &'static str, message: &'static str) -> Refusal {
    Refusal { allow: Some(allow), ..Refusal::new(Reason::WrongHttpMethod, message) }
}

pub(super) fn within_rate(standing: Standing) -> Result<(), Refusal> {
    if standing.admitted {
        return Ok(());
    }
    Err(Refusal::new(Reason::RateLimited, "too many requests: wait for Retry-After seconds"))
}

pub(super) fn too_many_in_flight() -> Refusal {
    Refusal::new(
        Reason::TooManyInFlight,
        "too many requests at the same time: wait for answers before you send more",
    )
}

/// What every request must get right, with a body or without: its framing, and its host.
pub(super) fn any_headers(head: &Head<'_>) -> Result<(), Refusal> {
    framing(head)?;
    if head.version >= Version::HTTP_11 && !head.headers.contains_key(header::HOST) {
        // RFC 9112, section 3.2; over HTTP/2 it is `:authority`
        return Err(Refusal::new(Reason::InvalidRequest, "HTTP/1.1 asks for a Host header"));
    }
    Ok(())
}

/// The same, and expectation, media type and coding of a body; says whether the client waits for
/// `100 Continue`.
pub(super) fn body_headers(head: &Head<'_>) -> Result<bool, Refusal> {
    any_headers(head)?;
    let expects_continue = expects_continue(head)?;
    if !is_json(head) {
        return Err(not_json());
    }
    no_coding(head)?;
    Ok(expects_continue)
}

/// Whether the client waits for `100 Continue`; no other expectation is met.
pub(super) fn expects_continue(head: &Head<'_>) -> Result<bool, Refusal> {
    match head.single(header::EXPECT) {
        // RFC 9110, section 10.1.1: an HTTP/1.0 client can not mean it
        _ if head.version < Version::HTTP_11 => Ok(false),
        None => Ok(false),
        Some(Some(value)) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => Ok(true),
        Some(_) => {
            let message = "the only expectation that is met is 100-continue";
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
            let message = "the body must carry no content coding";
            Err(Refusal::new(Reason::UnsupportedEncoding, message))
        }
    }
}

/// One way to tell where the body ends, or the next request is a matter of opinion: RFC 9112,
/// sections 6.1 and 11.2.
fn framing(head: &Head<'_>) -> Result<(), Refusal> {
    let Some(coding) = head.single(header::TRANSFER_ENCODING) else { return Ok(()) };
    let message = if head.was_sent(&header::CONTENT_LENGTH) {
        "send Content-Length or Transfer-Encoding, not both"
    } else if coding.is_none_or(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        "the only transfer coding that is read is chunked"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Reason::ConflictingFraming, message))
}

/// Whether the body is said to be JSON, with any parameters.
pub(super) fn is_json(head: &Head<'_>) -> bool {
    let essence = head.single(header::CONTENT_TYPE).flatten().and_then(|value| {
        value.as_bytes().split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii)
    });
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case(b"application/json"))
}

pub(crate) fn not_json() -> Refusal {
    Refusal::new(Reason::UnsupportedMediaType, "send Content-Type: application/json")
}

/// An early answer where the size is declared; what counts is the body itself. A length that is no
/// number was refused with the framing.
pub(super) fn declared_size(head: &Head<'_>, max: usize) -> Result<(), Refusal> {
    let declared = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    within_size(declared.and_then(|text| text.parse().ok()).unwrap_or(0), max)
}
