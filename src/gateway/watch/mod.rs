//! What two polls of the chain prove about the time between them. Pure: time is an argument.
//!
//! A development chain can lose blocks (abort, revert, restart) and mine others in their place with
//! the same numbers and hashes. Only timestamps and contents tell them apart, and a timestamp is in
//! whole seconds. So an answer may be cached only if its block is no newer than the *settled* one:
//! a head that was first seen [`SETTLE`] ago and is still the same. A later replacement has a later
//! timestamp, which the next poll detects; not so where time is set by hand (`devnet_setTime`).

use crate::node::chain::BlockIdentity;
use std::time::Duration;
use tokio::time::Instant;

/// Two seconds: more than the second within which a block and its replacement may be identical.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// Why a chain epoch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochCause {
    /// A block is gone or was replaced.
    Rollback,
    /// The anchor block is another one: the chain was restarted.
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

/// The result of one poll: the newest block, and the blocks that [`Watch`] knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    /// The newest accepted block.
    pub(super) head: BlockIdentity,
    /// The anchor: block 0, unless `node.anchor` names another.
    pub(super) genesis: BlockIdentity,
    /// The block at the settled number; `None` if there is none, or none was requested.
    pub(super) settled: Option<BlockIdentity>,
    /// The block at the candidate's number, likewise.
    pub(super) candidate: Option<BlockIdentity>,
    /// The newest block that is accepted on L1.
    pub(super) l1: L1,
}

/// The state of L1 according to the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum L1 {
    /// No valid answer.
    #[default]
    Unknown,
    /// The newest block that is accepted on L1, if any.
    Head(Option<BlockIdentity>),
}

/// What is known of the chain.
#[derive(Debug, Default)]
pub(super) struct Watch {
    genesis: Option<BlockIdentity>,
    settled: Option<BlockIdentity>,
    /// A head that may settle, and when a poll first returned it.
    candidate: Option<(BlockIdentity, Instant)>,
    l1: L1,
    l1_generation: u64,
    /// Whether the last poll failed.
    is_blind: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Why the epoch ended, if it did.
    pub(super) broke: Option<EpochCause>,
    /// The status of the chain; `None` when the poll failed.
    pub(super) chain: Option<ChainStatus>,
}

/// The status of an observed chain.
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

    /// Processes a poll that ended at `now`.
    pub(super) fn step(&mut self, poll: Result<Poll, EpochCause>, now: Instant) -> Step {
        let poll = match poll {
            Ok(poll) => poll,
            Err(cause) => {
                // an outage ends one epoch, however long it lasts
                let broke = (!self.is_blind).then_some(cause);
                self.forget();
                self.is_blind = true;
                return Step { broke, chain: None };
            }
        };
        self.is_blind = false;
        let broke = self.contradiction(&poll);
        if broke.is_some() {
            self.forget();
        }
        self.advance(&poll, now);
        let l1 = (self.l1 != L1::Unknown).then_some(self.l1_generation);
        Step { broke, chain: Some(ChainStatus { settled: self.settled(), l1 }) }
    }

    /// Why this poll cannot continue the known chain, if it cannot.
    fn contradiction(&self, poll: &Poll) -> Option<EpochCause> {
        if self.genesis.is_some_and(|genesis| !genesis.is(poll.genesis)) {
            return Some(EpochCause::Genesis);
        }
        let candidate = self.candidate.map(|(candidate, _)| candidate);
        let known = [(self.settled, poll.settled), (candidate, poll.candidate)];
        let continues = known.into_iter().all(|(known, seen)| match (known, seen) {
            (None, _) => true,
            (Some(known), Some(seen)) => known.is(seen) && known.number <= poll.head.number,
            (Some(_), None) => false,
        });
        let is_taken_back = |known: BlockIdentity, seen: Option<BlockIdentity>| {
            seen.is_none_or(|seen| {
                seen.number < known.number || (seen.number == known.number && !known.is(seen))
            })
        };
        let continues = continues
            && match (self.l1, poll.l1) {
                (L1::Head(Some(known)), L1::Head(seen)) => !is_taken_back(known, seen),
                // a head that is not known any more may have been taken back
                (L1::Head(Some(_)), L1::Unknown) => false,
                _ => true,
            };
        (!continues).then_some(EpochCause::Rollback)
    }

    fn advance(&mut self, poll: &Poll, now: Instant) {
        self.genesis = Some(poll.genesis);
        if let Some((candidate, since)) = self.candidate
            && now.duration_since(since) >= SETTLE
        {
            self.settled = Some(candidate);
            self.candidate = None;
        }
        if self.candidate.is_none() && self.settled() < Some(poll.head.number) {
            self.candidate = Some((poll.head, now));
        }
        if self.l1 != poll.l1 {
            self.l1 = poll.l1;
            self.l1_generation += 1;
        }
    }

    fn forget(&mut self) {
        (self.genesis, self.settled, self.candidate) = (None, None, None);
        self.l1 = L1::Unknown;
    }
}

impl BlockIdentity {
    /// Whether it is the same block, regardless of its status.
    fn is(self, other: Self) -> bool {
        self.number == other.number && self.fingerprint == other.fingerprint
    }
}

#[cfg(test)]
mod tests;
