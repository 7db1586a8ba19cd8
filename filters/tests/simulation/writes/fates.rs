//! What may become of a write, by what the URLs showed to the relay that says so: rules 1 to 6, and what
//! follows for bindings and for stored answers.

use super::chain::{Executed, Tx};
use super::machine::Process;
use super::oracle::{LOOK, TIMEOUT};
use super::rules::Case;
use super::shown::Fact;
use super::world::{CONFIRMATIONS, World};
use crate::tables::{DRIP, pair_of};
use portcullis_filters::ledger::{Change, Intent, IntentId, IntentState};
use portcullis_filters::txm::evidence::Doubt;
use std::collections::BTreeSet;
use std::time::Duration;

/// How old the evidence of another block may be once it is recorded: a poll, a proof of the pins and
/// two checks of the chain take as long.
const WEIGHED: Duration = Duration::from_secs(30);
/// The time between two polls that count.
const POLL: Duration = Duration::from_millis(950);
/// How long no URL shows what may be given up; clocks may differ by some of it.
const GIVEN_UP: Duration = Duration::from_secs(28);
/// How long after its answer a submission may be recorded: relays are paused.
const ANSWERED: Duration = Duration::from_secs(120);

impl World {
    pub(super) fn judge_change(
        &mut self,
        relay: Process,
        before: &Intent,
        change: &Change<'_>,
        state: IntentState,
    ) -> Result<(), String> {
        match (change, state) {
            (Change::SentAgain, _) => {
                self.met(Case::ResentOpen);
                let again = (IntentState::Sent, IntentState::Sent);
                *self.oracle.transitions.entry(again).or_default() += 1;
                self.oracle.notes.again.insert((relay, before.id));
                Ok(())
            }
            (_, IntentState::Succeeded | IntentState::Reverted) => {
                if state == IntentState::Succeeded {
                    self.expect_double(relay, before);
                }
                self.judge_included(before, state)
            }
            (Change::Accepted, _) => self.judge_accepted(relay, before),
            (Change::Displaced { why, .. }, IntentState::Displaced) => {
                self.judge_displaced(relay, before, why)?;
                self.judge_unwitnessed(before)
            }
            (Change::Doubted(why), IntentState::Displaced) => {
                self.judge_doubted(relay, before, why)
            }
            (_, IntentState::Rejected) => self.judge_rejected(before),
            (Change::Lost(why), _) => self.judge_lost(relay, before, why),
            (_, IntentState::Lost) => self.judge_lost(relay, before, ""),
            _ => Ok(()),
        }
    }

    /// Rule 1: a block had it, with that outcome.
    fn judge_included(&mut self, before: &Intent, state: IntentState) -> Result<(), String> {
        self.met(match before.state {
            IntentState::Displaced => Case::BackFromDoubt,
            IntentState::Lost => Case::BackFromLost,
            _ => Case::Included,
        });
        let seen = self.chain.seen.get(&before.transaction_hash);
        let is_true = seen.is_some_and(|seen| {
            if state == IntentState::Succeeded {
                seen.succeeded
            } else {
                seen.reverted
            }
        });
        if is_true {
            return Ok(());
        }
        Err(format!("rule 1: no block ever had intent {}", before.id))
    }

    /// A node has said that it has it, or has shown it.
    fn judge_accepted(&self, relay: Process, before: &Intent) -> Result<(), String> {
        let since = self.now().saturating_sub(ANSWERED);
        let record = &self.oracle.record;
        if record.is_taken(relay, before.transaction_hash, since) || self.has_leapt(ANSWERED) {
            return Ok(());
        }
        Err(format!(
            "answers: intent {} is accepted, and no node has said so",
            before.id
        ))
    }

    /// Rule 6: what was lost to a transaction is in doubt with it.
    fn judge_unwitnessed(&self, witness: &Intent) -> Result<(), String> {
        let intents = || self.journal.tables.of_epoch(&witness.epoch);
        let of_slot = intents().filter(|it| it.slot() == witness.slot());
        for lost in of_slot.filter(|it| it.state == IntentState::Lost) {
            let is_anew = |it: &Intent| {
                let is_newer = it.id > lost.id && it.state.holds();
                is_newer && it.digest == lost.digest && it.slot() != lost.slot()
            };
            let is_same = |it: &Intent| {
                it.id != lost.id && it.state.holds() && it.transaction_hash == lost.transaction_hash
            };
            if !intents().any(|it| is_anew(it) || is_same(it)) {
                return Err(format!(
                    "rule 6: intent {} stays lost, and intent {} is in doubt",
                    lost.id, witness.id
                ));
            }
        }
        Ok(())
    }

    /// Rule 2: the node showed that it is gone.
    fn judge_displaced(
        &mut self,
        relay: Process,
        before: &Intent,
        why: &str,
    ) -> Result<(), String> {
        let Some(included) = before.included else {
            return Ok(());
        };
        let (id, hash, number) = (before.id, before.transaction_hash, included.number);
        if why == Doubt::OtherBlock.text() {
            self.met(Case::OtherBlock);
            let mut shown = self
                .oracle
                .record
                .since(relay, self.now().saturating_sub(WEIGHED));
            // another relay may have recorded another block since
            let numbers = self.oracle.included.get(&id);
            let is_other = |fact: &Fact| {
                matches!(fact, Fact::Block(at, Some(block))
                    if numbers.is_some_and(|all| all.contains(at))
                        && !block.transactions.contains(&hash))
            };
            if shown.any(|it| is_other(&it.fact)) {
                return Ok(());
            }
            let view = self.chain.view();
            let is_listed = |txs: &[Executed]| txs.iter().any(|it| it.tx.hash == hash);
            // a relay that was paused has seen it long ago
            if !view
                .block(number)
                .is_some_and(|block| is_listed(&block.txs))
            {
                return Ok(());
            }
            return Err(format!(
                "rule 2: no URL showed another block for intent {id}"
            ));
        }
        if why != Doubt::HeadBelow.text() {
            return Ok(());
        }
        self.met(Case::HeadsBelow);
        // the heads in looks at its block, whose answer may have been lost: looks at others say
        // nothing about it
        let facts = || self.oracle.record.since(relay, Duration::ZERO);
        let looks = |is_meant: &dyn Fn(u64) -> bool| -> BTreeSet<_> {
            let of =
                facts().filter(|it| matches!(it.fact, Fact::Block(number, _) if is_meant(number)));
            of.map(|it| (it.url, it.begun)).collect()
        };
        let of_block = looks(&|of| of == number);
        let of_others = looks(&|of| of != number);
        let heads = facts().filter_map(|it| match it.fact {
            Fact::Head(head) => Some((it.at, (it.url, it.begun), head < number)),
            _ => None,
        });
        let heads: Vec<_> = heads
            .filter(|(_, look, _)| of_block.contains(look) || !of_others.contains(look))
            .collect();
        let polls = apart(heads.iter().filter(|it| it.2).map(|it| it.0));
        let Some(first) = polls.get(2) else {
            return Err(format!(
                "rule 2: {} polls, and intent {id} is displaced",
                polls.len()
            ));
        };
        let others = heads.iter().filter(|(at, look, is_below)| {
            !is_below && of_block.contains(look) && *at + POLL >= *first
        });
        let against = apart(others.map(|it| it.0)).len();
        let view = self.chain.view();
        let is_there = view.find(hash).is_some_and(|(_, block)| block.is_some());
        if is_there && against >= 2 {
            return Err(format!(
                "rule 2: a URL contradicted, and intent {id} is displaced"
            ));
        }
        if self.is_head_above(relay, number) {
            return Err(format!(
                "rule 2: a head was not below, and intent {id} is displaced"
            ));
        }
        Ok(())
    }

    /// Whether in the last look at the block with this number, a URL that did not show it had its
    /// head not below.
    fn is_head_above(&self, relay: Process, number: u64) -> bool {
        let since = self.now().saturating_sub(LOOK);
        let facts = || self.oracle.record.since(relay, since);
        let asked = || facts().filter(|it| it.fact == Fact::Block(number, None));
        let Some(begun) = asked().map(|it| it.begun).max() else {
            return false;
        };
        // two looks at once cannot be told apart
        let is_other = |at: Duration| at != begun && at + POLL > begun;
        if asked().any(|it| is_other(it.begun)) {
            return false;
        }
        let mut of_look = asked().filter(|it| it.begun == begun);
        of_look.any(|block| {
            let heads = facts().filter(|it| (it.url, it.begun) == (block.url, begun));
            let heads = heads.filter_map(|it| match it.fact {
                Fact::Head(head) => Some(head),
                _ => None,
            });
            heads.min().is_some_and(|head| head >= number)
        })
    }

    /// Rules 4 and 8: the node refused it, or no URL has shown it for long.
    fn judge_doubted(&mut self, relay: Process, before: &Intent, why: &str) -> Result<(), String> {
        let (id, hash) = (before.id, before.transaction_hash);
        if why.contains("refused") {
            let view = self.chain.view();
            self.met(if view.find(hash).is_some() {
                Case::RefusedAndIncluded
            } else {
                Case::RefusedWhenSent
            });
            return if self.oracle.record.was_refused(hash, Duration::ZERO) {
                Ok(())
            } else {
                Err(format!("rule 4: no node has refused intent {id}"))
            };
        }
        self.met(Case::GivenUp);
        let stored = self.oracle.stored_at(id).unwrap_or_default();
        let age = self.now() - stored;
        // the relays' clocks differ, and the store's may be set
        if age < GIVEN_UP && !self.clock_was_set() {
            return Err(format!("rule 8: intent {id} is given up after {age:?}"));
        }
        self.judge_given_up(relay, before)
    }

    /// Rule 4: what is rejected was never sent.
    fn judge_rejected(&mut self, before: &Intent) -> Result<(), String> {
        let stored = self.oracle.stored.get(&before.id).copied();
        let delivered = self.oracle.record.delivered.get(&before.transaction_hash);
        let mut since = delivered.into_iter().flatten();
        if since.any(|at| stored.is_some_and(|stored| *at >= stored)) {
            return Err(format!(
                "rule 4: intent {} was sent, and is rejected",
                before.id
            ));
        }
        self.met(Case::NeverSent);
        Ok(())
    }

    /// Rule 3: `lost` has a witness in a settled block, which every URL has shown twice.
    fn judge_lost(&mut self, relay: Process, before: &Intent, why: &str) -> Result<(), String> {
        let (sender, nonce, hash) = (before.signer, before.nonce, before.transaction_hash);
        if !self.chain.was_used_by_other(sender, nonce, hash) {
            return Err(format!(
                "rule 3: intent {} is lost, and no block ever had its nonce with another one",
                before.id
            ));
        }
        let number = why.split(' ').nth(1).and_then(|number| number.parse().ok());
        if let Some(number) = number
            && !self.was_steady(relay, number)
        {
            return Err(format!(
                "rule 3: intent {} is lost, and block {number} was not settled in each look",
                before.id
            ));
        }
        if !self.judges_money() {
            return Ok(());
        }
        let lost = &self.journal.tables.intents[&before.id];
        let (id, epoch) = (lost.id, lost.epoch.clone());
        let is_witness = |tx: &Tx| {
            (tx.sender, tx.nonce) == (lost.signer, lost.nonce) && tx.hash != lost.transaction_hash
        };
        // it stays there, also if the blocks above it have just been taken back
        let witness = self.chain.settled().find_map(|block| {
            let found = block.txs.iter().find(|it| is_witness(&it.tx))?;
            Some((block.number, found.tx.hash))
        });
        let Some((number, hash)) = witness else {
            // another chain may have begun since the witness was seen
            return if epoch == self.epoch() {
                Err(format!(
                    "rule 3: intent {id} is lost, and nothing settled has its nonce"
                ))
            } else {
                Ok(())
            };
        };
        let mut intents = self.journal.tables.intents.values();
        let is_ours = intents.any(|it| it.transaction_hash == hash);
        self.met(if is_ours {
            Case::LostToOurs
        } else {
            Case::LostToStranger
        });
        self.judge_settled(relay, number)
            .map_err(|why| format!("rule 3: intent {id} is lost, and {why}"))
    }

    /// Whether a relay saw that a block is settled.
    fn judge_settled(&self, relay: Process, number: u64) -> Result<(), &'static str> {
        let record = &self.oracle.record;
        let depth = number + CONFIRMATIONS as u64;
        let since = self.now().saturating_sub(LOOK);
        for url in self.urls_of(relay) {
            let of_url = || record.since(relay, since).filter(|it| it.url == url);
            let heads = of_url().filter_map(|it| match it.fact {
                Fact::Head(head) => Some((it.at, head)),
                _ => None,
            });
            let Some((at, head)) = heads.max_by_key(|(_, head)| *head) else {
                continue;
            };
            // one that fell silent afterwards, or gave no block with its head, had no say
            if of_url().any(|it| it.fact == Fact::Silent && it.at + TIMEOUT >= at) {
                continue;
            }
            if head < depth {
                return Err("a URL that answers does not show its witness deep enough");
            }
        }
        Ok(())
    }

    /// The lost intents of a slot whose request was written anew.
    pub(super) fn lost_beside(&self, id: IntentId) -> Vec<IntentId> {
        let Some(of) = self.journal.tables.intents.get(&id) else {
            return Vec::new();
        };
        let intents = || self.journal.tables.of_epoch(&of.epoch);
        let lost = intents()
            .filter(|it| it.state == IntentState::Lost && it.slot() == of.slot() && it.id != id);
        let anew = lost.filter(|lost| {
            intents().any(|it| {
                let is_newer = it.id > lost.id && it.state.holds() && it.slot() != lost.slot();
                is_newer && it.digest == lost.digest
            })
        });
        anew.map(|it| it.id).collect()
    }

    /// Rule 6: what is written anew is only watched.
    pub(super) fn judge_anew(&self, lost: &[IntentId]) -> Result<(), String> {
        let intents = &self.journal.tables.intents;
        let is_in_doubt = |id: &&IntentId| {
            intents
                .get(id)
                .is_some_and(|it| it.state == IntentState::Displaced)
        };
        match lost.iter().find(is_in_doubt) {
            Some(id) => Err(format!(
                "rule 6: intent {id} is in doubt, and its request was written anew"
            )),
            None => Ok(()),
        }
    }

    /// Rule 6: of the intents with one transaction, at most one stands for it.
    pub(super) fn judge_single(&self, changed: &Intent) -> Result<(), String> {
        let of_epoch = self.journal.tables.of_epoch(&changed.epoch);
        let mut standing = of_epoch
            .filter(|it| it.transaction_hash == changed.transaction_hash && it.state.holds());
        match (standing.next(), standing.next()) {
            (Some(one), Some(other)) => Err(format!(
                "rule 6: intents {} and {} stand for one transaction",
                one.id, other.id
            )),
            _ => Ok(()),
        }
    }

    /// Rule 5: a binding follows the transaction that took a slot, not the one that is in doubt.
    pub(super) fn judge_bindings(&self, epoch: &str) -> Result<(), String> {
        let tables = &self.journal.tables;
        let is_bound = |it: &Intent| {
            let pair = pair_of(it);
            pair.is_some_and(|pair| tables.bindings.contains(&(epoch.to_owned(), pair)))
        };
        let drips = || tables.of_epoch(epoch).filter(|it| it.operation == DRIP);
        // one of another slot may hold the same binding, one of an earlier version by its recipient
        let is_held = |pair: &Intent| {
            drips().any(|it| {
                let is_its = it.identity.is_none() || it.identity == pair.identity;
                it.slot() != pair.slot() && it.state.holds() && is_its && it.subject == pair.subject
            })
        };
        let occupying = drips().filter(|it| it.state.occupies() && it.identity.is_some());
        for drip in occupying.filter(|it| !is_bound(it)) {
            let has_its = |it: &&Intent| {
                let is_excluded = it.identity == drip.identity || it.subject == drip.subject;
                let is_free = is_bound(it) && !is_held(it);
                it.state == IntentState::Displaced && is_excluded && is_free
            };
            // one of another slot may have its identity or its recipient by now
            let is_excluded = |it: &Intent| {
                let is_same = it.identity == drip.identity || it.subject == drip.subject;
                it.slot() != drip.slot() && it.state.holds() && is_same
            };
            if drips().any(is_excluded) {
                continue;
            }
            let mut of_slot = drips().filter(|it| it.slot() == drip.slot());
            if let Some(other) = of_slot.find(has_its) {
                return Err(format!(
                    "rule 5: drip {} has no binding, and drip {} of its slot has one",
                    drip.id, other.id
                ));
            }
        }
        Ok(())
    }

    /// An answer is withdrawn when its intent is rejected, lost, or has another outcome. What is open
    /// has none of its own: one from before a rollback is compared with the outcome when it is repeated.
    pub(super) fn judge_answers(&self, before: &Intent) -> Result<(), String> {
        let tables = &self.journal.tables;
        let intent = &tables.intents[&before.id];
        let mut of_intent = tables.keys.iter();
        let had_end = !before.state.is_unresolved();
        while had_end
            && intent.state != before.state
            && let Some(((_, key), stored)) = of_intent.next()
        {
            let Some((status, _)) = stored.answer else {
                continue;
            };
            if stored.intent != Some(before.id) {
                continue;
            }
            let is_true = match intent.state {
                IntentState::Succeeded => status == 200,
                IntentState::Reverted => status != 200,
                state => state.holds(),
            };
            if !is_true {
                let state = intent.state.name();
                return Err(format!(
                    "keys: {key} has a stored answer {status}, and its intent is {state}"
                ));
            }
        }
        Ok(())
    }
}

/// Of these times, newest first, those that are a poll apart.
fn apart(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut polls: Vec<Duration> = Vec::new();
    for at in times {
        if polls.last().is_none_or(|last| at + POLL <= *last) {
            polls.push(at);
        }
    }
    polls
}
