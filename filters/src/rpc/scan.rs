//! Whether a text is one JSON value, whatever it says.
//!
//! RFC 8259 and UTF-8, at any depth, as strict as `serde_json` is with a value that it skips: a
//! test compares the two. A node's answers are mostly strings, which are searched 16 bytes at a
//! time. From 1 KiB to 4 MiB of events, blocks and classes this took 0.6 to 0.75 of the time of
//! `serde_json` (1.1 for one class of 238 KB), and `simd-json` 1.1 to 2.3 of it: that writes a tape
//! and needs a copy to write in.
#![expect(clippy::arithmetic_side_effects, reason = "positions stay within a text's length")]

use alloc::vec::Vec;

/// The text without the white space around its value, if it is one JSON value in UTF-8.
pub(super) fn value(text: &[u8]) -> Option<&[u8]> {
    let (_, text) = text.split_at_checked(space(text, 0))?;
    let (value, rest) = text.split_at_checked(value_end(text)?)?;
    (space(rest, 0) == rest.len()).then_some(value)
}

/// Where the value ends that the text begins with.
fn value_end(text: &[u8]) -> Option<usize> {
    // the closing byte of each array and object that is open
    let mut open = Vec::new();
    let mut at = 0;
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
            let Some(close) = open.last() else { return Some(at) };
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

/// Behind a member's name and its colon, where what closes is an object.
#[inline]
fn name_if(text: &[u8], at: usize, close: u8) -> Option<usize> {
    if close == b']' {
        return Some(at);
    }
    let at = space(text, string(text, byte(text, at, b'"')? - 1)?);
    Some(space(text, byte(text, at, b':')?))
}

/// Behind a string whose first quote stands at `at`.
#[inline]
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

/// The next quote, backslash, control character or byte beyond ASCII, or the end.
#[inline]
fn stop(text: &[u8], mut at: usize) -> usize {
    while let Some(piece) = text.get(at..).and_then(<[u8]>::first_chunk::<16>) {
        // without a branch, so that it is one comparison of all sixteen
        if piece.iter().fold(false, |found, byte| found | is_stop(*byte)) {
            for (part, eight) in piece.as_chunks().0.iter().enumerate() {
                let stops = stops(u64::from_le_bytes(*eight));
                if stops != 0 {
                    let byte = usize::try_from(stops.trailing_zeros() / 8).unwrap_or_default();
                    return at + part * 8 + byte;
                }
            }
        }
        at += piece.len();
    }
    let rest = text.get(at..).unwrap_or_default();
    at + rest.iter().position(|byte| is_stop(*byte)).unwrap_or(rest.len())
}

#[inline]
fn is_stop(byte: u8) -> bool {
    // one comparison: what is beyond ASCII is negative
    (byte.cast_signed() < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// The highest bit of the first of eight bytes that stops, and perhaps of others behind it
/// (<https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>).
#[inline]
fn stops(eight: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) | word;
    let equal = |byte: u8| {
        let word = eight ^ (ONES * u64::from(byte));
        word.wrapping_sub(ONES) & !word
    };
    (below(eight, 0x20) | equal(b'"') | equal(b'\\')) & (ONES << 7)
}

/// Behind an escape whose backslash stands before `at`.
fn escape(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
        b'u' => text.get(at + 1..at + 5)?.iter().all(u8::is_ascii_hexdigit).then_some(at + 5),
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
    digits(text, byte(text, at, b'-').or_else(|| byte(text, at, b'+')).unwrap_or(at))
}

/// Behind one digit or more.
fn digits(text: &[u8], at: usize) -> Option<usize> {
    let end = skip(text, at, u8::is_ascii_digit);
    (end > at).then_some(end)
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

#[inline]
fn space(text: &[u8], at: usize) -> usize {
    skip(text, at, |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// Behind the bytes of this kind.
#[inline]
fn skip(text: &[u8], mut at: usize, is_one: impl Fn(&u8) -> bool) -> usize {
    while text.get(at).is_some_and(&is_one) {
        at += 1;
    }
    at
}

/// Behind this byte, if it stands there.
#[inline]
fn byte(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    (text.get(at)? == &byte).then_some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use serde_json::value::RawValue;

    /// What can begin, end or break a value somewhere.
    const BYTES: &[u8] =
        b"\"\\[]{},:0123456789-+.eEtrufalsn/b \t\n\r\x00\x1f\x20\x7f\xc3\xa9\xed\xa0\x80\xf0\x9f";

    const SEEDS: [&str; 6] = [
        r#"{"events":[{"block_hash":"0x1fd38616408aa2fc","data":["0x0","0x12"],"n":600000}],"b":{}}"#,
        r#"{"abi":"[{\"type\": \"é\\u00e9\\n\"}]", "program" : [ "0x1" , "0x2" ] , "e":[]}"#,
        "[0,-0.5e+10,1E-2,true,false,null,[[[]]],{\"\":{}},\"\"]",
        r#""\ud800\"\\\/\b\f\n\r\t""#,
        "  -12.75e3 ",
        "null",
    ];

    /// `serde_json` is the reference.
    fn assert_same(text: &[u8]) {
        let found = value(text);
        let expected = serde_json::from_slice::<&RawValue>(text).ok().map(RawValue::get);
        let text = String::from_utf8_lossy(text);
        assert_eq!(found, expected.map(str::as_bytes), "{text:?}");
    }

    #[test]
    fn mutated_texts_are_judged_as_serde_json_does() {
        for seed in SEEDS {
            for at in 0..=seed.len() {
                let (before, after) = seed.as_bytes().split_at(at);
                assert_same(before);
                assert_same(after);
                let rest = after.get(1..).unwrap_or_default();
                assert_same(&[before, rest].concat());
                for byte in BYTES {
                    assert_same(&[before, &[*byte], after].concat());
                    assert_same(&[before, &[*byte], rest].concat());
                }
            }
        }
    }

    #[test]
    fn random_texts_are_judged_as_serde_json_does() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % bound as u64).expect("below a usize")
        };
        for _ in 0..50_000 {
            let mut text = String::from(SEEDS[below(SEEDS.len())]).into_bytes();
            for _ in 0..=below(6) {
                let (at, byte) = (below(text.len().max(1)), BYTES[below(BYTES.len())]);
                match below(4) {
                    0 => text.insert(at, byte),
                    1 if at < text.len() => drop(text.remove(at)),
                    2 => text.truncate(at.max(1)),
                    _ => text.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
                }
            }
            assert_same(&text);
        }
    }

    #[test]
    fn a_string_ends_wherever_its_block_does() {
        for length in 0..200 {
            for (end, before) in [("\"", ""), ("\\\"\"", " "), ("", "["), ("\u{1}\"", "\t")] {
                assert_same(format!("{before}\"{}{end}", "é".repeat(length / 2)).as_bytes());
                assert_same(format!("{before}\"{}{end}", "x".repeat(length)).as_bytes());
            }
        }
    }

    #[test]
    fn depth_has_no_bound_and_every_bracket_counts() {
        for levels in [1, 63, 64, 65, 100_000] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
            assert_eq!(value(&text), Some(&*text));
            assert_eq!(value(&text[1..]), None);
        }
    }
}
