//! The journal of the simulation: the tables, with the planted bugs of what reaches them.

use super::Bug;
use super::outbox::Outgoing;
use crate::tables::{Named, RequestKey, Tables, pays};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    self, Binding, Change, Claim, ClaimToken, Facts, Intended, Intent, IntentId, IntentState,
    Intention, NewIntent, Pair, Steps,
};
use portcullis_filters::txm::io::KeyOf;
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet};

impl From<&KeyOf<'_>> for RequestKey {
    fn from(key: &KeyOf<'_>) -> Self {
        Self {
            named: (key.epoch.to_owned(), key.key.to_owned()),
            operation: key.operation.to_owned(),
            digest: *key.digest,
        }
    }
}

/// The journal.
#[derive(Clone)]
pub(super) struct Journal {
    bug: Bug,
    pub(super) tables: Tables,
    /// The key with which each intent was written.
    pub(super) written_with: BTreeMap<IntentId, Option<String>>,
    /// When each key was claimed.
    claimed_us: BTreeMap<Named, i64>,
    pub(super) outgoing: Outgoing,
    /// The intents that were dated anew.
    pub(super) dated: BTreeSet<IntentId>,
}

impl Journal {
    pub(super) fn new(bug: Bug) -> Self {
        Self {
            bug,
            tables: Tables::default(),
            written_with: BTreeMap::new(),
            claimed_us: BTreeMap::new(),
            outgoing: Outgoing::default(),
            dated: BTreeSet::new(),
        }
    }

    /// Changes the tables, except the bindings that a planted bug does not release.
    fn change<T>(&mut self, change: impl FnOnce(&mut Tables) -> T) -> T {
        let kept = (self.bug == Bug::BindingKept).then(|| self.tables.bindings.clone());
        let done = change(&mut self.tables);
        self.tables.bindings.extend(kept.into_iter().flatten());
        done
    }

    pub(super) fn date_anew(&mut self, now_us: i64) {
        self.dated.extend(self.tables.date_anew(now_us));
    }

    /// The facts that a new intent is decided by.
    pub(super) fn facts(&self, new: &NewIntent<'_>, now_us: i64) -> Facts {
        let mut facts = self.tables.facts(new, now_us);
        match self.bug {
            Bug::NoFence => facts.intents.retain(|it| {
                it.state.holds() && it.digest == new.digest
                    || (it.signer, it.nonce) != (new.signer, new.nonce)
            }),
            Bug::CooldownBeforeLock => facts.last = None,
            _ => {}
        }
        facts
    }

    /// Stores a new intent, if that was decided.
    pub(super) fn store(
        &mut self,
        new: &NewIntent<'_>,
        intention: Intention,
        now_us: i64,
    ) -> Intended {
        let reply = self.change(|tables| tables.store(new, intention, now_us));
        if let Intended::New(id) = reply {
            self.written_with
                .insert(id, new.idempotency_key.map(str::to_owned));
        }
        reply
    }

    /// Stores a new intent alone, if its facts permit it.
    pub(super) fn intend(&mut self, new: &NewIntent<'_>, now_us: i64) -> Intended {
        self.date_anew(now_us);
        let intention = ledger::intention(new, &self.facts(new, now_us), now_us);
        self.store(new, intention, now_us)
    }

    /// A change of an intent as a planted bug makes it, or the reply of one that makes none.
    pub(super) fn planted<'c>(
        &self,
        id: IntentId,
        change: &Change<'c>,
    ) -> Result<Change<'c>, bool> {
        let state = self.tables.intents.get(&id).map(|it| it.state);
        match (self.bug, change) {
            (Bug::SilentRepeat, Change::SentAgain) => Err(true),
            (Bug::AbsentIsLost | Bug::DisplacedIsLost, Change::Displaced { why, .. }) => {
                Ok(Change::Lost(why))
            }
            (Bug::RefusedRepeatIsRejected, Change::Doubted(why)) => Ok(Change::Rejected(why)),
            (Bug::LostIsFinal, Change::Included { .. }) if state == Some(IntentState::Lost) => {
                Err(false)
            }
            _ => Ok(*change),
        }
    }

    /// Writes what follows from a change of an intent.
    pub(super) fn write(&mut self, id: IntentId, steps: &Steps) {
        let lost = self.lost_for_good();
        self.change(|tables| tables.write(id, steps));
        for it in lost {
            self.tables.intents.insert(it.id, it);
        }
    }

    /// The lost intents, if a planted bug leaves them lost.
    fn lost_for_good(&self) -> Vec<Intent> {
        if self.bug != Bug::LostIsFinal {
            return Vec::new();
        }
        let lost = self.tables.intents.values();
        lost.filter(|it| it.state == IntentState::Lost)
            .cloned()
            .collect()
    }

    pub(super) fn select(&self, epoch: &str, is_it: impl Fn(&Intent) -> bool) -> Vec<Intent> {
        self.tables
            .of_epoch(epoch)
            .filter(|it| is_it(it))
            .cloned()
            .collect()
    }

    pub(super) fn newest_by_digest(&self, epoch: &str, digest: &[u8; 32]) -> Option<Intent> {
        let mut newest = self.tables.of_epoch(epoch).rev();
        newest
            .find(|it| it.digest == *digest && it.state.holds())
            .cloned()
    }

    pub(super) fn included_newest(&self, epoch: &str, limit: u32) -> Vec<Intent> {
        let mut found = self.select(epoch, |it| it.state.is_included() && it.included.is_some());
        let number = |it: &Intent| it.included.map(|it| it.number);
        found.sort_by_key(|it| std::cmp::Reverse((number(it), it.id)));
        found.truncate(limit as usize);
        found
    }

    pub(super) fn included_anywhere(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Vec<Intent> {
        let is_below = |it: &Intent| below.is_none_or(|below| it.id < below);
        let is_anywhere = |it: &Intent| it.state.is_included() && it.included.is_none();
        let mut found = self.select(epoch, |it| is_anywhere(it) && is_below(it));
        found.reverse();
        found.truncate(limit as usize);
        found
    }

    pub(super) fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> Option<Intent> {
        let of = |it: &&Intent| it.operation == operation && it.subject == Some(subject);
        let paying = self.tables.of_epoch(epoch).filter(of).filter(|it| pays(it));
        let paying = paying.filter(|it| cooldown.counts(it.created_us));
        paying.max_by_key(|it| (it.created_us, it.id)).cloned()
    }

    pub(super) fn binding(&self, epoch: &str, identity: Felt, recipient: Felt) -> Binding {
        let of_epoch = self.tables.bindings.iter().filter(|(of, _)| of == epoch);
        Pair {
            identity,
            recipient,
        }
        .binding(of_epoch.map(|(_, pair)| *pair))
    }

    /// A key as the tables see it: with a planted bug, of whatever request.
    fn seen(&self, key: &RequestKey) -> RequestKey {
        match self.tables.keys.get(&key.named) {
            Some(stored) if self.bug == Bug::LinkAnyBody => RequestKey {
                operation: stored.operation.clone(),
                digest: stored.digest,
                ..key.clone()
            },
            _ => key.clone(),
        }
    }

    pub(super) fn claim(&mut self, key: &RequestKey, token: ClaimToken, now_us: i64) -> Claim {
        let seen = self.seen(key);
        if !self.tables.keys.contains_key(&key.named) {
            self.claimed_us.insert(key.named.clone(), now_us);
        }
        self.tables.claim(&seen, token)
    }

    /// Deletes the keys from before then that are answered, or name nothing.
    pub(super) fn prune(&mut self, before_us: i64) -> Vec<String> {
        let claimed_us = &self.claimed_us;
        let mut pruned = Vec::new();
        self.tables.keys.retain(|named, key| {
            let is_old = claimed_us.get(named).is_some_and(|at| *at < before_us);
            let is_kept = !is_old || key.intent.is_some() && key.answer.is_none();
            if !is_kept {
                pruned.push(named.1.clone());
            }
            is_kept
        });
        pruned
    }

    /// Becomes what a standby has. No id is used twice.
    pub(super) fn promote(&mut self, standby: Self) {
        let newest = self.tables.clone();
        *self = standby;
        self.tables.seq = self.tables.seq.max(newest.seq);
    }

    pub(super) fn linked(&self, key: &RequestKey) -> Option<Intent> {
        let seen = self.seen(key);
        let stored = self.tables.keys.get(&seen.named)?;
        let id = stored
            .intent
            .filter(|_| stored.is_of(&seen.operation, &seen.digest))?;
        let linked = self.tables.intents.get(&id);
        linked.filter(|linked| stored.is_for(linked)).cloned()
    }

    pub(super) fn link(&mut self, key: &RequestKey, id: IntentId) -> bool {
        if self.bug == Bug::UnlinkedJoiner {
            return true;
        }
        let seen = self.seen(key);
        self.tables.intents.contains_key(&id) && self.tables.link(&seen, id)
    }

    pub(super) fn answer(
        &mut self,
        key: &RequestKey,
        id: IntentId,
        status: u16,
        hash: &str,
    ) -> bool {
        if self.bug == Bug::UnlinkedJoiner
            && let Some(stored) = self.tables.keys.get_mut(&key.named)
        {
            return stored.answer.replace((status, hash.to_owned())).is_none();
        }
        self.tables.answer(key, id, status, hash)
    }
}
