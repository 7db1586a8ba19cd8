//! Follows the client's frames (RFC 9113, section 4.1), and passes a header block on once it is
//! whole.
//!
//! Pure. In: bytes as they were read. Out: those that `h2` gets. `h2` alone would reserve a frame's
//! memory as soon as it has the frame's head, and decode each part of a block: it would hold an
//! unfinished head twice, and several times as large as it was sent. Here an unfinished head takes
//! only its own bytes, which count in the client's share.

use super::heads::{FRAME_HEAD, Heads, Malformed, STREAM_BITS};
use super::open_streams::{FrameHead, OpenStreams};
use std::mem;

/// Bytes of the client's preface, before its first frame; RFC 9113, section 3.4.
const PREFACE: usize = 24;
/// The largest frame that a client may send: the program does not allow larger ones.
const LARGEST_FRAME: usize = 16 << 10;
/// The buffer of an unfinished block grows in steps of 1 KiB.
const STEP: usize = 1 << 10;
/// Flag of HEADERS and CONTINUATION; RFC 9113, section 6.2.
const END_HEADERS: u8 = 4;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// The result of following frames.
#[derive(Debug)]
pub(super) struct Passed {
    /// Bytes that were followed.
    pub(super) length: usize,
    /// The followed bytes that are passed on; the others wait for the rest of their block.
    pub(super) whole: usize,
    /// If not empty, this is passed on instead: earlier bytes, and then the whole ones.
    pub(super) earlier: Vec<u8>,
    /// One frame was complete, and another has started.
    pub(super) another: bool,
}

/// Parser of the client's frames, which holds a header block back until it is whole.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes left of the preface, or of the frame whose head has passed.
    left: usize,
    /// Whether these bytes are content.
    is_content: bool,
    head: [u8; FRAME_HEAD],
    /// Bytes of `head` that have passed.
    passed: usize,
    /// The current frame.
    frame: FrameHead,
    /// The last bytes of its payload so far, if it is WINDOW_UPDATE.
    increment: u32,
    /// A header block is started and not completed.
    in_headers: bool,
    /// The current frame has a part of a header block.
    has_block: bool,
    /// The start of a frame or block that waits for its end; at most `max_block` bytes.
    waiting: Vec<u8>,
    max_block: usize,
    pub(super) heads: Heads,
    /// Frames that have neither a head nor content, for [`super::pace::Pace`].
    pub(super) without_content: usize,
    /// RST_STREAM frames among them.
    pub(super) resets: usize,
    /// Whether a header block could not be decoded, so that later ones cannot be, either.
    pub(super) are_broken: bool,
}

impl Frames {
    pub(super) fn new(max_block: usize) -> Self {
        Self {
            left: PREFACE,
            is_content: false,
            head: [0; FRAME_HEAD],
            passed: 0,
            frame: FrameHead::default(),
            increment: 0,
            in_headers: false,
            has_block: false,
            waiting: Vec::new(),
            max_block,
            heads: Heads::default(),
            without_content: 0,
            resets: 0,
            are_broken: false,
        }
    }

    /// Follows these bytes to their end, to the end of the last head for which there is `room`, or
    /// to a frame that follows the end of its stream.
    pub(super) fn pass(
        &mut self,
        all: &[u8],
        room: &mut usize,
        malformed: &Malformed,
        streams: &mut OpenStreams,
    ) -> Passed {
        let mut at = 0;
        let mut whole = 0;
        let mut joined = 0;
        let mut another = false;
        while let Some(bytes) = all.get(at..).filter(|bytes| !bytes.is_empty() && *room > 0) {
            another |= self.are_whole();
            at += self.step(bytes, streams);
            if streams.has_fault {
                break;
            }
            if self.waits() {
                continue;
            }
            if joined == 0 && !self.waiting.is_empty() {
                self.wait(&all[..at]);
                joined = at;
            }
            if mem::take(&mut self.has_block) && !self.are_broken {
                let block = if joined == at {
                    &self.waiting
                } else {
                    &all[whole..at]
                };
                let before = self.heads.requests;
                self.are_broken = self.heads.follow(block, malformed).is_none();
                debug_assert!(
                    self.heads.requests - before <= 1,
                    "a block starts one request at most"
                );
                *room -= (self.heads.requests - before).min(*room);
            }
            whole = at;
        }
        debug_assert!(joined <= whole && whole <= at, "whole frames come first");
        let mut earlier = Vec::new();
        if joined > 0 {
            earlier = mem::take(&mut self.waiting);
            earlier.extend_from_slice(&all[joined..whole]);
        }
        self.wait(&all[whole..at]);
        if self.waiting.len() > self.max_block {
            // passed on, so that `h2` may report the error
            self.are_broken = true;
            if joined == 0 {
                earlier.extend_from_slice(&all[..whole]);
            }
            earlier.append(&mut self.waiting);
        }
        debug_assert!(
            self.waiting.len() <= self.max_block,
            "no more waits than a block may have"
        );
        Passed {
            length: at,
            whole,
            earlier,
            another,
        }
    }

    /// Follows some of these bytes, at least one; returns how many.
    fn step(&mut self, bytes: &[u8], streams: &mut OpenStreams) -> usize {
        if self.left > 0 {
            let of_this = self.left.min(bytes.len());
            self.left -= of_this;
            if self.frame.kind == WINDOW_UPDATE {
                self.follow_update(&bytes[..of_this], streams);
            }
            return of_this;
        }
        let missing = &mut self.head[self.passed..];
        let of_head = missing.len().min(bytes.len());
        missing[..of_head].copy_from_slice(&bytes[..of_head]);
        self.passed += of_head;
        if self.passed == FRAME_HEAD {
            self.start_frame();
            // the caller stops at the fault that this records
            let _ = streams.follow(self.frame);
        }
        of_head
    }

    /// Follows a part of the payload of WINDOW_UPDATE; `h2` ends the connection if it is not of
    /// four bytes.
    fn follow_update(&mut self, part: &[u8], streams: &mut OpenStreams) {
        for byte in part {
            self.increment = self.increment << 8 | u32::from(*byte);
        }
        if self.left == 0 {
            streams.widen(self.frame, self.increment);
        }
    }

    fn start_frame(&mut self) {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        let stream = u32::from_be_bytes(stream) & STREAM_BITS;
        self.frame = FrameHead {
            kind,
            flags,
            stream,
        };
        self.passed = 0;
        self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.is_content = kind == DATA;
        let is_block = matches!(kind, HEADERS | CONTINUATION);
        // `h2` ends the connection if a frame is too large, or a block is not continued
        let continues = kind == HEADERS || (kind == CONTINUATION && self.in_headers);
        self.has_block = continues && self.left <= LARGEST_FRAME;
        self.in_headers = self.has_block && flags & END_HEADERS == 0;
        let has_content = is_block || (self.is_content && self.left > 0);
        self.without_content += usize::from(!has_content);
        self.resets += usize::from(kind == RST_STREAM);
    }

    /// Adds bytes to the unfinished frame or block.
    fn wait(&mut self, bytes: &[u8]) {
        let length = self.waiting.len() + bytes.len();
        if length > self.waiting.capacity() {
            let capacity = length.next_multiple_of(STEP);
            self.waiting.reserve_exact(capacity - self.waiting.len());
        }
        self.waiting.extend_from_slice(bytes);
    }

    /// Whether the bytes so far wait for those that follow.
    fn waits(&self) -> bool {
        let is_partial = self.in_headers || (self.has_block && self.left > 0);
        !self.are_broken && (self.passed > 0 || is_partial)
    }

    /// Bytes of memory that an unfinished frame or block takes.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.capacity()
    }

    /// Whether nothing is incomplete except DATA, which the deadline of the body covers.
    pub(super) fn are_whole(&self) -> bool {
        let is_whole = self.passed == 0 && (self.left == 0 || self.is_content);
        is_whole && !self.in_headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = length.to_be_bytes();
        let mut bytes = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        // a field of the static table, as often as it fits
        bytes.resize(FRAME_HEAD + length, 0x82);
        bytes
    }

    /// Returns the part of these bytes that `h2` receives.
    fn passed_on(frames: &mut Frames, bytes: &[u8]) -> Vec<u8> {
        let Passed {
            length,
            whole,
            earlier,
            ..
        } = frames.pass(
            bytes,
            &mut 99,
            &Malformed::default(),
            &mut OpenStreams::default(),
        );
        assert_eq!(length, bytes.len(), "there is room");
        if earlier.is_empty() {
            bytes[..whole].to_vec()
        } else {
            earlier
        }
    }

    fn after_the_preface() -> Frames {
        let mut frames = Frames::new(1 << 20);
        assert_eq!(passed_on(&mut frames, &[b'p'; PREFACE]).len(), PREFACE);
        frames
    }

    fn whole_after(bytes: &[u8], step: usize) -> bool {
        let mut frames = after_the_preface();
        bytes
            .chunks(step)
            .for_each(|piece| drop(passed_on(&mut frames, piece)));
        frames.are_whole()
    }

    #[test]
    fn a_head_ends_with_its_last_frame() {
        let settings = frame(4, 0, 30);
        let one = frame(HEADERS, END_HEADERS | 1, 7_000);
        let (begun, ended) = (frame(HEADERS, 0, 5), frame(CONTINUATION, END_HEADERS, 300));
        let (data, part) = (
            frame(DATA, 0, 900),
            [frame(DATA, 0, 900), one.clone()].concat(),
        );
        for (bytes, is_whole) in [
            (Vec::new(), true),
            (settings.clone(), true),
            (settings[..12].to_vec(), false),
            (one.clone(), true),
            (one[..one.len() - 1].to_vec(), false),
            (one[..3].to_vec(), false),
            (begun.clone(), false),
            ([begun.clone(), ended.clone()].concat(), true),
            ([begun.clone(), ended[..9].to_vec()].concat(), false),
            ([settings, begun, ended, data.clone()].concat(), true),
            // a body has a deadline of its own
            (data[..100].to_vec(), true),
            (part[..915].to_vec(), false),
            (part, true),
        ] {
            for step in [1, 7, 4096, 1 << 20] {
                let length = bytes.len();
                assert_eq!(
                    whole_after(&bytes, step),
                    is_whole,
                    "{length} bytes by {step}"
                );
            }
        }
    }

    #[test]
    fn each_head_has_its_own_time() {
        let mut frames = after_the_preface();
        let head = frame(HEADERS, END_HEADERS, 50);
        let (start, end) = head.split_at(20);
        let mut pass = |bytes: &[u8]| {
            frames
                .pass(
                    bytes,
                    &mut 99,
                    &Malformed::default(),
                    &mut OpenStreams::default(),
                )
                .another
        };
        assert!(pass(start), "one begins");
        assert!(!pass(end), "it ends, and no other begins");
        assert!(pass(start));
        assert!(!pass(&end[..10]), "it goes on");
        assert!(
            pass(&[&end[10..], start].concat()),
            "it ends, and another begins"
        );
    }

    #[test]
    fn the_preface_is_timed_like_a_head() {
        assert!(
            !Frames::new(0).are_whole(),
            "a silent client has sent no preface"
        );
        assert!(after_the_preface().are_whole());
    }

    #[test]
    fn a_block_is_passed_on_whole() {
        let ping = frame(6, 0, 8);
        let data = frame(DATA, 0, 900);
        let one = frame(HEADERS, END_HEADERS, 3_000);
        let parts = [
            frame(HEADERS, 0, 9),
            frame(CONTINUATION, 0, 0),
            frame(CONTINUATION, 4, 50),
        ];
        let all = [ping.clone(), one, data, parts.concat(), ping].concat();
        for step in [1, 2, 7, 8, 9, 10, 100, 4096, all.len()] {
            let mut frames = after_the_preface();
            let mut sent = 0;
            let mut got = Vec::new();
            for piece in all.chunks(step) {
                got.extend(passed_on(&mut frames, piece));
                sent += piece.len();
                let is_in = |start: usize, length: usize| (start..start + length).contains(&sent);
                let expected = match () {
                    () if is_in(17, 3_009) => 17,
                    () if is_in(3_935, 86) => 3_935,
                    // nothing of an unfinished frame head, every byte of DATA
                    () if sent < 9 => 0,
                    () if (3_026..3_035).contains(&sent) => 3_026,
                    () if (4_021..4_030).contains(&sent) => 4_021,
                    () => sent,
                };
                assert_eq!(got.len(), expected, "after {sent} by {step}");
            }
            assert!(got == all, "by {step}");
            assert_eq!(
                (frames.heads.requests, frames.waiting()),
                (1, 0),
                "the second is trailers"
            );
        }
    }

    #[test]
    fn an_unfinished_block_is_counted_as_it_grows() {
        let mut frames = after_the_preface();
        for (bytes, memory) in [
            (frame(HEADERS, 0, 100), 1 << 10),
            (frame(CONTINUATION, 0, 900), 1 << 10),
            (frame(CONTINUATION, 0, 7_000), 8 << 10),
        ] {
            assert!(passed_on(&mut frames, &bytes).is_empty(), "it waits");
            assert_eq!(frames.waiting(), memory, "in steps, and once");
        }
        assert_eq!(
            passed_on(&mut frames, &frame(CONTINUATION, 4, 1)).len(),
            8_037
        );
        assert_eq!(frames.waiting(), 0);
    }

    #[test]
    fn a_violation_is_passed_on_at_once() {
        let begun = frame(HEADERS, 0, 50);
        for (what, frames, passes) in [
            (
                "another frame in a block",
                [begun.clone(), frame(6, 0, 8)],
                76,
            ),
            (
                "one that is too large",
                [frame(6, 0, 8), frame(HEADERS, 4, 16_385)],
                40,
            ),
            (
                "one that continues nothing",
                [frame(6, 0, 8), frame(CONTINUATION, 0, 90)],
                40,
            ),
            (
                "a block that is too large",
                [begun, frame(CONTINUATION, 0, 2_000)],
                2_068,
            ),
        ] {
            let mut followed = Frames::new(1_000);
            passed_on(&mut followed, &[b'p'; PREFACE]);
            let bytes = frames.concat();
            let bytes = &bytes[..bytes.len().min(passes)];
            assert_eq!(passed_on(&mut followed, bytes).len(), passes, "{what}");
        }
    }
}
