//! One JSON text to a tree that borrows from it, strictly.
//!
//! RFC 8259 with nothing added: no BOM, no trailing data, UTF-8 only, no lone surrogate, at most
//! [`MAX_DEPTH`] levels. Objects keep every member in order, duplicates too, so that whoever reads
//! one ([`Json::members`]) sees and refuses them after unescaping: a parser that keeps only the
//! last would judge another request than the node reads. `serde_json` does the lexing; the
//! benchmark in `benches/policy.rs` shows it beside `simd-json`.

use alloc::borrow::Cow;
use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::fmt;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Arrays and objects may nest this deep: no read nests deeper than 8.
pub const MAX_DEPTH: u8 = 64;

/// Room that is made at once, with the first of them: a call's calldata and a transaction's members
/// are seldom more than twice that.
const USUAL: usize = 8;

/// A JSON value, its strings borrowed where they hold no escape.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number that is a non-negative integer below 2^64 and written as one.
    Integer(u64),
    /// Any other number.
    Number,
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object, its members in order, names unescaped, duplicates kept.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Why an object is not the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberFault {
    /// The value is no object.
    NotAnObject,
    /// A member that is none of the expected names.
    Unknown,
    /// The same name twice: this one.
    Duplicate(&'static str),
}

impl<'a> Json<'a> {
    /// Reads a body that is one JSON text in UTF-8; `None` if it is anything else.
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

    /// The text of a string, taken out of it.
    pub fn into_string(self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Takes an object apart: each member at the place of its name in `names`, `None` where it is
    /// absent. Any other member, and any member given twice, is a fault, so the work is bounded by
    /// the number of names however many members there are.
    pub fn members<const N: usize>(
        self,
        names: &[&'static str; N],
    ) -> Result<[Option<Json<'a>>; N], MemberFault> {
        let Self::Object(members) = self else { return Err(MemberFault::NotAnObject) };
        let mut found = [const { None }; N];
        for (name, value) in members {
            let at = names.iter().position(|known| *known == name).ok_or(MemberFault::Unknown)?;
            let slot = found.get_mut(at).ok_or(MemberFault::Unknown)?;
            if slot.replace(value).is_some() {
                return Err(MemberFault::Duplicate(names.get(at).unwrap_or(&"")));
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

    fn parse(text: &[u8]) -> Option<Json<'_>> {
        Json::parse(text)
    }

    #[test]
    fn names_are_compared_after_unescaping() {
        let object = parse(br#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!(object.members(&["a"]), Err(MemberFault::Duplicate("a")));
        let object = parse(br#"{"t\u0069p":1}"#).unwrap();
        assert_eq!(object.members(&["tip"]), Ok([Some(Json::Integer(1))]));
        let object = parse(br#"{"tip":1,"b":2}"#).unwrap();
        assert_eq!(object.members(&["tip"]), Err(MemberFault::Unknown));
        assert_eq!(parse(b"[]").unwrap().members(&["a"]), Err(MemberFault::NotAnObject));
    }

    #[test]
    fn sixty_four_levels_pass_and_sixty_five_do_not() {
        for (levels, ok) in [(1, true), (64, true), (65, false), (200, false), (30_000, false)] {
            for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
                let text = format!("{}1{}", open.repeat(levels), close.repeat(levels));
                assert_eq!(parse(text.as_bytes()).is_some(), ok, "{levels} levels of {open}");
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
            assert_eq!(parse(text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn an_integer_is_one_that_is_written_as_one() {
        for (text, expected) in [
            ("7", Json::Integer(7)),
            ("18446744073709551615", Json::Integer(u64::MAX)),
            ("18446744073709551616", Json::Number),
            ("7.0", Json::Number),
            ("7e0", Json::Number),
            ("-1", Json::Number),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(expected), "{text}");
        }
    }
}
