//! JSON without duplicate members, and felts: short and slow, to compare with.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use starknet_types_core::felt::Felt;
use std::fmt;

/// The value of a JSON text in which no object has a member twice.
pub fn unique(text: &[u8]) -> Option<Value> {
    serde_json::from_slice(text).ok().map(|Unique(value)| value)
}

/// The members of an object in their order, duplicates too; `None` if the text is no object.
pub fn members(text: &str) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str(text)
        .ok()
        .map(|Members(members)| members)
}

/// The levels of arrays and objects.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The felt of `0x` and 1 to 64 digits, below the prime.
pub fn felt(value: &Value) -> Option<Felt> {
    let digits = value.as_str()?.strip_prefix("0x")?;
    let fits = (1..=64).contains(&digits.len()) && digits.bytes().all(|d| d.is_ascii_hexdigit());
    let padded = fits.then(|| format!("{digits:0>64}"))?;
    let byte = |at: usize| u8::from_str_radix(padded.get(at..at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..64).step_by(2).map_while(byte).collect();
    let bytes: [u8; 32] = bytes.try_into().ok()?;
    let felt = Felt::from_bytes_be(&bytes);
    (felt.to_bytes_be() == bytes).then_some(felt)
}

/// An array of felts.
pub fn felts(value: &Value) -> Option<Vec<Felt>> {
    value.as_array()?.iter().map(felt).collect()
}

/// The value with each felt in its shortest lower-case form.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::String(_) => {
            felt(value).map_or_else(|| value.clone(), |felt| format!("{felt:#x}").into())
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), canonical(value)))
            .collect(),
        _ => value.clone(),
    }
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without duplicates")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unique(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, Unique(value))) = map.next_entry::<String, _>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member appears twice"));
            }
        }
        Ok(members.into())
    }
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(AllMembers).map(Self)
    }
}

struct AllMembers;

impl<'de> Visitor<'de> for AllMembers {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
