//! Decides what two polls of the chain prove about the time between them. Pure: time is passed in.
//!
//! A development chain can lose blocks (abort, revert, restart) and mine others in their place with
//! the same numbers and hashes. Only timestamps and contents tell them apart, and a timestamp is in
//! whole seconds. So an answer may be cached only if its block is no newer than the *settled* one:
//! a head that was first seen [`SETTLE`] ago and is still the same. A later replacement has a later
//! timestamp, which the next poll detects, unless time is set by hand (`devnet_setTime`).

use super::identity::BlockIdentity;
use crate::position::ChainPosition;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Two seconds: more than the second within which a block and its replacement may be identical.
pub const SETTLE: Duration = Duration::from_secs(2);

/// Why the cache is purged: a generation of it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeCause {
    /// A block is gone or was replaced.
    Rollback,
    /// The anchor block was replaced: the chain was restarted.
    Genesis,
    /// The node gave no verified answer.
    Unreachable,
    /// The node's answer is not an accepted block.
    Strange,
}

impl PurgeCause {
    /// Every cause, in the order of the variants.
    pub const ALL: [Self; 4] = [
        Self::Rollback,
        Self::Genesis,
        Self::Unreachable,
        Self::Strange,
    ];

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The newest accepted block.
    pub head: BlockIdentity,
    /// The anchor: block 0, unless `node.anchor` names another.
    pub genesis: BlockIdentity,
    /// The block at the settled number; `None` if there is none, or none was requested.
    pub settled: Option<BlockIdentity>,
    /// The block at the candidate's number; `None` if there is none, or none was requested.
    pub candidate: Option<BlockIdentity>,
    /// The newest block that is accepted on L1.
    pub l1: L1,
}

/// The state of L1 according to the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum L1 {
    /// No valid answer.
    #[default]
    Unknown,
    /// The newest block that is accepted on L1, if any.
    Head(Option<BlockIdentity>),
}

/// The known state of the chain. The leader of a fleet publishes it; its followers cache by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainState {
    /// The epoch of positions: it ends whenever a block may be gone or replaced, settled or not.
    epoch: u64,
    /// The generation of the cache: the number of the epoch in which it was last purged.
    generation: u64,
    /// Why it was purged.
    cause: Option<PurgeCause>,
    /// The newest block; `None` after a poll that failed.
    head: Option<BlockIdentity>,
    genesis: Option<BlockIdentity>,
    settled: Option<BlockIdentity>,
    /// A head that may settle.
    candidate: Option<BlockIdentity>,
    l1: L1,
}

/// The known state of the chain, and since when.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    state: ChainState,
    /// When a poll first returned the candidate.
    since: Option<Duration>,
    /// The newest epoch number that this process has seen or assigned.
    newest: u64,
    /// Whether the last poll failed.
    is_blind: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Why the generation of the cache ended, if it did.
    pub broke: Option<PurgeCause>,
    /// The generation of the cache.
    pub generation: u64,
    /// The status of the chain; `None` when the poll failed.
    pub chain: Option<ChainStatus>,
}

/// The status of an observed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStatus {
    /// The chain's position; `None` if it is before one that this process has reported.
    pub position: Option<ChainPosition>,
    /// The settled block's number.
    pub settled: Option<u64>,
    /// Changes with the head of L1; `None` if that is unknown.
    pub l1: Option<u64>,
}

impl ChainState {
    /// Serializes the state for followers.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses the state that a leader published; `None` if it is of another version.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Why the cache was last purged.
    pub fn cause(&self) -> Option<PurgeCause> {
        self.cause
    }

    /// The status for a process that has reported epochs up to `newest`.
    fn status(&self, newest: u64) -> Option<ChainStatus> {
        let position = ChainPosition {
            epoch: self.epoch,
            height: self.head?.number,
        };
        let position = (position.epoch >= newest).then_some(position);
        let settled = self.settled.map(|settled| settled.number);
        // within a generation of the cache this head only rises, so its number distinguishes states
        let l1 = match self.l1 {
            L1::Unknown => None,
            L1::Head(head) => {
                let blocks = head.map_or(0, |head| head.number.saturating_add(1));
                Some(self.generation.wrapping_add(blocks))
            }
        };
        Some(ChainStatus {
            position,
            settled,
            l1,
        })
    }
}

impl Watch {
    /// Creates a watch that numbers its epochs above `newest`.
    pub fn after(newest: u64) -> Self {
        Self {
            newest,
            ..Self::default()
        }
    }

    /// The known state.
    pub fn state(&self) -> &ChainState {
        &self.state
    }

    /// The newest epoch number that this process has seen or assigned.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Records that another instance has seen an epoch of this number.
    pub fn has_seen(&mut self, epoch: u64) {
        self.newest = self.newest.max(epoch);
    }

    /// The number of the settled block.
    pub fn settled(&self) -> Option<u64> {
        self.state.settled.map(|settled| settled.number)
    }

    /// The numbers of the blocks that a poll with this newest block also needs; `anchor` is that of
    /// the block that identifies the chain.
    pub fn wanted(&self, head: BlockIdentity, anchor: u64) -> Vec<u64> {
        let candidate = self.state.candidate.map(|candidate| candidate.number);
        let mut wanted = vec![anchor];
        wanted.extend([self.settled(), candidate].into_iter().flatten());
        wanted.retain(|number| find(*number, &self.known_with(head)).is_none());
        wanted.dedup();
        wanted
    }

    /// The poll with this newest block, these of the wanted blocks, and this state of L1; `None` if
    /// the chain has no anchor.
    pub fn poll(
        &self,
        head: BlockIdentity,
        anchor: u64,
        mut found: Vec<BlockIdentity>,
        l1: L1,
    ) -> Option<Poll> {
        found.extend(self.known_with(head));
        let known = |block: Option<BlockIdentity>| find(block?.number, &found);
        Some(Poll {
            head,
            genesis: find(anchor, &found)?,
            settled: known(self.state.settled),
            candidate: known(self.state.candidate),
            l1,
        })
    }

    /// The blocks that a poll with this newest block need not read again: `head` itself, and the
    /// anchor once `head` has settled, since no other chain has that block.
    fn known_with(&self, head: BlockIdentity) -> Vec<BlockIdentity> {
        let genesis = self
            .state
            .genesis
            .filter(|_| self.state.settled == Some(head));
        genesis.into_iter().chain([head]).collect()
    }

    /// Continues from the state that another instance published; the next poll has to match it.
    pub fn inherit(&mut self, state: ChainState, now: Duration) -> Step {
        if self.state.candidate != state.candidate {
            self.since = Some(now);
        }
        self.is_blind = state.head.is_none();
        self.state = state;
        self.newest = self.newest.max(self.state.epoch);
        self.result(None)
    }

    /// Processes a poll that ended at `now`, which is `unix_ms` milliseconds since 1970. Epochs are
    /// numbered by that time, so that numbers grow across restarts.
    pub fn step(&mut self, poll: Result<Poll, PurgeCause>, now: Duration, unix_ms: u64) -> Step {
        let broke = match &poll {
            Ok(poll) => self.contradiction(poll),
            // an outage ends one epoch, however long it lasts
            Err(cause) => (!self.is_blind).then_some(*cause),
        };
        self.is_blind = poll.is_err();
        let is_rewound = poll.as_ref().is_ok_and(|poll| self.is_rewound(poll));
        if poll.is_err() || broke.is_some() {
            self.forget();
        }
        if broke.is_some() || self.state.generation == 0 {
            self.begin_epoch(unix_ms);
            (self.state.generation, self.state.cause) = (self.newest, broke);
        } else if is_rewound {
            self.begin_epoch(unix_ms);
        }
        // not before an epoch that this process has reported or seen
        self.state.epoch = self.newest.max(self.state.epoch);
        if let Ok(poll) = poll {
            self.advance(&poll, now);
        }
        debug_assert_ne!(self.state.generation, 0, "the cache belongs to an epoch");
        debug_assert_eq!(
            self.is_blind,
            self.state.head.is_none(),
            "a chain that is seen has a head"
        );
        self.result(broke)
    }

    fn result(&self, broke: Option<PurgeCause>) -> Step {
        Step {
            broke,
            generation: self.state.generation,
            chain: self.state.status(self.newest),
        }
    }

    fn begin_epoch(&mut self, unix_ms: u64) {
        debug_assert!(
            self.state.epoch <= self.newest,
            "the epoch in force is known"
        );
        self.newest = self.newest.saturating_add(1).max(unix_ms);
        self.state.epoch = self.newest;
    }

    /// Whether the newest block is gone or was replaced, though it had not settled.
    fn is_rewound(&self, poll: &Poll) -> bool {
        self.state
            .head
            .is_some_and(|head| is_taken_back(head, poll.head))
    }

    /// Why this poll cannot continue the known chain, if it cannot.
    fn contradiction(&self, poll: &Poll) -> Option<PurgeCause> {
        let ChainState {
            genesis,
            settled,
            candidate,
            l1,
            ..
        } = self.state;
        if genesis.is_some_and(|genesis| genesis != poll.genesis) {
            return Some(PurgeCause::Genesis);
        }
        let known = [(settled, poll.settled), (candidate, poll.candidate)];
        let continues = known.into_iter().all(|(known, seen)| match (known, seen) {
            (None, _) => true,
            (Some(known), Some(seen)) => known == seen && known.number <= poll.head.number,
            (Some(_), None) => false,
        });
        let continues = continues
            && match (l1, poll.l1) {
                (L1::Head(Some(known)), L1::Head(seen)) => {
                    seen.is_some_and(|seen| !is_taken_back(known, seen))
                }
                // a head that is no longer known may have been rolled back
                (L1::Head(Some(_)), L1::Unknown) => false,
                _ => true,
            };
        if continues {
            None
        } else {
            Some(PurgeCause::Rollback)
        }
    }

    fn advance(&mut self, poll: &Poll, now: Duration) {
        let state = &mut self.state;
        (state.head, state.genesis, state.l1) = (Some(poll.head), Some(poll.genesis), poll.l1);
        let is_old = self
            .since
            .is_some_and(|since| now.saturating_sub(since) >= SETTLE);
        if let Some(candidate) = state.candidate.filter(|_| is_old) {
            state.settled = Some(candidate);
            state.candidate = None;
        }
        let settled = state.settled.map(|settled| settled.number);
        if state.candidate.is_none() && settled < Some(poll.head.number) {
            (state.candidate, self.since) = (Some(poll.head), Some(now));
        }
        debug_assert!(
            settled <= Some(poll.head.number),
            "no block above the head is settled"
        );
        debug_assert!(
            state
                .candidate
                .is_none_or(|candidate| settled < Some(candidate.number)),
            "a candidate is above the settled block"
        );
    }

    fn forget(&mut self) {
        let ChainState {
            epoch,
            generation,
            cause,
            ..
        } = self.state;
        self.state = ChainState {
            epoch,
            generation,
            cause,
            ..ChainState::default()
        };
    }
}

/// The block of this number.
fn find(number: u64, known: &[BlockIdentity]) -> Option<BlockIdentity> {
    known.iter().find(|block| block.number == number).copied()
}

/// Whether the newest block shows that the one known before is gone or was replaced.
fn is_taken_back(known: BlockIdentity, seen: BlockIdentity) -> bool {
    seen.number < known.number || (seen.number == known.number && known != seen)
}

#[cfg(test)]
mod tests;
