//! The streams that the client has opened and not ended; RFC 9113, section 5.1.
//!
//! Pure. In: the client's frames, in order. Out: whether a frame follows the end of its stream, and
//! whether updates take a window beyond its maximum. `h2` forgets a stream that has ended, and then
//! reports another fault or none.

use std::collections::VecDeque;

/// Flag of DATA and HEADERS; RFC 9113, section 6.
const END_STREAM: u8 = 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
/// The largest window; RFC 9113, section 6.9.1.
const MAX_WINDOW: u32 = u32::MAX >> 1;
/// Streams that are remembered: more than may be open concurrently. Those that this program has
/// reset stay among them, as their client may never end them.
const REMEMBERED: usize = 128;

/// The head of a frame; RFC 9113, section 4.1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameHead {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// A frame follows the end of its stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AfterEnd;

/// The open streams of a connection.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    /// The remembered ones, the oldest first.
    open: VecDeque<OpenStream>,
    /// The last stream that the client opened.
    last: u32,
    /// Streams up to this one are not judged: some of them were skipped, or are forgotten.
    unknown: u32,
    /// A frame followed the end of its stream; the connection ends.
    pub(super) has_fault: bool,
}

#[derive(Clone, Copy, Debug)]
struct OpenStream {
    id: u32,
    /// The sum of the client's updates of the window, at most one more than [`MAX_WINDOW`].
    window: u32,
}

impl OpenStreams {
    /// Follows the head of a frame.
    ///
    /// # Errors
    /// Returns [`AfterEnd`] if the client has ended or reset the stream before.
    pub(super) fn follow(&mut self, frame: FrameHead) -> Result<(), AfterEnd> {
        let FrameHead {
            kind,
            flags,
            stream,
        } = frame;
        let ends = match kind {
            DATA | HEADERS => flags & END_STREAM != 0,
            RST_STREAM => true,
            _ => return Ok(()),
        };
        let is_request = kind == HEADERS && stream > self.last && !stream.is_multiple_of(2);
        if is_request {
            self.start(stream);
        }
        match self.position(stream) {
            Some(at) if ends => drop(self.open.remove(at)),
            None if kind != RST_STREAM && self.has_ended(stream) => {
                self.has_fault = true;
                return Err(AfterEnd);
            }
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, stream: u32) {
        let is_next = stream == self.last + if self.last == 0 { 1 } else { 2 };
        if !is_next {
            self.unknown = stream - 1;
        }
        self.last = stream;
        self.open.push_back(OpenStream {
            id: stream,
            window: 0,
        });
        if self.open.len() > REMEMBERED
            && let Some(forgotten) = self.open.pop_front()
        {
            self.unknown = self.unknown.max(forgotten.id);
        }
        debug_assert!(self.open.len() <= REMEMBERED, "older streams are forgotten");
    }

    /// Adds the increment of a WINDOW_UPDATE.
    pub(super) fn widen(&mut self, frame: FrameHead, increment: u32) {
        debug_assert_eq!(frame.kind, WINDOW_UPDATE, "no other frame has one");
        if let Some(at) = self.position(frame.stream)
            && let Some(open) = self.open.get_mut(at)
        {
            let sum = open.window.saturating_add(increment & MAX_WINDOW);
            open.window = sum.min(MAX_WINDOW + 1);
        }
    }

    /// Whether the client may send more on a stream.
    pub(super) fn is_open(&self, stream: u32) -> bool {
        self.position(stream).is_some()
    }

    /// Whether the client has widened the window of an open stream beyond the maximum, not counting
    /// bytes that were sent in it: for a stream with a small response.
    pub(super) fn is_too_wide(&self, stream: u32) -> bool {
        let open = self.position(stream).and_then(|at| self.open.get(at));
        open.is_some_and(|open| open.window > MAX_WINDOW)
    }

    fn position(&self, stream: u32) -> Option<usize> {
        self.open.binary_search_by_key(&stream, |open| open.id).ok()
    }

    /// Whether the client has ended a stream that it opened.
    fn has_ended(&self, stream: u32) -> bool {
        let is_known = (self.unknown + 1..=self.last).contains(&stream);
        is_known && !stream.is_multiple_of(2) && !self.is_open(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: (u8, u8) = (HEADERS, 4);
    const WHOLE: (u8, u8) = (HEADERS, 5);
    const MORE: (u8, u8) = (DATA, 0);
    const LAST: (u8, u8) = (DATA, END_STREAM);
    const RESET: (u8, u8) = (RST_STREAM, 0);
    const PRIORITY: (u8, u8) = (2, 0);
    const WIDEN: (u8, u8) = (WINDOW_UPDATE, 0);

    /// The number of frames until one follows the end of its stream; `None` if none does.
    fn fault(frames: &[((u8, u8), u32)]) -> Option<usize> {
        let mut streams = OpenStreams::default();
        frames.iter().position(|((kind, flags), stream)| {
            let (kind, flags, stream) = (*kind, *flags, *stream);
            let frame = FrameHead {
                kind,
                flags,
                stream,
            };
            streams.follow(frame).is_err()
        })
    }

    #[test]
    fn frames_after_the_end_are_found() {
        for (frames, expected) in [
            (&[(OPEN, 1), (MORE, 1), (LAST, 1)][..], None),
            (&[(OPEN, 1), (LAST, 1), (MORE, 1)], Some(2)),
            (&[(OPEN, 1), (WHOLE, 1), (WHOLE, 1)], Some(2)),
            (&[(WHOLE, 1), (WHOLE, 3), (LAST, 1)], Some(2)),
            (&[(WHOLE, 1), (OPEN, 3), (WHOLE, 1), (LAST, 3)], Some(2)),
            (&[(OPEN, 1), (RESET, 1), (MORE, 1)], Some(2)),
            (&[(OPEN, 1), (RESET, 1), (OPEN, 1)], Some(2)),
            // frames that may follow
            (
                &[
                    (WHOLE, 1),
                    (RESET, 1),
                    (RESET, 1),
                    (WIDEN, 1),
                    (PRIORITY, 1),
                ],
                None,
            ),
            // other faults, which `h2` finds
            (&[(MORE, 1), (WHOLE, 2), (WHOLE, 2), (MORE, 0)], None),
            (&[(WHOLE, 5), (WHOLE, 3)], None),
            (&[(WHOLE, 1), (WHOLE, 5), (WHOLE, 3), (MORE, 1)], None),
            (&[(WHOLE, 1), (WHOLE, 5), (WHOLE, 7), (LAST, 7)], Some(3)),
        ] {
            assert_eq!(fault(frames), expected, "{frames:?}");
        }
    }

    #[test]
    fn streams_that_are_forgotten_are_not_judged() {
        let mut frames: Vec<_> = (1..).step_by(2).take(REMEMBERED + 1).collect();
        frames.extend([1, 3]);
        let mut frames: Vec<_> = frames.into_iter().map(|stream| (OPEN, stream)).collect();
        assert_eq!(
            fault(&frames),
            None,
            "the first is forgotten, the second open"
        );
        frames.extend([(LAST, 3), (LAST, 1), (LAST, 3)]);
        assert_eq!(fault(&frames), Some(frames.len() - 1), "{frames:?}");
    }

    #[test]
    fn a_window_is_too_wide_beyond_its_maximum() {
        let mut streams = OpenStreams::default();
        for (stream, increments, expected) in [
            (1, &[MAX_WINDOW][..], false),
            (3, &[MAX_WINDOW, 1], true),
            (5, &[MAX_WINDOW, MAX_WINDOW, MAX_WINDOW], true),
            (7, &[1 << 31], false),
        ] {
            let begun = FrameHead {
                kind: HEADERS,
                flags: 4,
                stream,
            };
            assert_eq!(streams.follow(begun), Ok(()));
            let update = FrameHead {
                kind: WINDOW_UPDATE,
                ..begun
            };
            for increment in increments {
                streams.widen(update, *increment);
            }
            assert_eq!(streams.is_too_wide(stream), expected, "{increments:?}");
        }
        assert!(!streams.is_too_wide(9), "it is not open");
    }
}
