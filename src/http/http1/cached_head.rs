//! A head that came before on its connection: the same bytes are the same head.
//!
//! Clients send the same head with every request of a connection, except for the digits of
//! `Content-Length`. From its third time on such a head is neither parsed nor judged again, which
//! halves the instructions of a cache hit.

use bytes::{Buf, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use pingora::http::RequestHeader;
use std::ops::Range;

/// 7 digits: a request body is smaller.
const MAX_DIGITS: usize = 7;
/// 2 KiB, in 32 fields: an honest client's head is smaller, and idle connections hold it.
pub(super) const MAX_SIZE: usize = 2 << 10;
const MAX_FIELDS: usize = 32;

/// A head with one `Content-Length`, parsed. Other digits of that length make no other head of it.
pub(super) struct CachedHead {
    before: Vec<u8>,
    after: Vec<u8>,
    /// Without the length, and with what was derived from it as extensions. Absent while a request
    /// uses it.
    header: Option<Box<RequestHeader>>,
}

impl CachedHead {
    /// `None` for a head that says more about the connection or its framing than a length.
    pub(super) fn new(head: &[u8], header: &RequestHeader) -> Option<Self> {
        let fields = &header.headers;
        let plain = head.len() <= MAX_SIZE
            && fields.len() <= MAX_FIELDS
            && header.version == Version::HTTP_11
            && fields.contains_key(HOST)
            && ![CONNECTION, EXPECT, TRANSFER_ENCODING]
                .iter()
                .any(|name| fields.contains_key(name));
        let digits = length_digits(head).filter(|_| plain)?;
        Some(Self {
            before: head.get(..digits.start)?.to_vec(),
            after: head.get(digits.end..)?.to_vec(),
            header: Some(Box::new(copied(header)?)),
        })
    }

    /// Takes the head of a request that arrived whole, with nothing behind it, and that has this
    /// head; returns it parsed, with the length of the body that is left in `buffer`.
    pub(super) fn take_match(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Option<(Box<RequestHeader>, u64)> {
        let rest = buffer.strip_prefix(self.before.as_slice())?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = number(rest.get(..digits)?)?;
        let body = rest.get(digits..)?.strip_prefix(self.after.as_slice())?;
        if body.len() != length {
            return None;
        }
        let header = self.header.take()?;
        buffer.advance(buffer.len() - length);
        Some((header, length as u64))
    }

    /// Whether a request uses the head.
    pub(super) fn is_lent(&self) -> bool {
        self.header.is_none()
    }

    /// Puts the head back for the next request, if it was lent.
    pub(super) fn give_back(&mut self, header: Box<RequestHeader>) {
        self.header.get_or_insert(header);
    }
}

/// A copy without the length, in memory of its own: a clone would keep the whole read buffer
/// alive.
fn copied(header: &RequestHeader) -> Option<RequestHeader> {
    let fields = &header.headers;
    let (method, path) = (header.method.as_str(), header.raw_path());
    let mut copy = RequestHeader::build_no_case(method, path, Some(fields.len())).ok()?;
    copy.set_version(header.version);
    for (name, value) in fields.iter().filter(|(name, _)| *name != CONTENT_LENGTH) {
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        copy.append_header(name.clone(), value).ok()?;
    }
    Some(copy)
}

/// Whether two heads differ in the digits of their `Content-Length` only.
pub(super) fn differ_in_length_only(one: &[u8], other: &[u8]) -> bool {
    if one.len().abs_diff(other.len()) >= MAX_DIGITS {
        return false;
    }
    let parts = |head: &'_ [u8]| length_digits(head).map(|at| (at.start, head.len() - at.end));
    match (parts(one), parts(other)) {
        (Some((before, after)), Some(same)) if same == (before, after) => {
            one.get(..before) == other.get(..before)
                && one.get(one.len() - after..) == other.get(other.len() - after..)
        }
        _ => false,
    }
}

/// Where the digits of the only `Content-Length` are, if it is written in the usual way.
fn length_digits(head: &[u8]) -> Option<Range<usize>> {
    const NAME: &[u8] = b"content-length";
    let mut found = None;
    let mut start = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let is_it = line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
        if is_it {
            let value = line.get(NAME.len()..)?.strip_prefix(b": ")?.strip_suffix(b"\r\n")?;
            number(value)?;
            let digits = start + line.len() - 2 - value.len()..start + line.len() - 2;
            if found.replace(digits).is_some() {
                return None;
            }
        }
        start += line.len();
    }
    found
}

/// A decimal number in its only spelling.
fn number(digits: &[u8]) -> Option<usize> {
    let plain = (1..=MAX_DIGITS).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nAccept: */*\r\n\r\n";

    fn parsed(length: usize) -> RequestHeader {
        let mut header = RequestHeader::build("POST", b"/rpc", None).expect("a head");
        for (name, value) in [("Host", "x"), ("Content-Length", &length.to_string())] {
            header.insert_header(name.to_owned(), value).expect("a field");
        }
        header
    }

    fn cached() -> CachedHead {
        CachedHead::new(HEAD.as_bytes(), &parsed(12)).expect("a head with one plain length")
    }

    #[test]
    fn only_whole_requests_match_a_cached_head() {
        let same = |length: &str, body: &str| {
            HEAD.replace("Content-Length: 12", &format!("Content-Length: {length}")) + body
        };
        for (read, body) in [
            (same("12", "123456789012"), Some("123456789012")),
            (same("3", "abc"), Some("abc")),
            (same("0", ""), Some("")),
            (same("3", "ab"), None),
            (same("3", "abcd"), None),
            (same("03", "abc"), None),
            (same("+3", "abc"), None),
            (same(" 3", "abc"), None),
            (same("3 ", "abc"), None),
            (same("", ""), None),
            (same("3\r\nX: y", "abc"), None),
            (same("99999999", "abc"), None),
            (same("3", "abc").replace("Host", "host"), None),
            (same("3", "abc").replace("/rpc", "/RPC"), None),
            (same("3", "abc").replace("*/*", "*/x"), None),
            (format!("\r\n{}", same("3", "abc")), None),
        ] {
            let mut bytes = BytesMut::from(read.as_bytes());
            let found = cached().take_match(&mut bytes);
            let length = found.as_ref().map(|(_, length)| *length);
            assert_eq!(length, body.map(|body| body.len() as u64), "{read:?}");
            if let (Some((header, _)), Some(body)) = (found, body) {
                let length = header.headers.get(CONTENT_LENGTH);
                assert_eq!(length, None, "the length of another request");
                assert_eq!(bytes, body, "only the body is left");
            }
        }
    }

    #[test]
    fn a_head_with_other_framing_is_never_cached() {
        for (line, instead) in [
            ("Accept: */*", "Content-Length: 12"),
            ("Accept: */*", "content-length:12"),
            ("Content-Length: 12", "Content-Length: 012"),
            ("Content-Length: 12", "Content-Length: 12, 12"),
            ("Content-Length: 12", "Content-Length:12"),
            ("Content-Length: 12\r\n", "Content-Length: 12\n"),
            ("Content-Length: 12\r\n", ""),
        ] {
            let head = HEAD.replace(line, instead);
            assert!(CachedHead::new(head.as_bytes(), &parsed(12)).is_none(), "{head:?}");
        }
        for (name, value) in
            [("Connection", "close"), ("Expect", "100-continue"), ("Transfer-Encoding", "chunked")]
        {
            let mut header = parsed(12);
            header.insert_header(name, value).expect("a field");
            assert!(CachedHead::new(HEAD.as_bytes(), &header).is_none(), "{name}");
        }
        let long = HEAD.replace("*/*", &"x".repeat(MAX_SIZE));
        assert!(
            CachedHead::new(long.as_bytes(), &parsed(12)).is_none(),
            "an idle connection is small"
        );
        let mut header = parsed(12);
        for field in 0..MAX_FIELDS {
            header.insert_header(format!("x-{field}"), "").expect("a field");
        }
        assert!(
            CachedHead::new(HEAD.as_bytes(), &header).is_none(),
            "and so is what is made of it"
        );
        let mut header = parsed(12);
        header.set_version(Version::HTTP_10);
        assert!(CachedHead::new(HEAD.as_bytes(), &header).is_none(), "HTTP/1.0");
    }

    #[test]
    fn heads_may_differ_in_the_length_only() {
        let other = |from: &str, to: &str| HEAD.replace(from, to);
        for (head, alike) in [
            (HEAD.to_owned(), true),
            (other(": 12", ": 7"), true),
            (other(": 12", ": 65536"), true),
            (other("Host", "host"), false),
            (other("*/*", "*/x"), false),
            (other("Length: 12", "Length: 1x"), false),
            (String::new(), false),
        ] {
            let found = differ_in_length_only(HEAD.as_bytes(), head.as_bytes());
            assert_eq!(found, alike, "{head:?}");
        }
    }
}
