//! The JSON-RPC 2.0 request object: exactly one, with exactly its four members.
//!
//! <https://www.jsonrpc.org/specification>, section 4, and narrower: `id` is required and must be a
//! string or a number (a notification would get no response, and the node runs `id: null`), batches
//! are refused. Wider in one point: `params: null` counts as absent, because starknet.go sends it.

use super::json::{Json, MAX_DEPTH, Name, Value};
use crate::verdict::{Reason, Refusal};
use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A request id: the bytes of a JSON number or string, as the client wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// The JSON text of the id.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// A string or a number. The text is one JSON value, but the escapes of a string may still be
    /// invalid Unicode.
    fn parse(raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        match text.as_bytes().first()? {
            b'"' if text.contains('\\') => {
                serde_json::from_str::<String>(text).ok().map(|_| Self(text))
            }
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
    /// `parse_error`, `batch` or `invalid_request`; with the request's id where it was valid.
    pub fn parse(body: &'a [u8]) -> Result<Self, Refusal> {
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Refusal::not_an_object(Json::parse(body)));
        }
        // at once, which is faster than string by string
        let members = str::from_utf8(body).ok().and_then(|text| {
            let mut from = serde_json::Deserializer::from_str(text);
            let members = from.deserialize_map(Request).ok()?;
            from.end().ok().map(|()| members)
        });
        members.ok_or_else(Refusal::not_json)?.check()
    }
}

fn invalid(message: &'static str) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// The members so far; each is `None` until it appears, whatever its value.
#[derive(Default)]
struct Members<'a> {
    /// Whether it is `"2.0"`.
    jsonrpc: Option<bool>,
    id: Option<&'a RawValue>,
    /// The string, if it is one.
    method: Option<Option<Cow<'a, str>>>,
    params: Option<Json<'a>>,
    duplicate: bool,
    two_ids: bool,
    unknown: bool,
}

impl<'a> Members<'a> {
    fn check(self) -> Result<Envelope<'a>, Refusal> {
        let id = self.id.filter(|_| !self.two_ids).and_then(Id::parse);
        self.envelope(id).map_err(|refusal| refusal.with_id(id))
    }

    fn envelope(self, id: Option<Id<'a>>) -> Result<Envelope<'a>, Refusal> {
        if self.duplicate {
            return Err(invalid("a member appears twice"));
        }
        if self.unknown {
            return Err(invalid("only jsonrpc, id, method and params are members of a request"));
        }
        if self.jsonrpc != Some(true) {
            return Err(invalid("jsonrpc must be the string \"2.0\""));
        }
        let id = id.ok_or_else(|| invalid("id must be a number or a string"))?;
        let method = self.method.flatten().ok_or_else(|| invalid("method must be a string"))?;
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
        let value = || Value { levels: MAX_DEPTH.saturating_sub(1) };
        let mut members = Members::default();
        while let Some(name) = map.next_key_seed(Name)? {
            let twice = match &*name {
                // raw, because the response echoes the id byte for byte: 1.0 is not 1
                "id" => {
                    // with two ids, neither is certain to be the one to answer
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
                "params" => members.params.replace(map.next_value_seed(value())?).is_some(),
                _ => {
                    map.next_value_seed(value())?;
                    members.unknown = true;
                    false
                }
            };
            members.duplicate |= twice;
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_bytes() {
        let long = format!("\"{}\"", "x".repeat(5_000));
        for id in [
            "1",
            "-1",
            "1.0",
            "1e2",
            "1e400",
            "18446744073709551616",
            r#""a\u0062""#,
            "\"\"",
            &long,
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id": {id} ,"method":"m"}}"#);
            let envelope = Envelope::parse(body.as_bytes()).expect(id);
            assert_eq!(envelope.id.as_str(), id);
        }
    }

    #[test]
    fn no_parameters_may_be_written_as_null() {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#;
        assert_eq!(Envelope::parse(body).expect("starknet.go sends this").params, None);
    }

    #[test]
    fn anything_but_one_request_is_refused() {
        use Reason::{Batch, InvalidRequest, ParseError};
        for (body, reason, id) in [
            (r#"{"#, ParseError, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#, ParseError, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud800"]}"#, ParseError, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[1e400]}"#, ParseError, None),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, Batch, None),
            ("[]", Batch, None),
            ("null", InvalidRequest, None),
            ("7", InvalidRequest, None),
            ("-7.5", InvalidRequest, None),
            (r#""text""#, InvalidRequest, None),
            ("{}", InvalidRequest, None),
            (r#"{"id":1,"method":"m"}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, InvalidRequest, None),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, InvalidRequest, None),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, InvalidRequest, None),
            (r#"{"jsonrpc":"2.0","id":{"a":1},"method":"m"}"#, InvalidRequest, None),
            (r#"{"jsonrpc":"2.0","id":"\ud800","method":"m"}"#, InvalidRequest, None),
            (r#"{"jsonrpc":"2.0","id":1}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":0}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"p"}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","extra":0}"#, InvalidRequest, Some("1")),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","method":"n"}"#, InvalidRequest, Some("1")),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","m\u0065thod":"n"}"#,
                InvalidRequest,
                Some("1"),
            ),
            (r#"{"id":1,"jsonrpc":"2.0","method":"m","id":2}"#, InvalidRequest, None),
        ] {
            let refusal = Envelope::parse(body.as_bytes()).expect_err(body);
            assert_eq!((refusal.reason, refusal.id.as_deref()), (reason, id), "{body}");
        }
    }
}
