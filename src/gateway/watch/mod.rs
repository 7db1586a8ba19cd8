//! What two looks at the chain say about the time between them: a pure matter, time is an argument.
//!
//! A development chain can lose blocks (abort, revert, restart) and mine others in their place,
//! with the same numbers and hashes; only timestamps and contents tell them apart, and a timestamp
//! is in whole seconds. So an answer may be kept only when the block that it stands on is no newer
//! than the *settled* one: a head that was first seen [`SETTLE`] ago and is still the same.
//! Whatever takes its place later has a later timestamp, and the next look finds that; on a chain
//! whose time is set by hand (`devnet_setTime`), it need not.

use crate::node::chain::BlockIdentity;
use std::time::Duration;
use tokio::time::Instant;

/// Two seconds: more than the second in which a block and its replacement may be told apart by
/// nothing.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// Why what was known of the chain is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochCause {
    /// A block is gone or is another one.
    Rollback,
    /// The first block is another one: the chain began anew.
    Genesis,
    /// The node gave no verified answer.
    Unreachable,
    /// The node's answer is no accepted block.
    Strange,
}

impl EpochCause {
    /// Every cause, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Rollback, Self::Genesis, Self::Unreachable, Self::Strange];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Genesis => "genesis",
            Self::Unreachable => "unreachable",
            Self::Strange => "strange",
        }
    }
}

/// One look: what the node says of the blocks that are known, and of its newest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    /// The newest accepted block.
    pub(super) head: BlockIdentity,
    /// Block 0.
    pub(super) genesis: BlockIdentity,
    /// The block of the settled one's number; `None` if there is none, or none was asked for.
    pub(super) settled: Option<BlockIdentity>,
    /// The block of the candidate's number, likewise.
    pub(super) candidate: Option<BlockIdentity>,
    /// The newest block that is accepted on L1.
    pub(super) l1: L1,
}

/// What the node says of L1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum L1 {
    /// Nothing that can be understood.
    #[default]
    Unknown,
    /// This block is the newest that is accepted there, or none is.
    Head(Option<BlockIdentity>),
}

/// What is known of the chain.
#[derive(Debug, Default)]
pub(super) struct Watch {
    genesis: Option<BlockIdentity>,
    settled: Option<BlockIdentity>,
    /// A head that may settle, and when it was first seen.
    candidate: Option<(BlockIdentity, Instant)>,
    l1: L1,
    l1_generation: u64,
    /// Whether the last look failed.
    is_blind: bool,
}

/// What comes of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// What was known is void: all that stands on it begins anew.
    pub(super) broke: Option<EpochCause>,
    /// What stands; nothing when the look failed.
    pub(super) standing: Option<ChainStatus>,
}

/// What stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainStatus {
    /// The settled block's number.
    pub(super) settled: Option<u64>,
    /// Changes with the head of L1; `None` if that is unknown.
    pub(super) l1: Option<u64>,
}

impl Watch {
    /// The number of the settled block.
    pub(super) fn settled(&self) -> Option<u64> {
        self.settled.map(|settled| settled.number)
    }

    /// The number of the candidate.
    pub(super) fn candidate(&self) -> Option<u64> {
        self.candidate.map(|(candidate, _)| candidate.number)
    }

    /// Takes in a look that ended at `now`.
    pub(super) fn step(&mut self, look: Result<Poll, EpochCause>, now: Instant) -> Step {
        let look = match look {
            Ok(look) => look,
            Err(cause) => {
                // a node that stays away has gone away once
                let broke = (!self.is_blind).then_some(cause);
                self.forget();
                self.is_blind = true;
                return Step { broke, standing: None };
            }
        };
        self.is_blind = false;
        let broke = self.contradiction(&look);
        if broke.is_some() {
            self.forget();
        }
        self.advance(&look, now);
        let l1 = (self.l1 != L1::Unknown).then_some(self.l1_generation);
        Step { broke, standing: Some(ChainStatus { settled: self.settled(), l1 }) }
    }

    /// What in this look can not follow on what is known.
    fn contradiction(&self, look: &Poll) -> Option<EpochCause> {
        if self.genesis.is_some_and(|genesis| !genesis.is(look.genesis)) {
            return Some(EpochCause::Genesis);
        }
        let candidate = self.candidate.map(|(candidate, _)| candidate);
        let known = [(self.settled, look.settled), (candidate, look.candidate)];
        let stands = known.into_iter().all(|(known, seen)| match (known, seen) {
            (None, _) => true,
            (Some(known), Some(seen)) => known.is(seen) && known.number <= look.head.number,
            (Some(_), None) => false,
        });
        let is_taken_back = |known: BlockIdentity, seen: Option<BlockIdentity>| {
            seen.is_none_or(|seen| {
                seen.number < known.number || (seen.number == known.number && !known.is(seen))
            })
        };
        let stands = stands
            && match (self.l1, look.l1) {
                (L1::Head(Some(known)), L1::Head(seen)) => !is_taken_back(known, seen),
                _ => true,
            };
        (!stands).then_some(EpochCause::Rollback)
    }

    fn advance(&mut self, look: &Poll, now: Instant) {
        self.genesis = Some(look.genesis);
        if let Some((candidate, since)) = self.candidate
            && now.duration_since(since) >= SETTLE
        {
            self.settled = Some(candidate);
            self.candidate = None;
        }
        if self.candidate.is_none() && self.settled() < Some(look.head.number) {
            self.candidate = Some((look.head, now));
        }
        if self.l1 != look.l1 {
            self.l1 = look.l1;
            self.l1_generation += 1;
        }
    }

    fn forget(&mut self) {
        (self.genesis, self.settled, self.candidate) = (None, None, None);
        self.l1 = L1::Unknown;
    }
}

impl BlockIdentity {
    /// Whether it is the same block, whatever became of its status.
    fn is(self, other: Self) -> bool {
        self.number == other.number && self.fingerprint == other.fingerprint
    }
}

#[cfg(test)]
mod tests;
