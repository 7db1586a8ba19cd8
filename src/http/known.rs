//! A head that was parsed before: the same bytes are the same head.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use pingora_http::RequestHeader;
use std::any::Any;
use std::ops::Range;

/// 7 digits: a body of a request is smaller.
const MAX_DIGITS: usize = 7;
/// 2 KiB, in 32 fields: an honest client's head is smaller, and connections keep it while idle.
pub(super) const MAX_SIZE: usize = 2 << 10;
const MAX_FIELDS: usize = 32;

/// A head with one `Content-Length`, and what Pingora made of it. Whatever else stands in it, other
/// digits of that length make no other head of it.
pub(super) struct Known {
    before: Vec<u8>,
    after: Vec<u8>,
    /// Without the length: that is the one of the body, which is there.
    header: RequestHeader,
    /// What whoever serves such requests made of it.
    pub(super) notes: Option<Box<dyn Any + Send + Sync>>,
}

impl Known {
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
            header: copied(header)?,
            notes: None,
        })
    }

    /// The head, as Pingora parsed it, but for the length.
    pub(super) fn header(&self) -> &RequestHeader {
        &self.header
    }

    /// The body of a request that was read whole, with nothing behind it, and that has this head.
    pub(super) fn body_of(&self, read: &mut BytesMut) -> Option<Bytes> {
        let rest = read.strip_prefix(self.before.as_slice())?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = number(rest.get(..digits)?)?;
        let body = rest.get(digits..)?.strip_prefix(self.after.as_slice())?;
        if body.len() != length {
            return None;
        }
        // the bytes are not copied, nor is anything allocated to share them
        let mut body = std::mem::take(read).freeze();
        body.advance(body.len() - length);
        Some(body)
    }
}

/// A copy but for the length, with memory of its own: a clone would hold on to all that was read
/// with the head.
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

/// Whether two heads differ in nothing but the digits of their `Content-Length`.
pub(super) fn are_alike(one: &[u8], other: &[u8]) -> bool {
    // else not worth the search
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

/// Where the digits of the only `Content-Length` stand, if it is written as nearly everybody does.
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

    fn known() -> Known {
        Known::new(HEAD.as_bytes(), &parsed(12)).expect("a head with one plain length")
    }

    #[test]
    fn only_a_whole_request_with_the_same_head_but_for_its_length_is_known() {
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
            let known = known();
            let found = known.body_of(&mut bytes);
            assert_eq!(found.as_deref(), body.map(str::as_bytes), "{read:?}");
            if let Some(body) = body {
                let told = known.header().headers.get(CONTENT_LENGTH);
                assert_eq!(told, None, "the length of another request");
                assert!(bytes.is_empty(), "{} bytes are no other request", body.len());
            }
        }
    }

    #[test]
    fn a_head_that_says_more_of_its_framing_or_connection_is_never_known() {
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
            assert!(Known::new(head.as_bytes(), &parsed(12)).is_none(), "{head:?}");
        }
        for (name, value) in
            [("Connection", "close"), ("Expect", "100-continue"), ("Transfer-Encoding", "chunked")]
        {
            let mut header = parsed(12);
            header.insert_header(name, value).expect("a field");
            assert!(Known::new(HEAD.as_bytes(), &header).is_none(), "{name}");
        }
        let long = HEAD.replace("*/*", &"x".repeat(MAX_SIZE));
        assert!(Known::new(long.as_bytes(), &parsed(12)).is_none(), "an idle connection is small");
        let mut header = parsed(12);
        for field in 0..MAX_FIELDS {
            header.insert_header(format!("x-{field}"), "").expect("a field");
        }
        assert!(Known::new(HEAD.as_bytes(), &header).is_none(), "and so is what is made of it");
        let mut header = parsed(12);
        header.set_version(Version::HTTP_10);
        assert!(Known::new(HEAD.as_bytes(), &header).is_none(), "HTTP/1.0");
    }

    #[test]
    fn heads_are_alike_that_differ_in_the_digits_of_the_length_alone() {
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
            assert_eq!(are_alike(HEAD.as_bytes(), head.as_bytes()), alike, "{head:?}");
        }
    }
}
