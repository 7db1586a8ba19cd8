//! Strict JSON: parses one text into a tree that borrows from it, and writes values in one form.
//!
//! RFC 8259 with nothing added: no BOM, no trailing data, UTF-8 only, no lone surrogate, at most
//! [`MAX_DEPTH`] levels in a tree. Objects hold every member in order, duplicates too, and
//! [`Json::members`] refuses duplicates after unescaping: a parser that drops all but the last
//! would judge another request than the node reads. `serde_json` does the lexing of a tree;
//! `benches/policy.rs` compares it with `simd-json`. [`scan`] needs no tree.

pub mod scan;

use crate::felt::Felt;
use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The deepest nesting of arrays and objects; no read nests deeper than 8.
pub const MAX_DEPTH: u8 = 64;

/// Items in the first allocation of an array or object; calldata and transactions seldom have more
/// than twice as many.
const USUAL: usize = 8;

/// The characters of an unknown member's name that a refusal repeats: more than any name has.
const SHOWN: usize = 64;

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
    /// The parameter that is a block tag of earlier versions of the API, and the expected form.
    FormerTag(&'static str, &'static str),
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(given) => write!(f, "{given} parameters are too many"),
            Self::Unknown => f.write_str("there is an unknown parameter"),
            Self::Duplicate(name) => write!(f, "{name} appears twice"),
            Self::Missing(name) => write!(f, "{name} is required"),
            Self::Malformed(name, expected) | Self::FormerTag(name, expected) => {
                write!(f, "{name} must be {expected}")
            }
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
        let Self::Object(members) = self else {
            return None;
        };
        members
            .iter()
            .find(|(member, _)| member == name)
            .map(|(_, value)| value)
    }

    /// The first member of an object whose name is not one of `names`, as [`shown`].
    pub(crate) fn other_than(&self, names: &[&str]) -> Option<String> {
        let Self::Object(members) = self else {
            return None;
        };
        let mut all = members.iter().map(|(name, _)| name);
        let unknown = all.find(|name| !names.contains(&name.as_ref()))?;
        Some(shown(unknown))
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
        let Self::Object(members) = self else {
            return Err(MemberError::NotAnObject);
        };
        let mut found = [const { None }; N];
        for (name, value) in members {
            let at = names
                .iter()
                .position(|known| *known == name)
                .ok_or(MemberError::Unknown)?;
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
        let levels = self
            .levels
            .checked_sub(1)
            .ok_or_else(|| E::custom("too deep"))?;
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

/// A member's name for the message of a refusal: in backticks, escaped, and at most [`SHOWN`]
/// characters of it.
pub(crate) fn shown(name: &str) -> String {
    let mut shown = String::from("`");
    shown.extend(name.chars().take(SHOWN).flat_map(char::escape_default));
    shown.push('`');
    shown
}

pub(crate) fn felt(value: &Json<'_>) -> Option<Felt> {
    Felt::parse(value.as_str()?)
}

pub(crate) fn felts(value: &Json<'_>) -> Option<Vec<Felt>> {
    let Json::Array(items) = value else {
        return None;
    };
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
