//! The head of an HTTP/1 request: where it ends, what it says, and why it is refused.
//!
//! `httparse` splits it, Pingora's types hold it, and Pingora's own check of the authority applies.
//! What frames the body is read strictly: a head that another reader could frame differently is
//! refused, and the connection closes. Nothing is repaired.

use super::body::BodyReader;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use pingora::http::RequestHeader;
use pingora::protocols::http::authority::validate_request_authority;
use portcullis_filters::verdict::Reason;
use std::mem::MaybeUninit;

/// Fields of a head, over HTTP/1 and HTTP/2.
pub(in crate::http) const MAX_FIELDS: usize = 256;

/// A head, parsed.
pub(super) struct ParsedHead {
    pub(super) header: Box<RequestHeader>,
    pub(super) body: BodyReader,
    /// Whether the client lets the connection persist; RFC 9112, section 9.3.
    pub(super) keeps_alive: bool,
}

/// Where the head ends that `read` begins with, searched from `searched` on: after an empty line
/// (RFC 9112, section 2.2). Empty lines before the request line do not count, and a line may end
/// with LF alone.
pub(super) fn end_of_head(read: &[u8], searched: usize) -> Option<usize> {
    let from = searched.max(start_of_head(read)?);
    memchr::memchr_iter(b'\n', read.get(from..)?).find_map(|at| {
        let next = from + at + 1;
        match read.get(next..)? {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        }
    })
}

/// Where the request line starts.
pub(super) fn start_of_head(read: &[u8]) -> Option<usize> {
    read.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))
}

/// Parses a whole head.
///
/// # Errors
/// 405 for CONNECT, `conflicting_framing` where a framing field is the fault, `header_too_large`
/// for too many fields, `invalid_request` for anything else that is malformed.
pub(super) fn parse(head: &Bytes) -> Result<ParsedHead, Reason> {
    let header = header_of(head).ok_or_else(|| refusal_of(head))?;
    let fields = &header.headers;
    let is_valid = header.method != Method::CONNECT
        && !has_fragment(head)
        && validate_request_authority(&header).is_ok();
    let body = body_of(header.version, fields).filter(|_| is_valid);
    let body = body.ok_or_else(|| refusal_of(head))?;
    let keeps_alive = keeps_alive(header.version, fields);
    Ok(ParsedHead { header, body, keeps_alive })
}

/// The fields share the memory of `head`.
fn header_of(head: &Bytes) -> Option<Box<RequestHeader>> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(head, &mut fields).ok()?;
    if parsed != httparse::Status::Complete(head.len()) {
        return None;
    }
    let (method, path) = (request.method?, request.path?.as_bytes());
    let size = Some(request.headers.len());
    let mut header = Box::new(RequestHeader::build_no_case(method, path, size).ok()?);
    header.set_version(if request.version? == 1 { Version::HTTP_11 } else { Version::HTTP_10 });
    for field in &*request.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value)).ok()?;
        header.append_header(name, value).ok()?;
    }
    Some(header)
}

/// How the body is framed; RFC 9112, section 6.3. `None` if that is not certain. Both a coding and
/// a length pass here, and are refused by the policy.
fn body_of(version: Version, fields: &HeaderMap) -> Option<BodyReader> {
    if let Some(coding) = fields.get_all(TRANSFER_ENCODING).iter().next_back() {
        let last = coding.as_bytes().rsplit(|byte| *byte == b',').next()?;
        let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return (is_chunked && version == Version::HTTP_11).then_some(BodyReader::ChunkSize);
    }
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        for text in value.as_bytes().split(|byte| *byte == b',') {
            // stricter than RFC 9110, section 8.6, which lets the same length stand twice
            if length.replace(number(text.trim_ascii())?).is_some() {
                return None;
            }
        }
    }
    Some(BodyReader::Length(length.unwrap_or(0)))
}

/// Digits and nothing else.
fn number(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

fn keeps_alive(version: Version, fields: &HeaderMap) -> bool {
    let mut keeps_alive = version == Version::HTTP_11;
    for value in fields.get_all(CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keeps_alive
}

/// Whether the target has a fragment, which is no part of any target (RFC 9112, section 3.2), and
/// which Pingora's types drop.
fn has_fragment(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.contains(&b'#')
}

/// Why a head that cannot be parsed is refused.
fn refusal_of(head: &[u8]) -> Reason {
    if head.starts_with(b"CONNECT ") {
        return Reason::WrongHttpMethod;
    }
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.take_while(|line| !line.trim_ascii().is_empty());
    let (mut count, mut lengths) = (0, 0);
    for line in fields {
        count += 1;
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let value = parts.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Reason::ConflictingFraming;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            lengths += 1;
            if lengths > 1 || value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
                return Reason::ConflictingFraming;
            }
        }
    }
    if count > MAX_FIELDS { Reason::HeaderTooLarge } else { Reason::InvalidRequest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &str) -> Result<(BodyReader, bool), Reason> {
        let head = Bytes::from(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")));
        parse(&head).map(|head| (head.body, head.keeps_alive))
    }

    #[test]
    fn framing_and_persistence_are_read_strictly() {
        let (none, framing) = (BodyReader::DONE, Err(Reason::ConflictingFraming));
        for (lines, expected) in [
            ("GET / HTTP/1.1\nHost: x", Ok((none, true))),
            ("GET / HTTP/1.1\nHost: x\nConnection: close", Ok((none, false))),
            ("GET / HTTP/1.1\nHost: x\nConnection: keep-alive, Close", Ok((none, false))),
            ("GET / HTTP/1.0\nHost: x", Ok((none, false))),
            ("GET / HTTP/1.0\nConnection: Keep-Alive", Ok((none, true))),
            ("POST / HTTP/1.1\nContent-Length: 012", Ok((BodyReader::Length(12), true))),
            ("POST / HTTP/1.1\nContent-Length: 3, 3", framing),
            ("POST / HTTP/1.1\nContent-Length: 3\nContent-Length: 3", framing),
            ("POST / HTTP/1.1\nContent-Length: 3\nContent-Length: 4", framing),
            ("POST / HTTP/1.1\nContent-Length: +3", framing),
            ("POST / HTTP/1.1\nContent-Length:", framing),
            ("POST / HTTP/1.1\nContent-Length: 3,", framing),
            ("POST / HTTP/1.1\nTransfer-Encoding: Chunked", Ok((BodyReader::ChunkSize, true))),
            ("POST / HTTP/1.0\nTransfer-Encoding: chunked", framing),
            ("POST / HTTP/1.1\nTransfer-Encoding: chunked\nTransfer-Encoding: gzip", framing),
            ("POST / HTTP/1.1\nTransfer-Encoding: chunked, gzip", framing),
            ("POST / HTTP/1.1\nTransfer-Encoding : chunked", framing),
        ] {
            assert_eq!(parsed(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn malformed_heads_are_refused_with_their_reason() {
        let many = format!("GET / HTTP/1.1{}", "\nX: y".repeat(MAX_FIELDS + 1));
        for (lines, reason) in [
            ("CONNECT x:1 HTTP/1.1\nHost: x:1", Reason::WrongHttpMethod),
            ("GET /#x HTTP/1.1\nHost: x", Reason::InvalidRequest),
            ("GET /a b HTTP/1.1\nHost: x", Reason::InvalidRequest),
            ("GET / HTTP/1.1\nHost: x\nHost: x", Reason::InvalidRequest),
            ("GET http://y/ HTTP/1.1\nHost: x", Reason::InvalidRequest),
            ("GET / HTTP/1.1\nX: a\n b", Reason::InvalidRequest),
            ("GET / HTTP/1.1\nX : a", Reason::InvalidRequest),
            ("GET / HTTP/2.0\nHost: x", Reason::InvalidRequest),
            (&many, Reason::HeaderTooLarge),
        ] {
            assert_eq!(parsed(lines), Err(reason), "{lines:?}");
        }
    }

    #[test]
    fn a_head_ends_at_its_first_empty_line() {
        for (read, end) in [
            ("GET / HTTP/1.1\r\n\r\nx", Some(18)),
            ("GET / HTTP/1.1\n\nx", Some(16)),
            ("\r\n\nGET / HTTP/1.1\r\n\r\n", Some(21)),
            ("GET / HTTP/1.1\r\n", None),
            ("\r\n\r\n", None),
        ] {
            assert_eq!(end_of_head(read.as_bytes(), 0), end, "{read:?}");
        }
    }
}
