//! Whether a response is true: by the chain, by the journal, and by its key.

use super::machine::Process;
use super::oracle::{Begun, LAG, RECENT};
use super::requests::{CATALOG, Reply, ReplyKind, Request};
use super::rules::Case;
use super::shown::{Fact, SERVING};
use super::world::World;
use crate::tables::pays;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::Intent;
use portcullis_filters::verdict::Reason;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a relay tries to see what it has written before it answers without.
const READ_BACK: Duration = Duration::from_secs(5);

impl World {
    /// Whether a response is true.
    pub(super) fn judge_reply(&mut self, request: &Request, begun: Begun, reply: &Reply) {
        let wanted = &CATALOG[request.wanted];
        let name = format!("{:?}", reply.kind);
        *self
            .oracle
            .replies
            .entry((wanted.name(), name))
            .or_default() += 1;
        self.observe();
        self.note(|| format!("request {} is answered {reply:?}", request.action));
        let judged = self
            .judge_kind(request, begun, reply)
            .and_then(|()| self.judge_key(request, begun, reply))
            .and_then(|()| self.judge_twin(request, begun, reply))
            .and_then(|()| self.judge_old(request, begun, reply))
            .and_then(|()| self.judge_linked(request, begun, reply))
            .and_then(|()| self.judge_gone(request, begun, reply))
            .and_then(|()| self.judge_wait(request, begun, reply))
            .and_then(|()| self.judge_released(begun.watch, reply))
            .and_then(|()| match reply.kind {
                ReplyKind::Refused(reason) => {
                    self.judge_refusal(begun.watch, request, reason, reply)
                }
                _ => Ok(()),
            })
            .map_err(|broken| format!("{broken}: request {request:?}, {reply:?}"));
        self.oracle.report(judged);
        self.unwatch(begun.watch);
    }

    fn judge_kind(&mut self, request: &Request, begun: Begun, reply: &Reply) -> Result<(), String> {
        let wanted = &CATALOG[request.wanted];
        match (reply.kind, reply.hash) {
            (ReplyKind::Written, Some(hash)) if wanted.digest().is_some() => {
                self.judge_written(begun, hash)
            }
            (ReplyKind::Written, Some(hash)) if !self.oracle.taken.contains(&hash) => {
                Err("answers: no node has taken it".to_owned())
            }
            (ReplyKind::Already, _) => self.judge_already(request.wanted, begun),
            (ReplyKind::Refused(Reason::Reverted), Some(hash)) => {
                let is_seen = self.chain.seen.get(&hash).is_some_and(|seen| seen.reverted);
                is_seen
                    .then_some(())
                    .ok_or_else(|| "answers: it did not revert".to_owned())
            }
            (ReplyKind::Refused(reason), None) if sends_nothing(reason) => {
                self.judge_unsent(request, begun)
            }
            _ => Ok(()),
        }
    }

    /// Some URL showed that it succeeded, or none answered.
    fn judge_written(&mut self, begun: Begun, hash: Felt) -> Result<(), String> {
        if !self
            .chain
            .seen
            .get(&hash)
            .is_some_and(|seen| seen.succeeded)
        {
            return Err("answers: it never succeeded".to_owned());
        }
        let since = self.since_of(begun.watch).saturating_sub(RECENT);
        let facts = || self.oracle.record.all_since(since).map(|it| &it.fact);
        let is_shown = |fact: &Fact| {
            matches!(fact, Fact::Receipt(of, Some(receipt))
                if *of == hash && receipt.accepted && receipt.outcome.is_ok())
        };
        let mut relays = 0..self.relays.len();
        if facts().any(is_shown) || relays.any(|relay| self.is_unanswered(relay, hash, since)) {
            return Ok(());
        }
        Err("answers: no URL has shown it lately".to_owned())
    }

    /// Whether no URL answered a relay in one look for a transaction since then, or none had a say.
    fn is_unanswered(&self, relay: Process, hash: Felt, since: Duration) -> bool {
        // the URLs of each look, and those that were silent
        let mut looks: BTreeMap<Duration, [BTreeSet<usize>; 2]> = BTreeMap::new();
        for it in self.oracle.record.since(relay, since) {
            let is_silent = match &it.fact {
                Fact::NoUrl => return true,
                Fact::NoReceipt(of) if *of == hash => true,
                Fact::Receipt(of, _) if *of == hash => false,
                _ => continue,
            };
            if it.url != SERVING {
                let [asked, silent] = looks.entry(it.begun).or_default();
                asked.insert(it.url);
                if is_silent {
                    silent.insert(it.url);
                }
            }
        }
        looks.values().any(|[asked, silent]| asked == silent)
    }

    /// The state was there when its relay looked.
    fn judge_already(&self, wanted: usize, begun: Begun) -> Result<(), String> {
        if CATALOG[wanted].action().is_none() || self.has_read(begun.watch) {
            return Ok(());
        }
        Err("answers: the state is not there".to_owned())
    }

    /// If it says that nothing was sent, nothing is stored as sent.
    fn judge_unsent(&self, request: &Request, begun: Begun) -> Result<(), String> {
        let Some(since) = self.alone_since(begun.watch) else {
            return Ok(());
        };
        let digest = CATALOG[request.wanted].intent_digest();
        let is_sent = |it: &&Intent| {
            it.digest == digest
                && it.state.occupies()
                && self
                    .oracle
                    .stored
                    .get(&it.id)
                    .is_some_and(|at| *at >= since)
        };
        match self.journal.tables.intents.values().find(is_sent) {
            Some(intent) => Err(format!("answers: intent {} is stored as sent", intent.id)),
            None => Ok(()),
        }
    }

    /// An idempotency key has one final answer, of its own request and of this epoch.
    fn judge_key(&mut self, request: &Request, begun: Begun, reply: &Reply) -> Result<(), String> {
        let Some(key) = &request.key else {
            return Ok(());
        };
        let Some(digest) = CATALOG[request.wanted].digest() else {
            return Ok(());
        };
        if reply.kind == ReplyKind::Refused(Reason::IdempotencyConflict)
            && self.oracle.bodies[key].len() < 2
        {
            return Err("keys: it was used with one body only".to_owned());
        }
        let Some(hash) = reply.hash else {
            return Ok(());
        };
        // two drips to one recipient may be the same transaction, one after the other
        let of = |hash: Felt| {
            let intents = self.journal.tables.intents.values().rev();
            let of_hash = || intents.clone().filter(|it| it.transaction_hash == hash);
            of_hash()
                .find(|it| it.digest == digest)
                .or_else(|| of_hash().next())
                .cloned()
        };
        let Some(intent) = of(hash) else {
            return Ok(());
        };
        if reply.kind == ReplyKind::Refused(Reason::FaucetCooldown) {
            // on a chain that started over, another request may have the same transaction
            // and after one that was never sent, too: that one starts no cooldown
            let is_own = intent.epoch == self.epoch()
                && pays(&intent)
                && self.journal.written_with[&intent.id].as_ref() == Some(key);
            let why = "keys: its own drip starts the cooldown".to_owned();
            return if is_own && intent.digest == digest {
                Err(why)
            } else {
                Ok(())
            };
        }
        let is_final = matches!(
            reply.kind,
            ReplyKind::Written | ReplyKind::Refused(Reason::Reverted)
        );
        if !is_final {
            return Ok(());
        }
        // a relay that was paused may have known it before, and tries to read it back
        let relay = self.relay_of(begun.watch);
        let is_late = self.acts_late(relay, READ_BACK + 2 * LAG);
        let is_former = intent.epoch != self.epoch() && !is_late;
        if is_former && self.since(self.oracle.former_shown) > 2 * LAG {
            return Err("keys: it is the answer of a former epoch".to_owned());
        }
        if intent.digest != digest {
            return Err("keys: it is the answer to another body".to_owned());
        }
        let is_second_key = self.journal.written_with[&intent.id].as_ref() != Some(key);
        let last = self.oracle.finals.insert(key.clone(), (hash, intent.id));
        let former = last.filter(|(it, _)| *it != hash);
        let intents = &self.journal.tables.intents;
        let before = former.and_then(|(_, id)| intents.get(&id).cloned());
        if before.as_ref().is_some_and(|it| it.epoch != intent.epoch) {
            self.met(Case::FormerEpoch);
        }
        let former = before.filter(|former| former.epoch == intent.epoch);
        if last.is_some() {
            self.met(Case::AnsweredAgain);
        }
        if is_second_key {
            self.met(Case::SecondKey);
        }
        match former {
            Some(former) if former.state.is_included() && former.slot() != intent.slot() => Err(
                format!("keys: {} was its answer before", former.transaction_hash),
            ),
            _ => Ok(()),
        }
    }
}

/// Whether a refusal for this reason states that nothing was sent.
fn sends_nothing(reason: Reason) -> bool {
    use Reason::{
        BudgetExceeded, FaucetCooldown, Overloaded, PinsUnproven, StoreUnavailable,
        UpstreamUnreachable,
    };
    matches!(
        reason,
        BudgetExceeded
            | FaucetCooldown
            | Overloaded
            | PinsUnproven
            | StoreUnavailable
            | UpstreamUnreachable
    )
}
