//! The JSON-RPC 2.0 request object: exactly one, with exactly its four members.
//!
//! <https://www.jsonrpc.org/specification>, section 4, and narrower: `id` is required and must be a
//! string or a number (a notification would get no response, and the node runs `id: null`), batches
//! are refused. Wider in one point: `params: null` counts as absent, because starknet.go sends it.
//!
//! Clients number their requests. Bodies that differ only in the digits of their ids are equal JSON
//! except for that number, and get the same verdict: one parse serves all of them
//! ([`BodyWithoutId`]).

use super::json::{Json, MAX_DEPTH, Name, Value, shown};
use crate::verdict::{Reason, Refusal};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::hash::{Hash, Hasher};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The most digits of an id; no client counts further.
const MAX_DIGITS: usize = 15;
const NAME: &[u8] = b"\"id\"";

/// A request id: the bytes of a JSON number or string, as the client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// The JSON text of the id.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Accepts a string or a number. The text is one JSON value, but the escapes of a string may
    /// still be invalid Unicode.
    fn parse(raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        match text.as_bytes().first()? {
            b'"' if text.contains('\\') => serde_json::from_str::<String>(text)
                .ok()
                .map(|_| Self(text)),
            b'"' | b'-' | b'0'..=b'9' => Some(Self(text)),
            _ => None,
        }
    }
}

/// One well-formed request; method and parameters are not judged yet.
#[derive(Debug)]
pub struct Envelope<'a> {
    /// The id, byte for byte.
    pub id: Id<'a>,
    /// The method's name, unescaped.
    pub method: Cow<'a, str>,
    /// The parameters: an array or an object.
    pub params: Option<Json<'a>>,
}

impl<'a> Envelope<'a> {
    /// Parses a request body.
    ///
    /// # Errors
    /// Returns `parse_error`, `batch` or `invalid_request`, with the request's id if it was valid.
    pub fn parse(body: &'a [u8]) -> Result<Self, Refusal> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Refusal::not_an_object(Json::parse(body)));
        }
        // UTF-8 is checked for the whole body, which is faster than string by string
        let members = str::from_utf8(body).ok().and_then(|text| {
            let mut from = serde_json::Deserializer::from_str(text);
            let members = from.deserialize_map(Request).ok()?;
            from.end().ok().map(|()| members)
        });
        members.ok_or_else(Refusal::not_json)?.check()
    }
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// The members of a request.
const MEMBERS: [&str; 4] = ["jsonrpc", "id", "method", "params"];

/// The members so far; each is `None` until it appears, whatever its value.
#[derive(Default)]
struct Members<'a> {
    /// Whether it is `"2.0"`.
    jsonrpc: Option<bool>,
    id: Option<&'a RawValue>,
    /// `Some(None)` if it is not a string.
    method: Option<Option<Cow<'a, str>>>,
    params: Option<Json<'a>>,
    /// The last member that appeared again.
    duplicate: Option<&'static str>,
    two_ids: bool,
    /// The last member of another name.
    unknown: Option<Cow<'a, str>>,
}

impl<'a> Members<'a> {
    fn check(self) -> Result<Envelope<'a>, Refusal> {
        let id = self.id.filter(|_| !self.two_ids).and_then(Id::parse);
        self.envelope(id).map_err(|refusal| refusal.with_id(id))
    }

    fn envelope(self, id: Option<Id<'a>>) -> Result<Envelope<'a>, Refusal> {
        if let Some(name) = self.duplicate {
            return Err(invalid(format!("{name} appears twice")));
        }
        if let Some(name) = self.unknown {
            let message = format!(
                "unknown member {}; expected {}",
                shown(&name),
                MEMBERS.join(", ")
            );
            return Err(invalid(message));
        }
        if self.jsonrpc != Some(true) {
            return Err(invalid("jsonrpc must be the string \"2.0\""));
        }
        let id = id.ok_or_else(|| invalid("id must be a number or a string"))?;
        let method = self
            .method
            .flatten()
            .ok_or_else(|| invalid("method must be a string"))?;
        let params = match self.params {
            None | Some(Json::Null) => None,
            Some(params @ (Json::Array(_) | Json::Object(_))) => Some(params),
            Some(_) => return Err(invalid("params must be an array or an object")),
        };
        Ok(Envelope { id, method, params })
    }
}

struct Request;

impl<'de> Visitor<'de> for Request {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let value = || Value {
            levels: MAX_DEPTH.saturating_sub(1),
        };
        let mut members = Members::default();
        while let Some(name) = map.next_key_seed(Name)? {
            let twice = match &*name {
                // raw, because the response echoes the id byte for byte: 1.0 is not 1
                "id" => {
                    // with two ids, it is unclear which one to answer
                    members.two_ids = members.id.replace(map.next_value()?).is_some();
                    members.two_ids
                }
                "jsonrpc" => {
                    let is_ours = map.next_value_seed(value())?.as_str() == Some("2.0");
                    members.jsonrpc.replace(is_ours).is_some()
                }
                "method" => {
                    let method = map.next_value_seed(value())?.into_string();
                    members.method.replace(method).is_some()
                }
                "params" => members
                    .params
                    .replace(map.next_value_seed(value())?)
                    .is_some(),
                _ => {
                    map.next_value_seed(value())?;
                    members.unknown = Some(name);
                    continue;
                }
            };
            if twice {
                members.duplicate = MEMBERS.into_iter().find(|known| *known == name);
            }
        }
        Ok(members)
    }
}

/// A body split at a number that is probably its id. Bodies that differ in that number only are
/// equal.
#[derive(Clone, Copy, Debug, Eq)]
pub struct BodyWithoutId<'a> {
    before: &'a [u8],
    id: &'a str,
    after: &'a [u8],
}

impl<'a> BodyWithoutId<'a> {
    /// Finds the number where nearly every client writes its id. Only the parsed body shows that it
    /// is the id, and not part of another member: see [`Self::is_at`].
    pub fn find(body: &'a [u8]) -> Option<Self> {
        let mut colons = memchr::memchr_iter(b':', body);
        let name = colons.find(|at| body.get(..*at).is_some_and(|to| to.ends_with(NAME)))?;
        let value = body.get(name..)?.strip_prefix(b":")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let before = body.strip_suffix(value)?;
        let length = value
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, after) = value.split_at_checked(length)?;
        // in the shortest form, and followed by a byte that ends it
        let is_plain = matches!(digits, [b'1'..=b'9', ..] | [b'0']) && length <= MAX_DIGITS;
        let ends = matches!(after.first(), Some(b',' | b'}'));
        let id = str::from_utf8(digits).ok().filter(|_| is_plain && ends)?;
        debug_assert!(
            body.starts_with(before) && body.ends_with(after),
            "the parts are of the body"
        );
        Some(Self { before, id, after })
    }

    /// Restores a stored body from both its parts in one slice; the second begins at `at`.
    pub fn stored(parts: &'a [u8], at: usize) -> Option<Self> {
        let (before, after) = parts.split_at_checked(at)?;
        Some(Self {
            before,
            id: "",
            after,
        })
    }

    /// The bytes before and after the number.
    pub fn parts(&self) -> [&'a [u8]; 2] {
        [self.before, self.after]
    }

    /// The number. It is the id if this body equals one whose number was the id.
    pub fn id(&self) -> &'a str {
        self.id
    }

    /// Whether the number is this id: the same bytes of the body, not only an equal number.
    pub fn is_at(&self, id: Id<'_>) -> bool {
        core::ptr::eq(self.id, id.as_str())
    }
}

impl PartialEq for BodyWithoutId<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.before == other.before && self.after == other.after
    }
}

impl Hash for BodyWithoutId<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.before);
        state.write(self.after);
        state.write_usize(self.before.len());
    }
}

#[cfg(test)]
mod tests;
