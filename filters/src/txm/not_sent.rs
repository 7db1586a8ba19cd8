//! Why nothing was sent for a request: the one type of an error on this side of the send.
//!
//! A flow decides by its variants. It becomes an [`Outcome`], with a reason and a text, at the end
//! of a request and nowhere before.

use super::io::{JournalError, LockError};
use super::node::CallError;
use super::outcome::{Details, Outcome, contract_message};
use crate::ledger::{Budget, Intent, OverBudget};
use crate::timestamp::rfc3339;
use crate::verdict::{Reason, Refusal};
use crate::window::seconds_until;
use alloc::boxed::Box;
use alloc::format;

/// Why nothing was sent for a request, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The policy or a configured bound forbids it.
    Forbidden(Box<Refusal>),
    /// The state of the chain forbids it.
    Denied {
        /// The reason for the client.
        reason: Reason,
        /// The text for the client.
        message: &'static str,
        /// Further members of the response.
        details: Details,
    },
    /// The identity has no recovery pending.
    RecoveryNotPending,
    /// The recipient's cooldown is not over.
    TooSoon {
        /// The drip that started the cooldown.
        last: Box<Intent>,
        /// When the cooldown is over, in microseconds since 1970.
        until_us: i64,
        /// The time of the decision.
        now_us: i64,
    },
    /// Other operations have used too much of a budget within 24 hours.
    OverBudget {
        /// The budget, and when it has room.
        over: OverBudget,
        /// The time of the decision, in microseconds since 1970.
        now_us: i64,
    },
    /// The idempotency key was used with another request.
    KeyConflict,
    /// The faucet cannot pay a drip and its fee.
    FaucetEmpty,
    /// The pins of the chain do not permit a write.
    PinsUnproven,
    /// The chain started again after it was proven.
    Restarted,
    /// A read of the node failed, or was refused by the chain.
    Node(CallError),
    /// The journal cannot be read or written.
    Store,
    /// Too many writes wait for the account.
    QueueFull,
    /// The write could not start before its deadline.
    Overdue,
    /// Another process writes with the account.
    AccountBusy,
    /// An earlier write of the account, or of the request, is open or in doubt.
    InProgress,
    /// Our account was used elsewhere in the meantime.
    NonceMoved,
}

/// Refuses what the state of the chain forbids.
pub(crate) fn refuse<T>(reason: Reason, message: &'static str) -> Result<T, NotSent> {
    Err(NotSent::Denied {
        reason,
        message,
        details: Details::None,
    })
}

impl From<Refusal> for NotSent {
    fn from(refusal: Refusal) -> Self {
        Self::Forbidden(Box::new(refusal))
    }
}

impl From<CallError> for NotSent {
    fn from(error: CallError) -> Self {
        Self::Node(error)
    }
}

impl From<JournalError> for NotSent {
    fn from(_logged: JournalError) -> Self {
        Self::Store
    }
}

impl From<LockError> for NotSent {
    fn from(error: LockError) -> Self {
        match error {
            LockError::QueueFull => Self::QueueFull,
            LockError::Deadline => Self::Overdue,
            LockError::HeldElsewhere => Self::AccountBusy,
            LockError::Store(_) => Self::Store,
        }
    }
}

impl From<NotSent> for Outcome {
    fn from(why: NotSent) -> Self {
        match why {
            NotSent::Forbidden(refusal) => Self::forbidden(refusal),
            NotSent::Denied {
                reason,
                message,
                details,
            } => Self {
                details,
                ..Self::refused(reason, message)
            },
            NotSent::RecoveryNotPending => Self::refused(
                Reason::RecoveryNotPending,
                "no recovery of the identity is pending",
            ),
            NotSent::TooSoon {
                last,
                until_us,
                now_us,
            } => too_soon(&last, until_us, now_us),
            NotSent::OverBudget { over, now_us } => over_budget(over, now_us),
            NotSent::KeyConflict => Self::refused(
                Reason::IdempotencyConflict,
                "the idempotency key was used with another request",
            ),
            NotSent::FaucetEmpty => Self::refused(
                Reason::FaucetEmpty,
                "the faucet cannot pay a drip: its account must be refilled",
            ),
            NotSent::PinsUnproven => Self::refused(
                Reason::PinsUnproven,
                "the chain's pins are not proven: see GET /readyz; nothing was sent",
            ),
            NotSent::Restarted => Self::refused(
                Reason::PinsUnproven,
                "the chain started again: nothing was sent",
            ),
            NotSent::Node(error) => unread(error),
            NotSent::Store => Self::store_failed(),
            NotSent::QueueFull => Self::refused(
                Reason::Overloaded,
                "too many writes are waiting: retry soon",
            ),
            NotSent::Overdue => Self::refused(
                Reason::Overloaded,
                "the write could not start in time: nothing was sent, retry soon",
            ),
            NotSent::AccountBusy => Self::open(
                Reason::InProgress,
                "another process writes with the account: retry soon",
            ),
            NotSent::InProgress => Self::in_progress(),
            NotSent::NonceMoved => Self::nonce_moved(),
        }
    }
}

/// A read of the node failed.
fn unread(error: CallError) -> Outcome {
    match error {
        CallError::NoAnswer { refusal, .. } => Outcome::forbidden(Box::new(refusal)),
        CallError::Returned(error) if error.is_of_chain() => Outcome::refused(
            Reason::RefusedByChain,
            contract_message(error.short_reason.as_deref()),
        ),
        CallError::Returned(_) => Outcome::refused(
            Reason::UpstreamInvalid,
            "the node answered a read with an error of its own: nothing was sent, retry soon",
        ),
        CallError::MalformedAnswer => {
            Outcome::refused(Reason::UpstreamInvalid, "the node's answer is not valid")
        }
    }
}

/// The recipient's cooldown after `last` is not over.
fn too_soon(last: &Intent, until_us: i64, now_us: i64) -> Outcome {
    let until = u64::try_from(until_us.saturating_add(999_999) / 1_000_000);
    let until = rfc3339(until.unwrap_or_default());
    let message = format!("a drip was paid within the cooldown: the next is possible at {until}");
    Outcome {
        transaction_hash: Some(last.transaction_hash),
        retry_after: seconds_until(until_us, now_us),
        ..Outcome::refused(Reason::FaucetCooldown, message)
    }
}

fn over_budget(over: OverBudget, now_us: i64) -> Outcome {
    let message = match over.budget {
        Budget::Faucet => "the drips of a day are used up: nothing was sent",
        Budget::Fees => "the fees of a day are used up: nothing was sent",
    };
    Outcome {
        retry_after: seconds_until(over.until_us, now_us),
        ..Outcome::refused(Reason::BudgetExceeded, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::felt::Felt;
    use crate::txm::node::ErrorObject;

    #[test]
    fn a_refusal_says_when_a_retry_can_succeed() {
        let over = OverBudget {
            budget: Budget::Fees,
            until_us: 5_000_000,
        };
        let last = Box::new(Intent::empty());
        for (why, seconds) in [
            (
                NotSent::OverBudget {
                    over,
                    now_us: 2_000_000,
                },
                Some(3),
            ),
            (
                NotSent::TooSoon {
                    last,
                    until_us: 5_000_000,
                    now_us: 1_000_000,
                },
                Some(4),
            ),
            (NotSent::InProgress, Some(1)),
            (NotSent::AccountBusy, Some(1)),
            (NotSent::NonceMoved, Some(1)),
            (NotSent::Overdue, None),
        ] {
            let outcome = Outcome::from(why.clone());
            assert_eq!(outcome.retry_after, seconds, "{why:?}");
        }
    }

    #[test]
    fn only_the_chain_refuses_what_its_node_could_read() {
        let returned = |code| {
            NotSent::Node(CallError::Returned(ErrorObject {
                code,
                short_reason: None,
            }))
        };
        for code in [40, 41, 53, 54, 55, -1] {
            let outcome = Outcome::from(returned(code));
            assert_eq!(outcome.reason(), Some(Reason::RefusedByChain), "{code}");
        }
        for code in [-32_603, -32_005, -32_601, -32_000, 20, 24, 63] {
            let outcome = Outcome::from(returned(code));
            assert_eq!(outcome.reason(), Some(Reason::UpstreamInvalid), "{code}");
        }
    }

    #[test]
    fn a_cooldown_names_the_drip_that_started_it() {
        let why = NotSent::TooSoon {
            last: Box::new(Intent::empty()),
            until_us: 1,
            now_us: 0,
        };
        assert_eq!(Outcome::from(why).transaction_hash, Some(Felt::ZERO));
    }
}
