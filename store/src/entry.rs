//! One entry of the journal, and the hash that chains it to the one before.
//!
//! The hash is SHA-256 over the columns `seq, at_us, kind, intent_id, operation, detail,
//! prev_hash` in this order, each as a netstring: its length in bytes in decimal, a colon, its
//! UTF-8 text, a comma; numbers are written in decimal, and a missing intent is `-,`. No two rows
//! have the same encoding. The first entry follows [`GENESIS`].

use super::row::{FromRow, Row};
use super::state::EntryKind;
use super::{IntentId, StoreError};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

/// The hash before the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// An entry of the journal. As JSON its members are in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The sequence number, from 1 without gaps.
    pub seq: i64,
    /// When it was written, in microseconds since 1970 UTC.
    pub at_us: i64,
    /// The recorded event.
    #[serde(serialize_with = "kind_name")]
    pub kind: EntryKind,
    /// The intent, unless the entry records a refusal.
    pub intent: Option<IntentId>,
    /// The operation.
    pub operation: String,
    /// Details: a JSON object with sorted keys and no whitespace.
    #[serde(serialize_with = "embedded")]
    pub detail: String,
    /// The hash of the previous entry.
    pub prev_hash: String,
    /// The hash of this entry.
    pub hash: String,
}

impl Entry {
    /// The entry that follows the one with `prev_hash`.
    pub(super) fn after(prev_hash: String, seq: i64, at_us: i64, event: Event<'_>) -> Self {
        let Event {
            kind,
            intent,
            operation,
            detail,
        } = event;
        debug_assert!(seq > 0, "entries are counted from 1");
        debug_assert!(
            detail.starts_with('{') && detail.ends_with('}'),
            "details are an object"
        );
        let (operation, hash) = (operation.to_owned(), String::new());
        let entry = Self {
            seq,
            at_us,
            kind,
            intent,
            operation,
            detail,
            prev_hash,
            hash,
        };
        Self {
            hash: entry.computed_hash(),
            ..entry
        }
    }

    /// Computes the hash of the entry's content.
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
        hex::encode(sha.finalize())
    }

    /// One line of an export, without its line end; `detail` is embedded byte for byte, as hashed.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text serialize to JSON")
    }
}

impl FromRow for Entry {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(
            from_row!(row; get: seq at_us operation detail prev_hash hash; {
                kind: row.parsed("kind", EntryKind::parse)?,
                intent: row.get::<Option<i64>>("intent_id")?.map(IntentId),
            }),
        )
    }
}

fn kind_name<S: Serializer>(kind: &EntryKind, to: S) -> Result<S::Ok, S::Error> {
    kind.name().serialize(to)
}

/// Embeds JSON; a row that was tampered with may hold anything, which becomes a string.
fn embedded<S: Serializer>(detail: &str, to: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<&RawValue>(detail) {
        Ok(json) => json.serialize(to),
        Err(_) => detail.serialize(to),
    }
}

/// The event that an entry records.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: EntryKind,
    pub(super) intent: Option<IntentId>,
    pub(super) operation: &'a str,
    pub(super) detail: String,
}
