//! Which entry of the journal is an event.

use crate::ledger::IntentState;
use crate::named::named;

named! {
    /// The fate of a write.
    pub enum EventKind {
        /// A block lists its transaction, which succeeded.
        Succeeded = "write.succeeded",
        /// A block lists its transaction, which reverted.
        Reverted = "write.reverted",
        /// Its transaction was never sent, and never will be.
        Rejected = "write.rejected",
        /// It is in doubt: the chain no longer shows its transaction, or never did.
        Displaced = "write.displaced",
        /// A settled block has another transaction with its nonce.
        Lost = "write.lost",
        /// It was in doubt, and the node has accepted its transaction again.
        Found = "write.found",
    }
}

impl EventKind {
    /// The event of a write that becomes `state` after `previous`; `None` if the backend
    /// is sent nothing: its request is answered, or waits.
    #[must_use]
    pub fn of(previous: Option<IntentState>, state: IntentState) -> Option<Self> {
        match state {
            IntentState::Succeeded => Some(Self::Succeeded),
            IntentState::Reverted => Some(Self::Reverted),
            IntentState::Rejected => Some(Self::Rejected),
            IntentState::Displaced => Some(Self::Displaced),
            IntentState::Lost => Some(Self::Lost),
            IntentState::Accepted => match previous {
                Some(IntentState::Displaced | IntentState::Lost) => Some(Self::Found),
                _ => None,
            },
            IntentState::Intended | IntentState::Sent => None,
        }
    }
}
