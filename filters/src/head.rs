//! A request before its body: the view that the policies judge, and the checks that they share.
//!
//! The checks cover client, rate, framing, media type, coding and declared size. Each policy
//! decides which of them it makes, and in which order.

use crate::client::{Client, TrustedProxies};
use crate::limit::RateLimitStatus;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use core::net::IpAddr;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Version};

/// 64 KiB: the contract's bound on the body of a JSON-RPC request.
pub const MAX_BODY: usize = 65_536;

/// A request's head: all that the policy sees of a request, except for the body.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The HTTP method, as sent.
    pub method: &'a str,
    /// The request target, raw: no decoding, no normalisation, a query included.
    pub target: &'a [u8],
    /// The version of HTTP.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The head's bytes as sent: parsing may have dropped a field that contradicted another. Empty
    /// over HTTP/2, which drops none and rejects a contradiction.
    pub raw: &'a [u8],
    /// The address at the other end of the socket, or that of the client in its PROXY header;
    /// `None` for a Unix socket.
    pub peer: Option<IpAddr>,
}

impl<'a> Head<'a> {
    /// The only value of a field: `None` if it is absent, `Some(None)` if it appears twice.
    pub(crate) fn single(&self, name: HeaderName) -> Option<Option<&'a HeaderValue>> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?;
        Some(values.next().is_none().then_some(first))
    }

    /// Whether the head as sent has a field of this name.
    fn was_sent(&self, name: &HeaderName) -> bool {
        self.headers.contains_key(name)
            || self.raw.split(|byte| *byte == b'\n').skip(1).any(|line| {
                let field = line.split(|byte| *byte == b':').next().unwrap_or_default();
                field
                    .trim_ascii()
                    .eq_ignore_ascii_case(name.as_str().as_bytes())
            })
    }
}

/// `http` has no constant for this field; a name as text would be parsed at each lookup.
static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The field of a trace context, which [`traceparent`] reads.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The trace context to pass on: one well-formed `traceparent` of version 00.
/// <https://www.w3.org/TR/trace-context/#traceparent-header>
pub fn traceparent(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(&TRACEPARENT).iter();
    let value = values.next()?.as_bytes();
    let mut fields = value.split(|byte| *byte == b'-');
    let mut is_field = |length| {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        fields
            .next()
            .is_some_and(|field| field.len() == length && field.iter().all(is_digit))
    };
    let well_formed = is_field(2) && is_field(32) && is_field(16) && is_field(2);
    let is_whole = well_formed && value.len() == 55 && value.starts_with(b"00-");
    (is_whole && values.next().is_none()).then_some(value)
}

/// Refuses a body of more than `max` bytes; also called while the body is read.
///
/// # Errors
/// Returns `body_too_large`.
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
pub(crate) fn client(head: &Head<'_>, trusted: &TrustedProxies) -> Client {
    client_of(head.peer, head.headers, trusted)
}

/// The client behind `peer` that sent these fields. Policies use it, and so do the memory limits
/// for requests that no policy has judged yet: nothing else identifies clients.
pub fn client_of(peer: Option<IpAddr>, fields: &HeaderMap, trusted: &TrustedProxies) -> Client {
    let forwarded = fields
        .get_all(&X_FORWARDED_FOR)
        .iter()
        .map(|value| value.as_bytes());
    Client::identify(peer, forwarded, trusted)
}

/// Refuses an HTTP method that is not in `allow`, the value of an `Allow` field.
pub(crate) fn allowed_method(head: &Head<'_>, allow: &'static str) -> Result<(), Refusal> {
    if allow.split(", ").any(|method| method == head.method) {
        return Ok(());
    }
    let message = format!("this path takes {allow}");
    Err(Refusal {
        allow: Some(allow),
        ..Refusal::new(Reason::WrongHttpMethod, message)
    })
}

/// Refuses a request that is over its client's rate limit.
///
/// # Errors
/// Returns `rate_limited`.
pub fn within_rate(status: RateLimitStatus) -> Result<(), Refusal> {
    within(status, "too many requests: wait for Retry-After seconds")
}

/// Refuses a client that is over its limit of wrong tokens.
///
/// # Errors
/// Returns `rate_limited`.
pub fn within_failed_tokens(status: RateLimitStatus) -> Result<(), Refusal> {
    within(
        status,
        "too many requests without a valid token: wait for Retry-After seconds",
    )
}

fn within(status: RateLimitStatus, message: &'static str) -> Result<(), Refusal> {
    if status.admitted {
        return Ok(());
    }
    let retry_after = Some(status.reset_seconds);
    Err(Refusal {
        retry_after,
        ..Refusal::new(Reason::RateLimited, message)
    })
}

pub(crate) fn too_many_in_flight() -> Refusal {
    Refusal::new(
        Reason::TooManyInFlight,
        "too many requests in flight: wait for responses before you send more",
    )
}

/// Judges the framing and the `Host` of a request with or without a body.
pub(crate) fn any_headers(head: &Head<'_>) -> Result<(), Refusal> {
    framing(head)?;
    if head.version >= Version::HTTP_11 && !head.headers.contains_key(header::HOST) {
        // RFC 9112, section 3.2; over HTTP/2 it is `:authority`
        return Err(Refusal::new(
            Reason::InvalidRequest,
            "HTTP/1.1 requires a Host header",
        ));
    }
    Ok(())
}

/// Judges the headers of a request with a body: those of [`any_headers`], the expectation, the
/// media type and the content coding. Returns whether the client waits for `100 Continue`.
pub(crate) fn body_headers(head: &Head<'_>) -> Result<bool, Refusal> {
    any_headers(head)?;
    let expects_continue = expects_continue(head)?;
    if media_type(head) != MediaType::Json {
        return Err(not_json());
    }
    no_coding(head)?;
    Ok(expects_continue)
}

/// Whether the client waits for `100 Continue`; any other expectation is refused.
pub(crate) fn expects_continue(head: &Head<'_>) -> Result<bool, Refusal> {
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
pub(crate) fn no_coding(head: &Head<'_>) -> Result<(), Refusal> {
    match head.single(header::CONTENT_ENCODING) {
        None => Ok(()),
        Some(Some(value)) if value.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(()),
        Some(_) => {
            let message = "the body must have no content coding";
            Err(Refusal::new(Reason::UnsupportedEncoding, message))
        }
    }
}

/// Refuses two framings at once: parsers may disagree on where the next request begins. Refuses
/// transfer codings other than chunked. RFC 9112, sections 6.1 and 11.2.
///
/// # Errors
/// Returns `conflicting_framing`.
pub fn framing(head: &Head<'_>) -> Result<(), Refusal> {
    let Some(coding) = head.single(header::TRANSFER_ENCODING) else {
        return Ok(());
    };
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

pub(crate) fn media_type(head: &Head<'_>) -> MediaType {
    let essence = head
        .single(header::CONTENT_TYPE)
        .flatten()
        .and_then(|value| {
            value
                .as_bytes()
                .split(|byte| *byte == b';')
                .next()
                .map(<[u8]>::trim_ascii)
        });
    match essence {
        Some(essence) if essence.eq_ignore_ascii_case(b"application/json") => MediaType::Json,
        _ => MediaType::Other,
    }
}

pub(crate) fn not_json() -> Refusal {
    Refusal::new(
        Reason::UnsupportedMediaType,
        "send Content-Type: application/json",
    )
}

/// Refuses a declared size over `max` before the body is read; the body itself is measured too. A
/// length that is not a number was refused with the framing.
pub(crate) fn declared_size(head: &Head<'_>, max: usize) -> Result<(), Refusal> {
    within_size(declared_length(head.headers).unwrap_or(0), max)
}

/// The declared length of a body in bytes, if it is a number.
pub fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// The weight of an `Accept-Encoding` element without one, in thousandths.
const FULL_WEIGHT: u16 = 1000;

/// Whether a client accepts gzip and does not prefer `identity`, the only other coding. RFC 9110,
/// section 12.5.3.
///
/// A malformed weight counts as 0. Without the field, which allows any coding, gzip counts as not
/// accepted: clients that decode gzip send the field.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut gzip = None;
    let mut identity = None;
    let mut any = None;
    for field in headers.get_all(header::ACCEPT_ENCODING) {
        for element in field.as_bytes().split(|byte| *byte == b',') {
            let mut parts = element
                .splitn(2, |byte| *byte == b';')
                .map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            let listed = match () {
                () if is_coding(coding, "gzip") || is_coding(coding, "x-gzip") => &mut gzip,
                () if is_coding(coding, "identity") => &mut identity,
                () if coding == b"*" => &mut any,
                () => continue,
            };
            let weight = parts
                .next()
                .map_or(FULL_WEIGHT, |text| coding_weight(text).unwrap_or(0));
            // a coding that is listed twice has the lower weight
            *listed = Some(listed.map_or(weight, |other| core::cmp::min(other, weight)));
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

fn is_coding(coding: &[u8], name: &str) -> bool {
    coding.eq_ignore_ascii_case(name.as_bytes())
}

/// A weight in thousandths: `q=`, then 0 to 1 with up to three digits. RFC 9110, section 12.4.2.
fn coding_weight(text: &[u8]) -> Option<u16> {
    let value = text
        .strip_prefix(b"q=")
        .or_else(|| text.strip_prefix(b"Q="))?;
    let (whole, digits) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    let mut weight = u16::from(*whole == b'1');
    for at in 0..3 {
        let digit = digits
            .get(at)
            .unwrap_or(&b'0')
            .checked_sub(b'0')
            .filter(|digit| *digit <= 9)?;
        weight = weight.saturating_mul(10).saturating_add(u16::from(digit));
    }
    (weight <= FULL_WEIGHT).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_is_passed_on() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (value, ok) in [
            (good, true),
            ("", false),
            (
                "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                false,
            ),
            (
                "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
                false,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                false,
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_str(value).unwrap());
            assert_eq!(traceparent(&headers).is_some(), ok, "{value:?}");
            headers.append("traceparent", HeaderValue::from_static("00"));
            assert_eq!(traceparent(&headers), None, "two of them");
        }
    }

    #[test]
    fn the_raw_head_shows_a_dropped_field() {
        let headers = HeaderMap::new();
        let raw = b"POST /rpc HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 3\r\n\r\n";
        let head = Head {
            method: "POST",
            target: b"/rpc",
            version: Version::HTTP_11,
            headers: &headers,
            raw,
            peer: None,
        };
        assert!(head.was_sent(&http::header::CONTENT_LENGTH));
        assert!(!head.was_sent(&http::header::TRANSFER_ENCODING));
    }

    fn accepts(fields: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(
                header::ACCEPT_ENCODING,
                HeaderValue::from_str(field).unwrap(),
            );
        }
        accepts_gzip(&headers)
    }

    #[test]
    fn gzip_is_accepted_by_its_weight() {
        for (field, accepted, why) in [
            ("gzip", true, "alone"),
            ("gzip, deflate, br, zstd", true, "as browsers send"),
            ("br, zstd, GZip", true, "in any case and place"),
            ("x-gzip", true, "its old name"),
            ("*", true, "any coding"),
            ("br;q=1.0, *;q=0.001", true, "any other coding"),
            ("gzip;q=1.000", true, "the longest weight"),
            (" gzip ; Q=0.5 ", true, "with space"),
            ("gzip;q=0.001", true, "the least weight"),
            (
                "identity;q=0.5, gzip;q=0.5",
                true,
                "as good as the identity",
            ),
            ("identity;q=0, gzip", true, "and nothing else"),
            ("", false, "nothing"),
            (",,;,", false, "empty elements"),
            ("br, deflate, zstd", false, "other codings"),
            ("gzipped, notgzip, gzip-like", false, "other names"),
            ("gzip;q=0", false, "not acceptable"),
            ("gzip;q=0.000", false, "not acceptable, at length"),
            ("gzip;q=0, *", false, "any but gzip"),
            ("*;q=0", false, "none at all"),
            ("identity;q=0", false, "gzip is not listed"),
            ("identity, gzip;q=0.9", false, "the identity is preferred"),
            ("gzip, gzip;q=0", false, "it contradicts itself"),
            ("gzip;q=2", false, "beyond one"),
            ("gzip;q=1.001", false, "just beyond one"),
            ("gzip;q=0.0001", false, "too long"),
            ("gzip;q=-1", false, "negative"),
            ("gzip;q=", false, "no weight"),
            ("gzip;q=x", false, "not a number"),
            ("gzip;q=1;q=0", false, "two weights"),
            ("gzip;level=9", false, "another parameter"),
            ("gzip;", false, "an empty parameter"),
            ("\"gzip\"", false, "quoted"),
        ] {
            assert_eq!(accepts(&[field]), accepted, "{field:?}: {why}");
        }
    }

    #[test]
    fn several_fields_are_one_list() {
        assert!(accepts(&["br", "gzip"]));
        assert!(!accepts(&["gzip", "gzip;q=0"]));
        assert!(!accepts(&["identity", "gzip;q=0.1"]));
        assert!(!accepts(&[]), "no field");
    }
}
