//! Reads JSON texts of any size and depth without a tree: whether a text is one value, and which
//! members an object has.
#![expect(
    clippy::arithmetic_side_effects,
    reason = "positions stay within a text's length"
)]

use super::Name;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use memchr::memchr;
use serde::de::DeserializeSeed as _;
use wide::{i8x16, u8x16};

/// The text without the white space around its value, if it is one JSON value in UTF-8 of any
/// content, with at most this many levels of arrays and objects.
///
/// It is as strict as `serde_json` with a value to skip: a test compares the two. A node's answers
/// are mostly strings, which are searched 16 bytes at once. Two classes and two other answers of
/// 0.2 to 0.6 MB took 0.6 to 0.8 times as long as with `serde_json`. That was faster than
/// `simd-json`, which writes a tape and needs a copy to modify.
pub fn scanned(text: &[u8], levels: u8) -> Option<&[u8]> {
    let start = space(text, 0);
    let end = value_end(text, start, levels, &mut Vec::new())?;
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
    let mut open = Vec::new();
    let mut at = space(object, byte(object, 0, b'{')?);
    let mut has_more = byte(object, at, b'}').is_none();
    while has_more {
        let end = string(object, byte(object, at, b'"')? - 1)?;
        let start = after_colon(object, end)?;
        let after = value_end(object, start, u8::MAX, &mut open)?;
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

/// The end of the value that starts at `at`, of at most this many levels. `open` has the closing
/// byte of each array and object that is open; it must be empty, and is empty again after a value.
fn value_end(text: &[u8], mut at: usize, levels: u8, open: &mut Vec<u8>) -> Option<usize> {
    debug_assert!(open.is_empty(), "values are read one after the other");
    loop {
        at = match text.get(at)? {
            b'"' => string(text, at)?,
            b'-' | b'0'..=b'9' => number(text, at)?,
            b't' => word(text, at, b"true")?,
            b'f' => word(text, at, b"false")?,
            b'n' => word(text, at, b"null")?,
            bracket @ (b'[' | b'{') => {
                let close = if *bracket == b'[' { b']' } else { b'}' };
                at = space(text, at + 1);
                if open.len() >= usize::from(levels) {
                    return None;
                }
                if text.get(at) != Some(&close) {
                    open.push(close);
                    at = name_if(text, at, close)?;
                    continue;
                }
                at + 1
            }
            _ => return None,
        };
        loop {
            let Some(close) = open.last() else {
                return Some(at);
            };
            at = space(text, at);
            let byte = text.get(at)?;
            at += 1;
            if *byte == b',' {
                at = name_if(text, space(text, at), *close)?;
                break;
            }
            if byte != close {
                return None;
            }
            open.pop();
        }
    }
}

/// The position after a member's name and colon, if `close` ends an object; else `at`.
#[inline]
fn name_if(text: &[u8], at: usize, close: u8) -> Option<usize> {
    if close == b']' {
        return Some(at);
    }
    after_colon(text, string(text, byte(text, at, b'"')? - 1)?)
}

/// The position of a member's value, if its name ends at `at`.
#[inline]
fn after_colon(text: &[u8], at: usize) -> Option<usize> {
    Some(space(text, byte(text, space(text, at), b':')?))
}

/// The position after a string whose opening quote is at `at`.
// a call would take as long as sixteen bytes of the string
#[inline(always)]
fn string(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at = stop(text, at);
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

/// The position of the next quote, backslash, control or non-ASCII character, or the end.
#[inline]
fn stop(text: &[u8], at: usize) -> usize {
    let of = |byte: u8| i8x16::splat(byte.cast_signed());
    let (pieces, rest) = text.get(at..).unwrap_or_default().as_chunks::<16>();
    for (index, piece) in pieces.iter().enumerate() {
        // non-ASCII bytes are negative
        let bytes = u8x16::from(*piece).cast_signed();
        let stops = bytes.simd_lt(of(b' ')) | bytes.simd_eq(of(b'"')) | bytes.simd_eq(of(b'\\'));
        let stops = stops.to_bitmask();
        if stops != 0 {
            let within = usize::try_from(stops.trailing_zeros()).unwrap_or_default();
            return at + index * piece.len() + within;
        }
    }
    let is_stop = |byte: &u8| matches!(byte, ..b' ' | b'"' | b'\\' | 0x80..);
    text.len() - rest.len() + rest.iter().position(is_stop).unwrap_or(rest.len())
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

#[inline]
fn space(text: &[u8], at: usize) -> usize {
    skip(text, at, |byte| {
        matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
    })
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
