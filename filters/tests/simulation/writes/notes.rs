//! What the judge of nonces, shares and repeated outcomes remembers: what happened when, and what a
//! relay has read.

use super::machine::Process;
use super::rules::Case;
use super::shown::Failure;
use super::world::World;
use crate::tables::DRIP;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId, IntentState, Returning};
use portcullis_filters::txm::io::Note;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Until when a relay must have reported a drip that was paid in addition to another one.
const REPORTED: Duration = Duration::from_secs(15);

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
    /// The intents in doubt that the round of each relay has read.
    pub(super) pages: BTreeMap<Process, Vec<IntentId>>,
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
    /// A change that a relay has just recorded, and must report to its operator before anything else.
    pub(super) expected: BTreeMap<Process, (IntentId, IntentState)>,
    /// Drips that are paid although their recipient was paid meanwhile, until a relay reports them.
    pub(super) doubles: BTreeMap<IntentId, (Process, Duration)>,
    /// When a relay last read that the registry permits a drip, by its digest.
    pub(super) permitted: BTreeMap<[u8; 32], Duration>,
}

impl Notes {
    /// The process of a relay ends, and with it what it remembers.
    pub(super) fn crashed(&mut self, relay: Process) {
        self.open.retain(|(of, _), _| *of != relay);
        self.pages.remove(&relay);
        self.floors.retain(|(of, _), _| *of != relay);
        self.paces.retain(|(of, _), _| *of != relay);
        self.again.retain(|(of, _)| *of != relay);
        self.in_vain.retain(|(of, _)| *of != relay);
        self.noted.remove(&relay);
        self.expected.remove(&relay);
        self.doubles.retain(|_, (of, _)| *of != relay);
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

    /// A relay has recorded a change of an intent that its operator must know.
    pub(super) fn expect_note(&mut self, relay: Process, id: IntentId, state: Option<IntentState>) {
        self.judge_noted();
        if let Some(state) = state {
            self.oracle.notes.expected.insert(relay, (id, state));
        }
    }

    /// A relay informs its operator.
    pub(super) fn noted(&mut self, relay: Process, note: &Note<'_>) {
        let noted = match note {
            Note::Displaced(intent, _) => (intent.id, IntentState::Displaced),
            Note::Lost(intent, _) => (intent.id, IntentState::Lost),
            Note::PaidTwice(drip, _) => {
                self.oracle.notes.doubles.remove(&drip.id);
                return;
            }
            _ => return,
        };
        if self.oracle.notes.expected.remove(&relay) != Some(noted) {
            let (id, state) = (noted.0, noted.1.name());
            let broken = format!("notes: intent {id} is reported as {state}, and is not recorded");
            self.oracle.report(Err(broken));
        }
    }

    /// A displaced or lost intent is reported at once.
    pub(super) fn judge_noted(&mut self) {
        if let Some((relay, (id, state))) = self.oracle.notes.expected.pop_first() {
            let state = state.name();
            let broken = format!("notes: relay {relay} does not report intent {id} as {state}");
            self.oracle.report(Err(broken));
        }
        let now = self.now();
        let doubles = &mut self.oracle.notes.doubles;
        let is_due = |_: &IntentId, (_, at): &mut (Process, Duration)| *at + REPORTED <= now;
        let due: Vec<_> = doubles.extract_if(.., is_due).collect();
        for (id, (relay, at)) in due {
            let record = &self.oracle.record;
            let failures = [Failure::Store, Failure::Unconfirmed];
            let has_failed = |failure| record.has_failed(relay, failure, at);
            if failures.into_iter().any(has_failed) || self.acts_late(relay, REPORTED) {
                continue;
            }
            let broken = format!("rule 9: drip {id} is paid in addition, and is not reported");
            self.oracle.report(Err(broken));
        }
    }

    /// Rule 9: a drip that was over is paid after all. A recipient who was paid meanwhile has been paid
    /// twice.
    pub(super) fn expect_double(&mut self, relay: Process, before: &Intent) {
        let is_over = matches!(before.state, IntentState::Reverted | IntentState::Lost);
        let Some(returning) = Returning::of(before).filter(|_| is_over) else {
            return;
        };
        let cooldown = self.relays[relay].config.settings.faucet_cooldown;
        let window = returning.window(cooldown);
        let newest = self
            .journal
            .last_of(DRIP, returning.recipient, &before.epoch, window);
        if newest.is_some_and(|it| it.slot() != before.slot()) {
            let now = self.now();
            self.oracle.notes.doubles.insert(before.id, (relay, now));
            self.met(Case::PaidTwice);
        }
    }

    /// Whether a relay may act on what it saw long ago: it was paused, or hours have passed.
    pub(super) fn acts_late(&self, relay: Process, within: Duration) -> bool {
        let until = self.oracle.notes.paused.get(&relay).copied();
        let was_paused = |until: Duration| until.saturating_add(within) >= self.now();
        until.is_some_and(was_paused) || self.has_leapt(within)
    }
}
