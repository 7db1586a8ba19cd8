//! One entry of the journal, and the hash that chains it to the one before.
//!
//! The hash is SHA-256 over the columns `seq, at_us, kind, intent_id, operation, detail,
//! prev_hash` in this order, each as a netstring: its length in bytes in decimal, a colon, its
//! UTF-8 text, a comma; numbers are written in decimal, and a missing intent is `-,`. No two rows
//! have the same encoding. The first entry follows [`GENESIS`].

use super::db::Row;
use super::state::Kind;
use super::{IntentId, StoreError, hex};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// The hash before the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number, from 1 and without gaps.
    pub seq: i64,
    /// When it was written, in microseconds since 1970 UTC.
    pub at_us: i64,
    /// What it tells.
    pub kind: Kind,
    /// Of which intent; none for a refusal.
    pub intent: Option<IntentId>,
    /// Of which operation.
    pub operation: String,
    /// What else is to be known: a JSON object with its keys in order and no space.
    pub detail: String,
    /// The hash of the entry before.
    pub prev_hash: String,
    /// The hash of this one.
    pub hash: String,
}

impl Entry {
    /// An entry after another, with its hash.
    pub(super) fn after(prev_hash: String, seq: i64, at_us: i64, what: What<'_>) -> Self {
        let mut entry = Self {
            seq,
            at_us,
            kind: what.kind,
            intent: what.intent,
            operation: what.operation.to_owned(),
            detail: what.detail,
            prev_hash,
            hash: String::new(),
        };
        entry.hash = entry.computed_hash();
        entry
    }

    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let kind: String = row.get("kind")?;
        Ok(Self {
            seq: row.get("seq")?,
            at_us: row.get("at_us")?,
            kind: Kind::parse(&kind).ok_or(StoreError::Corrupt("kind"))?,
            intent: row.get::<Option<i64>>("intent_id")?.map(IntentId),
            operation: row.get("operation")?,
            detail: row.get("detail")?,
            prev_hash: row.get("prev_hash")?,
            hash: row.get("hash")?,
        })
    }

    /// What its hash must be.
    pub fn computed_hash(&self) -> String {
        let intent = self.intent.map(|id| id.to_string());
        let mut sha = Sha256::new();
        for field in [
            Some(self.seq.to_string().as_str()),
            Some(self.at_us.to_string().as_str()),
            Some(self.kind.name()),
            intent.as_deref(),
            Some(self.operation.as_str()),
            Some(self.detail.as_str()),
            Some(self.prev_hash.as_str()),
        ] {
            match field {
                Some(text) => sha.update(format!("{}:{text},", text.len())),
                None => sha.update("-,"),
            }
        }
        hex::write(&sha.finalize())
    }

    /// One line of an export, without its end; `detail` stands in it byte for byte as it is hashed.
    pub fn to_json(&self) -> String {
        let intent = self.intent.map_or_else(|| "null".to_owned(), |id| id.to_string());
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let detail = RawValue::from_string(self.detail.clone());
        format!(
            "{{\"seq\":{},\"at_us\":{},\"kind\":\"{}\",\"intent\":{intent},\"operation\":{},\
             \"detail\":{},\"prev_hash\":{},\"hash\":{}}}",
            self.seq,
            self.at_us,
            self.kind.name(),
            quoted(&self.operation),
            // a row that somebody changed may hold anything
            detail.map_or_else(|_| quoted(&self.detail), |detail| detail.get().to_owned()),
            quoted(&self.prev_hash),
            quoted(&self.hash),
        )
    }
}

/// What an entry is to tell.
#[derive(Debug)]
pub(super) struct What<'a> {
    pub(super) kind: Kind,
    pub(super) intent: Option<IntentId>,
    pub(super) operation: &'a str,
    pub(super) detail: String,
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    fn pair() -> [Entry; 2] {
        let first = What {
            kind: Kind::Came(State::Intended),
            intent: Some(IntentId(1)),
            operation: "faucet-drip",
            detail: "{\"nonce\":7}".to_owned(),
        };
        let first = Entry::after(GENESIS.to_owned(), 1, 1_700_000_000_000_000, first);
        let second = What {
            kind: Kind::Refused,
            intent: None,
            operation: "rpc",
            detail: "{\"reason\":\"trän\"}".to_owned(),
        };
        let second = Entry::after(first.hash.clone(), 2, 1_700_000_000_000_001, second);
        [first, second]
    }

    /// Computed with Python's hashlib from the description above.
    #[test]
    fn hashes_are_those_of_the_description() {
        let [first, second] = pair();
        let expected = "7e1230c65fe3f96888f03f755746226119e28890ddcd0b977cc973a5ed3d1c8b";
        assert_eq!(first.hash, expected);
        let expected = "fc744e82b44a09eb1ad9ebb3c356f334fc4e1a5531ef6c08cb8d55f2df2b93c4";
        assert_eq!(second.hash, expected);
        assert_eq!(second.prev_hash, first.hash);
    }

    #[test]
    fn a_line_is_json_whatever_the_row_holds() {
        let [mut first, second] = pair();
        let line: serde_json::Value = serde_json::from_str(&first.to_json()).unwrap();
        assert_eq!(line["detail"]["nonce"], 7);
        assert_eq!(line["intent"], 1);
        let line: serde_json::Value = serde_json::from_str(&second.to_json()).unwrap();
        assert_eq!(line["intent"], serde_json::Value::Null);
        assert_eq!(line["kind"], "refused");
        first.detail = "no\nJSON\"".to_owned();
        first.operation = "a\"b".to_owned();
        let line: serde_json::Value = serde_json::from_str(&first.to_json()).unwrap();
        assert_eq!(line["detail"], "no\nJSON\"");
        assert_eq!(line["operation"], "a\"b");
        assert!(!first.to_json().contains('\n'));
    }
}
