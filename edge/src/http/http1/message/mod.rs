//! Messages of HTTP/1 requests (RFC 9112): parses a head, and decodes the body that it frames.
//!
//! Pure: bytes in, a head or pieces out. `httparse` splits a head, Pingora's types hold it, and
//! Pingora's own check of the authority applies. Framing is read strictly: a head that another
//! parser could frame differently is refused, and the connection closes. Nothing is repaired.
//!
//! Clients send the same head with every request of a connection, except for the digits of
//! `Content-Length`. From its third time on such a head is neither parsed nor judged again
//! ([`CachedHead`]), which halves the instructions of a cache hit.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use httparse::Status;
use pingora::http::RequestHeader;
use pingora::protocols::http::authority::validate_request_authority;
use portcullis_filters::verdict::Reason;
use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Fields of a head, over HTTP/1 and HTTP/2.
pub(in crate::http) const MAX_FIELDS: usize = 256;
/// 8 KiB: a chunk's size with its extensions, or all trailers.
const MAX_LINE: usize = 8 << 10;
/// 7 digits: a cached head has no longer `Content-Length`.
const MAX_DIGITS: usize = 7;
/// 2 KiB and 32 fields: an honest client's head is smaller, and idle connections hold it.
pub(super) const MAX_CACHED_SIZE: usize = 2 << 10;
const MAX_CACHED_FIELDS: usize = 32;

/// A parsed head.
pub(super) struct ParsedHead {
    pub(super) header: Box<RequestHeader>,
    pub(super) body: BodyReader,
    /// Whether the client lets the connection persist; RFC 9112, section 9.3.
    pub(super) keeps_alive: bool,
}

/// Finds the end of the head at the start of `read`: after an empty line (RFC 9112, section 2.2).
/// The search begins at `searched`. Empty lines before the request line do not count, and a line
/// may end with LF alone.
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
/// Returns 405 for CONNECT, `conflicting_framing` if a framing field is at fault,
/// `header_too_large` for too many fields, and `invalid_request` for anything else.
pub(super) fn parse(head: &Bytes) -> Result<ParsedHead, Reason> {
    let header = header_of(head).ok_or_else(|| refusal_of(head))?;
    let fields = &header.headers;
    let is_valid = header.method != Method::CONNECT
        && !has_fragment(head)
        && validate_request_authority(&header).is_ok();
    let body = body_of(header.version, fields).filter(|_| is_valid);
    let body = body.ok_or_else(|| refusal_of(head))?;
    let keeps_alive = keeps_alive(header.version, fields);
    Ok(ParsedHead {
        header,
        body,
        keeps_alive,
    })
}

/// Parses a head, whose fields share the memory of `head`.
fn header_of(head: &Bytes) -> Option<Box<RequestHeader>> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(head, &mut fields).ok()?;
    if parsed != Status::Complete(head.len()) {
        return None;
    }
    let method = request.method?;
    let target = Target::parse(request.path?)?;
    let size = Some(request.headers.len());
    let header = RequestHeader::build_no_case(method, target.path.as_bytes(), size);
    let mut header = Box::new(header.ok()?);
    header.set_version(if request.version? == 1 {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    });
    for field in &*request.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(field.value)).ok()?;
        header.append_header(name, value).ok()?;
    }
    // without a valid Host the head is refused
    if let Some(host) = target.host
        && header.headers.get_all(HOST).iter().count() == 1
    {
        header.insert_header(HOST, host).ok()?;
    }
    Some(header)
}

/// A target in origin form. RFC 9112, section 3.2.2: a server accepts the absolute form, too, and
/// then uses its authority instead of `Host`.
struct Target<'a> {
    path: Cow<'a, str>,
    /// The authority of a target in absolute form.
    host: Option<&'a str>,
}

impl<'a> Target<'a> {
    fn in_origin_form(target: &'a str) -> Self {
        let path = Cow::Borrowed(target);
        Self { path, host: None }
    }

    /// Parses a target; `None` if its authority is malformed, has no host, or names a user.
    fn parse(target: &'a str) -> Option<Self> {
        let Some((scheme, rest)) = target.split_once("://") else {
            return Some(Self::in_origin_form(target));
        };
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Some(Self::in_origin_form(target));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let parsed: Authority = authority.parse().ok()?;
        if parsed.host().is_empty() || authority.contains('@') {
            return None;
        }
        let path = if path.starts_with('/') {
            Cow::Borrowed(path)
        } else {
            Cow::Owned(format!("/{path}"))
        };
        let host = Some(authority);
        Some(Self { path, host })
    }
}

/// The framing of the body (RFC 9112, section 6.3); `None` if it is ambiguous. A head with both a
/// coding and a length passes here, and the policy refuses it.
fn body_of(version: Version, fields: &HeaderMap) -> Option<BodyReader> {
    if let Some(coding) = fields.get_all(TRANSFER_ENCODING).iter().next_back() {
        let last = coding.as_bytes().rsplit(|byte| *byte == b',').next()?;
        let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return (is_chunked && version == Version::HTTP_11).then_some(BodyReader::ChunkSize);
    }
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        for text in value.as_bytes().split(|byte| *byte == b',') {
            // stricter than RFC 9110, section 8.6, which allows a repeated length
            if length.replace(number(text.trim_ascii())?).is_some() {
                return None;
            }
        }
    }
    Some(BodyReader::Length(length.unwrap_or(0)))
}

/// Parses a number of digits only.
fn number(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
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

/// Whether the target has a fragment, which RFC 9112, section 3.2, does not allow and Pingora's
/// types drop.
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
    if count > MAX_FIELDS {
        Reason::HeaderTooLarge
    } else {
        Reason::InvalidRequest
    }
}

/// The rest of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyReader {
    /// This many bytes.
    Length(u64),
    /// A chunk, from its size on.
    ChunkSize,
    /// This many bytes of a chunk.
    Chunk(u64),
    /// The line end after a chunk.
    ChunkEnd,
    /// The trailers; this many bytes of them have passed.
    Trailers(usize),
}

/// The result of decoding the buffered part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Piece(Bytes),
    End,
    /// Read more into the buffer, then decode again.
    Incomplete,
}

/// The chunks are malformed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl BodyReader {
    pub(super) const DONE: Self = Self::Length(0);

    /// Takes the whole body, if the buffer holds exactly that.
    pub(super) fn take_whole(&mut self, buffer: &mut BytesMut) -> Option<Bytes> {
        let Self::Length(left) = *self else {
            return None;
        };
        if left != buffer.len() as u64 {
            return None;
        }
        *self = Self::DONE;
        // not copied, and nothing is allocated to share it
        Some(std::mem::take(buffer).freeze())
    }

    /// Takes the next piece of the body out of `buffer`.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, Malformed> {
        loop {
            *self = match *self {
                Self::DONE => return Ok(Decoded::End),
                Self::Length(left) => {
                    let Some(piece) = split(buffer, left) else {
                        return Ok(Decoded::Incomplete);
                    };
                    *self = Self::Length(left - piece.len() as u64);
                    return Ok(Decoded::Piece(piece));
                }
                Self::ChunkSize => match chunk_size(buffer)? {
                    None => return Ok(Decoded::Incomplete),
                    Some(0) => Self::Trailers(0),
                    Some(size) => Self::Chunk(size),
                },
                Self::Chunk(left) => {
                    debug_assert!(left > 0, "an empty chunk is the last one");
                    let Some(piece) = split(buffer, left) else {
                        return Ok(Decoded::Incomplete);
                    };
                    let left = left - piece.len() as u64;
                    *self = if left == 0 {
                        Self::ChunkEnd
                    } else {
                        Self::Chunk(left)
                    };
                    return Ok(Decoded::Piece(piece));
                }
                Self::ChunkEnd => match &**buffer {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        Self::ChunkSize
                    }
                    [] | [b'\r'] => return Ok(Decoded::Incomplete),
                    _ => return Err(Malformed),
                },
                Self::Trailers(passed) => match trailer(buffer, passed)? {
                    None => return Ok(Decoded::Incomplete),
                    Some(2) => Self::DONE,
                    Some(length) => Self::Trailers(passed + length),
                },
            };
        }
    }
}

/// At most `left` bytes; `None` if nothing is buffered.
fn split(buffer: &mut BytesMut, left: u64) -> Option<Bytes> {
    let length = usize::try_from(left)
        .unwrap_or(usize::MAX)
        .min(buffer.len());
    (length > 0).then(|| buffer.split_to(length).freeze())
}

/// Consumes the line with the next chunk's size; `None` if the line is incomplete.
///
/// `httparse` skips any byte of an extension, even a bare LF, which ends the line for other
/// parsers.
fn chunk_size(buffer: &mut BytesMut) -> Result<Option<u64>, Malformed> {
    if buffer
        .first()
        .is_some_and(|digit| !digit.is_ascii_hexdigit())
    {
        return Err(Malformed);
    }
    match httparse::parse_chunk_size(buffer) {
        Ok(Status::Complete((length, size))) if length <= MAX_LINE => {
            let line = buffer.split_to(length);
            is_text(line.strip_suffix(b"\r\n").unwrap_or(&line))
                .then_some(Some(size))
                .ok_or(Malformed)
        }
        Ok(Status::Partial) if buffer.len() <= MAX_LINE => Ok(None),
        _ => Err(Malformed),
    }
}

/// Drops one trailer line and returns its length, 2 for the empty last one; `None` if the line is
/// incomplete.
fn trailer(buffer: &mut BytesMut, passed: usize) -> Result<Option<usize>, Malformed> {
    debug_assert!(passed <= MAX_LINE, "trailers are bounded");
    let end = memchr::memchr(b'\n', buffer).map(|at| at + 1);
    if passed + end.unwrap_or(buffer.len()) > MAX_LINE {
        return Err(Malformed);
    }
    let Some(length) = end else { return Ok(None) };
    let line = buffer.split_to(length);
    let line = line.strip_suffix(b"\r\n").ok_or(Malformed)?;
    if line.is_empty() || is_field(line) {
        Ok(Some(length))
    } else {
        Err(Malformed)
    }
}

/// Whether a line is a field: a name, a colon directly after it, and a value.
fn is_field(line: &[u8]) -> bool {
    let colon = memchr::memchr(b':', line).unwrap_or(0);
    let (name, value) = line.split_at(colon);
    HeaderName::from_bytes(name).is_ok() && is_text(value)
}

/// Whether these bytes contain no control character except tabs.
fn is_text(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .all(|byte| *byte == b'\t' || !byte.is_ascii_control())
}

/// A parsed head with one `Content-Length`. Heads that differ only in the digits of that length
/// share it.
pub(super) struct CachedHead {
    before: Vec<u8>,
    after: Vec<u8>,
    /// The head without the length, with the facts derived from it as extensions. `None` while a
    /// request uses it.
    header: Option<Box<RequestHeader>>,
}

impl CachedHead {
    /// Caches a head; `None` if it has a field about the connection or its framing other than a
    /// length.
    pub(super) fn new(head: &[u8], header: &RequestHeader) -> Option<Self> {
        let fields = &header.headers;
        let plain = head.len() <= MAX_CACHED_SIZE
            && fields.len() <= MAX_CACHED_FIELDS
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

    /// Matches a request that arrived whole, with this head and with nothing after it. Returns the
    /// parsed head, and the length of the body, which stays in `buffer`.
    pub(super) fn take_match(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Option<(Box<RequestHeader>, u64)> {
        let rest = buffer.strip_prefix(self.before.as_slice())?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let length = plain_number(rest.get(..digits)?)?;
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

/// Whether two heads differ only in the digits of their `Content-Length`.
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

/// The range of the digits of the only `Content-Length`, if it is written in the usual way.
fn length_digits(head: &[u8]) -> Option<Range<usize>> {
    const NAME: &[u8] = b"content-length";
    let mut found = None;
    let mut start = 0;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let is_it = line
            .get(..NAME.len())
            .is_some_and(|name| name.eq_ignore_ascii_case(NAME));
        if is_it {
            let value = line
                .get(NAME.len()..)?
                .strip_prefix(b": ")?
                .strip_suffix(b"\r\n")?;
            plain_number(value)?;
            let digits = start + line.len() - 2 - value.len()..start + line.len() - 2;
            if found.replace(digits).is_some() {
                return None;
            }
        }
        start += line.len();
    }
    found
}

/// Parses a decimal number without leading zeros.
fn plain_number(digits: &[u8]) -> Option<usize> {
    let plain = (1..=MAX_DIGITS).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests;
