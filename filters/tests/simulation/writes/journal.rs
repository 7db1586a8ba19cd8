//! The journal in maps: selects the facts of a command, and writes its changes. What it decides is
//! the ledger's.

use super::Bug;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    self, Agreement, Binding, Bound, Change, Claim, ClaimToken, DAY_US, Facts, Inclusion, Intended,
    Intent, IntentId, IntentState, Intention, Key, MINUTE_US, NewIntent, Pair, Rebinding, gfri,
    minutes,
};
use portcullis_filters::txm::io::KeyOf;
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) const DRIP: &str = "faucet-drip";

/// A key, with its epoch, and the request that it is used with: what outlives a call.
#[derive(Clone, Debug)]
pub(super) struct OwnedKey {
    pub(super) epoch: String,
    pub(super) key: String,
    operation: String,
    digest: [u8; 32],
}

impl From<&KeyOf<'_>> for OwnedKey {
    fn from(key: &KeyOf<'_>) -> Self {
        Self {
            epoch: key.epoch.to_owned(),
            key: key.key.to_owned(),
            operation: key.operation.to_owned(),
            digest: *key.digest,
        }
    }
}

/// A new intent that outlives the call.
#[derive(Clone, Debug)]
pub(super) struct OwnedIntent {
    operation: String,
    digest: [u8; 32],
    subject: Option<Felt>,
    identity: Option<Felt>,
    epoch: String,
    signer: Felt,
    pub(super) nonce: u64,
    transaction_hash: Felt,
    transaction: String,
    key: Option<String>,
    born: u64,
    replaces: Option<IntentId>,
    max_fee: u128,
    budgets: ledger::Budgets,
    cooldown: Option<Duration>,
}

impl From<&NewIntent<'_>> for OwnedIntent {
    fn from(new: &NewIntent<'_>) -> Self {
        Self {
            operation: new.operation.to_owned(),
            digest: new.digest,
            subject: new.subject,
            identity: new.identity,
            epoch: new.epoch.to_owned(),
            signer: new.signer,
            nonce: new.nonce,
            transaction_hash: new.transaction_hash,
            transaction: new.transaction.to_owned(),
            key: new.idempotency_key.map(str::to_owned),
            born: new.born,
            replaces: new.replaces,
            max_fee: new.max_fee,
            budgets: new.budgets,
            cooldown: new.cooldown,
        }
    }
}

impl OwnedIntent {
    fn borrowed(&self) -> NewIntent<'_> {
        NewIntent {
            operation: &self.operation,
            digest: self.digest,
            subject: self.subject,
            identity: self.identity,
            request: "",
            epoch: &self.epoch,
            signer: self.signer,
            nonce: self.nonce,
            transaction_hash: self.transaction_hash,
            transaction: &self.transaction,
            idempotency_key: self.key.as_deref(),
            born: self.born,
            replaces: self.replaces,
            max_fee: self.max_fee,
            budgets: self.budgets,
            cooldown: self.cooldown,
        }
    }
}

/// A change that outlives the call.
#[derive(Clone, Debug)]
pub(super) enum OwnedChange {
    Accepted,
    Included { outcome: Result<(), Option<String>>, fee: Option<u128>, block: Option<Inclusion> },
    Rejected(String),
    Displaced(String),
    Lost(String),
}

impl From<&Change<'_>> for OwnedChange {
    fn from(change: &Change<'_>) -> Self {
        match change {
            Change::Accepted => Self::Accepted,
            Change::Included { outcome, fee, block } => Self::Included {
                outcome: outcome.map_err(|why| why.map(str::to_owned)),
                fee: *fee,
                block: *block,
            },
            Change::Rejected(why) => Self::Rejected((*why).to_owned()),
            Change::Displaced(why) => Self::Displaced((*why).to_owned()),
            Change::Lost(why) => Self::Lost((*why).to_owned()),
        }
    }
}

impl OwnedChange {
    pub(super) fn borrowed(&self) -> Change<'_> {
        match self {
            Self::Accepted => Change::Accepted,
            Self::Included { outcome, fee, block } => Change::Included {
                outcome: outcome.as_ref().copied().map_err(Option::as_deref),
                fee: *fee,
                block: *block,
            },
            Self::Rejected(why) => Change::Rejected(why),
            Self::Displaced(why) => Change::Displaced(why),
            Self::Lost(why) => Change::Lost(why),
        }
    }
}

/// What the tables hold.
#[derive(Clone)]
pub(super) struct Journal {
    bug: Bug,
    seq: i64,
    pub(super) intents: BTreeMap<IntentId, Intent>,
    keys: BTreeMap<(String, String), Key>,
    bindings: BTreeSet<(String, Pair)>,
    pub(super) agreement: Option<Agreement>,
    /// The key with which each intent was written.
    pub(super) written_with: BTreeMap<IntentId, Option<String>>,
}

fn pays(intent: &Intent) -> bool {
    use IntentState::{Lost, Rejected, Reverted};
    !matches!(intent.state, Rejected | Lost | Reverted)
}

impl Journal {
    pub(super) fn new(bug: Bug) -> Self {
        Self {
            bug,
            seq: 0,
            intents: BTreeMap::new(),
            keys: BTreeMap::new(),
            bindings: BTreeSet::new(),
            agreement: None,
            written_with: BTreeMap::new(),
        }
    }

    fn of_epoch<'a>(&'a self, epoch: &'a str) -> impl Iterator<Item = &'a Intent> {
        self.intents.values().rev().filter(move |it| it.epoch == epoch)
    }

    /// The bindings of an identity or a recipient, by what is not of this slot.
    fn bound(
        &self,
        identity: Option<Felt>,
        recipient: Felt,
        slot: (&str, Felt, u64),
    ) -> Vec<Bound> {
        let of = |pair: &Pair| Some(pair.identity) == identity || pair.recipient == recipient;
        let is_held = |pair: &Pair| {
            self.of_epoch(slot.0).any(|it| {
                it.operation == DRIP
                    && it.subject == Some(pair.recipient)
                    && it.state.holds()
                    && it.slot() != slot
            })
        };
        let found = self.bindings.iter().filter(|(epoch, pair)| epoch == slot.0 && of(pair));
        found.map(|(_, pair)| Bound { pair: *pair, is_held: is_held(pair) }).collect()
    }

    fn rebind(&mut self, epoch: &str, changes: &[Rebinding]) {
        for change in changes {
            match change {
                Rebinding::Release(_) if self.bug == Bug::BindingKept => {}
                Rebinding::Release(pair) => {
                    self.bindings.remove(&(epoch.to_owned(), *pair));
                }
                Rebinding::Bind(pair) => {
                    self.bindings.insert((epoch.to_owned(), *pair));
                }
            }
        }
    }

    fn fees(&self, epoch: &str, now_us: i64) -> Vec<(i64, i64)> {
        let [first, last] = minutes(Window::new(now_us, DAY_US));
        let mut sums = BTreeMap::new();
        for intent in self.of_epoch(epoch).filter(|intent| intent.state.holds()) {
            let minute = intent.created_us.div_euclid(MINUTE_US);
            if (first..=last).contains(&minute) {
                *sums.entry(minute).or_default() += intent.fee_gfri;
            }
        }
        sums.into_iter().collect()
    }

    fn paying<'a>(&'a self, new: &NewIntent<'a>, length_us: i64, now_us: i64) -> Vec<&'a Intent> {
        let slot = (new.epoch, new.signer, new.nonce);
        let window = Window::new(now_us, length_us);
        let binds = |it: &&Intent| !(it.slot() == slot && it.state == IntentState::Displaced);
        let all = self.of_epoch(new.epoch).filter(|it| window.counts(it.created_us));
        let mut paying: Vec<_> = all.filter(|it| pays(it)).filter(binds).collect();
        paying.sort_by_key(|it| std::cmp::Reverse((it.created_us, it.id)));
        paying
    }

    fn facts<'a>(&'a self, new: &NewIntent<'a>, now_us: i64) -> Facts {
        let slot = (new.epoch, new.signer, new.nonce);
        let of = |key: &str| self.keys.get(&(new.epoch.to_owned(), key.to_owned()));
        let key = new.idempotency_key.and_then(of).cloned();
        let linked = key.as_ref().and_then(|key| key.intent);
        let cooldown = new.cooldown.filter(|_| new.subject.is_some()).map(|it| it.as_micros());
        let cooldown = cooldown.map(|us| i64::try_from(us).unwrap_or(i64::MAX));
        let last = cooldown.and_then(|us| {
            let mut of = self.paying(new, us, now_us).into_iter();
            of.find(|it| it.operation == new.operation && it.subject == new.subject).cloned()
        });
        let is_fact = |it: &&Intent| {
            let is_slot = it.slot() == slot && self.bug != Bug::NoFence;
            let is_equal = it.digest == new.digest;
            is_slot
                || Some(it.id) == linked
                || it.state.holds() && (is_equal || it.transaction_hash == new.transaction_hash)
        };
        let drips = new.budgets.drips.filter(|limit| *limit > 0).and_then(|limit| {
            let day = self.paying(new, DAY_US, now_us);
            let drips = day.iter().filter(|it| it.operation == DRIP);
            drips.map(|it| it.created_us).nth(limit as usize - 1)
        });
        let bound = new.identity.zip(new.subject);
        let minutes = self.fees(new.epoch, now_us);
        Facts {
            epoch: self.agreement.as_ref().map(|it| it.epoch.clone()),
            key,
            intents: self.of_epoch(new.epoch).filter(is_fact).cloned().collect(),
            last: last.filter(|_| self.bug != Bug::CooldownBeforeLock),
            bound: bound
                .map(|(identity, subject)| self.bound(Some(identity), subject, slot))
                .unwrap_or_default(),
            drip_us: drips,
            fees_gfri: minutes.iter().map(|(_, fee)| fee).sum(),
            minutes,
        }
    }

    fn set_link(
        &mut self,
        epoch: &str,
        key: &str,
        operation: &str,
        digest: [u8; 32],
        id: IntentId,
    ) {
        let at = (epoch.to_owned(), key.to_owned());
        let token = self.keys.get(&at).and_then(|key| key.token);
        let operation = operation.to_owned();
        let stored = Key { operation, digest, token, intent: Some(id), answer: None };
        self.keys.insert(at, stored);
    }

    pub(super) fn intend(&mut self, new: &OwnedIntent, now_us: i64) -> Intended {
        let new = new.borrowed();
        let id = IntentId(self.seq + 1);
        let (reply, link) = match ledger::intend(&new, &self.facts(&new, now_us), now_us) {
            Intention::Refuse { reply, link } => (reply, link),
            Intention::Insert(bindings) => {
                self.seq += 2;
                self.rebind(new.epoch, &bindings);
                self.intents.insert(id, as_sent(id, &new, now_us));
                self.written_with.insert(id, new.idempotency_key.map(str::to_owned));
                (Intended::New(id), Some(id))
            }
        };
        if let (Some(key), Some(id)) = (new.idempotency_key, link) {
            self.set_link(new.epoch, key, new.operation, new.digest, id);
        }
        reply
    }

    pub(super) fn apply(&mut self, id: IntentId, change: &Change<'_>, now_us: i64) -> bool {
        let Some(it) = self.intents.get(&id).cloned() else { return false };
        let change = match change {
            Change::Displaced(why)
                if matches!(
                    self.bug,
                    Bug::AbsentIsLost | Bug::DisplacedIsLost | Bug::LostIsFinal
                ) =>
            {
                Change::Lost(why)
            }
            Change::Displaced(why)
                if self.bug == Bug::RefusedRepeatIsRejected && why.contains("repeat") =>
            {
                Change::Rejected(why)
            }
            Change::Included { .. }
                if self.bug == Bug::LostIsFinal && it.state == IntentState::Lost =>
            {
                return false;
            }
            change => *change,
        };
        let related: Vec<Intent> = self.related(&it).cloned().collect();
        let Some(steps) = ledger::change(id, &change, &related, now_us) else { return false };
        for step in &steps.steps {
            self.seq += 1;
            self.intents.insert(step.intent.id, step.intent.clone());
            let keys = self.keys.values_mut().filter(|key| key.intent == Some(step.intent.id));
            keys.filter(|_| step.withdraws).for_each(|key| key.answer = None);
        }
        let mut bound = Vec::new();
        for (identity, recipient) in steps.of_interest() {
            for found in self.bound(identity, recipient, it.slot()) {
                if !bound.contains(&found) {
                    bound.push(found);
                }
            }
        }
        if !steps.of_interest().is_empty() {
            self.rebind(&it.epoch, &steps.rebind(&bound));
        }
        true
    }

    /// The intents of the slot of one, and those with the digest of one of these.
    fn related<'a>(&'a self, of: &'a Intent) -> impl Iterator<Item = &'a Intent> {
        let slot: Vec<_> = self.of_epoch(&of.epoch).filter(|it| it.slot() == of.slot()).collect();
        let digests: BTreeSet<_> = slot.iter().map(|it| it.digest).collect();
        self.of_epoch(&of.epoch)
            .filter(move |it| it.slot() == of.slot() || digests.contains(&it.digest))
    }

    pub(super) fn select(&self, epoch: &str, is_it: impl Fn(&Intent) -> bool) -> Vec<Intent> {
        let mut found: Vec<_> = self.of_epoch(epoch).filter(|it| is_it(it)).cloned().collect();
        found.reverse();
        found
    }

    pub(super) fn newest_by_digest(&self, epoch: &str, digest: &[u8; 32]) -> Option<Intent> {
        let mut equal = self.of_epoch(epoch).filter(|it| it.digest == *digest);
        equal.find(|it| it.state.holds()).cloned()
    }

    pub(super) fn included_newest(&self, epoch: &str, limit: u32) -> Vec<Intent> {
        let mut found = self.select(epoch, |it| it.state.is_included());
        let number = |it: &Intent| it.included.map_or(u64::MAX, |it| it.number);
        found.sort_by_key(|it| std::cmp::Reverse((number(it), it.id)));
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
        let paying = self.of_epoch(epoch).filter(of).filter(|it| pays(it));
        let paying = paying.filter(|it| cooldown.counts(it.created_us));
        paying.max_by_key(|it| (it.created_us, it.id)).cloned()
    }

    pub(super) fn binding(&self, epoch: &str, identity: Felt, recipient: Felt) -> Binding {
        let mut of_epoch = self.bindings.iter().filter(|(of, _)| of == epoch);
        if let Some((_, pair)) = of_epoch.clone().find(|(_, pair)| pair.identity == identity) {
            let is_same = pair.recipient == recipient;
            return if is_same { Binding::Bound } else { Binding::IdentityElsewhere };
        }
        let is_taken = of_epoch.any(|(_, pair)| pair.recipient == recipient);
        if is_taken { Binding::RecipientElsewhere } else { Binding::Bound }
    }

    fn is_of(&self, stored: &Key, key: &OwnedKey) -> bool {
        self.bug == Bug::LinkAnyBody || stored.is_of(&key.operation, &key.digest)
    }

    pub(super) fn claim(&mut self, key: &OwnedKey, token: ClaimToken) -> Claim {
        let at = (key.epoch.clone(), key.key.clone());
        if let Some(stored) = self.keys.get(&at) {
            let linked = stored.intent.and_then(|id| self.intents.get(&id)).cloned();
            let digest = if self.bug == Bug::LinkAnyBody { &stored.digest } else { &key.digest };
            let operation =
                if self.bug == Bug::LinkAnyBody { &stored.operation } else { &key.operation };
            return stored.clone().claimed(operation, digest, token, linked);
        }
        let stored = Key {
            operation: key.operation.clone(),
            digest: key.digest,
            token: Some(token),
            intent: None,
            answer: None,
        };
        self.keys.insert(at, stored);
        Claim::New
    }

    pub(super) fn linked(&self, key: &OwnedKey) -> Option<Intent> {
        let stored = self.keys.get(&(key.epoch.clone(), key.key.clone()))?;
        let id = stored.intent.filter(|_| self.is_of(stored, key))?;
        self.intents.get(&id).cloned()
    }

    pub(super) fn link(&mut self, key: &OwnedKey, id: IntentId) -> bool {
        if self.bug == Bug::UnlinkedJoiner {
            return true;
        }
        let stored = self.keys.get(&(key.epoch.clone(), key.key.clone()));
        let Some(stored) = stored.filter(|stored| self.is_of(stored, key)) else { return false };
        if stored.intent == Some(id) {
            return true;
        }
        let former = stored.intent.and_then(|id| self.intents.get(&id));
        let may = self.intents.get(&id).is_some_and(|next| stored.may_name(former, next));
        if may {
            self.set_link(&key.epoch, &key.key, &key.operation, key.digest, id);
        }
        may
    }

    pub(super) fn answer(&mut self, key: &OwnedKey, id: IntentId, status: u16, hash: &str) -> bool {
        let bug = self.bug;
        let Some(stored) = self.keys.get_mut(&(key.epoch.clone(), key.key.clone())) else {
            return false;
        };
        let is_it = stored.intent == Some(id) || bug == Bug::UnlinkedJoiner;
        let is_of = stored.is_of(&key.operation, &key.digest);
        if !is_of || !is_it || stored.answer.is_some() {
            return false;
        }
        stored.answer = Some((status, hash.to_owned()));
        true
    }

    pub(super) fn release(&mut self, key: &OwnedKey, token: ClaimToken) -> bool {
        let at = (key.epoch.clone(), key.key.clone());
        let Some(stored) = self.keys.get(&at) else { return false };
        let is_bare = stored.intent.is_none() && stored.answer.is_none();
        let is_owner = stored.token == Some(token);
        is_bare && is_owner && self.keys.remove(&at).is_some()
    }

    /// The keys of an epoch that were claimed.
    pub(super) fn bindings_of(&self, epoch: &str) -> Vec<Pair> {
        let of = self.bindings.iter().filter(|(of, _)| of == epoch);
        of.map(|(_, pair)| *pair).collect()
    }
}

fn as_sent(id: IntentId, new: &NewIntent<'_>, now_us: i64) -> Intent {
    Intent {
        id,
        epoch: new.epoch.to_owned(),
        operation: new.operation.to_owned(),
        digest: new.digest,
        subject: new.subject,
        identity: new.identity,
        request: String::new(),
        born: Some(new.born),
        signer: new.signer,
        nonce: new.nonce,
        transaction_hash: new.transaction_hash,
        transaction: new.transaction.to_owned(),
        fee_gfri: gfri(new.max_fee),
        state: IntentState::Sent,
        included: None,
        detail: None,
        created_us: now_us,
        updated_us: now_us,
    }
}
