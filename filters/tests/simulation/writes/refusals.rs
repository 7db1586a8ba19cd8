//! Every refusal has a reason in the model's own state: the chain, the journal, the locks, other
//! requests, or a call that failed while the request was open.

use super::chain::State;
use super::config::is_own;
use super::conflicts::conflicts;
use super::machine::Process;
use super::money::registry_permits;
use super::requests::{CATALOG, PINS, Reply, ReplyKind, Request, Wanted};
use super::shown::Failure;
use super::world::{SKEW_US, World};
use crate::tables::{DRIP, Named, pair_of, pays};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{DAY_US, Intent, IntentId, IntentState, MINUTE_US, Pair, gfri};
use portcullis_filters::operations::Operation;
use portcullis_filters::verdict::Reason;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// For how long a URL may go on to show a state that is gone.
const LAG: Duration = Duration::from_secs(40);
/// How long a write must have taken before a relay may say that it could not start in time.
const SLOW: Duration = Duration::from_secs(20);
/// For how long a request that a relay lost in a crash may still have effects.
const AFTER_CRASH: Duration = Duration::from_secs(15);

/// A fact of the journal that explains a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    /// An intent of the account is open or in doubt.
    OpenOfAccount,
    /// Another transaction of the user has the nonce.
    SlotTaken,
    /// The identity or the recipient is bound elsewhere.
    BoundElsewhere,
    /// The drips of a day are used up.
    NoDripsLeft,
    /// The fees of a day are used up.
    NoFeesLeft,
    /// Another request with its key is open.
    KeyIsOpen,
    /// An equal request is open.
    EqualIsOpen,
}

/// A request without a response, or one that a relay lost in a crash.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    relay: Process,
    wanted: usize,
    key: Option<String>,
    /// When it came in, or the oldest equal one that it may have joined.
    since: Duration,
    at: Duration,
    /// When the relay, which may have been paused, began with it.
    arrived: Duration,
    ended: Option<Duration>,
    facts: BTreeSet<Fact>,
    /// The epoch in which it last claimed its key, and what that named then.
    claimed: Option<(String, Option<IntentId>)>,
    /// The key that it claimed first.
    made: Option<Named>,
    /// No equal request was open meanwhile.
    is_alone: bool,
}

/// The requests that are open, and the conflicts on the chain.
#[derive(Default)]
pub(super) struct Watches {
    open: BTreeMap<u64, Watch>,
    next: u64,
    /// When a relay last read a state that forbids each of its requests, for this reason.
    conflicts: HashMap<(Process, [u8; 32], Reason), Duration>,
    /// When a relay last read a state that each of its requests wants.
    had: HashMap<(Process, [u8; 32]), Duration>,
}

impl Watches {
    /// A relay lost its requests.
    pub(super) fn crashed(&mut self, relay: Process, now: Duration) {
        for watch in self.open.values_mut() {
            if watch.relay == relay {
                watch.ended.get_or_insert(now);
            }
        }
    }
}

impl Wanted {
    /// The account that sends it.
    pub(super) fn sender(&self) -> Felt {
        match self {
            Self::Operation(permit) => *PINS.accounts.of(permit.operation().kind().role()),
            Self::Transaction(permit, _) => permit.sender(),
        }
    }

    /// The digest of its intents.
    pub(super) fn intent_digest(&self) -> [u8; 32] {
        match self {
            Self::Operation(permit) => permit.digest(),
            Self::Transaction(permit, _) => permit.hash().to_bytes_be(),
        }
    }
}

impl World {
    /// A request comes in at a relay.
    pub(super) fn watch(&mut self, relay: Process, request: &Request) -> u64 {
        let at = self.now();
        let watches = &mut self.oracle.watches;
        watches
            .open
            .retain(|_, it| it.ended.is_none_or(|end| end + AFTER_CRASH > at));
        let digest = CATALOG[request.wanted].intent_digest();
        let mut watch = Watch {
            relay,
            wanted: request.wanted,
            key: request.key.clone(),
            since: at,
            at,
            arrived: at,
            ended: None,
            facts: BTreeSet::new(),
            claimed: None,
            made: None,
            is_alone: true,
        };
        for other in watches.open.values_mut() {
            let is_equal = CATALOG[other.wanted].intent_digest() == digest;
            if is_equal {
                other.is_alone = false;
                watch.is_alone = false;
                other.facts.insert(Fact::EqualIsOpen);
                watch.facts.insert(Fact::EqualIsOpen);
                if other.relay == relay && other.ended.is_none() {
                    watch.since = watch.since.min(other.since);
                }
            }
            if other.key.is_some() && other.key == watch.key {
                other.facts.insert(Fact::KeyIsOpen);
                watch.facts.insert(Fact::KeyIsOpen);
            }
        }
        watches.next += 1;
        let id = watches.next;
        watches.open.insert(id, watch);
        self.observe();
        id
    }

    /// Notes what explains refusals now.
    pub(super) fn observe(&mut self) {
        self.judge_noted();
        self.note_epoch();
        let ids: Vec<u64> = self.oracle.watches.open.keys().copied().collect();
        for id in ids {
            let watch = &self.oracle.watches.open[&id];
            if watch.ended.is_some() {
                continue;
            }
            let facts = self.facts_of(watch.relay, &CATALOG[watch.wanted]);
            if let Some(watch) = self.oracle.watches.open.get_mut(&id) {
                watch.facts.extend(facts);
            }
        }
    }

    fn facts_of(&self, relay: Process, wanted: &Wanted) -> BTreeSet<Fact> {
        let epoch = self.epoch();
        let intents = || self.journal.tables.intents.values();
        let mut facts = BTreeSet::new();
        let sender = self.sender_of(relay, wanted);
        let is_open = |it: &Intent| it.state.is_unresolved() || it.state == IntentState::Displaced;
        // relays that were started with other pins pay drips from another account
        let is_of = |it: &Intent| it.signer == sender || wanted.name() == DRIP && is_own(it.signer);
        if intents().any(|it| is_of(it) && is_open(it)) {
            facts.insert(Fact::OpenOfAccount);
        }
        match wanted {
            Wanted::Transaction(permit, _) => {
                let is_taken = |it: &Intent| {
                    (it.signer, it.nonce) == (sender, permit.nonce())
                        && it.transaction_hash != permit.hash()
                };
                if intents().any(is_taken) {
                    facts.insert(Fact::SlotTaken);
                }
            }
            Wanted::Operation(permit) => {
                if self.are_fees_used_up() {
                    facts.insert(Fact::NoFeesLeft);
                }
                if let Operation::FaucetDrip(it) = permit.operation() {
                    let bound = self.journal.tables.bindings.iter().map(|(_, pair)| *pair);
                    let doubted = intents().filter(|it| it.state == IntentState::Displaced);
                    let mut pairs = bound.chain(doubted.filter_map(pair_of));
                    let is_other = |pair: Pair| {
                        (pair.identity == it.identity) != (pair.recipient == it.recipient)
                    };
                    if pairs.any(is_other) {
                        facts.insert(Fact::BoundElsewhere);
                    }
                    // by the clock of a relay
                    let now_us = self.clock_us() - 2 * SKEW_US;
                    let is_drip = |it: &&Intent| {
                        it.operation == DRIP
                            && it.epoch == epoch
                            && pays(it)
                            && it.created_us > now_us - DAY_US
                    };
                    if intents().filter(is_drip).count() >= self.limits.fewest_drips as usize {
                        facts.insert(Fact::NoDripsLeft);
                    }
                }
            }
        }
        facts
    }

    /// Whether the tightest budget of fees has no room for another transaction.
    fn are_fees_used_up(&self) -> bool {
        let Some(limit) = self.limits.lowest_fees else {
            return false;
        };
        let epoch = self.epoch();
        // the minutes of a day, by a clock that may differ
        let from = self.clock_us() - DAY_US - 2 * MINUTE_US;
        let intents = self.journal.tables.intents.values();
        let counted =
            intents.filter(|it| it.epoch == epoch && it.state.holds() && it.created_us >= from);
        let spent: i64 = counted.map(|it| it.fee_gfri).sum();
        spent + gfri(self.highest_fee()) > gfri(limit)
    }

    /// The account that a relay sends it with: relays may have different ones.
    fn sender_of(&self, relay: Process, wanted: &Wanted) -> Felt {
        match (wanted, &self.relays[relay].io) {
            (Wanted::Operation(permit), Some(io)) => {
                *io.pins.accounts.of(permit.operation().kind().role())
            }
            _ => wanted.sender(),
        }
    }

    /// A relay reads this state: notes what that says of each request that it has open.
    pub(super) fn note_state(&mut self, relay: Process, state: &State) {
        let now = self.now();
        let watches = &mut self.oracle.watches;
        let of_relay = watches.open.values().filter(|it| it.relay == relay);
        for wanted in of_relay.map(|it| it.wanted).collect::<BTreeSet<_>>() {
            let digest = CATALOG[wanted].intent_digest();
            if CATALOG[wanted]
                .action()
                .is_some_and(|action| state.has(action))
            {
                watches.had.insert((relay, digest), now);
            }
            let Wanted::Operation(permit) = &CATALOG[wanted] else {
                continue;
            };
            for reason in conflicts(permit.operation(), state) {
                watches.conflicts.insert((relay, digest, reason), now);
            }
            if let Operation::FaucetDrip(drip) = permit.operation()
                && registry_permits(drip, state)
            {
                self.oracle.notes.permitted.insert(digest, now);
            }
        }
    }

    /// A request has its response. Judges whether a refusal is true.
    pub(super) fn judge_refusal(
        &mut self,
        id: u64,
        request: &Request,
        reason: Reason,
        reply: &Reply,
    ) -> Result<(), String> {
        let watch = self.oracle.watches.open[&id].clone();
        if self.is_justified(&watch, request, reason, reply) {
            return Ok(());
        }
        let name = reason.name();
        let digest = CATALOG[request.wanted].intent_digest();
        let intents = self.journal.tables.intents.values();
        let equal: Vec<_> = intents
            .filter(|it| it.digest == digest)
            .map(|it| (it.id, it.state))
            .collect();
        let Watch {
            relay, at, facts, ..
        } = watch;
        Err(format!(
            "reasons: nothing explains {name} of relay {relay} since {at:?}: {facts:?}, equal intents {equal:?}"
        ))
    }

    /// The operations that wait for a response, each with its relay.
    pub(super) fn open_operations(&self) -> Vec<(Process, usize)> {
        let open = self.oracle.watches.open.values();
        let open = open.filter(|it| it.ended.is_none());
        let open = open.map(|it| (it.relay, it.wanted));
        open.filter(|(_, wanted)| CATALOG[*wanted].digest().is_some())
            .collect()
    }

    /// A request has its response.
    pub(super) fn unwatch(&mut self, id: u64) {
        self.oracle.watches.open.remove(&id);
    }

    fn is_justified(
        &self,
        watch: &Watch,
        request: &Request,
        reason: Reason,
        reply: &Reply,
    ) -> bool {
        let Watch {
            relay,
            since,
            facts,
            ..
        } = watch;
        let wanted = &CATALOG[request.wanted];
        let record = &self.oracle.record;
        let failed = |failure| record.has_failed(*relay, failure, *since);
        let has = |fact| facts.contains(&fact);
        match reason {
            Reason::IdentityTaken | Reason::AccountTaken => {
                let is_drip = wanted.name() == DRIP;
                is_drip && has(Fact::BoundElsewhere) || self.has_read_conflict(reason, watch)
            }
            Reason::AlreadyMinted | Reason::UsershipConflict => {
                self.has_read_conflict(reason, watch)
            }
            Reason::FaucetCooldown => self.is_paid(wanted, reply.hash, watch),
            Reason::BudgetExceeded => {
                // a relay may still write to the chain that was there before
                let is_former = |at: Duration| at + LAG >= *since;
                has(Fact::NoDripsLeft)
                    || has(Fact::NoFeesLeft)
                    || self.oracle.former_shown.is_some_and(is_former)
            }
            Reason::Rejected => {
                let digest = wanted.intent_digest();
                let mut intents = self.journal.tables.intents.values();
                intents.any(|it| it.digest == digest && self.is_refusal_known(*relay, it, *since))
            }
            Reason::NonceConflict => {
                let is_next = match wanted {
                    Wanted::Transaction(permit, _) => {
                        self.chain.nonce(permit.sender()) == permit.nonce()
                    }
                    Wanted::Operation(_) => true,
                };
                has(Fact::SlotTaken) || failed(Failure::Returned) || !is_next
            }
            Reason::InProgress => {
                has(Fact::OpenOfAccount)
                    || failed(Failure::NonceMoved)
                    || has(Fact::KeyIsOpen)
                    || has(Fact::EqualIsOpen)
                    || failed(Failure::Lock)
                    || failed(Failure::Behind)
                    // it joined another write, and its key could not be linked to that
                    || request.key.is_some()
                        && (failed(Failure::Store) || failed(Failure::Unconfirmed))
            }
            Reason::OutcomeUnknown => {
                let digest = wanted.intent_digest();
                let mut intents = self.journal.tables.intents.values();
                let is_own =
                    |it: &Intent| it.digest == digest && Some(it.transaction_hash) == reply.hash;
                intents.any(is_own) || failed(Failure::Unconfirmed)
            }
            Reason::PinsUnproven => {
                let is_recent = |at: Option<Duration>| at.is_some_and(|at| at + LAG >= *since);
                failed(Failure::Proof) || is_recent(self.oracle.former_shown)
            }
            Reason::Overloaded => {
                let is_slow = self.now() >= *since + SLOW;
                is_slow || failed(Failure::Random) || failed(Failure::Full)
            }
            Reason::RefusedByChain => failed(Failure::Returned),
            Reason::StoreUnavailable => {
                let locks_lost = self.oracle.locks_lost.is_some_and(|at| at >= *since);
                failed(Failure::Store) || failed(Failure::Unconfirmed) || locks_lost
            }
            Reason::UpstreamTimeout
            | Reason::UpstreamUnreachable
            | Reason::UpstreamStatus
            | Reason::UpstreamOversized
            | Reason::UpstreamInvalid => failed(Failure::Node),
            Reason::NotRegistered
            | Reason::NotVerified
            | Reason::NotAttested
            | Reason::AttestationReplayed
            | Reason::AttestationNotInForce
            | Reason::RecoveryPending
            | Reason::RecoveryNotPending
            | Reason::RecoveryNotReady
            | Reason::RecoveryNotCancellable => self.has_read_conflict(reason, watch),
            Reason::AccountNotDeployed | Reason::AccountAlreadyDeployed => {
                self.has_read_conflict(reason, watch) || wanted.name() != DRIP
            }
            Reason::FaucetEmpty => self.was_faucet_empty(*since),
            Reason::ClassNotApproved => self.has_other_class(),
            // judged by their transaction, and by their key
            Reason::Reverted | Reason::IdempotencyConflict => true,
            _ => false,
        }
    }

    /// Whether the relay has read a state that forbids it.
    fn has_read_conflict(&self, reason: Reason, watch: &Watch) -> bool {
        let digest = CATALOG[watch.wanted].intent_digest();
        let conflicts = &self.oracle.watches.conflicts;
        let last = conflicts.get(&(watch.relay, digest, reason));
        last.is_some_and(|at| *at >= watch.since)
    }

    /// Whether the relay of a request has read the state that it wants.
    pub(super) fn has_read(&self, id: u64) -> bool {
        self.has_read_since(id, self.oracle.watches.open[&id].since)
    }

    /// Whether the relay of a request has read the state that it wants since then.
    pub(super) fn has_read_since(&self, id: u64, since: Duration) -> bool {
        let watches = &self.oracle.watches;
        let watch = &watches.open[&id];
        let digest = CATALOG[watch.wanted].intent_digest();
        let last = watches.had.get(&(watch.relay, digest));
        last.is_some_and(|at| *at >= since)
    }

    /// Whether this drip was paid to the recipient within the cooldown.
    fn is_paid(&self, wanted: &Wanted, hash: Option<Felt>, watch: &Watch) -> bool {
        let Wanted::Operation(permit) = wanted else {
            return false;
        };
        let Operation::FaucetDrip(drip) = permit.operation() else {
            return false;
        };
        let cooldown =
            i64::try_from(self.limits.longest_cooldown.as_micros()).expect("it is short");
        let open = i64::try_from((self.now() - watch.since).as_micros()).expect("it is short");
        let from = self.clock_us() - cooldown - open - 2 * SKEW_US;
        let mut intents = self.journal.tables.intents.values();
        intents.any(|it| {
            it.operation == DRIP
                && it.subject == Some(drip.recipient)
                && Some(it.transaction_hash) == hash
                && it.created_us >= from
        })
    }

    /// Whether a request was never open together with an equal one, and since when.
    pub(super) fn alone_since(&self, id: u64) -> Option<Duration> {
        let watch = &self.oracle.watches.open[&id];
        watch.is_alone.then_some(watch.at)
    }

    /// A request claims its key. Returns its last claim, if no other one has the key open.
    pub(super) fn note_claim(
        &mut self,
        relay: Process,
        named: &Named,
        link: Option<IntentId>,
    ) -> Option<(String, Option<IntentId>)> {
        let is_new = !self.journal.tables.keys.contains_key(named);
        let open = self.oracle.watches.open.values_mut();
        let is_its = |it: &&mut Watch| {
            it.relay == relay && it.ended.is_none() && it.key.as_ref() == Some(&named.1)
        };
        let mut of_key: Vec<_> = open.filter(is_its).collect();
        let [watch] = of_key.as_mut_slice() else {
            return None;
        };
        if is_new {
            watch.made = Some(named.clone());
        }
        watch.claimed.replace((named.0.clone(), link))
    }

    /// A request for which nothing was written leaves its key free, if it alone had it.
    pub(super) fn judge_released(&self, id: u64, reply: &Reply) -> Result<(), String> {
        let watch = &self.oracle.watches.open[&id];
        let Some(made) = &watch.made else {
            return Ok(());
        };
        let record = &self.oracle.record;
        let has_failed = [Failure::Store, Failure::Unconfirmed]
            .into_iter()
            .any(|failure| record.has_failed(watch.relay, failure, watch.at));
        let is_shared = watch.facts.contains(&Fact::KeyIsOpen);
        let is_refused = matches!(reply.kind, ReplyKind::Refused(_));
        if !is_refused || is_shared || has_failed {
            return Ok(());
        }
        match self.journal.tables.keys.get(made) {
            Some(key) if key.intent.is_none() && key.answer.is_none() => Err(format!(
                "keys: {} stays claimed, and nothing was written for it",
                made.1
            )),
            _ => Ok(()),
        }
    }

    /// A relay begins with a request.
    pub(super) fn arrive(&mut self, id: u64) {
        let now = self.now();
        if let Some(watch) = self.oracle.watches.open.get_mut(&id) {
            watch.arrived = now;
        }
    }

    pub(super) fn arrived_at(&self, id: u64) -> Duration {
        self.oracle.watches.open[&id].arrived
    }

    /// The relay of a request.
    pub(super) fn relay_of(&self, id: u64) -> Process {
        self.oracle.watches.open[&id].relay
    }

    /// When a request, or the oldest one that it may have joined, came in.
    pub(super) fn since_of(&self, id: u64) -> Duration {
        self.oracle.watches.open[&id].since
    }
}
