//! Which answers may be cached, and for how long, by the read and its result alone.
//!
//! Only what a later block cannot change: classes, and accepted blocks and receipts. A block by tag
//! is never cached. This file does not know the state of the chain: a [`CachePolicy`] names the
//! block that the answer depends on, and the cache watches it. Starknet API 0.10, `BLOCK_STATUS`
//! and `TXN_FINALITY_STATUS`.

use super::json::Name;
use super::method::Method;
use super::params::{Argument, BlockId, Params};
use alloc::borrow::Cow;
use core::fmt;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// A read whose answer may be cached, as far as its request shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheClass {
    /// Constant for the whole epoch of a chain.
    Constant,
    /// A class at a tag that follows the chain: a class of an accepted block stays at the tag.
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
    /// The same, and until L1 accepts more blocks: the answer says that this block is not accepted
    /// on L1.
    UntilL1(u64),
}

impl CacheClass {
    /// The class of a read; `None` if its answer is never cached.
    pub fn of(method: Method, params: &Params) -> Option<Self> {
        let block = params.arguments().iter().find_map(|(_, argument)| match argument {
            Argument::Block(block) => Some(*block),
            _ => None,
        });
        match (method, block) {
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
            Self::ClassAt(number) => {
                result.starts_with('{').then_some(CachePolicy::WithBlock(number))
            }
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
        if !result.starts_with('{') {
            // a parser error would cost more than all of this
            return None;
        }
        let mut from = serde_json::Deserializer::from_str(result);
        let found = from.deserialize_map(TopLevel { status }).ok()?;
        from.end().ok().map(|()| found)
    }

    fn policy(&self) -> Option<CachePolicy> {
        match &*self.status {
            "ACCEPTED_ON_L1" => Some(CachePolicy::WithBlock(self.number)),
            "ACCEPTED_ON_L2" => Some(CachePolicy::UntilL1(self.number)),
            _ => None,
        }
    }
}

struct TopLevel {
    status: &'static str,
}

impl<'de> Visitor<'de> for TopLevel {
    type Value = Found<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block or a receipt")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found<'de>, A::Error> {
        let (mut status, mut number) = (None, None);
        while let Some(name) = map.next_key_seed(Name)? {
            let twice = match &*name {
                name if name == self.status => status.replace(map.next_value::<Text>()?).is_some(),
                "block_number" => number.replace(map.next_value::<u64>()?).is_some(),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if twice {
                return Err(A::Error::custom("a member appears twice"));
            }
        }
        match (status, number) {
            (Some(Text(status)), Some(number)) => Ok(Found { status, number }),
            _ => Err(A::Error::custom("a member is missing")),
        }
    }
}

/// A string, borrowed where it holds no escape.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Name).map(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L1: Option<CachePolicy> = Some(CachePolicy::WithBlock(7));
    const L2: Option<CachePolicy> = Some(CachePolicy::UntilL1(7));

    #[test]
    fn a_block_is_cached_by_its_own_status() {
        for (block, policy) in [
            (r#"{"status":"ACCEPTED_ON_L1","block_number":7,"transactions":[]}"#, L1),
            (r#"{"status":"ACCEPTED_ON_L2","block_number":7}"#, L2),
            ("{\"block_number\":7,\n \"st\\u0061tus\":\"ACCEPTED\\u005fON_L2\"}", L2),
            (r#"{"status":"PRE_CONFIRMED","block_number":7}"#, None),
            (r#"{"status":"REJECTED","block_number":7}"#, None),
            (r#"{"status":"accepted_on_l1","block_number":7}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1 ","block_number":7}"#, None),
            (r#"{"status":null,"block_number":7}"#, None),
            (r#"{"block_number":7}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1"}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","block_number":null}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","block_number":"7"}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","block_number":7.0}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","block_number":-7}"#, None),
            (r#"{"block":{"status":"ACCEPTED_ON_L1"},"block_number":7}"#, None),
            (r#"{"status":"ACCEPTED_ON_L2","block_number":7,"status":"ACCEPTED_ON_L1"}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","block_number":7,"block_number":7}"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","st\u0061tus":"X","block_number":7}"#, None),
            (r#"{"finality_status":"ACCEPTED_ON_L1","block_number":7}"#, None),
            (r#"[{"status":"ACCEPTED_ON_L1","block_number":7}]"#, None),
            (r#"{"status":"ACCEPTED_ON_L1","block_number":7"#, None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(CacheClass::BlockOfHash.policy(block), policy, "{block}");
        }
    }

    #[test]
    fn a_block_by_number_must_be_final() {
        let block = |status: &str| format!(r#"{{"status":"{status}","block_number":7}}"#);
        for (class, status, policy) in [
            (CacheClass::BlockAt(7), "ACCEPTED_ON_L1", L1),
            (CacheClass::BlockAt(7), "ACCEPTED_ON_L2", None),
            (CacheClass::BlockAt(8), "ACCEPTED_ON_L1", None),
        ] {
            assert_eq!(class.policy(&block(status)), policy, "{class:?} {status}");
        }
    }

    #[test]
    fn a_receipt_is_cached_by_its_finality() {
        for (receipt, policy) in [
            (r#"{"finality_status":"ACCEPTED_ON_L1","block_number":7}"#, L1),
            (r#"{"finality_status":"ACCEPTED_ON_L2","block_number":7}"#, L2),
            (r#"{"finality_status":"ACCEPTED_ON_L2"}"#, None),
            (r#"{"finality_status":"PRE_CONFIRMED","block_number":7}"#, None),
            (r#"{"status":"ACCEPTED_ON_L2","block_number":7}"#, None),
        ] {
            assert_eq!(CacheClass::Receipt.policy(receipt), policy, "{receipt}");
        }
    }

    #[test]
    fn a_class_depends_on_its_block() {
        for (class, result, policy) in [
            (CacheClass::ClassAt(7), r#"{"abi":[]}"#, L1),
            (CacheClass::ClassAt(7), "null", None),
            (CacheClass::ClassAtHead, r#"{"abi":[]}"#, None),
            (CacheClass::Constant, r#""0x1""#, Some(CachePolicy::Briefly)),
            (CacheClass::Constant, "null", None),
        ] {
            assert_eq!(class.policy(result), policy, "{class:?} {result}");
        }
    }
}
