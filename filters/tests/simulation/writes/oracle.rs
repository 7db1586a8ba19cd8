//! What must hold. The rules of displaced, lost and rejected writes have their numbers (`rules`); the
//! others have names: `durable` (stored before it is sent), `locks` (one relay writes with an
//! account), `money` (cooldowns, bindings and budgets), `keys`, `answers` (what a response says is
//! true), `reasons` (a refusal has a cause: `refusals`), `progress` (work gets done: `end`). `shown`
//! has what the URLs showed, which is all that a relay may conclude from.
//!
//! All of them assume that no rollback reaches below a settled block, and that a transaction that
//! reverts does so each time.

use super::config::is_own;
use super::links::Links;
use super::machine::Process;
use super::notes::Notes;
use super::pins::PATIENCE_US;
use super::refusals::Watches;
use super::requests::{CATALOG, Request};
use super::rules::Case;
use super::shown::Record;
use super::world::{Fault, World};
use crate::tables::DRIP;
use crate::toolkit::LINES;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    Change, DAY_US, Intended, Intent, IntentId, IntentState, Intention, NewIntent, Steps,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// For how long a node may go on to show what is gone.
pub(super) const LAG: Duration = Duration::from_secs(15);
/// How long one look at all URLs may take.
pub(super) const LOOK: Duration = Duration::from_secs(12);
/// How long another epoch must be reported before it is in force.
const PATIENCE: Duration = Duration::from_micros(PATIENCE_US.unsigned_abs());
/// How long a URL may take to answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);
/// How old the check of the chain may be when something is sent.
pub(super) const CHECK: Duration = Duration::from_secs(10);
/// How long nothing is sent again unasked.
pub(super) const RESENT: Duration = Duration::from_millis(9_900);
/// How long after a check of its lock an intent may be stored: what is in the journal may be followed,
/// and lower nonces filled, in between.
pub(super) const CHECKED: Duration = Duration::from_secs(60);
/// How old the evidence for a response may be, beyond its request.
pub(super) const RECENT: Duration = Duration::from_secs(15);

/// The journal's name for a transaction that only uses a nonce.
const FILL: &str = "fill-nonce";

/// Whether the journal may record a state after another one: what is known to be on the chain, in
/// doubt or lost is never merely sent, and what was never sent is never anything else.
fn follows(before: IntentState, state: IntentState) -> bool {
    use IntentState::{Accepted, Intended, Lost, Rejected, Reverted, Sent, Succeeded};
    match before {
        Rejected => false,
        Succeeded | Reverted => !matches!(state, Accepted | Intended | Lost | Rejected | Sent),
        Lost => !matches!(state, Accepted | Intended | Rejected | Sent),
        Intended | Sent => state != Intended,
        _ => !matches!(state, Intended | Rejected | Sent),
    }
}

/// The observations so far.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) violation: Option<String>,
    /// The store loses commits, so that nothing else can be demanded.
    pub(super) judges_progress_only: bool,
    pub(super) lines: VecDeque<String>,
    /// The last final hash of a key, and the intent that had it.
    pub(super) finals: BTreeMap<String, (Felt, IntentId)>,
    /// The bodies that a key was used with.
    pub(super) bodies: BTreeMap<String, BTreeSet<usize>>,
    pub(super) record: Record,
    pub(super) watches: Watches,
    pub(super) notes: Notes,
    /// How often each case of a rule came up.
    pub(super) cases: BTreeMap<Case, u64>,
    /// How often each transition was taken.
    pub(super) transitions: BTreeMap<(IntentState, IntentState), u64>,
    pub(super) states: BTreeMap<IntentId, IntentState>,
    /// The numbers of the blocks that each intent was recorded in.
    pub(super) included: BTreeMap<IntentId, BTreeSet<u64>>,
    pub(super) entries: usize,
    /// When each relay last sent each open transaction again.
    pub(super) resent: BTreeMap<(Process, IntentId), Duration>,
    /// How often each relay sent each transaction.
    pub(super) times: BTreeMap<(Process, IntentId), u64>,
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
    pub(super) checked: BTreeMap<(Process, Felt), Duration>,
    /// When hours passed last.
    pub(super) leapt: Option<Duration>,
    /// When each relay last sent something of each account, by nonce.
    pub(super) sends: BTreeMap<(Process, Felt), BTreeMap<u64, Duration>>,
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
    pub(super) at: Duration,
    pub(super) watch: u64,
}

impl Oracle {
    /// A process of a relay ends, and with it what it remembers.
    pub(super) fn crashed(&mut self, relay: Process, now: Duration) {
        self.watches.crashed(relay, now);
        self.resent.retain(|(of, _), _| *of != relay);
        self.notes.crashed(relay);
    }

    /// When an intent was stored.
    pub(super) fn stored_at(&self, id: IntentId) -> Option<Duration> {
        self.stored.get(&id).copied()
    }

    pub(super) fn trace(&mut self, now: Duration, line: impl FnOnce() -> String) {
        if self.violation.is_none() {
            if self.lines.len() >= *LINES {
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

    /// Stores an intent, if that was decided, and judges that.
    pub(super) fn intend(
        &mut self,
        relay: Process,
        new: &NewIntent<'_>,
        intention: Intention,
        now_us: i64,
    ) -> Intended {
        let reply = self.journal.store(new, intention, now_us);
        if let Intended::New(id) = reply {
            let now = self.now();
            self.oracle.stored.insert(id, now);
            self.oracle.notes.stored_by.insert(id, relay);
            self.note_transitions();
            let broken = self.judge_intent(id);
            self.oracle.report(broken);
            let new = self.journal.tables.intents[&id].clone();
            self.provoke_beside(&new);
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
        let intent = &self.journal.tables.intents[&id];
        let account = intent.signer;
        let holder = self.locks.get(&account).and_then(|lock| lock.holder);
        // below what a former account signed, which is locked for that alone
        if intent.operation == FILL && holder.is_some_and(|(holder, _)| holder == relay) {
            return Ok(());
        }
        let checked = self.oracle.checked.get(&(relay, account)).copied();
        let is_late = self.since(checked) > CHECKED && !self.acts_late(relay, CHECKED);
        if is_own(account) && is_late {
            return Err(format!(
                "locks: intent {id} is stored, and its lock was not checked"
            ));
        }
        Ok(())
    }

    /// What a relay stores, it stores only after it has noted the blocks that the journal has: a URL
    /// that is behind must not take back what was acknowledged.
    pub(super) fn judge_floor(&mut self, relay: Process, epoch: &str) {
        let notes = &self.oracle.notes;
        let noted = notes.noted.get(&relay).copied();
        let read = notes.floors.get(&(relay, epoch.to_owned()));
        if read.is_none_or(|floor| *floor > noted) {
            let broken = format!(
                "durable: relay {relay} writes, the floor is {read:?}, and {noted:?} was noted"
            );
            self.oracle.report(Err(broken));
        }
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
        let now = self.now();
        let first = self.oracle.entries;
        self.oracle.entries = self.journal.tables.entries.len();
        for at in first..self.oracle.entries {
            let (id, state) = self.journal.tables.entries[at];
            let before = self.oracle.states.insert(id, state);
            self.receiver.expect(at + 1, id, before, state);
            if before.is_some_and(|before| !follows(before, state)) {
                let before = before.map_or("", IntentState::name);
                let broken = format!("states: intent {id} is {} after {before}", state.name());
                self.oracle.report(Err(broken));
            }
            self.oracle.notes.moved(id, before, state, now);
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
        self.judge_anew_pace(&new)?;
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
        self.judge_pair(&new)?;
        self.judge_registry(&new)?;
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

    /// Changes an intent, as was decided, and judges that.
    pub(super) fn apply(
        &mut self,
        relay: Process,
        id: IntentId,
        change: &Change<'_>,
        decided: Result<&Steps, bool>,
    ) -> bool {
        let before = self.journal.tables.intents.get(&id).cloned();
        let lost = self.lost_beside(id);
        let is_applied = match decided {
            Ok(steps) => {
                self.journal.write(id, steps);
                true
            }
            Err(reply) => reply,
        };
        if let Some(before) = before.filter(|_| is_applied) {
            self.note_transitions();
            let after = &self.journal.tables.intents[&id];
            let state = after.state;
            let number = after.included.map(|it| it.number);
            let judged = self
                .judge_anew(&lost)
                .and_then(|()| self.judge_single(&before))
                .and_then(|()| self.judge_answers(&before));
            self.oracle.report(judged);
            let judged = self.judge_bindings(&before.epoch);
            self.oracle.report(judged);
            self.oracle.included.entry(id).or_default().extend(number);
            if state == IntentState::Displaced {
                let now = self.now();
                self.oracle.notes.displaced.insert((relay, id), now);
            }
            let broken = self.judge_change(relay, &before, change, state);
            self.oracle.report(broken);
            if state == IntentState::Displaced {
                self.provoke(id);
            }
            self.note(|| format!("intent {id} is {}", state.name()));
        }
        self.observe();
        is_applied
    }

    /// Whether hours have passed within this time.
    pub(super) fn has_leapt(&self, within: Duration) -> bool {
        self.since(self.oracle.leapt) <= within
    }

    /// Whether the store's clock was ever set, or is ahead.
    pub(super) fn clock_was_set(&self) -> bool {
        let faults = [Fault::StoreClock, Fault::StoreClockBack, Fault::HoursPass];
        faults.iter().any(|fault| self.fired.contains_key(fault))
    }

    pub(super) fn since(&self, at: Option<Duration>) -> Duration {
        at.map_or(Duration::MAX, |at| self.now() - at)
    }
}
