//! What the judge of nonces, shares and repeated outcomes remembers: what happened when, and what a
//! relay has read.

use super::machine::Process;
use super::world::World;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId, IntentState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The open intents of an account, as a relay read them last.
pub(super) struct ReadOpen {
    pub(super) at: Duration,
    /// Each with its nonce.
    pub(super) intents: Vec<(IntentId, u64)>,
}

/// When an open transaction was last sent again, and how long nothing may follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) at: Duration,
    pub(super) pause: Duration,
    /// When the intent had last changed; `None` if that was with this very sending.
    pub(super) updated_us: Option<i64>,
    /// The node answered, and decided nothing.
    pub(super) is_answered: bool,
}

#[derive(Default)]
pub(super) struct Notes {
    /// When each intent last came to have its nonce, and when it last came into a block.
    pub(super) occupied: BTreeMap<IntentId, Duration>,
    pub(super) included: BTreeMap<IntentId, Duration>,
    /// The relay that stored each intent.
    pub(super) stored_by: BTreeMap<IntentId, Process>,
    /// When each relay last recorded an intent as in doubt.
    pub(super) displaced: BTreeMap<(Process, IntentId), Duration>,
    /// When the node last refused each transaction that a relay sent.
    pub(super) refused: BTreeMap<(Process, Felt), Duration>,
    pub(super) open: BTreeMap<(Process, Felt), ReadOpen>,
    /// The floor that the process of a relay has read in an epoch, and the highest block that it
    /// has noted.
    pub(super) floors: BTreeMap<(Process, String), Option<u64>>,
    pub(super) noted: BTreeMap<Process, u64>,
    pub(super) paces: BTreeMap<(Process, IntentId), Pace>,
    /// What was just recorded as sent again.
    pub(super) again: BTreeSet<(Process, IntentId)>,
    /// When the chain last lost a block, and when the store's clock was last set.
    pub(super) unsettled: Option<Duration>,
    pub(super) clock_set: Option<Duration>,
    /// The relays that waited for an account without getting it, since their last write with it.
    pub(super) in_vain: BTreeSet<(Process, Felt)>,
    /// Until when each relay was paused last: what it does then may be late, also if nothing goes wrong
    /// any longer.
    pub(super) paused: BTreeMap<Process, Duration>,
    /// When a relay last read that the registry permits a drip, by its digest.
    pub(super) permitted: BTreeMap<[u8; 32], Duration>,
}

impl Notes {
    /// The process of a relay ends, and with it what it remembers.
    pub(super) fn crashed(&mut self, relay: Process) {
        self.open.retain(|(of, _), _| *of != relay);
        self.floors.retain(|(of, _), _| *of != relay);
        self.paces.retain(|(of, _), _| *of != relay);
        self.again.retain(|(of, _)| *of != relay);
        self.in_vain.retain(|(of, _)| *of != relay);
        self.noted.remove(&relay);
    }

    /// An intent has another state.
    pub(super) fn moved(
        &mut self,
        id: IntentId,
        before: Option<IntentState>,
        state: IntentState,
        now: Duration,
    ) {
        if state.occupies() && !before.is_some_and(IntentState::occupies) {
            self.occupied.insert(id, now);
        }
        if state.is_included() && !before.is_some_and(IntentState::is_included) {
            self.included.insert(id, now);
        }
    }
}

impl World {
    /// A relay has read the open intents of an account.
    pub(super) fn note_open(&mut self, relay: Process, account: Felt, open: &[Intent]) {
        let read = ReadOpen {
            at: self.now(),
            intents: open.iter().map(|it| (it.id, it.nonce)).collect(),
        };
        self.oracle.notes.open.insert((relay, account), read);
    }

    /// The newest intent with a transaction: an earlier one of a user's may be of another epoch.
    pub(super) fn newest_of(&self, hash: Felt) -> Option<&Intent> {
        let mut newest = self.journal.tables.intents.values().rev();
        newest.find(|it| it.transaction_hash == hash)
    }

    /// Whether a relay may act on what it saw long ago: it was paused, or hours have passed.
    pub(super) fn acts_late(&self, relay: Process, within: Duration) -> bool {
        let until = self.oracle.notes.paused.get(&relay).copied();
        let was_paused = |until: Duration| until.saturating_add(within) >= self.now();
        until.is_some_and(was_paused) || self.has_leapt(within)
    }
}
