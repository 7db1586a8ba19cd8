//! The states of an intent, the transitions between them, and the kinds of journal entries.
//!
//! Pure. The database checks the same names again.

use portcullis_filters::named;

named! {
    /// The state of an intent.
    #[derive(PartialOrd, Ord)]
    pub enum IntentState {
        /// Stored, and never sent. The journal records it right before `sent`; an intent is left in
        /// it only by an earlier version, which committed the two one after the other.
        Intended = "intended",
        /// Stored before it is sent, and the node has not answered.
        Sent = "sent",
        /// Accepted by the node.
        Accepted = "accepted",
        /// Succeeded, by its receipt.
        Succeeded = "succeeded",
        /// Reverted, by its receipt.
        Reverted = "reverted",
        /// Rejected by the node: its nonce is free.
        Rejected = "rejected",
        /// Can no longer reach the chain, or its block was rolled back: its nonce is free.
        Lost = "lost",
    }
}

impl IntentState {
    /// Whether the outcome is still open.
    pub fn is_unresolved(self) -> bool {
        matches!(self, Self::Intended | Self::Sent | Self::Accepted)
    }

    /// Whether `next` may follow: forward only, and nothing follows an outcome, unless the chain
    /// rolls it back ([`Intents::lose`](super::Intents::lose)). The node cannot reject what it has
    /// accepted.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Intended => next != Self::Intended,
            Self::Sent => !matches!(next, Self::Intended | Self::Sent),
            Self::Accepted => matches!(next, Self::Succeeded | Self::Reverted | Self::Lost),
            Self::Succeeded | Self::Reverted | Self::Rejected | Self::Lost => false,
        }
    }
}

/// What a journal entry records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// An intent changed to this state.
    Moved(IntentState),
    /// An authenticated request was refused, and nothing was signed or sent.
    Refused,
}

impl EntryKind {
    /// The name in the database and in exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Moved(state) => state.name(),
            Self::Refused => "refused",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        if name == Self::Refused.name() {
            return Some(Self::Refused);
        }
        IntentState::parse(name).map(Self::Moved)
    }
}
