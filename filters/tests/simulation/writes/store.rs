//! What happens to the store: old keys are pruned, a standby is promoted without the newest commits,
//! one of the processes does the chores. Its unique indexes are alarms.

use super::journal::Journal;
use super::machine::Process;
use super::world::{Fault, World};
use portcullis_filters::ledger::Intent;
use std::collections::BTreeSet;
use std::time::Duration;

const HOUR_US: i64 = 3_600_000_000;
/// After so much silence, a process loses the chore.
const SUSPENDED: Duration = Duration::from_secs(30);
/// How many seconds a standby may be behind.
const BEHIND: usize = 5;

/// What one of the processes does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    /// The rounds over what is open or in doubt.
    Rounds,
    /// The events.
    Events,
}

/// Whether two rows have one value of a unique index.
fn has_twice<K: Ord>(keys: impl Iterator<Item = K>) -> bool {
    let mut seen = BTreeSet::new();
    let mut keys = keys;
    keys.any(|key| !seen.insert(key))
}

impl Journal {
    /// The unique index that two rows violate.
    fn violated_index(&self) -> Option<&'static str> {
        let rows = || self.tables.intents.values();
        let occupying = rows().filter(|it| it.state.occupies()).map(Intent::slot);
        let holding = rows().filter(|it| it.state.holds());
        let open = rows().filter(|it| it.state.is_unresolved());
        if has_twice(occupying) {
            Some("intent_nonce")
        } else if has_twice(holding.map(|it| (&it.epoch, it.transaction_hash))) {
            Some("intent_hash")
        } else if has_twice(open.map(|it| (&it.epoch, it.digest))) {
            Some("intent_digest")
        } else {
            None
        }
    }
}

impl World {
    /// Reports a violated index, if the journal has changed.
    pub(super) fn raise_alarm(&mut self) {
        let entries = self.journal.tables.entries.len();
        if std::mem::replace(&mut self.checked_entries, entries) == entries {
            return;
        }
        if let Some(index) = self.journal.violated_index() {
            let broken = Err(format!("store: two rows of the unique index {index}"));
            self.oracle.report(broken);
        }
    }

    /// What happens to the store about once a second.
    pub(super) fn disturb_store(&mut self) {
        if self.fires(Fault::Prune, 60) {
            let hours = self.chance.pick(&[168, 24, 1]);
            self.prune(hours * HOUR_US);
        }
        if !self.regime.loses_tail {
            return;
        }
        if self.fires(Fault::LostTail, 60) && !self.standby.is_empty() {
            let behind = self.chance.choose(self.standby.len() as u32) as usize;
            let newest = self.standby.len() - 1;
            self.journal.promote(self.standby[newest - behind].clone());
            let left = self.journal.tables.entries.len();
            self.oracle.lose_entries(left);
            self.checked_entries = left;
            self.lose_locks();
            self.note(|| format!("a standby without the last {behind} seconds is promoted"));
        }
        self.standby.push_back(self.journal.clone());
        if self.standby.len() > BEHIND {
            self.standby.pop_front();
        }
    }

    /// Deletes keys of this age that are answered, or name nothing.
    fn prune(&mut self, age_us: i64) {
        let before = self.clock_us() - age_us;
        let pruned = self.journal.prune(before);
        let number = pruned.len();
        for key in pruned {
            self.oracle.forget_key(&key);
            // used again, it is a new one
            for with in self.journal.written_with.values_mut() {
                if with.as_ref() == Some(&key) {
                    *with = None;
                }
            }
        }
        self.note(|| format!("{number} keys are pruned"));
    }

    /// Whether a process has a chore now: it is free, its own, or its owner was silent for long.
    pub(super) fn try_chore(&mut self, relay: Process, chore: Chore) -> bool {
        let now = self.now();
        let is_free = match self.chores.get(&chore) {
            Some((owner, last)) => *owner == relay || *last + SUSPENDED < now,
            None => true,
        };
        if is_free {
            self.chores.insert(chore, (relay, now));
        }
        is_free
    }

    /// A process gives a chore up.
    pub(super) fn release_chore(&mut self, relay: Process, chore: Chore) {
        self.chores
            .retain(|it, (owner, _)| *it != chore || *owner != relay);
    }
}
