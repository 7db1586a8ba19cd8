//! The outcome of a write, before it has a status and a body.

use super::io::{JournalError, LockError};
use super::node::{CallError, ErrorObject, code};
use crate::felt::Felt;
use crate::ledger::{Budget, Intent, IntentId, IntentState, OverBudget};
use crate::operation::rfc3339;
use crate::verdict::{Reason, Refusal};
use crate::window::seconds_until;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use serde::Serialize;

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The transaction, if one was submitted.
    pub transaction_hash: Option<Felt>,
    /// Further members of the response.
    pub details: Details,
    /// The intent with this outcome; `None` if none was written.
    pub intent: Option<IntentId>,
    /// Seconds until a retry can succeed.
    pub retry_after: Option<u32>,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// A transaction made the change.
    Written,
    /// The chain was already in the requested state.
    Already,
    /// The node accepted the transaction; its receipt is not there yet.
    Pending,
    /// The write was not done, or did not succeed.
    Refused(Box<Refusal>),
}

/// Further members of the response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Details {
    /// No further members.
    #[default]
    None,
    /// When the recovery can be executed, in RFC 3339.
    Recovery {
        /// The time.
        ready_at: String,
    },
    /// The account that the identity is bound to.
    Binding {
        /// Its address.
        account: String,
    },
    /// Whether V2 verification is permanent.
    V2 {
        /// Whether it is.
        verification_v2_required: bool,
    },
}

impl Details {
    pub(super) const V2_ACTIVE: Self = Self::V2 {
        verification_v2_required: true,
    };
}

/// Refuses a write that is not allowed, or not possible now.
pub(super) fn refuse<T>(reason: Reason, message: &'static str) -> Result<T, Outcome> {
    Err(Outcome::refused(reason, message))
}

impl Outcome {
    const fn new(status: Status) -> Self {
        Self {
            status,
            transaction_hash: None,
            details: Details::None,
            intent: None,
            retry_after: None,
        }
    }

    /// Sets the intent that has this outcome.
    pub(super) fn of_intent(self, id: IntentId) -> Self {
        Self {
            intent: Some(id),
            ..self
        }
    }

    /// Converts the outcome of another intent, which this request waited for: the transaction of
    /// that intent is no answer to this request.
    pub(super) fn not_of_this_request(self) -> Self {
        if self.intent.is_some() {
            Self::unsettled()
        } else {
            self
        }
    }

    /// Merges both variants: a refusal is an outcome, too.
    pub fn merge(result: Result<Self, Self>) -> Self {
        match result {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    /// The chain is in the requested state: no transaction is needed.
    pub(super) fn already(details: Details) -> Self {
        Self {
            details,
            ..Self::new(Status::Already)
        }
    }

    /// The transaction made the change.
    pub(super) fn written(hash: Felt, details: Details) -> Self {
        Self {
            transaction_hash: Some(hash),
            details,
            ..Self::new(Status::Written)
        }
    }

    /// The node accepted the transaction.
    pub(super) fn pending(hash: Felt) -> Self {
        Self {
            transaction_hash: Some(hash),
            ..Self::new(Status::Pending)
        }
    }

    /// The write was refused.
    pub fn refused(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Refusal::new(reason, message).into()
    }

    /// The transaction was sent; whether the node has it is unknown.
    pub(super) fn unknown(hash: Felt) -> Self {
        let message = "the transaction was sent, but no answer arrived: repeat the request, \
                       it is not sent twice";
        Self {
            transaction_hash: Some(hash),
            ..Self::refused(Reason::OutcomeUnknown, message)
        }
    }

    /// The transaction was included, but no URL of the node shows it now, nor that it is gone.
    pub(super) fn unseen(intent: &Intent) -> Self {
        let message = "the chain had the transaction, and no node shows it now: repeat the \
                       request, it is not sent twice";
        let hash = Some(intent.transaction_hash);
        let refused = Self::refused(Reason::OutcomeUnknown, message);
        Self {
            transaction_hash: hash,
            intent: Some(intent.id),
            ..refused
        }
    }

    /// The idempotency key belongs to another request.
    pub(super) fn key_conflict() -> Self {
        let message = "the idempotency key was used with another request";
        Self::refused(Reason::IdempotencyConflict, message)
    }

    /// The store did not confirm that the transaction is stored as sent. If it is, the
    /// reconciliation sends it.
    pub(super) fn unconfirmed(hash: Felt) -> Self {
        let message = "the journal did not confirm the write, which may still be sent: repeat the \
                       request, it is not sent twice";
        Self {
            transaction_hash: Some(hash),
            ..Self::refused(Reason::OutcomeUnknown, message)
        }
    }

    /// Why it was refused, if it was.
    pub fn reason(&self) -> Option<Reason> {
        let Status::Refused(refusal) = &self.status else {
            return None;
        };
        Some(refusal.reason)
    }

    /// The write did not start before its deadline.
    pub(super) fn overloaded() -> Self {
        let message = "the write could not start in time: nothing was sent, retry soon";
        Self::refused(Reason::Overloaded, message)
    }

    /// The chain started again after it was proven.
    pub fn restarted() -> Self {
        Self::refused(
            Reason::PinsUnproven,
            "the chain started again: nothing was sent",
        )
    }

    /// Another transaction of our account used the nonce first.
    pub(super) fn nonce_conflict() -> Self {
        let message = "the relay's account was used elsewhere meanwhile: repeat the request";
        Self {
            retry_after: Some(1),
            ..Self::refused(Reason::NonceConflict, message)
        }
    }

    /// The faucet cannot pay a drip and its fee.
    pub fn faucet_empty() -> Self {
        let message = "the faucet cannot pay a drip: its account must be refilled";
        Self::refused(Reason::FaucetEmpty, message)
    }

    /// The recipient's cooldown after `last` is not over.
    pub(super) fn too_soon(last: &Intent, until_us: i64, now_us: i64) -> Self {
        let until = u64::try_from(until_us.saturating_add(999_999) / 1_000_000);
        let until = rfc3339(until.unwrap_or_default());
        let message =
            format!("a drip was paid within the cooldown: the next is possible at {until}");
        Self {
            transaction_hash: Some(last.transaction_hash),
            retry_after: seconds_until(until_us, now_us),
            ..Self::refused(Reason::FaucetCooldown, message)
        }
    }

    /// The write would exceed a budget, of which other operations used too much within 24 hours.
    pub(super) fn over_budget(over: OverBudget, now_us: i64) -> Self {
        let message = match over.budget {
            Budget::Faucet => "the drips of a day are used up: nothing was sent",
            Budget::Fees => "the fees of a day are used up: nothing was sent",
        };
        let retry_after = seconds_until(over.until_us, now_us);
        Self {
            retry_after,
            ..Self::refused(Reason::BudgetExceeded, message)
        }
    }

    /// An earlier write of the account may still use its nonce.
    pub(super) fn unsettled() -> Self {
        let message = "an earlier write of the account is not settled: retry soon";
        Self::refused(Reason::InProgress, message)
    }

    /// The transaction reverted, for the contract's reason.
    pub(super) fn reverted(hash: Felt, reason: Option<&str>) -> Self {
        let refused = Self::refused(Reason::Reverted, contract_message(reason));
        Self {
            transaction_hash: Some(hash),
            ..refused
        }
    }

    /// The node refused a transaction that was sent to it.
    pub(super) fn rejected(error: &ErrorObject) -> Self {
        let message = match error.code {
            code::INVALID_NONCE => return Self::nonce_conflict(),
            code::INSUFFICIENT_BOUNDS => "the resource bounds do not cover the fee",
            code::INSUFFICIENT_BALANCE => "the account cannot pay for its resource bounds",
            code::VALIDATION_FAILURE => "the account refused the transaction",
            _ => "the node refused the transaction",
        };
        Self::refused(Reason::Rejected, message)
    }

    /// The outcome of a journaled intent; `None` if it has no effect, or is in doubt.
    pub(super) fn of(intent: &Intent) -> Option<Self> {
        let hash = intent.transaction_hash;
        let outcome = match intent.state {
            IntentState::Succeeded => Self::written(hash, Details::None),
            IntentState::Accepted => Self::pending(hash),
            IntentState::Reverted => Self::reverted(hash, intent.detail.as_deref()),
            IntentState::Intended => Self::unsettled(),
            IntentState::Sent => Self::unknown(hash),
            IntentState::Displaced | IntentState::Rejected | IntentState::Lost => return None,
        };
        Some(outcome.of_intent(intent.id))
    }

    /// Whether the transaction's end is not known yet.
    pub(super) fn is_open(&self) -> bool {
        self.status == Status::Pending
            || matches!(
                self.reason(),
                Some(Reason::InProgress | Reason::OutcomeUnknown)
            )
    }

    /// Whether a repeat under the same idempotency key gets this response again.
    pub(super) fn is_final(&self) -> bool {
        match &self.status {
            Status::Written => true,
            // decided again each time: a rollback may undo it
            Status::Already | Status::Pending => false,
            Status::Refused(refusal) => refusal.reason == Reason::Reverted,
        }
    }

    /// The `outcome` label in metrics.
    pub fn name(&self) -> &'static str {
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

fn contract_message(reason: Option<&str>) -> String {
    format!("the chain refused: {}", reason.unwrap_or("no reason given"))
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        let refused = Self::new(Status::Refused(Box::new(refusal)));
        // an earlier write is settled within seconds
        Self {
            retry_after: refused.is_open().then_some(1),
            ..refused
        }
    }
}

/// A read before the write failed: nothing was sent.
impl From<CallError> for Outcome {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoAnswer { refusal, .. } => refusal.into(),
            CallError::Returned(error) => {
                let message = contract_message(error.short_reason.as_deref());
                Self::refused(Reason::RefusedByChain, message)
            }
            CallError::MalformedAnswer => {
                Self::refused(Reason::UpstreamInvalid, "the node's answer is not valid")
            }
        }
    }
}

impl From<JournalError> for Outcome {
    fn from(_logged: JournalError) -> Self {
        let message = "the journal cannot be written: nothing was sent";
        Self::refused(Reason::StoreUnavailable, message)
    }
}

impl From<LockError> for Outcome {
    fn from(error: LockError) -> Self {
        match error {
            LockError::QueueFull => Self::refused(
                Reason::Overloaded,
                "too many writes are waiting: retry soon",
            ),
            LockError::Deadline => Self::overloaded(),
            LockError::HeldElsewhere => {
                let message = "another process writes with the account: retry soon";
                Self::refused(Reason::InProgress, message)
            }
            LockError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: Felt = Felt::ZERO;
    const ID: IntentId = IntentId(7);

    fn intent(state: IntentState) -> Intent {
        Intent {
            id: ID,
            state,
            detail: Some("not allowed".into()),
            ..Intent::empty()
        }
    }

    fn message(outcome: &Outcome) -> &str {
        let Status::Refused(refusal) = &outcome.status else {
            panic!("{outcome:?}")
        };
        &refusal.message
    }

    /// The label of each outcome, whether its end is open, and whether a repeat gets it again.
    #[test]
    fn an_outcome_is_open_or_final_or_decided_again() {
        let refused = |reason| Outcome::refused(reason, "");
        for (outcome, name, is_open, is_final) in [
            (
                Outcome::written(HASH, Details::None),
                "written",
                false,
                true,
            ),
            (Outcome::already(Details::None), "idempotent", false, false),
            (Outcome::pending(HASH), "pending", true, false),
            (Outcome::reverted(HASH, None), "reverted", false, true),
            (Outcome::unknown(HASH), "failed", true, false),
            (Outcome::unsettled(), "refused", true, false),
            (refused(Reason::StoreUnavailable), "failed", false, false),
            (refused(Reason::Rejected), "refused", false, false),
        ] {
            let found = (outcome.name(), outcome.is_open(), outcome.is_final());
            assert_eq!(found, (name, is_open, is_final), "{outcome:?}");
        }
    }

    #[test]
    fn what_was_sent_is_named_by_its_hash() {
        let sent = intent(IntentState::Sent);
        for outcome in [
            Outcome::written(HASH, Details::V2_ACTIVE),
            Outcome::pending(HASH),
            Outcome::unknown(HASH),
            Outcome::unseen(&sent),
            Outcome::unconfirmed(HASH),
            Outcome::reverted(HASH, None),
            Outcome::too_soon(&sent, 1, 0),
        ] {
            assert_eq!(outcome.transaction_hash, Some(HASH), "{outcome:?}");
        }
        assert_eq!(Outcome::unseen(&sent).intent, Some(ID));
        assert_eq!(
            Outcome::written(HASH, Details::V2_ACTIVE).details,
            Details::V2_ACTIVE
        );
        assert_eq!(
            Outcome::already(Details::V2_ACTIVE).details,
            Details::V2_ACTIVE
        );
    }

    #[test]
    fn a_journaled_intent_has_the_outcome_of_its_state() {
        for (state, name, reason) in [
            (IntentState::Intended, "refused", Some(Reason::InProgress)),
            (IntentState::Sent, "failed", Some(Reason::OutcomeUnknown)),
            (IntentState::Accepted, "pending", None),
            (IntentState::Succeeded, "written", None),
            (IntentState::Reverted, "reverted", Some(Reason::Reverted)),
        ] {
            let outcome = Outcome::of(&intent(state)).expect("it has one");
            let found = (outcome.name(), outcome.reason(), outcome.intent);
            assert_eq!(found, (name, reason, Some(ID)), "{state:?}");
        }
        for state in [
            IntentState::Displaced,
            IntentState::Rejected,
            IntentState::Lost,
        ] {
            assert_eq!(Outcome::of(&intent(state)), None, "{state:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_the_contract_said() {
        let reverted = Outcome::of(&intent(IntentState::Reverted)).unwrap();
        assert_eq!(message(&reverted), "the chain refused: not allowed");
        let silent = Outcome::reverted(HASH, None);
        assert_eq!(message(&silent), "the chain refused: no reason given");
    }

    #[test]
    fn a_refusal_of_the_node_says_what_is_wrong() {
        let rejected = |code| {
            Outcome::rejected(&ErrorObject {
                code,
                short_reason: None,
            })
        };
        assert_eq!(
            rejected(code::INVALID_NONCE).reason(),
            Some(Reason::NonceConflict)
        );
        for (code, said) in [
            (code::INSUFFICIENT_BOUNDS, "bounds do not cover"),
            (code::INSUFFICIENT_BALANCE, "cannot pay"),
            (code::VALIDATION_FAILURE, "the account refused"),
            (code::DUPLICATE, "the node refused"),
        ] {
            let outcome = rejected(code);
            assert_eq!(outcome.reason(), Some(Reason::Rejected), "{code}");
            assert!(
                message(&outcome).contains(said),
                "{code}: {}",
                message(&outcome)
            );
        }
    }

    #[test]
    fn a_refusal_says_when_a_retry_can_succeed() {
        let over = OverBudget {
            budget: Budget::Fees,
            until_us: 5_000_000,
        };
        for (outcome, seconds) in [
            (Outcome::over_budget(over, 2_000_000), Some(3)),
            (
                Outcome::too_soon(&intent(IntentState::Sent), 5_000_000, 1_000_000),
                Some(4),
            ),
            (Outcome::unsettled(), Some(1)),
            (Outcome::unknown(HASH), Some(1)),
            (Outcome::overloaded(), None),
        ] {
            assert_eq!(outcome.retry_after, seconds, "{outcome:?}");
        }
    }
}
