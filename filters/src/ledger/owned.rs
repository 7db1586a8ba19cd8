//! Commands that outlive their callers: they wait for the end of the journal with others.

use super::budget::Budgets;
use super::change::Change;
use super::intent::{Inclusion, IntentId, NewIntent};
use crate::felt::Felt;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

/// A [`NewIntent`] that owns its texts.
#[derive(Debug, Clone)]
pub struct OwnedIntent {
    operation: String,
    digest: [u8; 32],
    subject: Option<Felt>,
    identity: Option<Felt>,
    request: String,
    epoch: String,
    born: u64,
    signer: Felt,
    nonce: u64,
    transaction_hash: Felt,
    transaction: String,
    idempotency_key: Option<String>,
    replaces: Option<IntentId>,
    max_fee: u128,
    budgets: Budgets,
    cooldown: Option<Duration>,
}

impl From<&NewIntent<'_>> for OwnedIntent {
    fn from(new: &NewIntent<'_>) -> Self {
        Self {
            operation: new.operation.to_owned(),
            digest: new.digest,
            subject: new.subject,
            identity: new.identity,
            request: new.request.to_owned(),
            epoch: new.epoch.to_owned(),
            born: new.born,
            signer: new.signer,
            nonce: new.nonce,
            transaction_hash: new.transaction_hash,
            transaction: new.transaction.to_owned(),
            idempotency_key: new.idempotency_key.map(ToOwned::to_owned),
            replaces: new.replaces,
            max_fee: new.max_fee,
            budgets: new.budgets,
            cooldown: new.cooldown,
        }
    }
}

impl OwnedIntent {
    /// The intent.
    #[must_use]
    pub fn borrowed(&self) -> NewIntent<'_> {
        NewIntent {
            operation: &self.operation,
            digest: self.digest,
            subject: self.subject,
            identity: self.identity,
            request: &self.request,
            epoch: &self.epoch,
            born: self.born,
            signer: self.signer,
            nonce: self.nonce,
            transaction_hash: self.transaction_hash,
            transaction: &self.transaction,
            idempotency_key: self.idempotency_key.as_deref(),
            replaces: self.replaces,
            max_fee: self.max_fee,
            budgets: self.budgets,
            cooldown: self.cooldown,
        }
    }
}

/// A [`Change`] that owns its texts.
#[derive(Debug, Clone)]
pub enum OwnedChange {
    /// [`Change::SentAgain`].
    SentAgain,
    /// [`Change::Accepted`].
    Accepted,
    /// [`Change::Included`].
    Included {
        /// The result of its execution; the reason if it reverted.
        outcome: Result<(), Option<String>>,
        /// Its fee in fri, if that is known.
        fee: Option<u128>,
        /// The accepted block that lists it.
        block: Option<Inclusion>,
    },
    /// [`Change::Rejected`], and why.
    Rejected(String),
    /// [`Change::Doubted`], and why.
    Doubted(String),
    /// [`Change::Displaced`]: the block that it is gone from, and why.
    Displaced(Option<Inclusion>, String),
    /// [`Change::Lost`], and which transaction has its slot.
    Lost(String),
}

impl From<&Change<'_>> for OwnedChange {
    fn from(change: &Change<'_>) -> Self {
        match change {
            Change::SentAgain => Self::SentAgain,
            Change::Accepted => Self::Accepted,
            Change::Included {
                outcome,
                fee,
                block,
            } => Self::Included {
                outcome: outcome.map_err(|why| why.map(ToOwned::to_owned)),
                fee: *fee,
                block: *block,
            },
            Change::Rejected(why) => Self::Rejected((*why).to_owned()),
            Change::Doubted(why) => Self::Doubted((*why).to_owned()),
            Change::Displaced { from, why } => Self::Displaced(*from, (*why).to_owned()),
            Change::Lost(why) => Self::Lost((*why).to_owned()),
        }
    }
}

impl OwnedChange {
    /// The change.
    #[must_use]
    pub fn borrowed(&self) -> Change<'_> {
        match self {
            Self::SentAgain => Change::SentAgain,
            Self::Accepted => Change::Accepted,
            Self::Included {
                outcome,
                fee,
                block,
            } => Change::Included {
                outcome: outcome.as_ref().copied().map_err(Option::as_deref),
                fee: *fee,
                block: *block,
            },
            Self::Rejected(why) => Change::Rejected(why),
            Self::Doubted(why) => Change::Doubted(why),
            Self::Displaced(from, why) => Change::Displaced { from: *from, why },
            Self::Lost(why) => Change::Lost(why),
        }
    }
}
