//! The kinds of journal entries.
//!
//! Pure. The tables have constraints with the same names.

use portcullis_filters::ledger::IntentState;

/// The kind of event that a journal entry records.
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
