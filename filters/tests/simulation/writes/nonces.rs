//! Which nonce a relay may use, and when it may give one up: rules 4, 5 and 8.

use super::chain::Tx;
use super::config::is_own;
use super::machine::Process;
use super::notes::Pace;
use super::oracle::{LAG, LOOK, RECENT, TIMEOUT};
use super::shown::{Fact, Failure, SERVING};
use super::world::{SKEW_US, World};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId, IntentState};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long ago another must have taken a slot to be seen by who sends what is in doubt: while the
/// account is locked, and without a lock.
const TAKEN: Duration = Duration::from_secs(4);
const TAKEN_OF_USER: Duration = Duration::from_secs(12);
/// The shortest pause of a user's transaction that is sent again, and the longest.
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// How long a request about which no node decides anything has its first transaction.
const UNDECIDED: Duration = Duration::from_secs(30);
/// By how much two sendings may be closer than the decisions to send.
const DELAY: Duration = Duration::from_millis(5_600);

impl World {
    /// Whether this is the first sending of an intent, by the relay that stored it.
    fn is_first_sending(&self, relay: Process, id: IntentId) -> bool {
        let is_its = self.oracle.notes.stored_by.get(&id) == Some(&relay);
        is_its && self.oracle.times.get(&(relay, id)) == Some(&1)
    }

    /// Whether a relay has read this nonce as free since then.
    fn was_read_as_free(&self, relay: Process, sender: Felt, nonce: u64, since: Duration) -> bool {
        let mut shown = self.oracle.record.since(relay, since);
        shown.any(|it| matches!(it.fact, Fact::Nonce(of, next) if of == sender && next <= nonce))
    }

    /// Whether a relay has read this nonce as used since then.
    fn was_read_as_used(&self, relay: Process, sender: Felt, nonce: u64, since: Duration) -> bool {
        let mut shown = self.oracle.record.since(relay, since);
        shown.any(|it| matches!(it.fact, Fact::Nonce(of, next) if of == sender && next > nonce))
    }

    /// Rule 8: what is open is sent again only after its nonce was read as free.
    pub(super) fn judge_open(&self, relay: Process, tx: &Tx) -> Result<(), String> {
        let Some(intent) = self.newest_of(tx.hash) else {
            return Ok(());
        };
        let is_repeat = !self.is_first_sending(relay, intent.id);
        if !intent.state.is_unresolved() || !is_repeat || self.acts_late(relay, RECENT) {
            return Ok(());
        }
        let since = self.now().saturating_sub(RECENT + TIMEOUT);
        if self.was_read_as_free(relay, tx.sender, tx.nonce, since) {
            return Ok(());
        }
        Err(format!(
            "rule 8: intent {} is open, and is sent again although its nonce is used",
            intent.id
        ))
    }

    /// Rule 5: what is in doubt is not sent again while another has its slot.
    pub(super) fn judge_beside(
        &self,
        relay: Process,
        tx: &Tx,
        last: Option<Duration>,
    ) -> Result<(), String> {
        let Some(intent) = self.newest_of(tx.hash) else {
            return Ok(());
        };
        let is_after_others = self.since(last) <= 2 * LAG;
        let is_excused = self.acts_late(relay, RECENT) || self.since(self.oracle.locks_lost) <= LAG;
        if intent.state != IntentState::Displaced || is_after_others || is_excused {
            return Ok(());
        }
        let ago = if is_own(tx.sender) {
            TAKEN
        } else {
            TAKEN_OF_USER
        };
        let since = self.now().saturating_sub(ago);
        let mut of_epoch = self.journal.tables.of_epoch(&intent.epoch);
        let has_slot = |it: &&Intent| {
            let occupied = self.oracle.notes.occupied.get(&it.id);
            it.id != intent.id
                && it.slot() == intent.slot()
                && it.state.occupies()
                && occupied.is_some_and(|at| *at <= since)
        };
        match of_epoch.find(has_slot) {
            Some(other) => Err(format!(
                "rule 5: intent {} is in doubt, and is sent beside intent {}",
                intent.id, other.id
            )),
            None => Ok(()),
        }
    }

    /// Rule 8: a user's transaction to which the node answers without a decision is sent again less
    /// and less often.
    pub(super) fn judge_pace(&mut self, relay: Process, tx: &Tx) -> Result<(), String> {
        let Some(intent) = self.newest_of(tx.hash) else {
            return Ok(());
        };
        let (id, updated_us) = (intent.id, intent.updated_us);
        let is_open = intent.state.is_unresolved() && !self.is_first_sending(relay, id);
        let now = self.now();
        // a request decided to send it while it was in doubt, or before its relay was paused
        let occupied = self.oracle.notes.occupied.get(&id);
        let was_in_doubt =
            occupied.is_some_and(|at| now < *at + SHORTEST) || self.acts_late(relay, RECENT);
        if is_own(tx.sender) || !is_open || was_in_doubt {
            return Ok(());
        }
        let last = self.oracle.notes.paces.get(&(relay, id)).copied();
        let last = last.filter(|last| self.grows(relay, tx, last, updated_us));
        let is_new = self.oracle.notes.again.remove(&(relay, id));
        let pause = last.map_or(SHORTEST, |last| (2 * last.pause).min(LONGEST));
        let pace = Pace {
            at: now,
            pause,
            updated_us: if is_new { None } else { Some(updated_us) },
            is_answered: false,
        };
        self.oracle.notes.paces.insert((relay, id), pace);
        match last {
            Some(last) if now + DELAY < last.at + last.pause => Err(format!(
                "rule 8: intent {id} is sent again after {:?}, and the node has answered",
                now - last.at
            )),
            _ => Ok(()),
        }
    }

    /// Whether the pause after a sending grows: the node has answered it, and nothing has changed.
    fn grows(&self, relay: Process, tx: &Tx, last: &Pace, updated_us: i64) -> bool {
        let record = &self.oracle.record;
        let has_failed = [Failure::Store, Failure::Unconfirmed, Failure::Node]
            .into_iter()
            .any(|failure| record.has_failed(relay, failure, last.at));
        let is_receipt = |fact: &Fact| matches!(fact, Fact::Receipt(of, Some(_)) if *of == tx.hash);
        let mut shown = record.since(relay, last.at);
        last.is_answered
            && last.updated_us == Some(updated_us)
            && !has_failed
            && !self.acts_late(relay, self.now().saturating_sub(last.at))
            && !shown.any(|it| is_receipt(&it.fact))
            && !self.was_read_as_used(relay, tx.sender, tx.nonce, last.at)
    }

    /// Rule 5: a request about whose transaction no node decides anything is signed anew less and less
    /// often.
    pub(super) fn judge_anew_pace(&self, new: &Intent) -> Result<(), String> {
        let of_epoch = self.journal.tables.of_epoch(&new.epoch);
        let in_doubt: Vec<&Intent> = of_epoch
            .filter(|it| it.state == IntentState::Displaced && it.slot() == new.slot())
            .filter(|it| it.id != new.id)
            .collect();
        let own = in_doubt.iter().filter(|it| it.digest == new.digest);
        let Some(last) = own.max_by_key(|it| it.id) else {
            return Ok(());
        };
        let is_refused = self
            .oracle
            .record
            .was_refused(last.transaction_hash, Duration::ZERO);
        let times = u32::try_from(in_doubt.len() - 1).expect("they are few");
        let pause = (UNDECIDED * 2_u32.saturating_pow(times.min(8))).min(LONGEST);
        let age = Duration::from_micros(new.created_us.abs_diff(last.created_us));
        let slack = Duration::from_micros(2 * SKEW_US.unsigned_abs());
        if is_refused || age + slack >= pause || self.clock_was_set() {
            return Ok(());
        }
        Err(format!(
            "rule 5: intent {} is signed anew {age:?} after intent {}, which nobody refused",
            new.id, last.id
        ))
    }

    /// The node has answered a sending, and decided nothing.
    pub(super) fn note_undecided(&mut self, relay: Process, hash: Felt) {
        let Some(id) = self.newest_of(hash).map(|it| it.id) else {
            return;
        };
        if let Some(pace) = self.oracle.notes.paces.get_mut(&(relay, id)) {
            pace.is_answered = true;
        }
    }

    /// Rule 4: no transaction is signed with a nonce that an open one may use, as far as the relay
    /// has read which are open.
    pub(super) fn judge_signed(
        &self,
        relay: Process,
        sender: Felt,
        nonce: u64,
    ) -> Result<(), String> {
        let Some(read) = self.oracle.notes.open.get(&(relay, sender)) else {
            return Ok(());
        };
        let is_open = |id: &IntentId| {
            let intent = self.journal.tables.intents.get(id);
            intent.is_some_and(|it| it.state.is_unresolved())
        };
        let mut open = read.intents.iter();
        let Some((id, _)) = open.find(|(id, of)| *of == nonce && is_open(id)) else {
            return Ok(());
        };
        let since = read.at.saturating_sub(RECENT + TIMEOUT);
        let is_excused = self.acts_late(relay, RECENT)
            || self.since(self.oracle.locks_lost) <= 2 * LAG
            || self.was_read_as_used(relay, sender, nonce, since);
        if is_excused {
            return Ok(());
        }
        Err(format!(
            "rule 4: nonce {nonce} is signed with, and intent {id} is open and may use it"
        ))
    }

    /// Rule 5: what is signed with the nonce of those in doubt is another transaction than each of
    /// them. One that came in doubt just now was not read as such: it is signed, and not stored.
    pub(super) fn judge_other_hash(&self, relay: Process, tx: &Tx) -> Result<(), String> {
        let epoch = self.epoch();
        let of_epoch = self.journal.tables.of_epoch(&epoch);
        let slot: Vec<_> = of_epoch
            .filter(|it| (it.signer, it.nonce) == (tx.sender, tx.nonce))
            .collect();
        let is_in_doubt = |it: &&Intent| {
            let displaced = &self.oracle.notes.displaced;
            let mut recent = displaced.iter().filter(|((_, id), _)| *id == it.id);
            it.state == IntentState::Displaced
                && recent.all(|(_, at)| self.since(Some(*at)) > RECENT)
        };
        let is_each_in_doubt = slot.iter().all(is_in_doubt) && !self.acts_late(relay, RECENT);
        let mut equal = slot.iter().filter(|it| it.transaction_hash == tx.hash);
        match equal.next() {
            Some(other) if is_each_in_doubt => Err(format!(
                "rule 5: {} is signed anew as intent {}, which is in doubt",
                tx.hash, other.id
            )),
            _ => Ok(()),
        }
    }

    /// Rule 4: a request is answered with the node's refusal only if the nonce was read as free after
    /// that.
    pub(super) fn is_refusal_known(
        &self,
        relay: Process,
        intent: &Intent,
        since: Duration,
    ) -> bool {
        let refused = self
            .oracle
            .notes
            .refused
            .get(&(relay, intent.transaction_hash));
        let Some(refused) = refused.filter(|at| **at >= since) else {
            return false;
        };
        self.was_read_as_free(relay, intent.signer, intent.nonce, *refused)
    }

    /// Rule 8: a nonce is given up if in one look some URL answers, none shows the transaction, and
    /// to each the nonce is free.
    pub(super) fn judge_given_up(&self, relay: Process, before: &Intent) -> Result<(), String> {
        let (id, hash) = (before.id, before.transaction_hash);
        if self.acts_late(relay, LOOK) {
            return Ok(());
        }
        let since = self.now().saturating_sub(LOOK);
        let facts = || self.oracle.record.since(relay, since);
        // only this look asks each URL for the nonce
        let nonces = || {
            let of_url = facts().filter(|it| it.url != SERVING);
            of_url.filter_map(|it| match it.fact {
                Fact::Nonce(of, next) if of == before.signer => Some((it.url, it.begun, next)),
                _ => None,
            })
        };
        let contradicts = |(url, begun, next): (usize, Duration, u64)| {
            let mut receipts = facts().filter(|it| (it.url, it.begun) == (url, begun));
            let receipt = receipts.find_map(|it| match &it.fact {
                Fact::Receipt(of, receipt) if *of == hash => Some(receipt.is_some()),
                _ => None,
            });
            receipt.is_some_and(|is_shown| is_shown || next > before.nonce)
        };
        // two requests may look at once
        let looks: BTreeSet<Duration> = nonces().map(|it| it.1).collect();
        let is_clear = |begun: &Duration| {
            let mut of_look = nonces().filter(|it| it.1 == *begun);
            !of_look.any(contradicts)
        };
        if looks.iter().any(is_clear) {
            return Ok(());
        }
        Err(format!(
            "rule 8: intent {id} is given up, and in {} looks a URL contradicts",
            looks.len()
        ))
    }
}
