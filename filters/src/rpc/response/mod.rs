//! The node's answer: exactly one JSON-RPC 2.0 response to our request, or nothing; and how long
//! its result may be cached.
//!
//! <https://www.jsonrpc.org/specification>, section 5. The whole text is lexed, so a truncated or
//! malformed answer never passes; the bytes of the result are forwarded unchanged. Members other
//! than the four are dropped.
//!
//! Only what a later block cannot change may be cached: classes, and accepted blocks and receipts
//! (Starknet API 0.10, `BLOCK_STATUS` and `TXN_FINALITY_STATUS`). A block by tag is never cached.
//! This file does not know the state of the chain: a [`CachePolicy`] names the block that the
//! answer depends on, and the cache watches it.

use super::json::scan::{scanned, select, string_in};
use super::json::{Json, MAX_DEPTH, Name, Value};
use super::reads::{BlockId, Method, Params};
use alloc::borrow::Cow;
use core::fmt;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Levels of a payload: an answer has as many as a request. Parsers of wallets stop at 128 or more.
const PAYLOAD_LEVELS: u8 = MAX_DEPTH - 1;

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
    /// `None` for anything but one JSON text of at most [`MAX_DEPTH`] levels, an object of version
    /// 2.0 with this id and either a result or an error.
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
            (Some(result), None) if is_shallow(result) => {
                Some(Self::Result(result.get().as_bytes()))
            }
            (None, Some(error)) if is_shallow(error) && is_error_object(error.get()) => {
                Some(Self::Error(error.get().as_bytes()))
            }
            _ => None,
        }
    }
}

/// The result, if the members are in the order in which nodes write them: only it is lexed.
fn usual_result(answer: &[u8], id: u64) -> Option<&[u8]> {
    let mut id_text = itoa::Buffer::new();
    let id = id_text.format(id).as_bytes();
    let members = answer
        .strip_prefix(br#"{"jsonrpc":"2.0","#)?
        .strip_suffix(b"}")?;
    let result = match members.strip_prefix(br#""id":"#) {
        Some(members) => members.strip_prefix(id)?.strip_prefix(br#","result":"#)?,
        None => {
            let members = members.strip_prefix(br#""result":"#)?;
            members.strip_suffix(id)?.strip_suffix(br#","id":"#)?
        }
    };
    scanned(result, PAYLOAD_LEVELS)
}

fn is_shallow(payload: &RawValue) -> bool {
    scanned(payload.get().as_bytes(), PAYLOAD_LEVELS).is_some()
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

/// A read whose answer may be cached, judged by its request alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheClass {
    /// Constant for the whole epoch of a chain.
    Constant,
    /// A class at a tag that follows the chain; a class of an accepted block stays available at it.
    ClassAtHead,
    /// A class at the block of this number.
    ClassAt(u64),
    /// The block of this number.
    BlockAt(u64),
    /// A block by its hash.
    BlockOfHash,
    /// A receipt by its transaction's hash.
    Receipt,
}

/// How long an answer may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// For some seconds: it depends on no block.
    Briefly,
    /// While the block of this number is part of the chain.
    WithBlock(u64),
    /// While the block of this number is part of the chain, and until L1 accepts more blocks: the
    /// answer says that this block is not accepted on L1.
    UntilL1(u64),
}

impl CacheClass {
    /// The class of a read; `None` if its answer is never cached.
    pub fn of(method: Method, params: &Params) -> Option<Self> {
        match (method, params.block()) {
            (Method::ChainId | Method::SpecVersion, None) => Some(Self::Constant),
            (Method::GetClass, Some(BlockId::Latest | BlockId::PreConfirmed)) => {
                Some(Self::ClassAtHead)
            }
            (Method::GetClass, Some(BlockId::Number(number))) => Some(Self::ClassAt(number)),
            (Method::GetBlockWithTxHashes, Some(BlockId::Number(number))) => {
                Some(Self::BlockAt(number))
            }
            (Method::GetBlockWithTxHashes, Some(BlockId::Hash(_))) => Some(Self::BlockOfHash),
            (Method::GetTransactionReceipt, None) => Some(Self::Receipt),
            _ => None,
        }
    }

    /// How long this result may be cached, if at all. Errors of the node are never cached: what
    /// does not exist may be created.
    pub fn policy(self, result: &str) -> Option<CachePolicy> {
        match self {
            Self::Constant => result.starts_with('"').then_some(CachePolicy::Briefly),
            Self::ClassAt(number) => result
                .starts_with('{')
                .then_some(CachePolicy::WithBlock(number)),
            // a tag does not name the block of the answer
            Self::ClassAtHead => None,
            Self::BlockAt(number) => match Found::read(result, "status")?.policy()? {
                policy @ CachePolicy::WithBlock(found) if found == number => Some(policy),
                _ => None,
            },
            Self::BlockOfHash => Found::read(result, "status")?.policy(),
            Self::Receipt => Found::read(result, "finality_status")?.policy(),
        }
    }
}

/// The status and number of a block or a receipt.
struct Found<'a> {
    status: Cow<'a, str>,
    number: u64,
}

impl<'a> Found<'a> {
    /// Reads both members from the top level of an object; a duplicate is an error. The rest is
    /// skipped: a block may hold thousands of transactions.
    fn read(result: &'a str, status: &'static str) -> Option<Self> {
        let [status, number] = select(result.as_bytes(), [status, "block_number"])?;
        Some(Self {
            status: string_in(status?)?,
            number: serde_json::from_slice(number?).ok()?,
        })
    }

    fn policy(&self) -> Option<CachePolicy> {
        match &*self.status {
            "ACCEPTED_ON_L1" => Some(CachePolicy::WithBlock(self.number)),
            "ACCEPTED_ON_L2" => Some(CachePolicy::UntilL1(self.number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
