//! Counts the streams that `h2` refuses because too many are open: unlike other requests that it
//! does not pass on, they are not malformed. Only the frames that it writes show them.

use h2::Reason;

/// The head of a frame, and the payload of RST_STREAM; RFC 9113, sections 4.1 and 6.4.
const FRAME_HEAD: usize = 9;
const RESET: usize = FRAME_HEAD + 4;
const RST_STREAM: u8 = 3;

/// Parser of the written frames, which counts refused streams.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Bytes left of the frame whose head has passed.
    left: usize,
    /// The part of a frame's head, or of an RST_STREAM, that has passed.
    frame: [u8; RESET],
    passed: usize,
    /// Streams that were refused.
    pub(super) count: usize,
}

impl Refusals {
    /// Follows the written bytes.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let length = self.left.min(bytes.len());
                (self.left, bytes) = (self.left - length, &bytes[length..]);
                continue;
            }
            let is_reset = self.passed >= FRAME_HEAD;
            let until = if is_reset { RESET } else { FRAME_HEAD };
            debug_assert!(self.passed < until, "a frame is processed once it is whole");
            let length = (until - self.passed).min(bytes.len());
            self.frame[self.passed..self.passed + length].copy_from_slice(&bytes[..length]);
            self.passed += length;
            bytes = &bytes[length..];
            if self.passed == until {
                self.end(until);
            }
        }
    }

    /// Processes a complete head, or a complete RST_STREAM.
    fn end(&mut self, length: usize) {
        let [a, b, c, kind, _, _, _, _, _, code @ ..] = self.frame;
        if length == RESET {
            let is_refusal = u32::from_be_bytes(code) == u32::from(Reason::REFUSED_STREAM);
            self.count += usize::from(is_refusal);
        } else if kind == RST_STREAM {
            // its payload follows
            return;
        } else {
            self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        }
        self.passed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_in_any_pieces() {
        let frame = |kind: u8, payload: &[u8]| {
            let length = u8::try_from(payload.len()).expect("it is short");
            [&[0, 0, length, kind, 0, 0, 0, 0, 1], payload].concat()
        };
        let bytes = [
            frame(4, &[]),
            frame(RST_STREAM, &[0, 0, 0, 7]),
            frame(0, &frame(RST_STREAM, &[0, 0, 0, 7])),
            frame(RST_STREAM, &[0, 0, 0, 8]),
            frame(1, &[7; 40]),
            frame(RST_STREAM, &[0, 0, 0, 7]),
        ]
        .concat();
        for step in [1, 2, 5, 13, 1000] {
            let mut refusals = Refusals::default();
            bytes.chunks(step).for_each(|piece| refusals.pass(piece));
            assert_eq!(refusals.count, 2, "by {step}");
        }
    }
}
