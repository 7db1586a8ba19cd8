//! Finds requests that RFC 9113 calls malformed and that `h2` serves, since it drops what is wrong.
//!
//! In: the frames with header blocks, before `h2` gets them. Out: the streams whose `:path` has a
//! fragment (section 8.3.1), or whose trailers have pseudo-fields (section 8.1).

use super::hpack::Hpack;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flags of HEADERS; RFC 9113, section 6.2.
pub(super) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// A stream's identifier has 31 bits; RFC 9113, section 4.1.
const STREAM_BITS: u32 = u32::MAX >> 1;
/// 1 KiB stays allocated for the blocks of a connection.
const RETAINED: usize = 1 << 10;
/// Malformed streams whose requests still have to be refused: more than can be open.
const MAX_MALFORMED: usize = 256;

/// The malformed streams, for those who answer them.
#[derive(Debug, Default)]
pub(super) struct Malformed {
    /// Whether there are any, so that other requests need no lock.
    are_any: AtomicBool,
    streams: Mutex<Vec<u32>>,
}

impl Malformed {
    /// `None` if there are too many.
    fn add(&self, stream: u32) -> Option<()> {
        let mut streams = self.streams.lock();
        streams.push(stream);
        self.are_any.store(true, Ordering::Relaxed);
        (streams.len() <= MAX_MALFORMED).then_some(())
    }

    /// Whether what was read of this stream is malformed; forgets it.
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

/// The header blocks of a connection.
#[derive(Debug)]
pub(super) struct Heads {
    hpack: Hpack,
    /// What has passed of the current block, and its bound.
    block: Vec<u8>,
    max_block: usize,
    /// The current frame.
    flags: u8,
    stream: u32,
    /// The last stream that a request started: another block of an earlier one is its trailers.
    last: u32,
    /// Requests that were started.
    pub(super) requests: usize,
}

impl Heads {
    pub(super) fn new(max_block: usize) -> Self {
        let (hpack, block) = (Hpack::default(), Vec::new());
        Self { hpack, block, max_block, flags: 0, stream: 0, last: 0, requests: 0 }
    }

    /// Starts HEADERS.
    pub(super) fn start(&mut self, flags: u8, stream: u32) {
        self.block.clear();
        (self.flags, self.stream) = (flags, stream & STREAM_BITS);
    }

    /// Starts CONTINUATION, which has no other flag.
    pub(super) fn resume(&mut self, flags: u8) {
        self.flags = flags & END_HEADERS;
    }

    /// Follows the payload of the frame; `None` if the block is too large.
    pub(super) fn pass(&mut self, payload: &[u8]) -> Option<()> {
        self.block.extend_from_slice(payload);
        (self.block.len() <= self.max_block).then_some(())
    }

    /// Ends the frame; `None` if the connection cannot be followed further.
    pub(super) fn end_frame(&mut self, malformed: &Malformed) -> Option<()> {
        let fragment = fragment(&self.block, self.flags, self.stream)?;
        if self.flags & END_HEADERS == 0 {
            self.block.truncate(fragment.end);
            self.block.drain(..fragment.start);
            return Some(());
        }
        let found = self.hpack.decode(self.block.get(fragment)?)?;
        self.block.clear();
        self.block.shrink_to(RETAINED);
        let is_malformed = if self.stream > self.last {
            self.last = self.stream;
            self.requests += 1;
            found.has_fragment
        } else {
            found.has_pseudo
        };
        if is_malformed { malformed.add(self.stream) } else { Some(()) }
    }
}

/// Where the part of a block is in the payload of HEADERS.
fn fragment(payload: &[u8], flags: u8, stream: u32) -> Option<Range<usize>> {
    let (mut start, mut end) = (0, payload.len());
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*payload.first()?))?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        let dependency = payload.get(start..)?.first_chunk()?;
        // `h2` drops a block of a stream that depends on itself, and its table goes astray
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

    /// The malformed ones of the streams 1 to 7 after these frames; those of no stream are
    /// CONTINUATION.
    fn malformed(frames: &[(u8, Option<u32>, &[u8])]) -> Option<Vec<u32>> {
        let (mut heads, malformed) = (Heads::new(100), Malformed::default());
        for (flags, stream, payload) in frames {
            match stream {
                Some(stream) => heads.start(*flags, *stream),
                None => heads.resume(*flags),
            }
            for piece in payload.chunks(3) {
                heads.pass(piece)?;
            }
            heads.end_frame(&malformed)?;
        }
        Some([1, 3, 5, 7].into_iter().filter(|stream| malformed.take(*stream)).collect())
    }

    #[test]
    fn fragments_and_pseudo_fields_are_found_by_stream() {
        const FRAGMENT: &[u8] = b"\x82\x44\x02/#";
        const FINE: &[u8] = b"\x82\x84";
        const TRAILERS: &[u8] = b"\x00\x01a\x01b";
        let (first, fine) = ((END_HEADERS, Some(1), FRAGMENT), (END_HEADERS, Some(3), FINE));
        let padded = [b"\x03".as_slice(), FRAGMENT, b"\0\0\0"].concat();
        let depends_on = |stream| [&[0x80, 0, 0, stream, 9], FRAGMENT].concat();
        let (part, rest) = FRAGMENT.split_at(3);
        for (frames, expected) in [
            (&[fine, (END_HEADERS, Some(5), FINE)][..], Some(vec![])),
            (&[first, fine], Some(vec![1])),
            // from the client's table
            (&[first, (END_HEADERS, Some(3), b"\x82\xbe")], Some(vec![1, 3])),
            (&[fine, (END_HEADERS, Some(3), TRAILERS)], Some(vec![])),
            (&[fine, (END_HEADERS, Some(3), FINE)], Some(vec![3])),
            (&[fine, (END_HEADERS, Some(1), FINE)], Some(vec![1])),
            (&[(END_HEADERS | PADDED, Some(7), &padded)], Some(vec![7])),
            (&[(END_HEADERS | PRIORITY, Some(7), &depends_on(5))], Some(vec![7])),
            (&[(END_HEADERS | PRIORITY, Some(7), &depends_on(7))], None),
            (&[(0, Some(1), part), (0, None, b""), (END_HEADERS, None, rest)], Some(vec![1])),
            (&[(PADDED, Some(1), &padded), (END_HEADERS, None, FINE)], Some(vec![1])),
            (&[(0, Some(1), FRAGMENT)], Some(vec![])),
            (&[(END_HEADERS | PADDED, Some(1), b"\x05\x82")], None),
            (&[(END_HEADERS | PADDED, Some(1), b"")], None),
            (&[(END_HEADERS | PRIORITY, Some(1), b"\x82")], None),
            (&[(END_HEADERS, Some(1), &[0x82; 101])], None),
            (&[(0, Some(1), &[0x82; 60]), (0, None, &[0x82; 60])], None),
            (&[(END_HEADERS, Some(1), b"\x80")], None),
        ] {
            assert_eq!(malformed(frames), expected, "{frames:x?}");
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
