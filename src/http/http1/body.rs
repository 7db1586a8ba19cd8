//! The body of an HTTP/1 request, by length or in chunks (RFC 9112, sections 6 and 7).
//!
//! Pure: bytes in, pieces out. Anything that another reader could frame differently is an error,
//! after which the connection closes. Chunk extensions and trailers are dropped.

use bytes::{Buf, Bytes, BytesMut};
use httparse::Status;

/// 8 KiB: a chunk's size with its extensions, or all trailers.
const MAX_LINE: usize = 8 << 10;

/// What remains of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyReader {
    /// This many bytes.
    Length(u64),
    /// A chunk, from its size on.
    ChunkSize,
    /// This many bytes of a chunk.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    /// The trailers; this many bytes of them have passed.
    Trailers(usize),
}

/// What the buffered bytes hold of a body.
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

    /// The whole body, if exactly that is buffered.
    pub(super) fn take_whole(&mut self, buffer: &mut BytesMut) -> Option<Bytes> {
        let Self::Length(left) = *self else { return None };
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
                    let Some(piece) = split(buffer, left) else { return Ok(Decoded::Incomplete) };
                    *self = Self::Length(left - piece.len() as u64);
                    return Ok(Decoded::Piece(piece));
                }
                Self::ChunkSize => match chunk_size(buffer)? {
                    None => return Ok(Decoded::Incomplete),
                    Some(0) => Self::Trailers(0),
                    Some(size) => Self::Chunk(size),
                },
                Self::Chunk(left) => {
                    let Some(piece) = split(buffer, left) else { return Ok(Decoded::Incomplete) };
                    let left = left - piece.len() as u64;
                    *self = if left == 0 { Self::ChunkEnd } else { Self::Chunk(left) };
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
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    (length > 0).then(|| buffer.split_to(length).freeze())
}

/// The size of the next chunk, its line consumed; `None` if the line is not whole.
fn chunk_size(buffer: &mut BytesMut) -> Result<Option<u64>, Malformed> {
    if buffer.first().is_some_and(|digit| !digit.is_ascii_hexdigit()) {
        return Err(Malformed);
    }
    match httparse::parse_chunk_size(buffer) {
        Ok(Status::Complete((length, size))) if length <= MAX_LINE => {
            buffer.advance(length);
            Ok(Some(size))
        }
        Ok(Status::Partial) if buffer.len() <= MAX_LINE => Ok(None),
        _ => Err(Malformed),
    }
}

/// Drops one trailer line and returns its length, 2 for the empty last one; `None` if the line is
/// not whole.
fn trailer(buffer: &mut BytesMut, passed: usize) -> Result<Option<usize>, Malformed> {
    let end = memchr::memchr(b'\n', buffer).map(|at| at + 1);
    if passed + end.unwrap_or(buffer.len()) > MAX_LINE {
        return Err(Malformed);
    }
    let Some(length) = end else { return Ok(None) };
    if !buffer.get(..length).is_some_and(|line| line.ends_with(b"\r\n")) {
        return Err(Malformed);
    }
    buffer.advance(length);
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `bytes` that arrive `step` at a time: the body, and what is left behind it.
    fn read(mut reader: BodyReader, bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), &str> {
        let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
        let mut pieces = bytes.chunks(step);
        loop {
            match reader.decode(&mut buffer) {
                Err(Malformed) => return Err("malformed"),
                Ok(Decoded::Piece(piece)) => body.extend_from_slice(&piece),
                Ok(Decoded::End) => {
                    pieces.for_each(|piece| buffer.extend_from_slice(piece));
                    return Ok((body, buffer.to_vec()));
                }
                Ok(Decoded::Incomplete) => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => return Err("incomplete"),
                },
            }
        }
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let long = format!("0\r\n{}", "X: y\r\n".repeat(2000));
        let extension = format!("3;{}", "a".repeat(10_000));
        for (reader, bytes, body) in [
            (BodyReader::Length(0), "GET", Ok("")),
            (BodyReader::Length(3), "abcGET", Ok("abc")),
            (BodyReader::Length(4), "abc", Err("incomplete")),
            (BodyReader::ChunkSize, "3\r\nabc\r\n0\r\n\r\nGET", Ok("abc")),
            (
                BodyReader::ChunkSize,
                "3;x=\"y\"\r\nabc\r\n02\r\nde\r\n0\r\nX: y\r\n\r\n",
                Ok("abcde"),
            ),
            (BodyReader::ChunkSize, "A\r\n0123456789\r\n000\r\n\r\n", Ok("0123456789")),
            (BodyReader::ChunkSize, "3\r\nabc\r\n0\r\n", Err("incomplete")),
            (BodyReader::ChunkSize, "3\r\nab", Err("incomplete")),
            (BodyReader::ChunkSize, "\r\nabc\r\n0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, " 3\r\nabc\r\n0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, "+3\r\nabc\r\n0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, "0x3\r\nabc\r\n0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, "10000000000000003\r\nabc", Err("malformed")),
            (BodyReader::ChunkSize, "3\nabc\r\n0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, "3\r\nabcX0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, "3\r\nabc\n0\r\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, "0\r\nX: y\n\r\n", Err("malformed")),
            (BodyReader::ChunkSize, &long, Err("malformed")),
            (BodyReader::ChunkSize, &extension, Err("malformed")),
        ] {
            for step in [1, 2, 7, 1 << 20] {
                let found = read(reader, bytes.as_bytes(), step);
                let rest = if bytes.ends_with("GET") { "GET" } else { "" };
                let expected =
                    body.map(|body| (body.as_bytes().to_vec(), rest.as_bytes().to_vec()));
                assert_eq!(found, expected, "{reader:?} {bytes:?} by {step}");
            }
        }
    }

    #[test]
    fn only_an_exact_body_is_taken_whole() {
        for (length, is_whole) in [(3, true), (2, false), (4, false)] {
            let mut buffer = BytesMut::from("abc");
            let whole = BodyReader::Length(length).take_whole(&mut buffer);
            assert_eq!(whole.is_some(), is_whole, "{length} of 3 bytes");
        }
        assert_eq!(BodyReader::ChunkSize.take_whole(&mut BytesMut::new()), None);
    }
}
