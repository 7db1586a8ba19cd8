//! Which answers may be given again, and for how long: a pure matter of the read and its result.
//!
//! Only what a later block can not change: classes, and blocks and receipts that were accepted.
//! Nothing by tag is kept as it is asked. Whether the chain still stands is not known here:
//! [`Keep`] names the block that it must stand on, and whoever keeps the answer sees to that.
//! Starknet API 0.10, `BLOCK_STATUS` and `TXN_FINALITY_STATUS`.

use super::json::Name;
use super::method::Method;
use super::params::{Argument, BlockId, Params};
use alloc::borrow::Cow;
use core::fmt;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// A read whose answer may be kept, as far as can be told before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepable {
    /// The same for the whole life of a chain.
    Constant,
    /// A class at a tag that follows the chain: what an accepted block has, that tag has for good.
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

/// For how long an answer may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For some seconds: it is about no block.
    Briefly,
    /// As long as the block of this number stands.
    WithBlock(u64),
    /// As long as it stands, and until more blocks are accepted on L1: the answer says that this
    /// one is not yet.
    UntilL1(u64),
}

impl Keepable {
    /// Whether the answer to this read may be kept at all.
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

    /// Whether this result may be kept, and for how long. An error of the node's never may: what
    /// does not exist may come to be.
    pub fn judge(self, result: &str) -> Option<Keep> {
        match self {
            Self::Constant => result.starts_with('"').then_some(Keep::Briefly),
            Self::ClassAt(number) => result.starts_with('{').then_some(Keep::WithBlock(number)),
            // a tag says nothing about which block it was
            Self::ClassAtHead => None,
            Self::BlockAt(number) => match Found::read(result, "status")?.keep()? {
                keep @ Keep::WithBlock(found) if found == number => Some(keep),
                _ => None,
            },
            Self::BlockOfHash => Found::read(result, "status")?.keep(),
            Self::Receipt => Found::read(result, "finality_status")?.keep(),
        }
    }
}

/// What a block or a receipt says of itself.
struct Found<'a> {
    status: Cow<'a, str>,
    number: u64,
}

impl<'a> Found<'a> {
    /// Reads it from the top level of an object, each member there once. The rest is skipped: a
    /// block may hold thousands of transactions.
    fn read(result: &'a str, status: &'static str) -> Option<Self> {
        if !result.starts_with('{') {
            // to be told what else it is would cost more than all of this
            return None;
        }
        let mut from = serde_json::Deserializer::from_str(result);
        let found = from.deserialize_map(TopLevel { status }).ok()?;
        from.end().ok().map(|()| found)
    }

    fn keep(&self) -> Option<Keep> {
        match &*self.status {
            "ACCEPTED_ON_L1" => Some(Keep::WithBlock(self.number)),
            "ACCEPTED_ON_L2" => Some(Keep::UntilL1(self.number)),
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
                return Err(A::Error::custom("a member is given twice"));
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

    const L1: Option<Keep> = Some(Keep::WithBlock(7));
    const L2: Option<Keep> = Some(Keep::UntilL1(7));

    #[test]
    fn a_block_says_once_and_at_its_top_level_that_it_was_accepted_and_where() {
        for (block, keep) in [
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
            assert_eq!(Keepable::BlockOfHash.judge(block), keep, "{block}");
        }
    }

    #[test]
    fn a_block_by_number_is_kept_when_it_is_that_one_and_final() {
        let block = |status: &str| format!(r#"{{"status":"{status}","block_number":7}}"#);
        for (keepable, status, keep) in [
            (Keepable::BlockAt(7), "ACCEPTED_ON_L1", L1),
            (Keepable::BlockAt(7), "ACCEPTED_ON_L2", None),
            (Keepable::BlockAt(8), "ACCEPTED_ON_L1", None),
        ] {
            assert_eq!(keepable.judge(&block(status)), keep, "{keepable:?} {status}");
        }
    }

    #[test]
    fn a_receipt_says_by_its_own_member_that_it_is_in_a_block() {
        for (receipt, keep) in [
            (r#"{"finality_status":"ACCEPTED_ON_L1","block_number":7}"#, L1),
            (r#"{"finality_status":"ACCEPTED_ON_L2","block_number":7}"#, L2),
            (r#"{"finality_status":"ACCEPTED_ON_L2"}"#, None),
            (r#"{"finality_status":"PRE_CONFIRMED","block_number":7}"#, None),
            (r#"{"status":"ACCEPTED_ON_L2","block_number":7}"#, None),
        ] {
            assert_eq!(Keepable::Receipt.judge(receipt), keep, "{receipt}");
        }
    }

    #[test]
    fn a_class_is_an_object_and_stands_on_the_block_that_it_was_asked_at() {
        for (keepable, result, keep) in [
            (Keepable::ClassAt(7), r#"{"abi":[]}"#, L1),
            (Keepable::ClassAt(7), "null", None),
            (Keepable::ClassAtHead, r#"{"abi":[]}"#, None),
            (Keepable::Constant, r#""0x1""#, Some(Keep::Briefly)),
            (Keepable::Constant, "null", None),
        ] {
            assert_eq!(keepable.judge(result), keep, "{keepable:?} {result}");
        }
    }
}
