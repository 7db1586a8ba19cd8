//! The body of an event. All of it is in rows that never change, so that an event that is sent
//! again has the same body.

use super::EventKind;
use crate::felt::Felt;
use crate::ledger::{IntentId, IntentState};
use crate::timestamp;
use alloc::format;
use alloc::string::{String, ToString as _};
use serde::Serialize;

/// An event, with the facts that its body has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The hash of its entry in the journal, which no other entry of any journal has.
    pub hash: String,
    /// When the entry was written, in microseconds since 1970.
    pub at_us: i64,
    /// The write.
    pub write: IntentId,
    /// Its state.
    pub state: IntentState,
    /// Its state before.
    pub previous: Option<IntentState>,
    /// The number of the block that lists the transaction.
    pub block: Option<u64>,
    /// Why it reverted, was rejected, displaced or lost.
    pub detail: Option<String>,
    /// The operation.
    pub operation: String,
    /// The account that the operation is about.
    pub subject: Option<Felt>,
    /// The account that sends the transaction.
    pub signer: Felt,
    /// Its nonce.
    pub nonce: u64,
    /// The transaction's hash.
    pub transaction_hash: Felt,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    id: IntentId,
    operation: &'a str,
    state: &'static str,
    previous_state: Option<&'static str>,
    transaction_hash: String,
    signer: String,
    nonce: u64,
    subject: Option<String>,
    block: Option<u64>,
    detail: Option<&'a str>,
}

impl Event {
    /// The id by which a receiver knows an event that it has already.
    #[must_use]
    pub fn id(&self) -> String {
        let part = self.hash.get(..32).unwrap_or(&self.hash);
        format!("evt_{part}")
    }

    /// The body, in JSON. `None` for an entry that is no event.
    #[must_use]
    pub fn body(&self) -> Option<String> {
        let kind = EventKind::of(self.previous, self.state)?;
        let seconds = u64::try_from(self.at_us / 1_000_000).unwrap_or_default();
        let body = Body {
            kind: kind.name(),
            timestamp: timestamp::rfc3339(seconds),
            data: Data {
                id: self.write,
                operation: &self.operation,
                state: self.state.name(),
                previous_state: self.previous.map(IntentState::name),
                transaction_hash: self.transaction_hash.to_string(),
                signer: self.signer.to_string(),
                nonce: self.nonce,
                subject: self.subject.map(|subject| subject.to_string()),
                block: self.block,
                detail: self.detail.as_deref(),
            },
        };
        serde_json::to_string(&body).ok()
    }
}
