//! Bounds on the replies of a Redis or Valkey server (RESP3), before anything parses them.
//!
//! A reply announces how long it is, and parsers reserve memory for what is announced. Here each
//! announcement is judged as its bytes arrive. In: bytes. Out: whether they may be passed on.

use core::fmt;

/// 1 MiB for a reply: the largest here lists the servers of a cluster, in some hundred KiB.
pub const MAX_BYTES: u64 = 1 << 20;
/// The number of elements of a reply, of those within others, too.
pub const MAX_ELEMENTS: u64 = 1 << 16;
/// The digits of an announcement; more are beyond each bound.
const MAX_DIGITS: u32 = 10;

/// A reply that is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// It has, or announces, more than [`MAX_BYTES`].
    Bytes,
    /// It announces more than [`MAX_ELEMENTS`].
    Elements,
    /// It announces a length that is not a number.
    Length,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "a reply of more than 1 MiB",
            Self::Elements => "a reply of more than 65536 elements",
            Self::Length => "a reply with a length that is not a number",
        })
    }
}

impl core::error::Error for ReplyError {}

/// The next byte's place in a reply.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    /// The first byte of an element, its type.
    #[default]
    Type,
    /// A line whose content does not matter.
    Line,
    /// The number that announces the length of an element of this type.
    Length { of: u8, number: u64, digits: u32 },
    /// The length is -1, that of a null, and its line goes on.
    NoLength,
    /// The bytes of a string and of its line's end.
    Bytes { left: u64 },
}

/// Follows the replies on one connection.
#[derive(Debug, Default)]
pub struct ReplyBounds {
    place: Place,
    /// Elements that are still to begin in this reply, after the one that has begun.
    open: u64,
    elements: u64,
    bytes: u64,
}

impl ReplyBounds {
    /// Judges the next bytes of the connection.
    ///
    /// # Errors
    /// Returns why the reply is not passed on. The connection cannot be used any more.
    pub fn judge(&mut self, mut bytes: &[u8]) -> Result<(), ReplyError> {
        while let Some((&byte, rest)) = bytes.split_first() {
            bytes = match self.place {
                Place::Bytes { left } => self.skip(left, bytes)?,
                _ => {
                    self.count(1)?;
                    self.step(byte)?;
                    rest
                }
            };
        }
        Ok(())
    }

    /// Passes bytes of a string, and returns those after it.
    fn skip<'a>(&mut self, left: u64, bytes: &'a [u8]) -> Result<&'a [u8], ReplyError> {
        let end = usize::try_from(left).unwrap_or(usize::MAX);
        let (passed, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
        let passed = u64::try_from(passed.len()).unwrap_or(u64::MAX);
        self.count(passed)?;
        let left = left.saturating_sub(passed);
        self.place = Place::Bytes { left };
        if left == 0 {
            self.end_element();
        }
        Ok(rest)
    }

    fn count(&mut self, bytes: u64) -> Result<(), ReplyError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            return Err(ReplyError::Bytes);
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<(), ReplyError> {
        match (self.place, byte) {
            (Place::Type, b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|') => {
                self.place = Place::Length {
                    of: byte,
                    number: 0,
                    digits: 0,
                };
            }
            (Place::Type, _) => self.place = Place::Line,
            (Place::Length { digits: 0, .. }, b'-') => self.place = Place::NoLength,
            (Place::Length { of, number, digits }, b'0'..=b'9') if digits < MAX_DIGITS => {
                let digit = u64::from(byte.saturating_sub(b'0'));
                self.place = Place::Length {
                    of,
                    number: number.saturating_mul(10).saturating_add(digit),
                    digits: digits.saturating_add(1),
                };
            }
            (Place::Length { digits: 1.., .. }, b'\r') => {}
            (
                Place::Length {
                    of,
                    number,
                    digits: 1..,
                },
                b'\n',
            ) => self.announce(of, number)?,
            (Place::Length { .. }, _) => return Err(ReplyError::Length),
            (Place::Line | Place::NoLength, b'\n') => self.end_element(),
            (Place::Line | Place::NoLength | Place::Bytes { .. }, _) => {}
        }
        Ok(())
    }

    fn announce(&mut self, of: u8, number: u64) -> Result<(), ReplyError> {
        let elements = match of {
            b'$' | b'!' | b'=' => {
                if number > MAX_BYTES {
                    return Err(ReplyError::Bytes);
                }
                let left = number.saturating_add(2);
                self.place = Place::Bytes { left };
                return Ok(());
            }
            b'%' => number.saturating_mul(2),
            // the element that the attributes are of follows them
            b'|' => number.saturating_mul(2).saturating_add(1),
            _ => number,
        };
        self.elements = self.elements.saturating_add(elements);
        if self.elements > MAX_ELEMENTS {
            return Err(ReplyError::Elements);
        }
        self.open = self.open.saturating_add(elements);
        self.end_element();
        Ok(())
    }

    /// Ends an element, or the head of one whose elements follow.
    fn end_element(&mut self) {
        self.place = Place::Type;
        match self.open.checked_sub(1) {
            Some(open) => self.open = open,
            // the next reply begins
            None => *self = Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The judgement of bytes that arrive `step` at a time.
    fn judged(bytes: &[u8], step: usize) -> Result<ReplyBounds, ReplyError> {
        let mut bounds = ReplyBounds::default();
        for part in bytes.chunks(step) {
            bounds.judge(part)?;
        }
        Ok(bounds)
    }

    #[test]
    fn replies_are_followed_to_their_end() {
        let replies: [&[u8]; 12] = [
            b"+OK\r\n",
            b":1\r\n",
            b"_\r\n",
            b"$-1\r\n",
            b"$0\r\n\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b"|1\r\n+a\r\n:1\r\n*1\r\n:1\r\n",
            b">3\r\n+message\r\n$1\r\na\r\n$1\r\n1\r\n",
        ];
        for reply in replies {
            for step in [1, 2, 3, 1000] {
                let bounds = judged(reply, step).unwrap();
                let text = alloc::string::String::from_utf8_lossy(reply);
                assert_eq!((bounds.bytes, bounds.open), (0, 0), "{text:?} by {step}");
                assert!(matches!(bounds.place, Place::Type), "{text:?}");
            }
        }
    }

    #[test]
    fn many_replies_are_no_large_one() {
        let replies = b"$3\r\nabc\r\n".repeat(200_000);
        assert!(judged(&replies, 4096).is_ok());
    }

    #[test]
    fn a_large_reply_ends_at_its_announcement() {
        let nested = b"*40000\r\n*40000\r\n";
        let cases: [(&[u8], ReplyError); 8] = [
            (b"$1048577\r\n", ReplyError::Bytes),
            (b"$99999999999999999999\r\n", ReplyError::Length),
            (b"*65537\r\n", ReplyError::Elements),
            (b"%32769\r\n", ReplyError::Elements),
            (b"|2147483647\r\n", ReplyError::Elements),
            (nested, ReplyError::Elements),
            (b"*x\r\n", ReplyError::Length),
            (b"$\r\n", ReplyError::Length),
        ];
        for (reply, why) in cases {
            for step in [1, 1000] {
                assert_eq!(judged(reply, step).map(drop), Err(why), "{reply:?}");
            }
        }
    }

    #[test]
    fn a_reply_without_end_is_bounded() {
        let mut line = Vec::from(*b"+");
        line.resize(usize::try_from(MAX_BYTES).unwrap() + 2, b'a');
        assert_eq!(judged(&line, 4096).map(drop), Err(ReplyError::Bytes));
        let mut strings = Vec::from(*b"*60000\r\n");
        (0..2_000).for_each(|_| strings.extend(b"$1000\r\n".iter().chain(&[b'a'; 1002])));
        assert_eq!(judged(&strings, 4096).map(drop), Err(ReplyError::Bytes));
    }
}
