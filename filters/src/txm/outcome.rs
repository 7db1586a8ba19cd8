//! The outcome of a write, before it has a status and a body.

use super::node::{ErrorObject, code};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentId, IntentState};
use crate::named::named;
use crate::verdict::{Reason, Refusal};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use serde::Serialize;

/// The seconds after which a repeat may show what became of a refused transaction: a request looks
/// for it this long itself.
const DOUBT_RETRY: u32 = 5;

named! {
    /// The `outcome` label in metrics.
    pub enum OutcomeKind {
        /// It is written.
        Written = "written",
        /// The chain was in the requested state, or an earlier response was repeated.
        Idempotent = "idempotent",
        /// The node has it; there is no receipt yet.
        Pending = "pending",
        /// The chain reverted it.
        Reverted = "reverted",
        /// It was refused.
        Refused = "refused",
        /// It failed.
        Failed = "failed",
    }
}

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
    /// The node accepted the transaction; there is no receipt yet.
    Pending,
    /// The transaction reverted.
    Reverted(Box<Refusal>),
    /// A write of the request, or an earlier one of the account, is open or in doubt.
    Open(Box<Refusal>),
    /// The write was not done.
    Refused(Box<Refusal>),
    /// The journal is unavailable: nothing was done.
    StoreFailed(Box<Refusal>),
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
        /// Whether V2 verification is permanent.
        verification_v2_required: bool,
    },
}

impl Details {
    pub(crate) const V2_ACTIVE: Self = Self::V2 {
        verification_v2_required: true,
    };
}

/// A journaled write, as the journal and the chain show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Its intent.
    pub(super) id: IntentId,
    /// Its transaction.
    pub(super) hash: Felt,
    /// How far it got.
    pub(super) end: End,
}

/// How far a journaled write got. One without effect, or in doubt, has no such end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The chain has it, and it succeeded.
    Succeeded(Details),
    /// The chain has it, and it reverted, with the contract's reason.
    Reverted(Option<String>),
    /// The node accepted it.
    Accepted,
    /// It was sent, and its end is not known.
    Sent,
    /// It is stored, and an earlier version has not sent it.
    Unsent,
    /// A block had it, and no URL shows it now, nor that it is gone.
    Unseen,
}

impl Known {
    /// A journaled intent; `None` if it has no effect, or is in doubt.
    pub(super) fn of(intent: &Intent) -> Option<Self> {
        let end = match intent.state {
            IntentState::Succeeded => End::Succeeded(Details::None),
            IntentState::Reverted => End::Reverted(intent.detail.clone()),
            IntentState::Accepted => End::Accepted,
            IntentState::Sent => End::Sent,
            IntentState::Intended => End::Unsent,
            IntentState::Displaced | IntentState::Rejected | IntentState::Lost => return None,
        };
        Some(Self {
            id: intent.id,
            hash: intent.transaction_hash,
            end,
        })
    }

    /// An intent that a block had, and that no URL shows.
    pub(super) fn unseen(intent: &Intent) -> Self {
        Self {
            id: intent.id,
            hash: intent.transaction_hash,
            end: End::Unseen,
        }
    }
}

/// Why it is not known whether the chain has a transaction that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// No answer arrived, or one that cannot be trusted.
    NoAnswer,
    /// The node answered with an error that decides nothing.
    Undecided,
    /// The node refused it, and it was not found out what became of it.
    Refused,
    /// The node refused it, and its nonce is used: by another transaction, or by itself.
    NonceUsed,
}

impl Unknown {
    const fn message(self) -> &'static str {
        match self {
            Self::NoAnswer => {
                "the transaction was sent, but no answer arrived: repeat the request, it is not \
                 sent twice"
            }
            Self::Undecided => {
                "the transaction was sent, and the node answered with an error that decides \
                 nothing: repeat the request, it is not sent twice"
            }
            Self::Refused => {
                "the node refused the transaction, which may have arrived before: repeat the \
                 request, it is not sent twice"
            }
            Self::NonceUsed => {
                "the node refused the transaction, whose nonce is used by another one, or by \
                 itself if it was delivered twice: the relay looks for who used it; repeat the \
                 request, it is not sent twice"
            }
        }
    }
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
        Self::forbidden(Box::new(Refusal::new(reason, message)))
    }

    /// The write was refused.
    pub(super) fn forbidden(refusal: Box<Refusal>) -> Self {
        Self::new(Status::Refused(refusal))
    }

    /// Something is open or in doubt, which is settled within seconds.
    pub(super) fn open(reason: Reason, message: &'static str) -> Self {
        let refusal = Box::new(Refusal::new(reason, message));
        Self {
            retry_after: Some(1),
            ..Self::new(Status::Open(refusal))
        }
    }

    /// The journal is unavailable.
    pub(super) fn store_failed() -> Self {
        let message = "the journal cannot be written: nothing was sent";
        let refusal = Box::new(Refusal::new(Reason::StoreUnavailable, message));
        Self::new(Status::StoreFailed(refusal))
    }

    /// The transaction was sent; whether the chain has it is unknown.
    pub(super) fn unknown(hash: Felt, why: Unknown) -> Self {
        Self {
            transaction_hash: Some(hash),
            ..Self::open(Reason::OutcomeUnknown, why.message())
        }
    }

    /// The store did not confirm that the transaction is stored as sent. If it is, the
    /// reconciliation sends it.
    pub(super) fn unconfirmed(hash: Felt) -> Self {
        let message = "the journal did not confirm the write, which may still be sent: repeat the \
                       request, it is not sent twice";
        Self {
            transaction_hash: Some(hash),
            ..Self::open(Reason::OutcomeUnknown, message)
        }
    }

    /// The write did not end.
    pub fn interrupted() -> Self {
        let message = "the write was interrupted: repeat the request; it is not sent twice";
        Self::open(Reason::OutcomeUnknown, message)
    }

    /// An earlier write may still use its nonce.
    pub(super) fn in_progress() -> Self {
        let message = "an earlier write of the account is not settled: retry soon";
        Self::open(Reason::InProgress, message)
    }

    /// Another transaction of our account used the nonce first.
    pub(super) fn nonce_moved() -> Self {
        let message = "the relay's account was used elsewhere meanwhile: repeat the request";
        Self {
            retry_after: Some(1),
            ..Self::refused(Reason::NonceConflict, message)
        }
    }

    /// The transaction reverted, for the contract's reason.
    pub(super) fn reverted(hash: Felt, reason: Option<&str>) -> Self {
        let refusal = Refusal::new(Reason::Reverted, contract_message(reason));
        Self {
            transaction_hash: Some(hash),
            ..Self::new(Status::Reverted(Box::new(refusal)))
        }
    }

    /// The node refused a transaction that was sent to it, which no URL shows and whose nonce is
    /// free. It may still be included: something in between may have delivered it before.
    /// `remedy` says what its sender can do.
    pub(super) fn rejected(error: &ErrorObject, remedy: &str) -> Self {
        let cause = match error.code {
            code::INVALID_NONCE => return Self::nonce_moved(),
            code::INSUFFICIENT_BOUNDS => {
                "the resource bounds do not cover the fee of the transaction"
            }
            code::INSUFFICIENT_BALANCE => {
                "the account cannot pay for the resource bounds of the transaction"
            }
            code::VALIDATION_FAILURE => "the account refused the transaction",
            _ => "the node refused the transaction",
        };
        let message = format!("{cause}, which may still be included: {remedy}");
        Self {
            retry_after: Some(DOUBT_RETRY),
            ..Self::refused(Reason::Rejected, message)
        }
    }

    /// The text and the reason of a write that was not done, or did not succeed.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.status {
            Status::Written | Status::Already | Status::Pending => None,
            Status::Reverted(refusal)
            | Status::Open(refusal)
            | Status::Refused(refusal)
            | Status::StoreFailed(refusal) => Some(refusal),
        }
    }

    /// Why it was refused, if it was. For a report: nothing is decided by it.
    pub fn reason(&self) -> Option<Reason> {
        self.refusal().map(|refusal| refusal.reason)
    }

    /// Whether the transaction's end is not known yet.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.status, Status::Pending | Status::Open(_))
    }

    /// Whether a repeat under the same idempotency key gets this response again. That the chain is
    /// in the requested state is decided again each time: a rollback may undo it.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.status, Status::Written | Status::Reverted(_))
    }

    /// Whether the journal gets an entry of its own for this refusal: it has none for the request's
    /// transaction, and it works.
    #[must_use]
    pub fn is_recorded_as_refusal(&self) -> bool {
        match self.status {
            // a transaction that it names is another one, such as that of a cooldown
            Status::Refused(_) => true,
            Status::Open(_) => self.transaction_hash.is_none(),
            Status::Written
            | Status::Already
            | Status::Pending
            | Status::Reverted(_)
            | Status::StoreFailed(_) => false,
        }
    }

    /// Its outcome in the metrics.
    pub fn kind(&self) -> OutcomeKind {
        match &self.status {
            Status::Already => OutcomeKind::Idempotent,
            Status::Pending => OutcomeKind::Pending,
            Status::Written => OutcomeKind::Written,
            Status::Reverted(_) => OutcomeKind::Reverted,
            Status::Open(refusal) | Status::Refused(refusal) | Status::StoreFailed(refusal) => {
                if refusal.reason.is_failure() {
                    OutcomeKind::Failed
                } else {
                    OutcomeKind::Refused
                }
            }
        }
    }
}

impl From<Known> for Outcome {
    fn from(known: Known) -> Self {
        let Known { id, hash, end } = known;
        let outcome = match end {
            End::Succeeded(details) => Self::written(hash, details),
            End::Reverted(reason) => Self::reverted(hash, reason.as_deref()),
            End::Accepted => Self::pending(hash),
            End::Sent => Self::unknown(hash, Unknown::NoAnswer),
            End::Unsent => Self::in_progress(),
            End::Unseen => Self {
                transaction_hash: Some(hash),
                ..Self::open(
                    Reason::OutcomeUnknown,
                    "the chain had the transaction, and no node shows it now: repeat the request, \
                     it is not sent twice",
                )
            },
        };
        outcome.of_intent(id)
    }
}

pub(super) fn contract_message(reason: Option<&str>) -> String {
    format!("the chain refused: {}", reason.unwrap_or("no reason given"))
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
        &outcome.refusal().expect("it is refused").message
    }

    /// The label of each outcome, whether its end is open, whether a repeat gets it again, and
    /// whether the journal records it as a refusal.
    #[test]
    fn an_outcome_is_open_or_final_or_decided_again() {
        let refused = |reason| Outcome::refused(reason, "");
        let unknown = Outcome::unknown(HASH, Unknown::NoAnswer);
        for (outcome, name, is_open, is_final, is_recorded) in [
            (
                Outcome::written(HASH, Details::None),
                "written",
                false,
                true,
                false,
            ),
            (
                Outcome::already(Details::None),
                "idempotent",
                false,
                false,
                false,
            ),
            (Outcome::pending(HASH), "pending", true, false, false),
            (
                Outcome::reverted(HASH, None),
                "reverted",
                false,
                true,
                false,
            ),
            (unknown, "failed", true, false, false),
            (Outcome::interrupted(), "failed", true, false, true),
            (Outcome::in_progress(), "refused", true, false, true),
            (Outcome::store_failed(), "failed", false, false, false),
            (refused(Reason::Overloaded), "failed", false, false, true),
            (refused(Reason::Rejected), "refused", false, false, true),
        ] {
            let found = (
                outcome.kind().name(),
                outcome.is_open(),
                outcome.is_final(),
                outcome.is_recorded_as_refusal(),
            );
            assert_eq!(found, (name, is_open, is_final, is_recorded), "{outcome:?}");
        }
    }

    #[test]
    fn what_was_sent_is_named_by_its_hash() {
        let unseen = Outcome::from(Known::unseen(&intent(IntentState::Succeeded)));
        assert_eq!(unseen.intent, Some(ID));
        for outcome in [
            Outcome::written(HASH, Details::V2_ACTIVE),
            Outcome::pending(HASH),
            Outcome::unknown(HASH, Unknown::NonceUsed),
            unseen,
            Outcome::unconfirmed(HASH),
            Outcome::reverted(HASH, None),
        ] {
            assert_eq!(outcome.transaction_hash, Some(HASH), "{outcome:?}");
        }
        for outcome in [
            Outcome::written(HASH, Details::V2_ACTIVE),
            Outcome::already(Details::V2_ACTIVE),
        ] {
            assert_eq!(outcome.details, Details::V2_ACTIVE);
        }
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
            let outcome = Outcome::from(Known::of(&intent(state)).expect("it has one"));
            let found = (outcome.kind().name(), outcome.reason(), outcome.intent);
            assert_eq!(found, (name, reason, Some(ID)), "{state:?}");
        }
        for state in [
            IntentState::Displaced,
            IntentState::Rejected,
            IntentState::Lost,
        ] {
            assert_eq!(Known::of(&intent(state)), None, "{state:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_the_contract_said() {
        let known = Known::of(&intent(IntentState::Reverted)).expect("it has an end");
        assert_eq!(
            message(&Outcome::from(known)),
            "the chain refused: not allowed"
        );
        let silent = Outcome::reverted(HASH, None);
        assert_eq!(message(&silent), "the chain refused: no reason given");
    }

    #[test]
    fn a_refusal_of_the_node_says_what_to_do() {
        let rejected = |code| {
            let short_reason = None;
            Outcome::rejected(&ErrorObject { code, short_reason }, "repeat it")
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
            assert_eq!(outcome.retry_after, Some(DOUBT_RETRY));
            let text = message(&outcome);
            assert!(text.contains(said), "{code}: {text}");
            assert!(text.ends_with("may still be included: repeat it"), "{text}");
        }
    }

    #[test]
    fn an_unknown_end_says_what_the_node_answered() {
        for (why, said) in [
            (Unknown::NoAnswer, "no answer arrived"),
            (Unknown::Undecided, "an error that decides nothing"),
            (Unknown::Refused, "the node refused the transaction"),
            (Unknown::NonceUsed, "looks for who used it"),
        ] {
            let outcome = Outcome::unknown(HASH, why);
            let text = message(&outcome);
            assert!(text.contains(said), "{text}");
            assert!(text.contains("it is not sent twice"), "{text}");
            assert_eq!(outcome.retry_after, Some(1));
        }
    }
}
