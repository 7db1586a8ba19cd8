//! Strict JSON: parses one text into a tree that borrows from it, or scans it without one; writes
//! values in one form.
//!
//! RFC 8259 with nothing added: no BOM, no trailing data, UTF-8 only, no lone surrogate, at most
//! [`MAX_DEPTH`] levels in a tree. Objects hold every member in order, duplicates too, and
//! [`Json::members`] refuses duplicates after unescaping: a parser that drops all but the last
//! would judge another request than the node reads. `serde_json` does the lexing of a tree;
//! `benches/policy.rs` compares it with `simd-json`.
#![expect(clippy::arithmetic_side_effects, reason = "positions stay within a text's length")]

use crate::felt::Felt;
use alloc::borrow::{Cow, ToOwned};
use alloc::vec::Vec;
use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use wide::{i8x16, u8x16};

/// The deepest nesting of arrays and objects; no read nests deeper than 8.
pub const MAX_DEPTH: u8 = 64;

/// Items in the first allocation of an array or object; calldata and transactions seldom have more
/// than twice as many.
const USUAL: usize = 8;

/// The form of a felt, for the refusal of anything else.
pub(crate) const FELT: &str = "0x and 1 to 64 hexadecimal digits, below the Stark prime";

/// A JSON value, its strings borrowed where they hold no escape.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A non-negative integer below 2^64, written as one.
    Integer(u64),
    /// Any other number.
    Number,
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object: its members in order, names unescaped, with duplicates.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Why a value is not an object of the expected members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// The value is not an object.
    NotAnObject,
    /// A member has another name.
    Unknown,
    /// This name appears twice.
    Duplicate(&'static str),
}

/// Why the parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// More parameters by position than the method takes; how many.
    TooMany(usize),
    /// A parameter by a name that the method does not have.
    Unknown,
    /// This parameter appears twice.
    Duplicate(&'static str),
    /// This required parameter is missing.
    Missing(&'static str),
    /// The malformed parameter, or member of one, and the expected form.
    Malformed(&'static str, &'static str),
    /// A list, the index of its malformed item, from 0, and the expected form.
    MalformedItem(&'static str, usize, &'static str),
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(given) => write!(f, "{given} parameters are too many"),
            Self::Unknown => f.write_str("there is an unknown parameter"),
            Self::Duplicate(name) => write!(f, "{name} appears twice"),
            Self::Missing(name) => write!(f, "{name} is required"),
            Self::Malformed(name, expected) => write!(f, "{name} must be {expected}"),
            Self::MalformedItem(list, at, expected) => write!(f, "{list}[{at}] must be {expected}"),
        }
    }
}

impl<'a> Json<'a> {
    /// Parses a body of one JSON text in UTF-8.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let mut from = serde_json::Deserializer::from_str(str::from_utf8(body).ok()?);
        let value = Value { levels: MAX_DEPTH }.deserialize(&mut from).ok()?;
        from.end().ok().map(|()| value)
    }

    /// The first member of this name, if the value is an object that has one.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a string, without a copy.
    pub fn into_string(self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The members of an object in the order of `names`, `None` where one is absent. Any other
    /// member and any duplicate is an error, so the number of names bounds the work.
    pub fn members<const N: usize>(
        self,
        names: &[&'static str; N],
    ) -> Result<[Option<Json<'a>>; N], MemberError> {
        let Self::Object(members) = self else { return Err(MemberError::NotAnObject) };
        let mut found = [const { None }; N];
        for (name, value) in members {
            let at = names.iter().position(|known| *known == name).ok_or(MemberError::Unknown)?;
            let slot = found.get_mut(at).ok_or(MemberError::Unknown)?;
            if slot.replace(value).is_some() {
                return Err(MemberError::Duplicate(names.get(at).unwrap_or(&"")));
            }
        }
        Ok(found)
    }
}

/// Reads one value that may hold `levels` more levels of arrays and objects.
pub(crate) struct Value {
    pub(crate) levels: u8,
}

impl Value {
    fn below<E: Error>(&self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1).ok_or_else(|| E::custom("too deep"))?;
        Ok(Self { levels })
    }
}

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Json<'de>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Integer(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json<'de>, E> {
        Ok(Json::Number)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.below()?)? {
            if items.is_empty() {
                items.reserve(USUAL);
            }
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut members = Vec::new();
        let below = self.below()?.levels;
        while let Some(name) = map.next_key_seed(Name)? {
            if members.is_empty() {
                members.reserve(USUAL);
            }
            members.push((name, map.next_value_seed(Self { levels: below })?));
        }
        Ok(Json::Object(members))
    }
}

/// Reads a member's name, borrowed where it holds no escape.
pub(crate) struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Cow<'de, str>, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// The text without the white space around its value, if it is one JSON value in UTF-8, of any
/// content and depth.
///
/// It is as strict as `serde_json` with a value to skip: a test compares the two. A node's answers
/// are mostly strings, which are searched 16 bytes at once. Two classes and two other answers of
/// 0.2 to 0.6 MB took 0.6 to 0.8 times as long as with `serde_json`. That was faster than
/// `simd-json`, which writes a tape and needs a copy to modify.
pub(super) fn scanned(text: &[u8]) -> Option<&[u8]> {
    let (_, text) = text.split_at_checked(space(text, 0))?;
    let (value, rest) = text.split_at_checked(value_end(text)?)?;
    (space(rest, 0) == rest.len()).then_some(value)
}

/// The end of the value at the start of the text.
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

/// The position after a member's name and colon, if `close` ends an object; else `at`.
#[inline]
fn name_if(text: &[u8], at: usize, close: u8) -> Option<usize> {
    if close == b']' {
        return Some(at);
    }
    let at = space(text, string(text, byte(text, at, b'"')? - 1)?);
    Some(space(text, byte(text, at, b':')?))
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
    skip(text, at, |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
}

/// The position after all bytes for which `is_one` holds.
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

pub(crate) fn felt(value: &Json<'_>) -> Option<Felt> {
    Felt::parse(value.as_str()?)
}

pub(crate) fn felts(value: &Json<'_>) -> Option<Vec<Felt>> {
    let Json::Array(items) = value else { return None };
    // collecting `Option`s has no size hint, so the list would grow step by step
    let mut felts = Vec::with_capacity(items.len());
    for item in items {
        felts.push(felt(item)?);
    }
    Some(felts)
}

pub(crate) fn write_felt(felt: &Felt, out: &mut Vec<u8>) {
    out.push(b'"');
    felt.write(out);
    out.push(b'"');
}

pub(crate) fn write_felts(felts: &[Felt], out: &mut Vec<u8>) {
    write_list(felts, out, write_felt);
}

pub(crate) fn write_list<T>(items: &[T], out: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Appends a number in decimal digits, without an allocation.
pub(crate) fn write_integer(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a string that needs no escape.
pub(crate) fn write_plain(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests;
