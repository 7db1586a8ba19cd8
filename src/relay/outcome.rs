//! The outcome of a write, before it has a status and a body.

use crate::node::chain::{ErrorObject, RpcError, code};
use crate::store::{Intent, IntentState, StoreError};
use portcullis_filters::felt::Felt;
use portcullis_filters::verdict::{Reason, Refusal};
use serde::Serialize;
use std::borrow::Cow;

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) status: Status,
    /// The transaction, if one was submitted.
    pub(super) transaction_hash: Option<Felt>,
    pub(super) details: Details,
    /// Seconds until a retry can succeed.
    pub(super) retry_after: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// A transaction did it.
    Written,
    /// The chain was in the requested state before.
    Already,
    /// The node accepted the transaction; its receipt is not there yet.
    Pending,
    Refused(Box<Refusal>),
}

/// Further members of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Details {
    #[default]
    None,
    /// When the recovery can be executed, in RFC 3339.
    Recovery {
        ready_at: String,
    },
    /// The account that the identity is bound to.
    Binding {
        account: String,
    },
    V2 {
        verification_v2_required: bool,
    },
}

impl Details {
    pub(super) const V2_ACTIVE: Self = Self::V2 { verification_v2_required: true };
}

/// A write that is not allowed, or not possible now.
pub(super) fn refuse<T>(reason: Reason, message: &'static str) -> Result<T, Outcome> {
    Err(Outcome::refused(reason, message))
}

impl Outcome {
    const fn new(status: Status) -> Self {
        Self { status, transaction_hash: None, details: Details::None, retry_after: None }
    }

    /// A refusal is an outcome, too.
    pub(super) fn merge(result: Result<Self, Self>) -> Self {
        match result {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    /// The chain is in the requested state: no transaction is needed.
    pub(super) fn already(details: Details) -> Self {
        Self { details, ..Self::new(Status::Already) }
    }

    /// The transaction did it.
    pub(super) fn written(hash: Felt, details: Details) -> Self {
        Self { transaction_hash: Some(hash), details, ..Self::new(Status::Written) }
    }

    /// The node accepted the transaction.
    pub(super) fn pending(hash: Felt) -> Self {
        Self { transaction_hash: Some(hash), ..Self::new(Status::Pending) }
    }

    /// It was not done.
    pub(super) fn refused(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(reason, message).into()
    }

    /// The transaction was sent; whether the node has it is unknown.
    pub(super) fn unknown(hash: Felt) -> Self {
        let message = "the transaction was sent, but no answer arrived: repeat the request, \
                       it is not sent twice";
        Self { transaction_hash: Some(hash), ..Self::refused(Reason::OutcomeUnknown, message) }
    }

    /// An earlier write of the account may still use its nonce.
    pub(super) fn unsettled() -> Self {
        let message = "an earlier write of the account is not settled: retry soon";
        Self::refused(Reason::InProgress, message)
    }

    /// The transaction reverted, for the contract's reason.
    pub(super) fn reverted(hash: Option<Felt>, reason: Option<&str>) -> Self {
        let reason = reason.unwrap_or("no reason given");
        let refused = Self::refused(Reason::Reverted, format!("the chain refused: {reason}"));
        Self { transaction_hash: hash, ..refused }
    }

    /// The node refused a transaction that was sent to it.
    pub(super) fn rejected(error: &ErrorObject) -> Self {
        let (reason, message) = match error.code {
            code::INVALID_NONCE => {
                (Reason::NonceConflict, "the nonce is not the account's next one")
            }
            code::INSUFFICIENT_BOUNDS => {
                (Reason::Rejected, "the resource bounds do not cover the fee")
            }
            code::INSUFFICIENT_BALANCE => {
                (Reason::Rejected, "the account cannot pay for its resource bounds")
            }
            code::VALIDATION_FAILURE => (Reason::Rejected, "the account refused the transaction"),
            _ => (Reason::Rejected, "the node refused the transaction"),
        };
        Self::refused(reason, message)
    }

    /// The outcome of a journaled intent; `None` if it has no effect and may be retried.
    pub(super) fn of(intent: &Intent) -> Option<Self> {
        let hash = intent.transaction_hash;
        match intent.state {
            IntentState::Succeeded => Some(Self::written(hash, Details::None)),
            IntentState::Accepted => Some(Self::pending(hash)),
            IntentState::Reverted => Some(Self::reverted(Some(hash), intent.detail.as_deref())),
            IntentState::Intended => Some(Self::unsettled()),
            IntentState::Sent => Some(Self::unknown(hash)),
            IntentState::Rejected | IntentState::Lost => None,
        }
    }

    /// Whether a repeat under the same idempotency key gets this response again.
    pub(super) fn is_final(&self) -> bool {
        match &self.status {
            Status::Written | Status::Already => true,
            Status::Pending => false,
            Status::Refused(refusal) => {
                refusal.reason == Reason::Reverted && self.transaction_hash.is_some()
            }
        }
    }

    /// The `outcome` label in metrics.
    pub(super) fn name(&self) -> &'static str {
        match &self.status {
            Status::Already => "idempotent",
            Status::Pending => "pending",
            Status::Written => "written",
            Status::Refused(refusal) if refusal.reason == Reason::Reverted => "reverted",
            Status::Refused(refusal) if refusal.reason.is_failure() => "failed",
            Status::Refused(_) => "refused",
        }
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        // an earlier write is settled within seconds
        let is_open = matches!(refusal.reason, Reason::InProgress | Reason::OutcomeUnknown);
        let retry_after = is_open.then_some(1);
        Self { retry_after, ..Self::new(Status::Refused(Box::new(refusal))) }
    }
}

/// A read before the write failed: nothing was sent.
impl From<RpcError> for Outcome {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Node(fault) => Refusal::from(fault).into(),
            RpcError::Returned(error) => Self::reverted(None, error.short_reason.as_deref()),
            RpcError::MalformedAnswer => {
                Self::refused(Reason::UpstreamInvalid, "the node's answer is not valid")
            }
        }
    }
}

impl From<StoreError> for Outcome {
    fn from(error: StoreError) -> Self {
        error.log();
        let message = "the journal cannot be written: nothing was sent";
        Self::refused(Reason::StoreUnavailable, message)
    }
}
