//! A request before its body: the borrowed view that the policy judges.

use core::net::IpAddr;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Version};

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
    /// The address at the other end of the socket; `None` for a Unix socket.
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
    pub(crate) fn was_sent(&self, name: &HeaderName) -> bool {
        self.headers.contains_key(name)
            || self.raw.split(|byte| *byte == b'\n').skip(1).any(|line| {
                let field = line.split(|byte| *byte == b':').next().unwrap_or_default();
                field.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes())
            })
    }
}

/// Fields that `http` has no constants for; as text, a name would be parsed at each lookup.
pub(crate) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
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
        fields.next().is_some_and(|field| field.len() == length && field.iter().all(is_digit))
    };
    let well_formed = is_field(2) && is_field(32) && is_field(16) && is_field(2);
    let is_whole = well_formed && value.len() == 55 && value.starts_with(b"00-");
    (is_whole && values.next().is_none()).then_some(value)
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
            ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x", false),
            ("00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false),
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
        let version = Version::HTTP_11;
        let (method, target, headers) = ("POST", b"/rpc", &headers);
        let head = Head { method, target, version, headers, raw, peer: None };
        assert!(head.was_sent(&http::header::CONTENT_LENGTH));
        assert!(!head.was_sent(&http::header::TRANSFER_ENCODING));
    }
}
