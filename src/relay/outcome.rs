//! What came of a write, before it has a status and a body.

use crate::node::chain::{ErrorObject, RpcError, code};
use crate::reply::fault_words;
use crate::store::{Intent, State, StoreError};
use portcullis_filters::felt::Felt;
use portcullis_filters::verdict::{Reason, Refusal};
use std::borrow::Cow;
use std::fmt::Write as _;

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it was not done; none when it was.
    pub refusal: Option<(Reason, Cow<'static, str>)>,
    /// The transaction, if one was submitted.
    pub transaction_hash: Option<Felt>,
    /// It was so before.
    pub idempotent: bool,
    /// The node took it, and its receipt is still to come.
    pub pending: bool,
    /// More members of the answer: JSON text, each with a comma before it.
    pub more: String,
    /// Seconds until it may be tried again.
    pub retry_after: Option<u32>,
}

impl Outcome {
    const DONE: Self = Self {
        refusal: None,
        transaction_hash: None,
        idempotent: false,
        pending: false,
        more: String::new(),
        retry_after: None,
    };

    /// Nothing was to be done.
    pub fn already(more: String) -> Self {
        Self { idempotent: true, more, ..Self::DONE }
    }

    /// This transaction did it.
    pub fn written(hash: Felt, more: String) -> Self {
        Self { transaction_hash: Some(hash), more, ..Self::DONE }
    }

    /// The node took this transaction.
    pub fn pending(hash: Felt) -> Self {
        Self { transaction_hash: Some(hash), pending: true, ..Self::DONE }
    }

    /// It was not done.
    pub fn refused(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { refusal: Some((reason, message.into())), ..Self::DONE }
    }

    /// The same, telling when it may be tried.
    pub fn ready_at(mut self, text: &str) -> Self {
        // writing to a string does not fail
        let _ = write!(self.more, r#","ready_at":"{text}""#);
        self
    }

    /// A transaction was sent, and whether the node has it is not known.
    pub fn unknown(hash: Felt) -> Self {
        let message =
            "the transaction was sent and no answer came: ask again, it is not sent twice";
        Self { transaction_hash: Some(hash), ..Self::refused(Reason::OutcomeUnknown, message) }
    }

    /// An earlier write of the account may still take its nonce.
    pub fn unsettled() -> Self {
        let message = "an earlier write of the account is not settled: try again soon";
        Self::refused(Reason::InProgress, message)
    }

    /// This transaction reverted, for the contract's reason.
    pub fn reverted(hash: Option<Felt>, reason: Option<&str>) -> Self {
        let reason = reason.unwrap_or("no reason given");
        let refused = Self::refused(Reason::Reverted, format!("the chain refused: {reason}"));
        Self { transaction_hash: hash, ..refused }
    }

    /// The node refused a transaction that was sent to it.
    pub fn rejected(error: &ErrorObject) -> Self {
        let (reason, message) = match error.code {
            code::INVALID_NONCE => {
                (Reason::NonceConflict, "the nonce is not the account's next one")
            }
            code::INSUFFICIENT_BOUNDS => {
                (Reason::Rejected, "the resource bounds do not cover the fee")
            }
            code::INSUFFICIENT_BALANCE => {
                (Reason::Rejected, "the account can not pay for its resource bounds")
            }
            code::VALIDATION_FAILURE => (Reason::Rejected, "the account refused the transaction"),
            _ => (Reason::Rejected, "the node refused the transaction"),
        };
        Self::refused(reason, message)
    }

    /// What the journal says of an intent; `None` when nothing came of it and it may be tried anew.
    pub fn of(intent: &Intent) -> Option<Self> {
        let hash = intent.transaction_hash;
        match intent.state {
            State::Succeeded => Some(Self::written(hash, String::new())),
            State::Accepted => Some(Self::pending(hash)),
            State::Reverted => Some(Self::reverted(Some(hash), intent.detail.as_deref())),
            State::Intended | State::Sent => Some(Self::unknown(hash)),
            State::Rejected | State::Lost => None,
        }
    }

    /// Whether it is worth keeping for a repeat under the same key: something was submitted, or
    /// there was nothing to do.
    pub fn is_final(&self) -> bool {
        match &self.refusal {
            None => !self.pending,
            Some((reason, _)) => *reason == Reason::Reverted && self.transaction_hash.is_some(),
        }
    }

    /// The name in metrics.
    pub fn name(&self) -> &'static str {
        match &self.refusal {
            None if self.idempotent => "idempotent",
            None if self.pending => "pending",
            None => "written",
            Some((Reason::Reverted, _)) => "reverted",
            Some((reason, _)) if reason.is_failure() => "failed",
            Some(_) => "refused",
        }
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::refused(refusal.reason, refusal.message)
    }
}

/// A read that a write needs has failed: nothing was sent.
impl From<RpcError> for Outcome {
    fn from(trouble: RpcError) -> Self {
        match trouble {
            RpcError::Node(fault) => {
                let (reason, message) = fault_words(fault);
                Self::refused(reason, message)
            }
            RpcError::Returned(error) => Self::reverted(None, error.short_reason.as_deref()),
            RpcError::MalformedAnswer => {
                Self::refused(Reason::UpstreamInvalid, "the node's answer is not valid")
            }
        }
    }
}

impl From<StoreError> for Outcome {
    fn from(error: StoreError) -> Self {
        log::error!("store: {error}");
        Self::refused(Reason::StoreUnavailable, "the journal can not be written: nothing was sent")
    }
}
