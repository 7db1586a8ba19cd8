//! A stored transaction, and one to be stored.

use super::budget::Budgets;
use super::state::IntentState;
use crate::felt::Felt;
use alloc::string::String;
use core::fmt;
use core::time::Duration;
use serde::Serialize;

/// The name, among those of operations, of a transaction without calls that only uses a nonce.
pub const FILL_NONCE: &str = "fill-nonce";

/// The id of an intent: the sequence number of its first journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct IntentId(pub i64);

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The accepted block that lists a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inclusion {
    /// Its number.
    pub number: u64,
    /// Distinguishes it from any other block with its number.
    pub fingerprint: [u8; 32],
}

/// A signed transaction to store.
#[derive(Debug, Clone, Copy)]
pub struct NewIntent<'a> {
    /// The operation's name.
    pub operation: &'a str,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// The account that the operation is about; cooldowns count per subject.
    pub subject: Option<Felt>,
    /// The identity that the subject is bound to with the intent; `None` binds nothing.
    pub identity: Option<Felt>,
    /// The request's body in canonical form.
    pub request: &'a str,
    /// The chain epoch; a chain that starts over has another.
    pub epoch: &'a str,
    /// The number of the chain's head at signing: no block up to it lists the transaction.
    pub born: u64,
    /// The sending account.
    pub signer: Felt,
    /// Its nonce.
    pub nonce: u64,
    /// The transaction's hash.
    pub transaction_hash: Felt,
    /// The signed transaction as it is sent, in JSON.
    pub transaction: &'a str,
    /// The client's idempotency key, claimed before.
    pub idempotency_key: Option<&'a str>,
    /// A displaced intent of the same request whose repeat was refused: this one takes its slot,
    /// with the same nonce.
    pub replaces: Option<IntentId>,
    /// The highest fee that it may cost the relay, in fri; 0 if the user pays.
    pub max_fee: u128,
    /// The budgets that it must not exceed.
    pub budgets: Budgets,
    /// The cooldown after an intent with its operation and subject; `None` for no cooldown.
    pub cooldown: Option<Duration>,
}

/// The intents that a request may be about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    /// The one that its key names, if the key belongs to the request.
    pub linked: Option<Intent>,
    /// The newest of an equal request, unless rejected or lost.
    pub newest: Option<Intent>,
}

/// A stored transaction and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Its id.
    pub id: IntentId,
    /// The chain epoch.
    pub epoch: String,
    /// The operation's name.
    pub operation: String,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// The account that the operation is about.
    pub subject: Option<Felt>,
    /// The identity that the subject is bound to with it; `None` in rows of earlier versions.
    pub identity: Option<Felt>,
    /// The request's body in canonical form.
    pub request: String,
    /// The number of the chain's head when it was signed; `None` in rows of earlier versions.
    pub born: Option<u64>,
    /// The sending account.
    pub signer: Felt,
    /// Its nonce.
    pub nonce: u64,
    /// The transaction's hash.
    pub transaction_hash: Felt,
    /// The signed transaction, in JSON.
    pub transaction: String,
    /// Its cost for the relay in gfri, rounded up: the highest possible one until a receipt states
    /// it.
    pub fee_gfri: i64,
    /// Its state.
    pub state: IntentState,
    /// The last block that was seen to list it.
    pub included: Option<Inclusion>,
    /// The detail of the last state change.
    pub detail: Option<String>,
    /// When it was stored, in microseconds since 1970 UTC.
    pub created_us: i64,
    /// When its state last changed.
    pub updated_us: i64,
}

/// An account's nonce in one chain epoch, which has at most one transaction with it.
pub(super) type Slot<'a> = (&'a str, Felt, u64);

impl Intent {
    /// Its slot: the chain epoch, the account and the nonce.
    #[must_use]
    pub fn slot(&self) -> (&str, Felt, u64) {
        (&self.epoch, self.signer, self.nonce)
    }

    /// Whether it was sent again ([`Change::SentAgain`](super::Change::SentAgain)), possibly by
    /// another process than the one that stored it.
    #[must_use]
    pub fn is_sent_again(&self) -> bool {
        self.state == IntentState::Sent && self.detail.is_some()
    }
}

impl NewIntent<'_> {
    pub(super) fn slot(&self) -> Slot<'_> {
        (self.epoch, self.signer, self.nonce)
    }
}

#[cfg(test)]
impl Intent {
    /// An intent whose values are all empty or zero, for tests that set a few.
    pub(crate) fn empty() -> Self {
        Self {
            id: IntentId(0),
            epoch: String::new(),
            operation: String::new(),
            digest: [0; 32],
            subject: None,
            identity: None,
            request: String::new(),
            born: None,
            signer: Felt::ZERO,
            nonce: 0,
            transaction_hash: Felt::ZERO,
            transaction: String::new(),
            fee_gfri: 0,
            state: IntentState::Intended,
            included: None,
            detail: None,
            created_us: 0,
            updated_us: 0,
        }
    }
}
