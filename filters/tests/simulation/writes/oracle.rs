//! The rules that must hold, by number: 1 to 3 when a transaction is stored and sent, 4 to 6 on the
//! chain and in the journal, 7 to 10 for each answer, 12 and 13 once everything has settled. 11, the
//! hash chain, is a matter of the store's tests.
//!
//! All of them assume that no rollback reaches below a settled block, and that a transaction that
//! reverts does so each time.

use super::chain::{Action, Chain, Tx};
use super::journal::{Journal, OwnedIntent};
use super::machine::Process;
use super::requests::{CATALOG, COOLDOWN, DRIPS_PER_DAY, PINS, Reply, ReplyKind, Request};
use super::world::{CONFIRMATIONS, World};
use crate::tables::DRIP;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Change, DAY_US, Intended, Intent, IntentId, IntentState};
use portcullis_filters::verdict::Reason;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Events that a failure shows.
const LINES: usize = 55;
/// For how long a node may go on to show what is gone.
const LAG: Duration = Duration::from_secs(15);

/// The observations so far.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) violation: Option<String>,
    pub(super) lines: VecDeque<String>,
    /// When the requested state was last there.
    had: BTreeMap<usize, Duration>,
    /// The last final hash of a key.
    finals: BTreeMap<String, Felt>,
    /// The bodies that a key was used with.
    bodies: BTreeMap<String, BTreeSet<usize>>,
    /// Requests of a key without a response, and all of them.
    open: BTreeMap<String, (u32, u32)>,
    /// The transactions that the node has accepted.
    pub(super) taken: BTreeSet<Felt>,
    /// The last time at which a call of a relay got no answer.
    pub(super) silent: Option<Duration>,
    pub(super) locks_lost: Option<Duration>,
    /// When a URL may last have shown a former chain.
    pub(super) former_shown: Option<Duration>,
    /// How often each request got each reply.
    pub(super) replies: BTreeMap<(&'static str, String), u64>,
}

/// The situation in which a request came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Duration,
    clock_us: i64,
    /// How many requests with its key had come, itself included, if no other one was open.
    alone_after: Option<u32>,
}

impl Oracle {
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

    pub(super) fn report(&mut self, broken: Result<(), String>) {
        if let Err(broken) = broken {
            self.violation.get_or_insert(broken);
        }
    }

    /// Rules 4 and 6, on the chain that survives.
    pub(super) fn after_block(&mut self, chain: &Chain, journal: &Journal) -> Result<(), String> {
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
                return Err(format!("rule 1: drip {} has no intent", tx.hash));
            }
            // one that was under way when the chain started over counts in no epoch: nothing of the
            // former one is in force (`judge_add` bounds how long that may take)
            let Some(intent) = of_epoch.get(&tx.hash) else {
                continue;
            };
            let Some(recipient) = intent.subject else {
                continue;
            };
            paid.entry(recipient).or_default().push(intent.created_us);
            if let Some(identity) = intent.identity
                && *pairs.entry(identity).or_insert(recipient) != recipient
            {
                return Err(format!(
                    "rule 6: identity {identity} was paid to two recipients"
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
            return Err(format!("rule 5: {} is rejected, and was sent", tx.hash));
        }
        let cooldown = i64::try_from(COOLDOWN.as_micros()).expect("it is short");
        for (recipient, mut times) in paid {
            times.sort_unstable();
            if times.windows(2).any(|pair| pair[1] - pair[0] < cooldown) {
                return Err(format!("rule 4: {recipient} was paid twice: {times:?}"));
            }
        }
        Ok(())
    }
}

impl World {
    pub(super) fn begin(&mut self, request: &Request) -> Begun {
        let mut alone_after = None;
        if let Some(key) = &request.key {
            let (open, all) = self.oracle.open.entry(key.clone()).or_default();
            *open += 1;
            *all += 1;
            alone_after = (*open == 1).then_some(*all);
            self.oracle
                .bodies
                .entry(key.clone())
                .or_default()
                .insert(request.wanted);
        }
        let (at, clock_us) = (self.now(), self.clock_us());
        self.note(|| format!("request {request:?}"));
        Begun {
            at,
            clock_us,
            alone_after,
        }
    }

    /// Stores an intent, and judges that.
    pub(super) fn intend(&mut self, new: &OwnedIntent, now_us: i64) -> Intended {
        let reply = self.journal.intend(new, now_us);
        if let Intended::New(id) = reply {
            let broken = self.judge_intent(id);
            self.oracle.report(broken);
            self.note(|| format!("intent {id} is stored, nonce {}", new.nonce));
        }
        reply
    }

    /// Rules 2 and 6, in the journal.
    fn judge_intent(&self, id: IntentId) -> Result<(), String> {
        let new = &self.journal.tables.intents[&id];
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
            return Err(format!("rule 2: nonce {} has two transactions", new.nonce));
        }
        let now_us = self.clock_us();
        let is_drip = |it: &&Intent| {
            it.operation == DRIP
                && it.epoch == new.epoch
                && it.state.holds()
                && it.state != IntentState::Reverted
                && (now_us - DAY_US..=now_us).contains(&it.created_us)
                && (it.slot() != new.slot() || it.id == id)
        };
        let drips = self.journal.tables.intents.values().filter(is_drip).count();
        if new.operation == DRIP && drips > DRIPS_PER_DAY as usize {
            return Err(format!("rule 6: {drips} drips within a day"));
        }
        Ok(())
    }

    /// Changes an intent, and judges that.
    pub(super) fn apply(&mut self, id: IntentId, change: &Change<'_>) -> bool {
        let now_us = self.clock_us();
        let is_applied = self.journal.apply(id, change, now_us);
        if is_applied {
            let state = self.journal.tables.intents[&id].state;
            if state == IntentState::Lost {
                let broken = self.judge_lost(id);
                self.oracle.report(broken);
            }
            self.note(|| format!("intent {id} is {}", state.name()));
        }
        is_applied
    }

    /// Rule 5: `lost` has a witness in a settled block.
    fn judge_lost(&self, id: IntentId) -> Result<(), String> {
        let lost = &self.journal.tables.intents[&id];
        let view = self.chain.view();
        let head = view.head().number;
        let is_witness = |tx: &Tx| {
            (tx.sender, tx.nonce) == (lost.signer, lost.nonce) && tx.hash != lost.transaction_hash
        };
        let mut settled =
            (0..=head.saturating_sub(CONFIRMATIONS as u64)).filter_map(|n| view.block(n));
        let is_settled = settled.any(|block| block.txs.iter().any(|it| is_witness(&it.tx)));
        // another chain may have begun since the witness was seen
        if is_settled || lost.epoch != self.epoch() {
            return Ok(());
        }
        Err(format!(
            "rule 5: intent {id} is lost, and nothing settled has its nonce"
        ))
    }

    /// Rule 3: while an account is locked, no other relay sends for it.
    pub(super) fn judge_send(&mut self, relay: Process, tx: &Tx) {
        let holder = self.locks.get(&tx.sender).and_then(|lock| lock.holder);
        let is_other = holder.is_some_and(|(holder, _)| holder != relay);
        let is_lost = self.since(self.oracle.locks_lost) <= 2 * LAG;
        if is_other && PINS.signs_with(tx.sender) && !is_lost {
            let broken = format!("rule 3: another relay holds the account of {}", tx.hash);
            self.oracle.report(Err(broken));
        }
        self.note(|| format!("relay {relay} sends {} with nonce {}", tx.hash, tx.nonce));
    }

    /// Rule 1: what reaches the node is durable, and meant for this chain.
    pub(super) fn judge_add(&mut self, tx: &Tx) {
        let intents = self.journal.tables.intents.values();
        let mut of_hash = intents
            .filter(|it| it.transaction_hash == tx.hash)
            .peekable();
        let is_known = of_hash.peek().is_some();
        let is_of_chain = of_hash.any(|it| it.epoch == self.epoch());
        if !is_known {
            let broken = format!("rule 1: {} was sent without an intent", tx.hash);
            self.oracle.report(Err(broken));
        } else if !is_of_chain && self.since(self.oracle.former_shown) > 2 * LAG {
            let broken = format!("rule 1: {} was sent to another chain", tx.hash);
            self.oracle.report(Err(broken));
        }
    }

    fn since(&self, at: Option<Duration>) -> Duration {
        at.map_or(Duration::MAX, |at| self.now() - at)
    }

    /// Rules 7 to 10: whether a response is true.
    pub(super) fn judge_reply(&mut self, request: &Request, begun: Begun, reply: &Reply) {
        let wanted = &CATALOG[request.wanted];
        let name = format!("{:?}", reply.kind);
        *self
            .oracle
            .replies
            .entry((wanted.name(), name))
            .or_default() += 1;
        if let Some(key) = &request.key
            && let Some((open, _)) = self.oracle.open.get_mut(key)
        {
            *open = open.saturating_sub(1);
        }
        self.note(|| format!("request {} is answered {reply:?}", request.action));
        let judged = self
            .judge_kind(request, begun, reply)
            .and_then(|()| self.judge_key(request, reply))
            .map_err(|broken| format!("{broken}: request {request:?}, {reply:?}"));
        self.oracle.report(judged);
    }

    fn judge_kind(&mut self, request: &Request, begun: Begun, reply: &Reply) -> Result<(), String> {
        let wanted = &CATALOG[request.wanted];
        match (reply.kind, reply.hash) {
            (ReplyKind::Written, Some(hash)) if wanted.digest().is_some() => {
                self.judge_written(begun, hash)
            }
            (ReplyKind::Written, Some(hash)) if !self.oracle.taken.contains(&hash) => {
                Err("rule 7: no node has taken it".to_owned())
            }
            (ReplyKind::Already, _) => self.judge_already(request.wanted, begun),
            (ReplyKind::Refused(Reason::Reverted), Some(hash)) => {
                let is_seen = self.chain.seen.get(&hash).is_some_and(|seen| seen.reverted);
                is_seen
                    .then_some(())
                    .ok_or_else(|| "rule 7: it did not revert".to_owned())
            }
            (ReplyKind::Refused(reason), None) if sends_nothing(reason) => {
                self.judge_unsent(request, begun)
            }
            _ => Ok(()),
        }
    }

    /// Rule 7: some URL showed that it succeeded, or none answered.
    fn judge_written(&mut self, begun: Begun, hash: Felt) -> Result<(), String> {
        let seen = self.chain.seen.get(&hash).copied();
        let Some(seen) = seen.filter(|seen| seen.succeeded) else {
            return Err("rule 7: it never succeeded".to_owned());
        };
        let Some(gone) = seen.gone else { return Ok(()) };
        let is_recent = gone + LAG >= begun.at;
        let is_shown = || self.urls.iter().any(|url| url.shows(hash, begun.at));
        if is_recent || self.was_silent_since(begun.at) || is_shown() {
            return Ok(());
        }
        Err(format!(
            "rule 7: the chain lost it at {:.3}",
            gone.as_secs_f64()
        ))
    }

    fn was_silent_since(&self, begun: Duration) -> bool {
        self.oracle.silent.is_some_and(|at| at >= begun)
    }

    /// Rule 7: the state was there.
    fn judge_already(&mut self, wanted: usize, begun: Begun) -> Result<(), String> {
        let Some(action) = CATALOG[wanted].action() else {
            return Ok(());
        };
        let had = self.oracle.had.get(&wanted).copied();
        let is_there = self.chain.has(action) || had.is_some_and(|at| at + LAG >= begun.at);
        let is_shown = || self.urls.iter().any(|url| url.has(action, begun.at));
        if is_there || is_shown() {
            return Ok(());
        }
        Err("rule 7: the state is not there".to_owned())
    }

    /// Notes which states are there.
    pub(super) fn note_states(&mut self) {
        for (at, wanted) in CATALOG.iter().enumerate() {
            if wanted.action().is_some_and(|action| self.chain.has(action)) {
                self.oracle.had.insert(at, self.now());
            }
        }
    }

    /// Rule 8: if it says that nothing was sent, nothing is stored as sent.
    fn judge_unsent(&self, request: &Request, begun: Begun) -> Result<(), String> {
        let Some(key) = &request.key else {
            return Ok(());
        };
        if begun.alone_after != Some(self.oracle.open[key].1) {
            return Ok(());
        }
        let is_sent = |it: &&Intent| {
            it.created_us >= begun.clock_us
                && it.state.occupies()
                && self.journal.written_with[&it.id].as_ref() == Some(key)
        };
        match self.journal.tables.intents.values().find(is_sent) {
            Some(intent) => Err(format!("rule 8: intent {} is stored as sent", intent.id)),
            None => Ok(()),
        }
    }

    /// Rules 9 and 10: an idempotency key has one final answer, of its own request.
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
            return Err("rule 10: the key was used with one body only".to_owned());
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
            let is_own = intent.epoch == self.epoch()
                && self.journal.written_with[&intent.id].as_ref() == Some(key);
            let why = "rule 10: its own drip starts the cooldown".to_owned();
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
        if intent.digest != digest {
            return Err("rule 9: it is the answer to another body".to_owned());
        }
        let former = self
            .oracle
            .finals
            .insert(key.clone(), hash)
            .filter(|it| *it != hash);
        let former = former
            .and_then(of)
            .filter(|former| former.epoch == intent.epoch);
        match former {
            Some(former) if former.state.is_included() && former.slot() != intent.slot() => Err(
                format!("rule 9: {} was its answer before", former.transaction_hash),
            ),
            _ => Ok(()),
        }
    }

    /// Rules 5, 12 and 13, once nothing has gone wrong for long.
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
                    "rule 5: intent {} is back, and not noticed",
                    intent.id
                ));
            }
            if intent.state.is_unresolved() && !self.may_stay_open(intent.transaction_hash) {
                return Err(format!("rule 13: intent {} is still open", intent.id));
            }
        }
        let bindings = self.journal.tables.bindings.iter();
        for (_, pair) in bindings.filter(|(of, _)| *of == epoch) {
            let holds = |it: &Intent| {
                it.operation == DRIP && it.state.holds() && it.subject == Some(pair.recipient)
            };
            if !of_epoch().any(holds) {
                return Err(format!(
                    "rule 12: nothing holds the binding of {}",
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
