//! What must hold. The rules of displaced, lost and rejected writes have their numbers (`rules`); the
//! others have names: `durable` (stored before it is sent), `locks` (one relay writes with an
//! account), `money` (cooldowns, bindings and budgets), `keys`, `answers` (what a response says is
//! true), `reasons` (a refusal has a cause: `refusals`), `progress` (work gets done: `end`). `shown`
//! has what the URLs showed, which is all that a relay may conclude from.
//!
//! All of them assume that no rollback reaches below a settled block, and that a transaction that
//! reverts does so each time.

use super::chain::{Action, Chain, Tx};
use super::config::{Limits, is_own};
use super::journal::{Journal, OwnedIntent};
use super::links::Links;
use super::machine::Process;
use super::pins::PATIENCE_US;
use super::refusals::Watches;
use super::requests::{CATALOG, Reply, ReplyKind, Request};
use super::rules::Case;
use super::shown::{Fact, Failure, Record};
use super::world::{CONFIRMATIONS, Fault, World};
use crate::tables::{DRIP, pays};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    Change, DAY_US, Intended, Intent, IntentId, IntentState, MINUTE_US, gfri, minutes,
};
use portcullis_filters::verdict::Reason;
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Events that a failure shows.
const LINES: usize = 55;
/// For how long a node may go on to show what is gone.
const LAG: Duration = Duration::from_secs(15);
/// How long one look at all URLs may take.
pub(super) const LOOK: Duration = Duration::from_secs(12);
/// After how many seconds a witness must have been found, once nothing goes wrong.
const WITNESSED: u64 = 90;
/// How long another epoch must be reported before it is in force.
const PATIENCE: Duration = Duration::from_micros(PATIENCE_US.unsigned_abs());
/// How long a URL may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// How old the check of the chain may be when something is sent.
const CHECK: Duration = Duration::from_secs(10);
/// How long nothing is sent again unasked.
const RESENT: Duration = Duration::from_millis(9_900);
/// How long after a check of its lock an intent may be stored: what is in the journal may be followed,
/// and lower nonces filled, in between.
const CHECKED: Duration = Duration::from_secs(60);
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
    /// The numbers of the blocks that each intent was recorded in.
    pub(super) included: BTreeMap<IntentId, BTreeSet<u64>>,
    entries: usize,
    /// When each relay last sent each open transaction again.
    resent: BTreeMap<(Process, IntentId), Duration>,
    /// How often each relay sent each transaction.
    times: BTreeMap<(Process, IntentId), u64>,
    /// The epoch that was in force last.
    epoch: Option<String>,
    /// When each intent was stored.
    pub(super) stored: BTreeMap<IntentId, Duration>,
    /// The transactions that the node has accepted.
    pub(super) taken: BTreeSet<Felt>,
    /// The last time at which a call of a relay got no answer.
    pub(super) silent: Option<Duration>,
    pub(super) locks_lost: Option<Duration>,
    /// The highest price of gas that was estimated, in fri.
    pub(super) highest_price: u128,
    /// When a URL may last have shown a former chain.
    pub(super) former_shown: Option<Duration>,
    pub(super) links: Links,
    reported: Option<Reported>,
    /// The highest head of each epoch.
    pub(super) highest: BTreeMap<String, u64>,
    /// When each relay last checked the lock of each account.
    checked: BTreeMap<(Process, Felt), Duration>,
    /// When hours passed last.
    pub(super) leapt: Option<Duration>,
    /// When each relay last sent something of each account.
    sends: BTreeMap<(Process, Felt), Duration>,
    /// How often each request got each reply.
    pub(super) replies: BTreeMap<(&'static str, String), u64>,
}

/// The epoch that was reported last, and since when no other one was.
#[derive(Clone, Debug)]
struct Reported {
    epoch: String,
    now: Duration,
    clock_us: i64,
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
        self.links.forget(key);
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
                let drips: Vec<_> = of_epoch
                    .values()
                    .filter(|it| it.identity == Some(identity))
                    .map(|it| (it.id.0, it.signer, it.nonce, it.state, it.subject))
                    .collect();
                return Err(format!(
                    "money: identity {identity} was paid to two recipients: {drips:?}"
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
    pub(super) fn intend(&mut self, relay: Process, new: &OwnedIntent, now_us: i64) -> Intended {
        let reply = self.journal.intend(new, now_us);
        if let Intended::New(id) = reply {
            let now = self.now();
            self.oracle.stored.insert(id, now);
            self.note_transitions();
            let broken = self.judge_intent(id);
            self.oracle.report(broken);
            let broken = self.judge_lock_of(relay, id);
            self.oracle.report(broken);
            self.note(|| format!("intent {id} is stored, nonce {}", new.nonce));
        }
        self.judge_links();
        self.observe();
        reply
    }

    /// A relay has checked that it still has the lock of an account.
    pub(super) fn note_checked(&mut self, relay: Process, account: Felt) {
        let now = self.now();
        self.oracle.checked.insert((relay, account), now);
    }

    /// The lock of an account is checked right before something of it is stored.
    fn judge_lock_of(&self, relay: Process, id: IntentId) -> Result<(), String> {
        let account = self.journal.tables.intents[&id].signer;
        let checked = self.oracle.checked.get(&(relay, account)).copied();
        let was_paused = self.relays[relay].paused_until + RECENT >= self.now();
        let is_late = self.since(checked) > CHECKED && !was_paused && !self.has_leapt(CHECKED);
        if is_own(account) && is_late {
            return Err(format!(
                "locks: intent {id} is stored, and its lock was not checked"
            ));
        }
        Ok(())
    }

    /// Rule 7: an epoch is in force once it was reported for long, and no other one.
    pub(super) fn judge_agreement(&mut self, reported: &str, before: Option<&str>, clock_us: i64) {
        let now = self.now();
        let report = &mut self.oracle.reported;
        if report.as_ref().is_none_or(|it| it.epoch != reported) {
            let epoch = reported.to_owned();
            *report = Some(Reported {
                epoch,
                now,
                clock_us,
            });
        }
        let Some(first) = report.as_mut() else { return };
        // the wait is measured from the earliest time that the store's clock has shown since
        first.clock_us = first.clock_us.min(clock_us);
        let agreement = self.journal.tables.agreement.as_ref();
        let in_force = agreement.map(|it| it.epoch.as_str());
        let is_early = now < first.now + PATIENCE && clock_us < first.clock_us + PATIENCE_US;
        if before.is_some() && in_force != before && is_early {
            let broken = format!(
                "rule 7: {reported} is in force {:?} after it was first reported",
                now - first.now
            );
            self.oracle.report(Err(broken));
        }
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
        self.judge_born(&new)?;
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

    /// No transaction is born above the chain's head.
    fn judge_born(&mut self, new: &Intent) -> Result<(), String> {
        self.note_heads();
        let highest = self.oracle.highest.get(&new.epoch).copied();
        match new.born.zip(highest) {
            Some((born, highest)) if born > highest => Err(format!(
                "rule 3: intent {} is born at {born}, and the head is {highest}",
                new.id
            )),
            _ => Ok(()),
        }
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
        let lost = self.lost_beside(id);
        let is_applied = self.journal.apply(id, change, now_us);
        if let Some(before) = before.filter(|_| is_applied) {
            self.note_transitions();
            let after = &self.journal.tables.intents[&id];
            let state = after.state;
            let number = after.included.map(|it| it.number);
            let judged = self
                .judge_anew(&lost)
                .and_then(|()| self.judge_answers(&before));
            self.oracle.report(judged);
            let judged = self.judge_bindings(&before.epoch);
            self.oracle.report(judged);
            self.oracle.included.entry(id).or_default().extend(number);
            let broken = self.judge_change(relay, &before, change, state);
            self.oracle.report(broken);
            self.note(|| format!("intent {id} is {}", state.name()));
        }
        self.observe();
        is_applied
    }

    /// Whether hours have passed within this time.
    pub(super) fn has_leapt(&self, within: Duration) -> bool {
        self.since(self.oracle.leapt) <= within
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
        let broken = self.judge_doubtful(relay, tx);
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
        let Some(intent) = newest.find(|it| it.transaction_hash == hash) else {
            return Ok(());
        };
        let (id, is_again) = (intent.id, intent.is_sent_again());
        let times = self.oracle.times.entry((relay, id)).or_default();
        *times += 1;
        // what it sends first it may have taken for open, and have sent again, before
        let is_first = *times <= 2;
        if !is_again {
            return Ok(());
        }
        let now = self.now();
        let last = self.oracle.resent.insert((relay, id), now);
        // its check of the chain may have delayed the one before
        let record = &self.oracle.record;
        let was_slow =
            |last: Duration| record.has_failed(relay, Failure::Node, last.saturating_sub(LOOK));
        if last.is_some_and(|last| now < last + RESENT && !was_slow(last)) && !is_first {
            return Err(format!("rule 8: {hash} is sent again within ten seconds"));
        }
        Ok(())
    }

    /// Rule 5: what is in doubt is sent again only after its nonce was read as free.
    fn judge_doubtful(&mut self, relay: Process, tx: &Tx) -> Result<(), String> {
        let now = self.now();
        let last = self.oracle.sends.insert((relay, tx.sender), now);
        let intents = self.journal.tables.intents.values();
        let newest = intents.rev().find(|it| it.transaction_hash == tx.hash);
        let is_in_doubt = newest.is_some_and(|it| it.state == IntentState::Displaced);
        // lower ones may have been sent before it, which takes long
        let is_after_others = self.since(last) <= RECENT + LOOK;
        let was_paused = self.relays[relay].paused_until + RECENT >= now && !now.is_zero();
        if !is_in_doubt || is_after_others || was_paused || self.has_leapt(RECENT) {
            return Ok(());
        }
        let since = now.saturating_sub(RECENT + TIMEOUT);
        let is_free = |fact: &Fact| matches!(fact, Fact::Nonce(of, next) if *of == tx.sender && *next <= tx.nonce);
        let mut shown = self.oracle.record.since(relay, since);
        if shown.any(|it| is_free(&it.fact)) {
            return Ok(());
        }
        Err(format!(
            "rule 5: {} is in doubt, and is sent although its nonce is used",
            tx.hash
        ))
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
    pub(super) fn clock_was_set(&self) -> bool {
        let faults = [Fault::StoreClock, Fault::StoreClockBack, Fault::HoursPass];
        faults.iter().any(|fault| self.fired.contains_key(fault))
    }

    pub(super) fn since(&self, at: Option<Duration>) -> Duration {
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
            .and_then(|()| self.judge_key(request, begun, reply))
            .and_then(|()| self.judge_twin(request, begun, reply))
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
        let is_cut_off = |relay| {
            let former = self.former_urls_of(relay, since);
            self.urls_of(relay).into_iter().all(is_silent)
                || former.is_some_and(|urls| urls.into_iter().all(is_silent))
        };
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
        // an equal request that it joined may have read the state long before
        let begun = self.since_of(begun.watch).min(begun.at);
        let is_there = self.chain.has(action) || had.is_some_and(|at| at + LAG >= begun);
        let is_shown = || self.urls.iter().any(|url| url.has(action, begun));
        // a URL may have had nodes of another chain, which has it
        let since = begun.saturating_sub(LAG);
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

    /// Without a key, too, the drip of an equal request that came in later is the answer, however far
    /// the clocks are apart, unless something else than the chain was shown.
    fn judge_twin(&self, request: &Request, begun: Begun, reply: &Reply) -> Result<(), String> {
        use Fault::{Genesis, Rollback, SameGenesis, TwoChains};
        let shows_other = [Rollback, Genesis, SameGenesis, TwoChains];
        let is_refused = reply.kind == ReplyKind::Refused(Reason::FaucetCooldown);
        if request.key.is_some()
            || !is_refused
            || shows_other.iter().any(|it| self.fired.contains_key(it))
        {
            return Ok(());
        }
        let digest = CATALOG[request.wanted].intent_digest();
        let is_twin = |it: &&Intent| {
            it.digest == digest
                && it.state == IntentState::Succeeded
                && Some(it.transaction_hash) == reply.hash
                && self
                    .oracle
                    .stored_at(it.id)
                    .is_some_and(|at| at >= begun.at)
        };
        match self.journal.tables.intents.values().find(is_twin) {
            Some(twin) => Err(format!("answers: drip {} is its own", twin.id)),
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
        // a relay that was paused may have known it before
        let relay = self.relay_of(begun.watch);
        let is_late = self.relays[relay].paused_until + 2 * LAG >= self.now();
        let is_former = intent.epoch != self.epoch() && !is_late;
        if is_former && self.since(self.oracle.former_shown) > 2 * LAG {
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

    /// Whether a block that was settled long ago has another transaction with its nonce.
    fn has_witness(&self, intent: &Intent) -> bool {
        let view = self.chain.view();
        let deepest = view.head().number.saturating_sub(2 * CONFIRMATIONS as u64);
        let is_it = |tx: &Tx| {
            (tx.sender, tx.nonce) == (intent.signer, intent.nonce)
                && tx.hash != intent.transaction_hash
        };
        let latest = self.chain_time().saturating_sub(WITNESSED);
        let mut settled = (0..=deepest).filter_map(|number| view.block(number));
        settled.any(|block| block.timestamp < latest && block.txs.iter().any(|it| is_it(&it.tx)))
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
            if intent.state == IntentState::Displaced && self.has_witness(intent) {
                return Err(format!(
                    "rule 3: intent {} is in doubt, and a settled block has its nonce",
                    intent.id
                ));
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
