//! How far an intent has come, and what an entry of the journal tells.
//!
//! Pure: names, and which state may follow which. The database checks the same names again.

/// How far an intent has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Durable, and nothing was sent yet.
    Intended,
    /// Sent, and the node has not answered.
    Sent,
    /// The node took it.
    Accepted,
    /// Its receipt says that it succeeded.
    Succeeded,
    /// Its receipt says that it reverted.
    Reverted,
    /// The node refused it: its nonce is free.
    Rejected,
    /// The chain can not have it any more: its nonce is free.
    Lost,
}

impl State {
    /// All states, in the order of an intent's life.
    pub const ALL: [Self; 7] = [
        Self::Intended,
        Self::Sent,
        Self::Accepted,
        Self::Succeeded,
        Self::Reverted,
        Self::Rejected,
        Self::Lost,
    ];

    /// As it is stored, exported and counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Sent => "sent",
            Self::Accepted => "accepted",
            Self::Succeeded => "succeeded",
            Self::Reverted => "reverted",
            Self::Rejected => "rejected",
            Self::Lost => "lost",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the outcome is still open.
    pub fn is_unresolved(self) -> bool {
        matches!(self, Self::Intended | Self::Sent | Self::Accepted)
    }

    /// Whether `next` may follow: forward only, and nothing follows an outcome. What the node took
    /// it can not refuse any more.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Intended => next != Self::Intended,
            Self::Sent => !matches!(next, Self::Intended | Self::Sent),
            Self::Accepted => matches!(next, Self::Succeeded | Self::Reverted | Self::Lost),
            Self::Succeeded | Self::Reverted | Self::Rejected | Self::Lost => false,
        }
    }
}

/// What an entry of the journal tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An intent came into this state.
    Came(State),
    /// An authenticated request was refused, and nothing was signed or sent.
    Refused,
}

impl Kind {
    /// As it is stored and exported.
    pub fn name(self) -> &'static str {
        match self {
            Self::Came(state) => state.name(),
            Self::Refused => "refused",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        if name == Self::Refused.name() {
            return Some(Self::Refused);
        }
        State::parse(name).map(Self::Came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_moves_forward_only_and_an_outcome_stays() {
        use State::{Accepted, Intended, Lost, Rejected, Reverted, Sent, Succeeded};
        let legal: [(State, &[State]); 7] = [
            (Intended, &[Sent, Accepted, Succeeded, Reverted, Rejected, Lost]),
            (Sent, &[Accepted, Succeeded, Reverted, Rejected, Lost]),
            (Accepted, &[Succeeded, Reverted, Lost]),
            (Succeeded, &[]),
            (Reverted, &[]),
            (Rejected, &[]),
            (Lost, &[]),
        ];
        for (from, to) in legal {
            for next in State::ALL {
                assert_eq!(from.may_become(next), to.contains(&next), "{from:?} to {next:?}");
            }
            assert_eq!(from.is_unresolved(), !to.is_empty(), "{from:?}");
        }
    }

    #[test]
    fn names_are_parsed_as_they_are_written() {
        for state in State::ALL {
            assert_eq!(State::parse(state.name()), Some(state));
            assert_eq!(Kind::parse(state.name()), Some(Kind::Came(state)));
        }
        assert_eq!(Kind::parse("refused"), Some(Kind::Refused));
        for unknown in ["", "Sent", "sent ", "done"] {
            assert_eq!(Kind::parse(unknown), None, "{unknown:?}");
        }
    }
}
