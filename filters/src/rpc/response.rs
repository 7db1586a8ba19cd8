//! The node's answer: exactly one JSON-RPC 2.0 response to our request, or nothing.
//!
//! <https://www.jsonrpc.org/specification>, section 5. The whole text is lexed, so a truncated or
//! malformed answer never passes; the bytes of the result are forwarded unchanged. Members other
//! than the four are dropped.

use super::json::{Json, MAX_DEPTH, Name, Value};
use super::scan;
use core::fmt;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The payload of a verified answer: a slice of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The JSON text of `result`, in UTF-8.
    Result(&'a [u8]),
    /// The JSON text of `error`, in UTF-8: an object with an integer code and a message.
    Error(&'a [u8]),
}

impl<'a> Outcome<'a> {
    /// Verifies `answer` as the response to the request of this id.
    ///
    /// `None` for anything but one JSON text, an object of version 2.0 with this id and either a
    /// result or an error.
    pub fn verify(answer: &'a [u8], id: u64) -> Option<Self> {
        if let Some(result) = usual_result(answer, id) {
            return Some(Self::Result(result));
        }
        let answer = str::from_utf8(answer).ok()?;
        let mut from = serde_json::Deserializer::from_str(answer);
        let response = from.deserialize_map(Response { id }).ok()?;
        from.end().ok()?;
        if (response.jsonrpc, response.id) != (Some(true), Some(true)) {
            return None;
        }
        match (response.result, response.error) {
            (Some(result), None) => Some(Self::Result(result.get().as_bytes())),
            (None, Some(error)) => {
                is_error_object(error.get()).then(|| Self::Error(error.get().as_bytes()))
            }
            _ => None,
        }
    }
}

/// The result, if the members are in the order that nodes write: only the result is lexed.
fn usual_result(answer: &[u8], id: u64) -> Option<&[u8]> {
    let mut id_text = itoa::Buffer::new();
    let id = id_text.format(id).as_bytes();
    let members = answer.strip_prefix(br#"{"jsonrpc":"2.0","#)?.strip_suffix(b"}")?;
    let result = match members.strip_prefix(br#""id":"#) {
        Some(members) => members.strip_prefix(id)?.strip_prefix(br#","result":"#)?,
        None => {
            let members = members.strip_prefix(br#""result":"#)?;
            members.strip_suffix(id)?.strip_suffix(br#","id":"#)?
        }
    };
    scan::value(result)
}

fn is_error_object(text: &str) -> bool {
    #[derive(Default)]
    struct Found {
        code: bool,
        message: bool,
    }
    struct ErrorObject;
    impl<'de> Visitor<'de> for ErrorObject {
        type Value = Found;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON-RPC error object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
            let mut found = Found::default();
            while let Some(name) = map.next_key_seed(Name)? {
                match &*name {
                    "code" => found.code = map.next_value::<i64>().is_ok(),
                    "message" => {
                        let value = map.next_value_seed(Value { levels: MAX_DEPTH })?;
                        found.message = value.as_str().is_some();
                    }
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(found)
        }
    }
    serde_json::Deserializer::from_str(text)
        .deserialize_map(ErrorObject)
        .is_ok_and(|found| found.code && found.message)
}

#[derive(Default)]
struct Members<'a> {
    /// Whether it is `"2.0"`.
    jsonrpc: Option<bool>,
    /// Whether it is the id of our request.
    id: Option<bool>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// The response to the request of this id.
struct Response {
    id: u64,
}

impl<'de> Visitor<'de> for Response {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC response")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let value = || Value { levels: MAX_DEPTH };
        let mut members = Members::default();
        while let Some(name) = map.next_key_seed(Name)? {
            let twice = match &*name {
                "jsonrpc" => {
                    let is_ours = map.next_value_seed(value())?.as_str() == Some("2.0");
                    members.jsonrpc.replace(is_ours).is_some()
                }
                "id" => {
                    let is_ours = map.next_value_seed(value())? == Json::Integer(self.id);
                    members.id.replace(is_ours).is_some()
                }
                "result" => members.result.replace(map.next_value()?).is_some(),
                "error" => members.error.replace(map.next_value()?).is_some(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if twice {
                return Err(A::Error::custom("a member appears twice"));
            }
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_the_bytes_of_its_payload() {
        for (answer, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":"0x1"}"#, Outcome::Result(br#""0x1""#)),
            (r#"{"result": [1.0, {"a":[]}] ,"id":7,"jsonrpc":"2.0"}"#, {
                Outcome::Result(br#"[1.0, {"a":[]}]"#)
            }),
            (r#" {"jsonrpc":"2.0","id":7,"result":null} "#, Outcome::Result(b"null")),
            (r#"{"jsonrpc":"2.0","result":{"a":1,"id":7},"id":7}"#, {
                Outcome::Result(br#"{"a":1,"id":7}"#)
            }),
            (r#"{"jsonrpc":"2.0","result": "0x1" ,"id":7}"#, Outcome::Result(br#""0x1""#)),
            (r#"{"jsonrpc":"2.0","id":7,"result":1,"x":{"y":2}}"#, Outcome::Result(b"1")),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"m","data":[1]}}"#,
                Outcome::Error(br#"{"code":-32602,"message":"m","data":[1]}"#),
            ),
        ] {
            assert_eq!(Outcome::verify(answer.as_bytes(), 7), Some(expected), "{answer}");
        }
    }

    #[test]
    fn other_responses_than_ours_are_refused() {
        for answer in [
            &b""[..],
            b"{}",
            b"[]",
            b"null",
            b"<html>",
            br#"[{"jsonrpc":"2.0","id":7,"result":1}]"#,
            br#"{"jsonrpc":"2.0","id":7,"result":1} {}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":1"#,
            br#"{"jsonrpc":"2.0","id":7,"result":"0x"#,
            br#"{"jsonrpc":"2.0","id":8,"result":1}"#,
            br#"{"jsonrpc":"2.0","id":"7","result":1}"#,
            br#"{"jsonrpc":"2.0","id":7.0,"result":1}"#,
            br#"{"jsonrpc":"2.0","id":null,"result":1}"#,
            br#"{"jsonrpc":"2.0","result":1}"#,
            br#"{"id":7,"result":1}"#,
            br#"{"jsonrpc":"1.0","id":7,"result":1}"#,
            br#"{"jsonrpc":"2.0","id":7}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":"m"}}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":1,"error":null}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":1,"result":2}"#,
            br#"{"jsonrpc":"2.0","id":7,"id":7,"result":1}"#,
            br#"{"jsonrpc":"2.0","result":1,"result":2,"id":7}"#,
            br#"{"jsonrpc":"2.0","result":1,"id":8,"id":7}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":}"#,
            br#"{"jsonrpc":"2.0","id":7,"result":1,}"#,
            br#"{"jsonrpc":"2.0","result":1,"id":77}"#,
            br#"{"jsonrpc":"2.0","result":{"x":1,"id":7}"#,
            br#"{"jsonrpc":"2.0","id":7,"error":null}"#,
            br#"{"jsonrpc":"2.0","id":7,"error":"text"}"#,
            br#"{"jsonrpc":"2.0","id":7,"error":{"message":"m"}}"#,
            br#"{"jsonrpc":"2.0","id":7,"error":{"code":"1","message":"m"}}"#,
            br#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}",
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}",
        ] {
            assert_eq!(Outcome::verify(answer, 7), None, "{}", String::from_utf8_lossy(answer));
        }
    }
}
