//! One JSON text to a tree that borrows from it, strictly.
//!
//! RFC 8259 with nothing added: no BOM, no trailing data, UTF-8 only, no lone surrogate, at most
//! [`MAX_DEPTH`] levels. Objects hold every member in order, duplicates too, and [`Json::members`]
//! refuses duplicates after unescaping: a parser that drops all but the last would judge another
//! request than the node reads. `serde_json` does the lexing; `benches/policy.rs` compares it with
//! `simd-json`.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The deepest nesting of arrays and objects; no read nests deeper than 8.
pub const MAX_DEPTH: u8 = 64;

/// The first allocation of an array or object; calldata and transactions seldom have more than
/// twice as many items.
const USUAL: usize = 8;

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
    /// A member with another name.
    Unknown,
    /// This name appears twice.
    Duplicate(&'static str),
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
    /// member and any duplicate is a fault, so the number of names bounds the work.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_after_unescaping() {
        let object = Json::parse(br#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!(object.members(&["a"]), Err(MemberError::Duplicate("a")));
        let object = Json::parse(br#"{"t\u0069p":1}"#).unwrap();
        assert_eq!(object.members(&["tip"]), Ok([Some(Json::Integer(1))]));
        let object = Json::parse(br#"{"tip":1,"b":2}"#).unwrap();
        assert_eq!(object.members(&["tip"]), Err(MemberError::Unknown));
        assert_eq!(Json::parse(b"[]").unwrap().members(&["a"]), Err(MemberError::NotAnObject));
    }

    #[test]
    fn the_65th_level_is_refused() {
        for (levels, ok) in [(1, true), (64, true), (65, false), (200, false), (30_000, false)] {
            for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
                let text = format!("{}1{}", open.repeat(levels), close.repeat(levels));
                assert_eq!(Json::parse(text.as_bytes()).is_some(), ok, "{levels} levels of {open}");
            }
        }
    }

    #[test]
    fn only_one_rfc_8259_text_is_json() {
        for text in [
            &b"\xef\xbb\xbf{}"[..],
            b"{} {}",
            b"{},",
            b"",
            b"  ",
            b"{\"a\":\"\xff\"}",
            b"\"\\ud800\"",
            b"\"\x01\"",
            b"{'a':1}",
            b"{a:1}",
            b"[1,]",
            b"[01]",
            b"[+1]",
            b"[.5]",
            b"[NaN]",
            b"[1e]",
            b"//\n{}",
            b"\x00{}",
            b"{}\x00",
        ] {
            assert_eq!(Json::parse(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn only_plain_integers_are_integers() {
        for (text, expected) in [
            ("7", Json::Integer(7)),
            ("18446744073709551615", Json::Integer(u64::MAX)),
            ("18446744073709551616", Json::Number),
            ("7.0", Json::Number),
            ("7e0", Json::Number),
            ("-1", Json::Number),
        ] {
            assert_eq!(Json::parse(text.as_bytes()), Some(expected), "{text}");
        }
    }
}
