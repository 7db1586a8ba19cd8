//! Finds requests that are malformed by RFC 9113, but which `h2` serves without the faulty part.
//! They get 400, as suites for conformance expect.
//!
//! In: the header blocks, before `h2` gets them. Out: the streams whose `:path` has a fragment
//! (section 8.3.1), or whose trailers have pseudo-fields (section 8.1).

use super::hpack::Hpack;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a frame's head; RFC 9113, section 4.1.
pub(super) const FRAME_HEAD: usize = 9;
/// Flags of HEADERS; RFC 9113, section 6.2.
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// A stream's identifier has 31 bits; RFC 9113, section 4.1.
pub(super) const STREAM_BITS: u32 = u32::MAX >> 1;
/// Malformed streams whose requests still have to be refused: more than can be open.
const MAX_MALFORMED: usize = 256;

/// Malformed streams whose requests are still to be refused.
#[derive(Debug, Default)]
pub(super) struct Malformed {
    /// Whether there are any, so that other requests need no lock.
    are_any: AtomicBool,
    streams: Mutex<Vec<u32>>,
}

impl Malformed {
    /// Adds a stream; `None` if there are too many.
    fn add(&self, stream: u32) -> Option<()> {
        let mut streams = self.streams.lock();
        streams.push(stream);
        self.are_any.store(true, Ordering::Relaxed);
        (streams.len() <= MAX_MALFORMED).then_some(())
    }

    /// Removes a stream; returns whether it was malformed.
    pub(super) fn take(&self, stream: u32) -> bool {
        // stored before `h2` passes the stream on, under its lock
        if !self.are_any.load(Ordering::Relaxed) {
            return false;
        }
        let mut streams = self.streams.lock();
        let before = streams.len();
        streams.retain(|malformed| *malformed != stream);
        self.are_any.store(!streams.is_empty(), Ordering::Relaxed);
        streams.len() < before
    }
}

/// Decoder of a connection's header blocks.
#[derive(Debug, Default)]
pub(super) struct Heads {
    hpack: Hpack,
    /// The last stream that a request started; a later block on this or an earlier one is trailers.
    last: u32,
    /// Requests that were started.
    pub(super) requests: usize,
}

impl Heads {
    /// Decodes a block in its frames, HEADERS and any CONTINUATION; `None` if neither it nor any
    /// later block can be decoded.
    pub(super) fn follow(&mut self, frames: &[u8], malformed: &Malformed) -> Option<()> {
        let (
            Frame {
                flags,
                stream,
                payload,
            },
            mut rest,
        ) = Frame::first_of(frames)?;
        let first = payload.get(fragment(payload, flags, stream)?)?;
        let found = if rest.is_empty() {
            self.hpack.decode(first)?
        } else {
            let mut block = first.to_vec();
            while !rest.is_empty() {
                let (frame, after) = Frame::first_of(rest)?;
                block.extend_from_slice(frame.payload);
                rest = after;
            }
            self.hpack.decode(&block)?
        };
        let is_malformed = if stream > self.last {
            self.last = stream;
            self.requests += 1;
            found.has_fragment
        } else {
            found.has_pseudo
        };
        if is_malformed {
            malformed.add(stream)
        } else {
            Some(())
        }
    }
}

/// A frame with a part of a block; RFC 9113, section 4.1.
struct Frame<'a> {
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first of these frames, and the bytes after it.
    fn first_of(frames: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let ([a, b, c, _, flags, stream @ ..], rest) = frames.split_first_chunk::<FRAME_HEAD>()?;
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        let stream = u32::from_be_bytes(*stream) & STREAM_BITS;
        Some((
            Self {
                flags: *flags,
                stream,
                payload,
            },
            rest,
        ))
    }
}

/// The range of the header block fragment in the payload of HEADERS.
fn fragment(payload: &[u8], flags: u8, stream: u32) -> Option<Range<usize>> {
    let (mut start, mut end) = (0, payload.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*payload.first()?))?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        let dependency = payload.get(start..)?.first_chunk()?;
        // `h2` drops the block of a stream that depends on itself, after which its table is wrong
        if u32::from_be_bytes(*dependency) & STREAM_BITS == stream {
            return None;
        }
        start += 5;
    }
    (start <= end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stream of a block, and its frames, each with its flags and payload.
    type Block<'a> = (u32, &'a [(u8, &'a [u8])]);

    /// The malformed streams among 1 to 7, after these blocks.
    fn malformed(blocks: &[Block<'_>]) -> Option<Vec<u32>> {
        let (mut heads, malformed) = (Heads::default(), Malformed::default());
        for (stream, frames) in blocks {
            let frames = frames.iter().flat_map(|(flags, payload)| {
                let [.., a, b, c] = payload.len().to_be_bytes();
                [&[a, b, c, 0, *flags][..], &stream.to_be_bytes(), payload].concat()
            });
            heads.follow(&frames.collect::<Vec<_>>(), &malformed)?;
        }
        Some(
            [1, 3, 5, 7]
                .into_iter()
                .filter(|stream| malformed.take(*stream))
                .collect(),
        )
    }

    #[test]
    fn fragments_and_pseudo_fields_are_found_by_stream() {
        const FRAGMENT: &[u8] = b"\x82\x44\x02/#";
        const FINE: &[u8] = b"\x82\x84";
        const TRAILERS: &[u8] = b"\x00\x01a\x01b";
        let first: Block<'_> = (1, &[(0, FRAGMENT)]);
        let fine: Block<'_> = (3, &[(0, FINE)]);
        let padded = [b"\x03".as_slice(), FRAGMENT, b"\0\0\0"].concat();
        let depends_on = |stream| [&[0x80, 0, 0, stream, 9], FRAGMENT].concat();
        let (part, rest) = FRAGMENT.split_at(3);
        for (blocks, expected) in [
            (&[fine, (5, &[(0, FINE)])][..], Some(vec![])),
            (&[first, fine], Some(vec![1])),
            // from the client's table
            (&[first, (3, &[(0, b"\x82\xbe")])], Some(vec![1, 3])),
            (&[fine, (3, &[(0, TRAILERS)])], Some(vec![])),
            (&[fine, (3, &[(0, FINE)])], Some(vec![3])),
            (&[fine, (1, &[(0, FINE)])], Some(vec![1])),
            (&[(7, &[(PADDED, &padded)])], Some(vec![7])),
            (&[(7, &[(PRIORITY, &depends_on(5))])], Some(vec![7])),
            (&[(7, &[(PRIORITY, &depends_on(7))])], None),
            (&[(1, &[(0, part), (0, b""), (0, rest)])], Some(vec![1])),
            (&[(1, &[(PADDED, &padded), (0, FINE)])], Some(vec![1])),
            (&[(1, &[(PADDED, b"\x05\x82")])], None),
            (&[(1, &[(PADDED, b"")])], None),
            (&[(1, &[(PRIORITY, b"\x82")])], None),
            (&[(1, &[(0, b"\x80")])], None),
        ] {
            assert_eq!(malformed(blocks), expected, "{blocks:x?}");
        }
    }

    #[test]
    fn malformed_streams_are_bounded() {
        let malformed = Malformed::default();
        for stream in 1..=256 {
            assert_eq!(malformed.add(stream), Some(()));
        }
        assert_eq!(malformed.add(257), None);
    }
}
