//! The header blocks of one HTTP/2 connection: after a byte of flags and two of length each. A
//! fragment in `:path` and pseudo-fields in trailers are found exactly where `h2`'s own decoder has
//! them, for as long as it can decode the blocks.
#![no_main]

#[allow(dead_code, reason = "the blocks are whole here")]
#[path = "../../../edge/src/http/http2/frames.rs"]
mod frames;
#[path = "../../../edge/src/http/http2/heads.rs"]
mod heads;
#[path = "../../../edge/src/http/http2/hpack.rs"]
mod hpack;
#[allow(dead_code, reason = "the streams are followed elsewhere")]
#[path = "../../../edge/src/http/http2/open_streams.rs"]
mod open_streams;

use bytes::BytesMut;
use h2::frame::{Error, Head, Headers};
use heads::{Heads, Malformed};
use libfuzzer_sys::fuzz_target;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// No block of the fuzzer is larger.
const MAX_BLOCK: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let (mut heads, malformed) = (Heads::default(), Malformed::default());
    // its type has no name outside of `h2`
    let mut decoder = Default::default();
    let (mut rest, mut last, mut requests) = (data, 0_u32, 0_u32);
    while let Some(([bits, high, low], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (payload, after) = after.split_at(length);
        rest = after;
        let flags = bits & (PADDED | PRIORITY);
        // trailers of the stream before, or another request; one frame or two
        let (is_trailers, is_split) = (bits & 1 != 0 && last > 0, bits & 2 != 0);
        let stream = if is_trailers { last } else { 2 * requests + 1 };
        let (first, second) = payload.split_at(if is_split { length / 2 } else { length });

        let mut frames = frame(
            HEADERS,
            flags | if is_split { 0 } else { END_HEADERS },
            stream,
            first,
        );
        if is_split {
            frames.extend(frame(CONTINUATION, END_HEADERS, stream, second));
        }
        let ours = heads.follow(&frames, &malformed);
        let is_malformed = malformed.take(stream);

        let [a, b, c, d] = stream.to_be_bytes();
        let head = Head::parse(&[0, *high, *low, HEADERS, flags, a, b, c, d]);
        let Ok((mut headers, mut block)) = Headers::load(head, BytesMut::from(first)) else {
            return assert_eq!(ours, None, "{payload:x?}");
        };
        block.extend_from_slice(second);
        match headers.load_hpack(&mut block, MAX_BLOCK, &mut decoder) {
            // the program ends a connection that changes the table's size too often
            Ok(()) | Err(Error::MalformedMessage)
                if ours.is_none() && may_change_often(payload) =>
            {
                return;
            }
            Ok(()) => {
                let (pseudo, _fields) = headers.into_parts();
                let has_fragment = pseudo.path.as_ref().is_some_and(|path| path.contains('#'));
                let has_pseudo = pseudo != Default::default();
                let expected = if is_trailers {
                    has_pseudo
                } else {
                    has_fragment
                };
                assert_eq!((ours, is_malformed), (Some(()), expected), "{payload:x?}");
            }
            // the stream is reset, and the table goes on
            Err(Error::MalformedMessage) => assert_eq!(ours, Some(()), "{payload:x?}"),
            // the connection ends
            Err(_) => return,
        }
        last = stream;
        requests += u32::from(!is_trailers);
        assert_eq!(heads.requests, requests as usize);
    }
});

/// A frame: RFC 9113, section 4.1.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a length of two bytes")
        .to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
    [&head.concat(), payload].concat()
}

/// Whether a block may have more than two changes of the table's size, each of which starts with
/// such a byte: RFC 7541, section 6.3.
fn may_change_often(block: &[u8]) -> bool {
    block
        .iter()
        .filter(|byte| matches!(byte, 0x20..=0x3f))
        .count()
        > 2
}
