//! The states of an intent, and the transitions between them.

use crate::named::named;

named! {
    /// The state of an intent.
    #[derive(PartialOrd, Ord)]
    pub enum IntentState {
        /// Stored, and never sent. The journal records it right before `sent`. Only an earlier
        /// version, which committed the two separately, leaves an intent in it.
        Intended = "intended",
        /// Stored before it is sent, and the node has not answered.
        Sent = "sent",
        /// Accepted by the node.
        Accepted = "accepted",
        /// Succeeded, by its receipt.
        Succeeded = "succeeded",
        /// Reverted, by its receipt.
        Reverted = "reverted",
        /// Never sent, and it never will be. Earlier versions recorded a refusal by the node so.
        Rejected = "rejected",
        /// In doubt: the chain showed it and no longer does, the node refused it, or no URL shows
        /// it for long. It no longer holds its nonce; it still holds everything else.
        Displaced = "displaced",
        /// A settled block has another transaction of its nonce.
        Lost = "lost",
    }
}

impl IntentState {
    /// Whether the outcome is still open.
    #[must_use]
    pub const fn is_unresolved(self) -> bool {
        matches!(self, Self::Intended | Self::Sent | Self::Accepted)
    }

    /// Whether the chain had it in a block when it was last seen.
    #[must_use]
    pub const fn is_included(self) -> bool {
        matches!(self, Self::Succeeded | Self::Reverted)
    }

    /// Whether it holds its digest, key, binding, cooldown and budget against other intents.
    #[must_use]
    pub const fn holds(self) -> bool {
        !matches!(self, Self::Rejected | Self::Lost)
    }

    /// Whether it also holds its nonce.
    #[must_use]
    pub const fn occupies(self) -> bool {
        self.is_unresolved() || self.is_included()
    }

    /// Whether `next` may follow. What was sent may be sent again. A transaction that the node has
    /// accepted was sent, and a rejected one never reaches the chain. The chain may take back any
    /// other, and show it again. An outcome may follow itself, in another block.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use IntentState::{
            Accepted, Displaced, Intended, Lost, Rejected, Reverted, Sent, Succeeded,
        };
        match self {
            Intended => !matches!(next, Intended),
            Sent => !matches!(next, Intended),
            Accepted => matches!(next, Succeeded | Reverted | Displaced | Lost),
            Succeeded | Reverted => matches!(next, Succeeded | Reverted | Displaced),
            Displaced => matches!(next, Accepted | Succeeded | Reverted | Lost),
            Lost => matches!(next, Succeeded | Reverted | Displaced),
            Rejected => false,
        }
    }
}
