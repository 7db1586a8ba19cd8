//! What must hold. The rules of displaced, lost and rejected writes have their numbers (`rules`); the
//! others have names: `durable` (stored before it is sent), `locks` (one relay writes with an
//! account), `money` (cooldowns, bindings and budgets), `keys`, `answers` (what a response says is
//! true), `reasons` (a refusal has a cause: `refusals`), `progress` (work gets done: `end`). `shown`
//! has what the URLs showed, which is all that a relay may conclude from.
//!
//! All of them assume that no rollback reaches below a settled block, and that a transaction that
//! reverts does so each time.

use super::chain::{Action, Chain, Executed, Tx};
use super::config::{Limits, is_own};
use super::journal::{Journal, OwnedIntent};
use super::machine::Process;
use super::refusals::Watches;
use super::requests::{CATALOG, Reply, ReplyKind, Request};
use super::rules::Case;
use super::shown::{Fact, Record};
use super::world::{CONFIRMATIONS, Fault, World};
use crate::tables::{DRIP, pays};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    Change, DAY_US, Intended, Intent, IntentId, IntentState, MINUTE_US, gfri, minutes,
};
use portcullis_filters::txm::evidence::Doubt;
use portcullis_filters::verdict::Reason;
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Events that a failure shows.
const LINES: usize = 55;
/// For how long a node may go on to show what is gone.
const LAG: Duration = Duration::from_secs(15);
/// How long one look at all URLs may take.
const LOOK: Duration = Duration::from_secs(12);
/// How old the evidence of another block may be once it is recorded: a poll, a proof of the pins and
/// two checks of the chain take as long.
const WEIGHED: Duration = Duration::from_secs(30);
/// How long a URL may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two polls that count.
const POLL: Duration = Duration::from_millis(950);
/// How far apart a block must be shown twice.
const SETTLING: Duration = Duration::from_secs(2);
/// How old the check of the chain may be when something is sent.
const CHECK: Duration = Duration::from_secs(10);
/// How long no URL shows what may be given up; clocks may differ by some of it.
const GIVEN_UP: Duration = Duration::from_secs(28);
/// How long nothing is sent again unasked.
const RESENT: Duration = Duration::from_millis(9_900);
/// How old the evidence for a response may be, beyond its request.
const RECENT: Duration = Duration::from_secs(15);

/// The observations so far.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) violation: Option<String>,
    /// The store loses commits, so that nothing else can be demanded.
    pub(super) judges_progress_only: bool,
    pub(super) lines: VecDeque<String>,
    /// When the requested state was last there.
    had: BTreeMap<usize, Duration>,
    /// The last final hash of a key.
    finals: BTreeMap<String, Felt>,
    /// The bodies that a key was used with.
    bodies: BTreeMap<String, BTreeSet<usize>>,
    pub(super) record: Record,
    pub(super) watches: Watches,
    /// How often each case of a rule came up.
    pub(super) cases: BTreeMap<Case, u64>,
    /// How often each transition was taken.
    pub(super) transitions: BTreeMap<(IntentState, IntentState), u64>,
    states: BTreeMap<IntentId, IntentState>,
    entries: usize,
    /// When each relay last sent each open transaction again.
    resent: BTreeMap<(Process, IntentId), Duration>,
    /// The epoch that was in force last.
    epoch: Option<String>,
    /// When each intent was stored.
    stored: BTreeMap<IntentId, Duration>,
    /// The transactions that the node has accepted.
    pub(super) taken: BTreeSet<Felt>,
    /// The last time at which a call of a relay got no answer.
    pub(super) silent: Option<Duration>,
    pub(super) locks_lost: Option<Duration>,
    /// The highest price of gas that was estimated, in fri.
    pub(super) highest_price: u128,
    /// When a URL may last have shown a former chain.
    pub(super) former_shown: Option<Duration>,
    /// How often each request got each reply.
    pub(super) replies: BTreeMap<(&'static str, String), u64>,
}

/// The situation in which a request came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Duration,
    watch: u64,
}

impl Oracle {
    /// A process of a relay ends, and with it what it remembers.
    pub(super) fn crashed(&mut self, relay: Process, now: Duration) {
        self.watches.crashed(relay, now);
        self.resent.retain(|(of, _), _| *of != relay);
    }

    /// When an intent was stored.
    pub(super) fn stored_at(&self, id: IntentId) -> Option<Duration> {
        self.stored.get(&id).copied()
    }

    pub(super) fn trace(&mut self, now: Duration, line: impl FnOnce() -> String) {
        if self.violation.is_none() {
            if self.lines.len() == LINES {
                self.lines.pop_front();
            }
            self.lines
                .push_back(format!("{:9.3} {}", now.as_secs_f64(), line()));
        }
    }

    /// Keys, each with a body that it was used with.
    pub(super) fn bodies(&self) -> impl Iterator<Item = (String, usize)> {
        let first = |(key, of): (&String, &BTreeSet<usize>)| {
            let first = *of.first()?;
            CATALOG[first].digest().map(|_| (key.clone(), first))
        };
        self.bodies.iter().rev().filter_map(first)
    }

    /// The number of the journal's entries after the loss of some.
    pub(super) fn lose_entries(&mut self, left: usize) {
        self.entries = self.entries.min(left);
    }

    /// A key is no longer stored.
    pub(super) fn forget_key(&mut self, key: &str) {
        self.finals.remove(key);
    }

    pub(super) fn report(&mut self, broken: Result<(), String>) {
        if let Err(broken) = broken
            && (!self.judges_progress_only || broken.starts_with("progress"))
        {
            self.violation.get_or_insert(broken);
        }
    }

    /// Money, on the chain that survives.
    pub(super) fn after_block(
        &mut self,
        chain: &Chain,
        journal: &Journal,
        limits: Limits,
    ) -> Result<(), String> {
        let epoch = format!("g{}", chain.genesis);
        let mut paid: BTreeMap<Felt, Vec<i64>> = BTreeMap::new();
        let mut pairs: BTreeMap<Felt, Felt> = BTreeMap::new();
        let drips = || {
            journal
                .tables
                .intents
                .values()
                .filter(|it| it.operation == DRIP)
        };
        let known: BTreeSet<Felt> = drips().map(|it| it.transaction_hash).collect();
        let of_epoch = drips().filter(|it| it.epoch == epoch);
        let of_epoch: BTreeMap<Felt, &Intent> =
            of_epoch.map(|it| (it.transaction_hash, it)).collect();
        for tx in chain
            .successes()
            .filter(|tx| matches!(tx.action, Action::Drip { .. }))
        {
            if !known.contains(&tx.hash) {
                return Err(format!("durable: drip {} has no intent", tx.hash));
            }
            // one that was under way when the chain started over counts in no epoch: nothing of the
            // former one is in force (`judge_add` bounds how long that may take)
            let Some(intent) = of_epoch.get(&tx.hash) else {
                continue;
            };
            let Some(recipient) = intent.subject else {
                continue;
            };
            // while it was reverted, it forbade no other one
            if chain.seen.get(&tx.hash).is_some_and(|seen| seen.reverted) {
                continue;
            }
            paid.entry(recipient).or_default().push(intent.created_us);
            if let Some(identity) = intent.identity
                && *pairs.entry(identity).or_insert(recipient) != recipient
            {
                return Err(format!(
                    "money: identity {identity} was paid to two recipients"
                ));
            }
        }
        // a transaction may be stored again, and refused, after its first intent was lost, or was of
        // another epoch
        let mut rejected = BTreeMap::new();
        for intent in journal.tables.intents.values() {
            let is_rejected = rejected.entry(intent.transaction_hash).or_insert(true);
            *is_rejected &= intent.state == IntentState::Rejected;
        }
        if let Some(tx) = chain
            .successes()
            .find(|tx| rejected.get(&tx.hash) == Some(&true))
        {
            return Err(format!("rule 4: {} is rejected, and was sent", tx.hash));
        }
        let cooldown = i64::try_from(limits.cooldown.as_micros()).expect("it is short");
        for (recipient, mut times) in paid {
            times.sort_unstable();
            if times.windows(2).any(|pair| pair[1] - pair[0] < cooldown) {
                return Err(format!("money: {recipient} was paid twice: {times:?}"));
            }
        }
        Ok(())
    }
}

impl World {
    pub(super) fn begin(&mut self, relay: Process, request: &Request) -> Begun {
        if let Some(key) = &request.key {
            let bodies = self.oracle.bodies.entry(key.clone()).or_default();
            bodies.insert(request.wanted);
            if bodies.len() > 1 {
                self.met(Case::OtherBody);
            }
        }
        self.note(|| format!("relay {relay}: request {request:?}"));
        Begun {
            at: self.now(),
            watch: self.watch(relay, request),
        }
    }

    /// Stores an intent, and judges that.
    pub(super) fn intend(&mut self, new: &OwnedIntent, now_us: i64) -> Intended {
        let reply = self.journal.intend(new, now_us);
        if let Intended::New(id) = reply {
            let now = self.now();
            self.oracle.stored.insert(id, now);
            self.note_transitions();
            let broken = self.judge_intent(id);
            self.oracle.report(broken);
            self.note(|| format!("intent {id} is stored, nonce {}", new.nonce));
        }
        self.observe();
        reply
    }

    /// Counts that another epoch comes into force.
    pub(super) fn note_epoch(&mut self) {
        let Some(agreement) = &self.journal.tables.agreement else {
            return;
        };
        let epoch = agreement.epoch.clone();
        let before = self.oracle.epoch.replace(epoch.clone());
        if before.is_some_and(|before| before != epoch) {
            self.met(Case::InForce);
            if !self.journal.tables.intents.is_empty() {
                self.met(Case::StartsOver);
            }
        }
    }

    /// Counts the transitions that the journal has recorded.
    fn note_transitions(&mut self) {
        let first = self.oracle.entries;
        self.oracle.entries = self.journal.tables.entries.len();
        for at in first..self.oracle.entries {
            let (id, state) = self.journal.tables.entries[at];
            let before = self.oracle.states.insert(id, state);
            // it is stored as intended and as sent at once
            let Some(before) = before.filter(|it| *it != IntentState::Intended) else {
                continue;
            };
            *self.oracle.transitions.entry((before, state)).or_default() += 1;
            match (before, state) {
                (IntentState::Lost, IntentState::Displaced) => self.met(Case::DoubtedWitness),
                (IntentState::Reverted, IntentState::Succeeded) => self.met(Case::RevertedSucceeds),
                _ => {}
            }
        }
    }

    /// Rules 4 and 5: a request has one nonce until that is settled, and a nonce one transaction.
    fn judge_intent(&mut self, id: IntentId) -> Result<(), String> {
        let new = self.journal.tables.intents[&id].clone();
        let slot = self.journal.tables.intents.values();
        let slot = slot.filter(|it| it.id != id && it.slot() == new.slot());
        let displaced: Vec<_> = slot
            .filter(|it| it.state == IntentState::Displaced)
            .map(|it| it.digest == new.digest)
            .collect();
        for is_own in displaced {
            self.met(if is_own {
                Case::ReplacedByOwn
            } else {
                Case::ReplacedByOther
            });
        }
        let others = self
            .journal
            .tables
            .intents
            .values()
            .filter(|it| it.id != id);
        if others
            .clone()
            .any(|it| it.slot() == new.slot() && it.state.occupies())
        {
            return Err(format!("rule 5: nonce {} has two transactions", new.nonce));
        }
        let is_second = |it: &&Intent| {
            let is_open = it.state.is_unresolved() || it.state == IntentState::Displaced;
            is_open && it.digest == new.digest && it.epoch == new.epoch && it.slot() != new.slot()
        };
        if let Some(first) = others.clone().find(is_second) {
            return Err(format!(
                "rule 4: intent {} of the request is not settled, and it is signed with nonce {}",
                first.id, new.nonce
            ));
        }
        // by the clock of the relay that stored it
        let now_us = new.created_us;
        let is_drip = |it: &&Intent| {
            it.operation == DRIP
                && it.epoch == new.epoch
                && it.state.holds()
                && it.state != IntentState::Reverted
                && (now_us - DAY_US..=now_us).contains(&it.created_us)
                && (it.slot() != new.slot() || it.id == id)
        };
        let drips = self.journal.tables.intents.values().filter(is_drip).count();
        if new.operation == DRIP && drips > self.limits.drips as usize {
            return Err(format!("money: {drips} drips within a day"));
        }
        self.judge_fees(&new)
    }

    /// The fees of a day are within the loosest budget that was in force.
    fn judge_fees(&self, new: &Intent) -> Result<(), String> {
        let Some(limit) = self.limits.fees else {
            return Ok(());
        };
        let [first, last] = minutes(Window::new(new.created_us, DAY_US));
        let is_counted = |it: &&Intent| {
            let minute = it.created_us.div_euclid(MINUTE_US);
            it.epoch == new.epoch
                && it.state.holds()
                && (first..=last).contains(&minute)
                && (it.slot() != new.slot() || it.id == new.id)
        };
        let counted = self.journal.tables.intents.values().filter(is_counted);
        let spent: i64 = counted.map(|it| it.fee_gfri).sum();
        if new.fee_gfri > 0 && spent > gfri(limit) {
            return Err(format!("money: {spent} gfri of fees within a day"));
        }
        Ok(())
    }

    /// Changes an intent, and judges that.
    pub(super) fn apply(
        &mut self,
        relay: Process,
        id: IntentId,
        change: &Change<'_>,
        now_us: i64,
    ) -> bool {
        let before = self.journal.tables.intents.get(&id).cloned();
        let is_applied = self.journal.apply(id, change, now_us);
        if let Some(before) = before.filter(|_| is_applied) {
            self.note_transitions();
            let state = self.journal.tables.intents[&id].state;
            let broken = self.judge_change(relay, &before, change, state);
            self.oracle.report(broken);
            self.note(|| format!("intent {id} is {}", state.name()));
        }
        self.observe();
        is_applied
    }

    fn judge_change(
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
                Ok(())
            }
            (_, IntentState::Succeeded | IntentState::Reverted) => {
                self.judge_included(before, state)
            }
            (Change::Displaced { why, .. }, IntentState::Displaced) => {
                self.judge_displaced(relay, before, why)
            }
            (Change::Doubted(why), IntentState::Displaced) => self.judge_doubted(before, why),
            (_, IntentState::Rejected) => self.judge_rejected(before),
            (_, IntentState::Lost) => self.judge_lost(relay, before),
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
            let is_other = |fact: &Fact| {
                matches!(fact, Fact::Block(at, Some(block))
                    if *at == number && !block.transactions.contains(&hash))
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
        let shown = self.oracle.record.since(relay, Duration::ZERO);
        let heads: Vec<_> = shown
            .filter_map(|it| match it.fact {
                Fact::Head(head) => Some((it.at, head < number)),
                _ => None,
            })
            .collect();
        let polls = apart(heads.iter().filter(|it| it.1).map(|it| it.0));
        let Some(first) = polls.get(2) else {
            return Err(format!(
                "rule 2: {} polls, and intent {id} is displaced",
                polls.len()
            ));
        };
        let others = heads.iter().filter(|it| !it.1 && it.0 + POLL >= *first);
        let against = apart(others.map(|it| it.0)).len();
        let view = self.chain.view();
        let is_there = view.find(hash).is_some_and(|(_, block)| block.is_some());
        if is_there && against >= 2 {
            return Err(format!(
                "rule 2: a URL contradicted, and intent {id} is displaced"
            ));
        }
        Ok(())
    }

    /// Rules 4 and 8: the node refused it, or no URL has shown it for long.
    fn judge_doubted(&mut self, before: &Intent, why: &str) -> Result<(), String> {
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
        Ok(())
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
    fn judge_lost(&mut self, relay: Process, before: &Intent) -> Result<(), String> {
        if !self.regime.judges_money() {
            return Ok(());
        }
        let lost = &self.journal.tables.intents[&before.id];
        let (id, epoch) = (lost.id, lost.epoch.clone());
        let view = self.chain.view();
        let head = view.head().number;
        let is_witness = |tx: &Tx| {
            (tx.sender, tx.nonce) == (lost.signer, lost.nonce) && tx.hash != lost.transaction_hash
        };
        let mut settled =
            (0..=head.saturating_sub(CONFIRMATIONS as u64)).filter_map(|n| view.block(n));
        let witness = settled.find_map(|block| {
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
        let looks = record.since(relay, Duration::ZERO).filter_map(|it| {
            let is_it = matches!(&it.fact, Fact::Block(at, Some(_)) if *at == number);
            is_it.then_some(it.at)
        });
        let looks: Vec<Duration> = looks.collect();
        if let (Some(last), Some(first)) = (looks.first(), looks.last())
            && *last < *first + SETTLING
        {
            return Err("its witness was not seen twice");
        }
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

    /// While an account is locked, no other relay sends for it; and the chain was checked.
    pub(super) fn judge_send(&mut self, relay: Process, tx: &Tx) {
        let holder = self.locks.get(&tx.sender).and_then(|lock| lock.holder);
        let is_other = holder.is_some_and(|(holder, _)| holder != relay);
        let is_lost = self.since(self.oracle.locks_lost) <= 2 * LAG;
        if is_other && is_own(tx.sender) && !is_lost {
            let broken = format!("locks: another relay holds the account of {}", tx.hash);
            self.oracle.report(Err(broken));
        }
        let broken = self.judge_checked(relay, tx.hash);
        self.oracle.report(broken);
        let broken = self.judge_resent(relay, tx.hash);
        self.oracle.report(broken);
        let mut intents = self.journal.tables.intents.values();
        if intents.any(|it| it.transaction_hash == tx.hash && it.state == IntentState::Displaced) {
            self.met(Case::SentAgain);
        }
        self.note(|| {
            format!(
                "relay {relay} sends {} with nonce {}: {:?}",
                tx.hash, tx.nonce, tx.action
            )
        });
    }

    /// Rule 7: the chain was seen to be that of the intent at most ten seconds before.
    fn judge_checked(&self, relay: Process, hash: Felt) -> Result<(), String> {
        let since = self.now().saturating_sub(CHECK);
        let mut shown = self.oracle.record.since(relay, since);
        let intents = self.journal.tables.intents.values();
        let epochs: BTreeSet<&str> = intents
            .filter(|it| it.transaction_hash == hash)
            .map(|it| it.epoch.as_str())
            .collect();
        let is_it = |fact: &Fact| {
            matches!(fact, Fact::Anchor(epoch, begun)
                if epochs.contains(epoch.as_str()) && *begun >= since)
        };
        // one that is not stored is judged when it reaches the node
        if epochs.is_empty() || shown.any(|it| is_it(&it.fact)) {
            return Ok(());
        }
        Err(format!(
            "rule 7: {hash} is sent, and the chain was not checked"
        ))
    }

    /// Rule 8: what is open is not sent again within ten seconds.
    fn judge_resent(&mut self, relay: Process, hash: Felt) -> Result<(), String> {
        // an earlier intent of a user's transaction may be of another epoch
        let mut newest = self.journal.tables.intents.values().rev();
        let Some(id) = newest
            .find(|it| it.transaction_hash == hash)
            .filter(|it| it.is_sent_again())
            .map(|it| it.id)
        else {
            return Ok(());
        };
        let now = self.now();
        let last = self.oracle.resent.insert((relay, id), now);
        if last.is_some_and(|last| now < last + RESENT) {
            return Err(format!("rule 8: {hash} is sent again within ten seconds"));
        }
        Ok(())
    }

    /// What reaches the node is durable, and meant for this chain.
    pub(super) fn judge_add(&mut self, tx: &Tx) {
        self.record_delivery(tx.hash);
        let intents = self.journal.tables.intents.values();
        let mut of_hash = intents
            .filter(|it| it.transaction_hash == tx.hash)
            .peekable();
        let is_known = of_hash.peek().is_some();
        let is_of_chain = of_hash.any(|it| it.epoch == self.epoch());
        if !is_known {
            let broken = format!("durable: {} was sent without an intent", tx.hash);
            self.oracle.report(Err(broken));
        } else if !is_of_chain && self.since(self.oracle.former_shown) > 2 * LAG {
            let broken = format!("rule 7: {} was sent to another chain", tx.hash);
            self.oracle.report(Err(broken));
        }
    }

    /// Whether the store's clock was ever set, or is ahead.
    fn clock_was_set(&self) -> bool {
        let faults = [Fault::StoreClock, Fault::StoreClockBack, Fault::HoursPass];
        faults.iter().any(|fault| self.fired.contains_key(fault))
    }

    fn since(&self, at: Option<Duration>) -> Duration {
        at.map_or(Duration::MAX, |at| self.now() - at)
    }

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
            .and_then(|()| self.judge_key(request, reply))
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
        let facts = || {
            self.oracle
                .record
                .all_since(since)
                .map(|it| (it.url, &it.fact))
        };
        let is_shown = |fact: &Fact| {
            matches!(fact, Fact::Receipt(of, Some(receipt))
                if *of == hash && receipt.accepted && receipt.outcome.is_ok())
        };
        let is_silent =
            |url: usize| facts().any(|(of, fact)| of == url && *fact == Fact::NoReceipt(hash));
        // a reload may have left a relay few URLs, and some may be excluded
        let is_cut_off = |relay| self.urls_of(relay).into_iter().all(is_silent);
        if facts().any(|(_, fact)| is_shown(fact)) || (0..self.relays.len()).any(is_cut_off) {
            return Ok(());
        }
        Err("answers: no URL has shown it lately".to_owned())
    }

    /// The state was there.
    fn judge_already(&mut self, wanted: usize, begun: Begun) -> Result<(), String> {
        let Some(action) = CATALOG[wanted].action() else {
            return Ok(());
        };
        let had = self.oracle.had.get(&wanted).copied();
        let is_there = self.chain.has(action) || had.is_some_and(|at| at + LAG >= begun.at);
        let is_shown = || self.urls.iter().any(|url| url.has(action, begun.at));
        // a URL may have had nodes of another chain, which has it
        let since = begun.at.saturating_sub(LAG);
        let is_elsewhere = || self.shown_other_since(since) && self.other.has(action);
        if is_there || is_shown() || is_elsewhere() {
            return Ok(());
        }
        Err("answers: the state is not there".to_owned())
    }

    /// Notes which states are there.
    pub(super) fn note_states(&mut self) {
        for (at, wanted) in CATALOG.iter().enumerate() {
            if wanted.action().is_some_and(|action| self.chain.has(action)) {
                self.oracle.had.insert(at, self.now());
            }
        }
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
    fn judge_key(&mut self, request: &Request, reply: &Reply) -> Result<(), String> {
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
        if intent.epoch != self.epoch() && self.since(self.oracle.former_shown) > 2 * LAG {
            return Err("keys: it is the answer of a former epoch".to_owned());
        }
        if intent.digest != digest {
            return Err("keys: it is the answer to another body".to_owned());
        }
        let is_second_key = self.journal.written_with[&intent.id].as_ref() != Some(key);
        let last = self.oracle.finals.insert(key.clone(), hash);
        let former = last.filter(|it| *it != hash);
        let before = former.and_then(of);
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

    /// Once nothing has gone wrong for long.
    pub(super) fn judge_end(&mut self) {
        let judged = self.judged_end();
        self.oracle.report(judged);
    }

    fn judged_end(&self) -> Result<(), String> {
        let epoch = self.epoch();
        let of_epoch = || {
            self.journal
                .tables
                .intents
                .values()
                .filter(|it| it.epoch == epoch)
        };
        let view = self.chain.view();
        for intent in of_epoch() {
            let found = view.find(intent.transaction_hash);
            let is_gone = matches!(intent.state, IntentState::Displaced | IntentState::Lost);
            if is_gone && found.is_some_and(|(_, block)| block.is_some()) {
                return Err(format!(
                    "rule 1: intent {} is back, and not noticed",
                    intent.id
                ));
            }
            if intent.state.is_unresolved() && !self.may_stay_open(intent.transaction_hash) {
                return Err(format!("progress: intent {} is still open", intent.id));
            }
        }
        let bindings = self.journal.tables.bindings.iter();
        for (_, pair) in bindings.filter(|(of, _)| *of == epoch) {
            let holds = |it: &Intent| {
                it.operation == DRIP && it.state.holds() && it.subject == Some(pair.recipient)
            };
            if !of_epoch().any(holds) {
                return Err(format!(
                    "money: nothing holds the binding of {}",
                    pair.recipient
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
