//! What a repeated request gets: the outcome of its own intent, and of no older one.

use super::machine::Process;
use super::oracle::{Begun, LAG};
use super::requests::{CATALOG, Reply, ReplyKind, Request, Wanted};
use super::shown::{Fact, Failure, SERVING, Shown};
use super::world::{Fault, SKEW_US, World};
use crate::tables::{DRIP, Named, pays};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentState};
use portcullis_filters::operations::{Operation, OperationKind};
use portcullis_filters::txm::node::Receipt;
use portcullis_filters::verdict::Reason;
use std::collections::BTreeSet;
use std::time::Duration;

/// How far the clocks of two relays may be apart, in microseconds: one that answers slowly is known
/// loosely.
const CLOCKS_US: i64 = 3_000_000;
/// Looks in which no URL shows a transaction, after which it is not reported as written; and if the
/// relay has not read its effect, so that it looked because of that.
const LOOKS: usize = 6;
const LOOKS_UNREAD: usize = 3;
/// The seconds of a day and a minute: no wait is longer.
const LONGEST_WAIT: i64 = 24 * 3_600 + 60;

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).expect("it is short")
}

impl World {
    /// The newest intent of a request with this transaction.
    fn intent_of(&self, request: &Request, hash: Option<Felt>) -> Option<&Intent> {
        let digest = CATALOG[request.wanted].digest()?;
        let mut newest = self.journal.tables.intents.values().rev();
        newest.find(|it| it.digest == digest && Some(it.transaction_hash) == hash)
    }

    /// A success from before the request is decided again: it is no answer to a request without a
    /// key. A drip within its cooldown and the end of a recovery are, since the repeat is refused
    /// for them.
    pub(super) fn judge_old(
        &self,
        request: &Request,
        begun: Begun,
        reply: &Reply,
    ) -> Result<(), String> {
        let alone = self.alone_since(begun.watch);
        if request.key.is_some() || reply.kind != ReplyKind::Written || alone.is_none() {
            return Ok(());
        }
        let Some(intent) = self.intent_of(request, reply.hash) else {
            return Ok(());
        };
        let (relay, waited) = (self.relay_of(begun.watch), self.now() - begun.at);
        let included = self.oracle.notes.included.get(&intent.id);
        let is_older = included.is_some_and(|at| *at < begun.at)
            && intent.created_us < self.clock_us() - micros(waited) - CLOCKS_US;
        let was_set = self.oracle.notes.clock_set.is_some_and(|at| at >= begun.at);
        // to a node that is behind, its nonce is free: it is signed again, and is the same
        let mut shown = self.oracle.record.since(relay, begun.at);
        let is_free = |fact: &Fact| matches!(fact, Fact::Nonce(of, next) if *of == intent.signer && *next <= intent.nonce);
        if !is_older || was_set || shown.any(|it| is_free(&it.fact)) {
            return Ok(());
        }
        if self.may_be_done(request, intent, waited) {
            return Ok(());
        }
        Err(format!(
            "answers: intent {} is older than the request, and its answer",
            intent.id
        ))
    }

    /// Whether a repeat may be refused because an intent has done what it asks for.
    fn may_be_done(&self, request: &Request, done: &Intent, waited: Duration) -> bool {
        let Wanted::Operation(permit) = &CATALOG[request.wanted] else {
            return true;
        };
        match permit.operation() {
            Operation::FaucetDrip(_) => {
                let cooldown = micros(self.limits.longest_cooldown + waited) + 2 * SKEW_US;
                self.oracle.notes.clock_set.is_some()
                    || done.created_us + cooldown >= self.clock_us()
            }
            Operation::RecoveryExecute(_) | Operation::RecoveryCancel(_) => {
                let propose = OperationKind::RecoveryPropose.name();
                let mut proposed = self.journal.tables.of_epoch(&done.epoch);
                let since = self.now().saturating_sub(waited);
                let is_newer = |it: &Intent| {
                    it.operation == propose
                        && it.subject == done.subject
                        && it.id > done.id
                        && pays(it)
                        && self.oracle.stored_at(it.id).is_some_and(|at| at < since)
                };
                !proposed.any(is_newer)
            }
            _ => false,
        }
    }

    /// The drip of an equal request that came in later is the answer, however far the clocks are
    /// apart; without a key, unless something else than the chain was ever shown.
    pub(super) fn judge_twin(
        &self,
        request: &Request,
        begun: Begun,
        reply: &Reply,
    ) -> Result<(), String> {
        use Fault::{Genesis, GoneAtOnce, Rollback, SameGenesis, TwoChains};
        let is_refused = reply.kind == ReplyKind::Refused(Reason::FaucetCooldown);
        let shows_other = [Rollback, GoneAtOnce, Genesis, SameGenesis, TwoChains];
        let is_excused =
            request.key.is_none() && shows_other.iter().any(|it| self.fired.contains_key(it));
        if !is_refused || is_excused {
            return Ok(());
        }
        let twin = self.intent_of(request, reply.hash);
        // a relay that was paused begins later with it, and what was paid before is the drip of an
        // earlier request then: only a repeat without a key has that for its answer
        let since = match request.key {
            Some(_) => self.arrived_at(begun.watch),
            None => begun.at,
        };
        // the times of request and drip cannot be compared then
        let was_set = self.oracle.notes.clock_set.is_some_and(|at| at >= since);
        let is_twin = |it: &&Intent| {
            let stored = self.oracle.stored_at(it.id);
            it.state == IntentState::Succeeded && stored.is_some_and(|at| at >= since)
        };
        match twin.filter(is_twin) {
            Some(twin) if !was_set => Err(format!("answers: drip {} is its own", twin.id)),
            _ => Ok(()),
        }
    }

    /// The key of a request that wrote or joined a write names an intent.
    pub(super) fn judge_linked(
        &self,
        request: &Request,
        begun: Begun,
        reply: &Reply,
    ) -> Result<(), String> {
        use Reason::{OutcomeUnknown, Reverted};
        let names_one = matches!(
            reply.kind,
            ReplyKind::Written | ReplyKind::Pending | ReplyKind::Refused(OutcomeUnknown | Reverted)
        );
        let intent = self.intent_of(request, reply.hash);
        let (Some(key), Some(intent), true) = (&request.key, intent, names_one) else {
            return Ok(());
        };
        let relay = self.relay_of(begun.watch);
        let since = self.since_of(begun.watch);
        let record = &self.oracle.record;
        let has_failed = [Failure::Store, Failure::Unconfirmed]
            .into_iter()
            .any(|failure| record.has_failed(relay, failure, since));
        let keys = &self.journal.tables.keys;
        match keys.get(&(intent.epoch.clone(), key.clone())) {
            Some(stored) if stored.intent.is_none() && !has_failed => Err(format!(
                "keys: {key} names nothing, and intent {} is its answer",
                intent.id
            )),
            _ => Ok(()),
        }
    }

    /// A relay claims a key: once for a request, unless the key names another intent since.
    pub(super) fn judge_claim(&mut self, relay: Process, named: &Named) {
        let keys = &self.journal.tables.keys;
        let link = keys.get(named).and_then(|key| key.intent);
        let since = self.now().saturating_sub(2 * LAG);
        // the chain may have started over: then it claims its key in the new epoch
        let may_claim_again =
            self.oracle.former_shown.is_some_and(|at| at >= since) || self.shown_other_since(since);
        let Some(last) = self.note_claim(relay, named, link) else {
            return;
        };
        if last == (named.0.clone(), link) && link.is_some() && !may_claim_again {
            let key = &named.1;
            let broken =
                format!("keys: {key} is claimed again for one request, and names the same");
            self.oracle.report(Err(broken));
        }
    }

    /// What is gone, as far as the relay knows, is not reported as written.
    pub(super) fn judge_gone(
        &self,
        request: &Request,
        begun: Begun,
        reply: &Reply,
    ) -> Result<(), String> {
        let intent = self.intent_of(request, reply.hash);
        let Some(intent) = intent.filter(|_| reply.kind == ReplyKind::Written) else {
            return Ok(());
        };
        let relay = self.relay_of(begun.watch);
        let since = self.now().saturating_sub(2 * LAG);
        let hash = intent.transaction_hash;
        let receipts = || {
            let shown = self.oracle.record.since(relay, since);
            shown.filter_map(|it| match &it.fact {
                Fact::Receipt(of, receipt) if *of == hash => Some((it, receipt)),
                _ => None,
            })
        };
        let is_accepted = |(_, receipt): &(&Shown, &Option<Receipt>)| {
            receipt.as_ref().is_some_and(|it| it.accepted)
        };
        let Some((last, _)) = receipts().find(is_accepted) else {
            return Ok(());
        };
        // a store or a node that does not answer changes nothing
        let mut shown = self.oracle.record.since(relay, last.at);
        let record = &self.oracle.record;
        let has_failed = [Failure::Store, Failure::Unconfirmed]
            .into_iter()
            .any(|failure| record.has_failed(relay, failure, last.at));
        if has_failed || shown.any(|it| it.fact == Fact::NoReceipt(hash)) {
            return Ok(());
        }
        let displaced = self.oracle.notes.displaced.get(&(relay, intent.id));
        let is_in_doubt = intent.state == IntentState::Displaced;
        if is_in_doubt && displaced.is_some_and(|at| *at > last.at) {
            return Err(format!(
                "answers: intent {} was found to be gone, and is its answer",
                intent.id
            ));
        }
        let later = receipts().filter(|(it, _)| it.at > last.at && it.url != SERVING);
        let looks: BTreeSet<Duration> = later.map(|(it, _)| it.begun).collect();
        let is_unread = CATALOG[request.wanted].action().is_some()
            && !self.has_read_since(begun.watch, last.at);
        let most = if is_unread { LOOKS_UNREAD } else { LOOKS };
        if looks.len() >= most && !self.acts_late(relay, LAG) {
            return Err(format!(
                "answers: no URL has shown intent {} in {} looks",
                intent.id,
                looks.len()
            ));
        }
        Ok(())
    }

    /// A refusal says when a repeat can succeed, where that is known.
    pub(super) fn judge_wait(
        &self,
        request: &Request,
        begun: Begun,
        reply: &Reply,
    ) -> Result<(), String> {
        use Reason::{BudgetExceeded, FaucetCooldown, InProgress, OutcomeUnknown, Rejected};
        let ReplyKind::Refused(reason) = reply.kind else {
            return Ok(());
        };
        let is_needed = matches!(
            reason,
            BudgetExceeded | FaucetCooldown | InProgress | OutcomeUnknown | Rejected
        );
        let Some(wait) = reply.retry_after.map(i64::from) else {
            return if is_needed {
                Err("answers: it does not say when to retry".to_owned())
            } else {
                Ok(())
            };
        };
        if wait > LONGEST_WAIT.max(micros(self.limits.longest_cooldown) / 1_000_000) {
            return Err(format!("answers: {wait} s is too long to wait"));
        }
        let last = self.journal.tables.intents.values().rev();
        let mut last = last.filter(|it| Some(it.transaction_hash) == reply.hash);
        let paid = last.find(|it| it.operation == DRIP);
        let (FaucetCooldown, Some(paid), None) = (reason, paid, self.oracle.notes.clock_set) else {
            return Ok(());
        };
        let waited = micros(self.now() - begun.at.min(self.since_of(begun.watch)));
        let end = self.clock_us() + wait * 1_000_000;
        let ends = |cooldown: Duration| paid.created_us + micros(cooldown);
        let is_early = end < ends(self.limits.cooldown) - 2 * SKEW_US;
        let is_late = end - waited > ends(self.limits.longest_cooldown) + 1_000_000 + 2 * SKEW_US;
        if (is_early || is_late) && self.since(self.oracle.leapt) > 2 * LAG {
            let action = request.action;
            return Err(format!("answers: {action} can be repeated at another time"));
        }
        Ok(())
    }
}
