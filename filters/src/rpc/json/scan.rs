//! Reads JSON texts of any size and depth without a tree: whether a text is one value, and which
//! members an object has.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "positions stay within a text's length"
)]

use super::Name;
use alloc::borrow::Cow;
use memchr::memchr;
use serde::de::DeserializeSeed as _;
use wide::{i8x16, u8x16};

/// The text without the white space around its value, if it is one JSON value in UTF-8 of any
/// content, with at most this many levels of arrays and objects.
///
/// It is as strict as `serde_json` with a value to skip: a test compares the two. A node's answers
/// are mostly strings, which are searched 64 bytes at once: a window has one bit for each byte that
/// may end a string, so a short string costs a shift. Felts and events take 0.6 to 0.7 times as
/// long as with a search of 16 bytes for each string, the short strings of a class half as long.
/// Even that was faster than `simd-json`, which writes a tape and needs a copy to modify.
pub fn scanned(text: &[u8], levels: u8) -> Option<&[u8]> {
    let start = space(text, 0);
    let end = Scanner::new(text).value_end(start, levels)?;
    (space(text, end) == text.len()).then(|| text.get(start..end))?
}

/// The texts of an object's members with these names, `None` where one is absent.
///
/// `None` if the text is no object, or has one of the members twice.
pub fn select<'a, const N: usize>(
    object: &'a [u8],
    names: [&str; N],
) -> Option<[Option<&'a [u8]>; N]> {
    let mut found = [None; N];
    let mut scanner = Scanner::new(object);
    let mut at = space(object, byte(object, 0, b'{')?);
    let mut has_more = byte(object, at, b'}').is_none();
    while has_more {
        let end = scanner.string(byte(object, at, b'"')?)?;
        let start = after_colon(object, end)?;
        let after = scanner.value_end(start, u8::MAX)?;
        let name = object.get(at + 1..end - 1)?;
        let is_known = |known: &str| match memchr(b'\\', name) {
            None => name == known.as_bytes(),
            Some(_) => object
                .get(at..end)
                .and_then(string_in)
                .is_some_and(|name| name == known),
        };
        if let Some(known) = names.iter().position(|known| is_known(known))
            && found
                .get_mut(known)?
                .replace(object.get(start..after)?)
                .is_some()
        {
            return None;
        }
        at = space(object, after);
        let comma = byte(object, at, b',');
        has_more = comma.is_some();
        at = comma.map_or(at, |next| space(object, next));
    }
    (space(object, byte(object, at, b'}')?) == object.len()).then_some(found)
}

/// The text of the string at the start of a JSON text, borrowed where it has no escape.
pub fn string_in(text: &[u8]) -> Option<Cow<'_, str>> {
    Name.deserialize(&mut serde_json::Deserializer::from_slice(text))
        .ok()
}

/// An array or an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array,
    Object,
}

impl Kind {
    /// The bracket that ends it.
    const fn close(self) -> u8 {
        match self {
            Self::Array => b']',
            Self::Object => b'}',
        }
    }
}

/// The arrays and objects that are open: one bit for each, set for an object.
#[derive(Default)]
struct Open {
    objects: [u64; 4],
    levels: u8,
}

impl Open {
    /// Opens an array or an object, at most 255.
    fn push(&mut self, kind: Kind) {
        if let Some(objects) = self.objects.get_mut(usize::from(self.levels / 64)) {
            let bit = 1 << (self.levels % 64);
            *objects = match kind {
                Kind::Array => *objects & !bit,
                Kind::Object => *objects | bit,
            };
        }
        self.levels += 1;
    }

    /// Closes the innermost one. Returns the kind of the next one.
    fn pop(&mut self) -> Kind {
        self.levels -= 1;
        let Some(level) = self.levels.checked_sub(1) else {
            return Kind::Array;
        };
        let objects = self.objects.get(usize::from(level / 64));
        if objects.is_some_and(|objects| objects >> (level % 64) & 1 == 1) {
            Kind::Object
        } else {
            Kind::Array
        }
    }
}

/// The bytes of a window.
const WINDOW: usize = 64;

/// A text that is read from its start to its end.
struct Scanner<'a> {
    text: &'a [u8],
    /// Where the window begins.
    window: usize,
    /// The stops in the window, one bit for each byte: quotes, backslashes, control and non-ASCII
    /// characters.
    stops: u64,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            window: 0,
            stops: 0,
        }
    }

    /// The end of the value that starts at `at`, of at most this many levels.
    fn value_end(&mut self, mut at: usize, levels: u8) -> Option<usize> {
        let text = self.text;
        let mut open = Open::default();
        let mut kind = Kind::Array;
        let mut is_name = false;
        loop {
            let first = *text.get(at)?;
            if first == b'"' {
                at = self.string(at + 1)?;
                if is_name {
                    at = after_colon(text, at)?;
                    is_name = false;
                    continue;
                }
            } else if is_name {
                return None;
            } else if matches!(first, b'[' | b'{') {
                if open.levels >= levels {
                    return None;
                }
                kind = if first == b'[' {
                    Kind::Array
                } else {
                    Kind::Object
                };
                open.push(kind);
                at = space(text, at + 1);
                // an empty one is closed below
                if !matches!(text.get(at)?, b']' | b'}') {
                    is_name = kind == Kind::Object;
                    continue;
                }
            } else {
                at = scalar(text, at)?;
            }
            loop {
                if open.levels == 0 {
                    return Some(at);
                }
                at = space(text, at);
                let next = *text.get(at)?;
                at += 1;
                if next == b',' {
                    at = space(text, at);
                    is_name = kind == Kind::Object;
                    break;
                }
                if next != kind.close() {
                    return None;
                }
                kind = open.pop();
            }
        }
    }

    /// The position after a string whose characters begin at `at`.
    // a call would take as long as sixteen bytes of the string
    #[inline(always)]
    fn string(&mut self, mut at: usize) -> Option<usize> {
        let text = self.text;
        loop {
            at = self.stop(at);
            match text.get(at)? {
                b'"' => return Some(at + 1),
                b'\\' => at = escape(text, at + 1)?,
                0x80.. => {
                    let start = at;
                    at = skip(text, at, |byte| !byte.is_ascii());
                    str::from_utf8(text.get(start..at)?).ok()?;
                }
                _ => return None,
            }
        }
    }

    /// The position of the next stop from `at` on, or one beyond the end.
    #[inline(always)]
    fn stop(&mut self, at: usize) -> usize {
        let mut from = at;
        let within = at - self.window;
        if within < WINDOW && self.stops != 0 {
            let stops = self.stops >> within;
            if stops != 0 {
                return at + lowest(stops);
            }
            from = self.window + WINDOW;
        }
        loop {
            let rest = self.text.get(from..).unwrap_or_default();
            self.stops = match rest.first_chunk() {
                Some(window) => stops(window),
                None => stops_at_end(rest),
            };
            if self.stops != 0 {
                self.window = from;
                return from + lowest(self.stops);
            }
            from += WINDOW;
        }
    }
}

/// The first of these stops.
#[inline(always)]
fn lowest(stops: u64) -> usize {
    usize::try_from(stops.trailing_zeros()).unwrap_or_default()
}

/// The stops in a window.
#[inline(always)]
fn stops(window: &[u8; WINDOW]) -> u64 {
    let mut others = 0;
    let (pieces, _) = window.as_chunks::<16>();
    for (index, piece) in pieces.iter().enumerate() {
        // non-ASCII bytes are negative, and a quote becomes a space
        let bytes = u8x16::from(*piece).cast_signed();
        let after_space = (bytes ^ i8x16::splat(2)).simd_gt(i8x16::splat(b' '.cast_signed()));
        let backslashes = bytes.simd_eq(i8x16::splat(b'\\'.cast_signed()));
        let plain = after_space & !backslashes;
        others |= u64::from(plain.to_bitmask()) << (16 * index);
    }
    !others
}

/// The stops in the last bytes of a text; all positions beyond its end are stops.
#[cold]
fn stops_at_end(rest: &[u8]) -> u64 {
    let mut window = [0; WINDOW];
    for (byte, last) in window.iter_mut().zip(rest) {
        *byte = *last;
    }
    stops(&window)
}

/// The end of a number, a Boolean or null.
#[inline(always)]
fn scalar(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'-' | b'0'..=b'9' => number(text, at),
        b't' => word(text, at, b"true"),
        b'f' => word(text, at, b"false"),
        b'n' => word(text, at, b"null"),
        _ => None,
    }
}

/// The position of a member's value, if its name ends at `at`.
#[inline]
fn after_colon(text: &[u8], at: usize) -> Option<usize> {
    Some(space(text, byte(text, space(text, at), b':')?))
}

/// The position after an escape whose backslash is right before `at`.
fn escape(text: &[u8], at: usize) -> Option<usize> {
    debug_assert!(
        text.get(..at).is_some_and(|to| to.ends_with(b"\\")),
        "an escape begins with a backslash"
    );
    match text.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => text
            .get(at + 1..at + 5)?
            .iter()
            .all(u8::is_ascii_hexdigit)
            .then_some(at + 5),
        _ => None,
    }
}

fn number(text: &[u8], at: usize) -> Option<usize> {
    let mut at = byte(text, at, b'-').unwrap_or(at);
    at = byte(text, at, b'0').or_else(|| digits(text, at))?;
    if let Some(fraction) = byte(text, at, b'.') {
        at = digits(text, fraction)?;
    }
    let exponent = byte(text, at, b'e').or_else(|| byte(text, at, b'E'));
    let Some(at) = exponent else { return Some(at) };
    digits(
        text,
        byte(text, at, b'-')
            .or_else(|| byte(text, at, b'+'))
            .unwrap_or(at),
    )
}

/// The position after one or more digits.
fn digits(text: &[u8], at: usize) -> Option<usize> {
    let end = skip(text, at, u8::is_ascii_digit);
    (end > at).then_some(end)
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

#[inline(always)]
fn space(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(..=b' ') => skip(text, at, |byte| {
            matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
        }),
        _ => at,
    }
}

/// The first position from `at` on for which `is_one` does not hold.
#[inline]
fn skip(text: &[u8], mut at: usize, is_one: impl Fn(&u8) -> bool) -> usize {
    while text.get(at).is_some_and(&is_one) {
        at += 1;
    }
    at
}

/// The position after `byte`, if it is at `at`.
#[inline]
fn byte(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    (text.get(at)? == &byte).then_some(at + 1)
}
