//! Documents and conditional requests (RFC 9110, section 13).
//!
//! A document depends on stored data alone, never on the time of the request, so that equal content
//! has equal bytes and an equal `ETag`.

use crate::io::clock::LAST_SECOND;
use crate::reply::Reply;
use bytes::Bytes;
use portcullis_filters::policy::RequestParts;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A document, ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) body: Bytes,
    pub(super) media_type: &'static str,
    /// `ETag`: strong, of the bytes.
    pub(super) etag: String,
    /// `Last-Modified`, in microseconds since 1970.
    pub(super) modified_us: Option<i64>,
}

impl Document {
    pub(super) fn new(body: Bytes, media_type: &'static str, modified_us: Option<i64>) -> Self {
        let etag = etag(&[&body]);
        Self { body, media_type, etag, modified_us }
    }

    /// The response: the document, or 304 if the client has it.
    pub(super) fn reply(
        &self,
        request: &RequestParts,
        cache_control: impl Into<Cow<'static, str>>,
    ) -> Reply {
        let mut reply = validated(request, cache_control, &self.etag, self.modified_us);
        if reply.status == 200 {
            reply.media_type = Some(self.media_type);
            reply.body = self.body.clone().into();
        }
        reply
    }
}

/// The head of a response with validators: 200, or 304 if the client has the document (RFC 9110,
/// section 15.4.5).
pub(super) fn validated(
    request: &RequestParts,
    cache_control: impl Into<Cow<'static, str>>,
    etag: &str,
    modified_us: Option<i64>,
) -> Reply {
    let [if_none_match, since] = [&request.if_none_match, &request.if_modified_since]
        .map(|field| field.as_deref().and_then(|value| str::from_utf8(value).ok()));
    let unchanged = is_unchanged(if_none_match, since, etag, modified_us);
    let mut reply = Reply {
        status: if unchanged { 304 } else { 200 },
        cache_control: Some(cache_control.into()),
        ..Reply::default()
    };
    reply.field("etag", etag);
    if let Some(us) = modified_us {
        reply.field("last-modified", http_date(us));
    }
    reply
}

/// A strong `ETag` of some bytes.
pub(super) fn etag(parts: &[&[u8]]) -> String {
    let digest = parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part));
    format!("\"{:x}\"", digest.finalize())
}

/// Whether a client that sent these two headers has the document. If there is an `If-None-Match`,
/// it decides alone; an `If-Modified-Since` that is not a date is ignored.
fn is_unchanged(
    if_none_match: Option<&str>,
    if_modified_since: Option<&str>,
    etag: &str,
    modified_us: Option<i64>,
) -> bool {
    if let Some(list) = if_none_match {
        return lists(list, etag);
    }
    let since = if_modified_since.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    matches!((since, modified_us), (Some(since), Some(us)) if instant(us) <= since)
}

/// Whether an `If-None-Match` lists a tag, weak or strong. A truncated list counts up to its end.
fn lists(list: &str, etag: &str) -> bool {
    let mut rest = list.trim();
    if rest == "*" {
        return true;
    }
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let tag = rest.strip_prefix("W/").unwrap_or(rest);
        // a tag may contain a comma, but not a quote
        let Some(end) = tag.strip_prefix('"').and_then(|tag| tag.find('"')) else { return false };
        let (tag, after) = tag.split_at(end + 2);
        if tag == etag {
            return true;
        }
        rest = after;
    }
}

/// A stored instant in the format of HTTP and RSS, in whole seconds.
pub(super) fn http_date(us: i64) -> String {
    httpdate::fmt_http_date(instant(us))
}

/// Whole seconds since 1970 of a stored instant, within the range of dates.
pub(super) fn seconds(us: i64) -> i64 {
    us.div_euclid(1_000_000).clamp(0, LAST_SECOND.cast_signed())
}

fn instant(us: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds(us).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODIFIED: i64 = 784_111_777_654_321; // Sun, 06 Nov 1994 08:49:37.65 GMT

    #[test]
    fn a_client_that_has_the_document_gets_304() {
        let tag = etag(&[b"document"]);
        let weak = format!("W/{tag}");
        let listed = format!("\"a,b\" , W/\"c\",, {tag}");
        let other = etag(&[b"other"]);
        let same = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let older = Some("Sun, 06 Nov 1994 08:49:36 GMT");
        let table: &[(Option<&str>, Option<&str>, bool, &str)] = &[
            (None, None, false, "unconditional"),
            (Some(&tag), None, true, "the tag"),
            (Some(&weak), None, true, "weak comparison"),
            (Some(&listed), None, true, "in a list after tags with a comma"),
            (Some(" * "), None, true, "any document"),
            (Some(&other), None, false, "another tag"),
            (Some(&tag[1..65]), None, false, "a tag without quotes"),
            (Some(&tag[..65]), None, false, "a truncated tag"),
            (Some(""), None, false, "an empty list"),
            (Some("*, \"a\""), None, false, "a star is not a member of a list"),
            (Some(&other), same, false, "If-None-Match decides alone"),
            (Some("nonsense"), same, false, "also when it is malformed"),
            (None, same, true, "the same second"),
            (None, Some("Monday, 07-Nov-94 08:49:37 GMT"), true, "later, in RFC 850 format"),
            (None, Some("Sun Nov  6 08:49:37 1994"), true, "in asctime format"),
            (None, older, false, "modified since"),
            (None, Some("yesterday"), false, "no date"),
        ];
        for (none_match, since, unchanged, why) in table {
            let found = is_unchanged(*none_match, *since, &tag, Some(MODIFIED));
            assert_eq!(found, *unchanged, "{why}");
        }
        assert!(!is_unchanged(None, same, &tag, None), "the document has no date");
    }

    #[test]
    fn a_tag_is_the_digest_of_the_body() {
        let document = Document::new(Bytes::from_static(b"abc"), "text/plain", None);
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(document.etag, format!("\"{digest}\""));
        assert_eq!(etag(&[b"a", b"bc"]), document.etag);
    }

    #[test]
    fn dates_stay_within_four_digit_years() {
        for (us, date) in [
            (MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(us), date, "{us}");
        }
    }
}
