//! The tables of the relay, in maps. The model selects the facts of a command and writes its
//! changes; what it decides is the code of the store.

use portcullis::store::{
    Change, Claim, ClaimToken, Intended, Intent, IntentId, IntentState, NewIntent,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    self, Agreement, Bound, DAY_US, Facts, Intention, Key, MINUTE_US, Pair, Rebinding, gfri,
    minutes,
};
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) const DRIP: &str = "faucet-drip";

/// What the store is asked to do.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Reports an epoch.
    Agree(&'static str, Duration),
    Claim(KeyOf, [u8; 32], ClaimToken),
    Release(KeyOf, ClaimToken),
    Link(KeyOf, [u8; 32], IntentId),
    Answer(KeyOf, [u8; 32], IntentId),
    Apply(IntentId, Change<'static>),
    Intend(Box<NewIntent<'static>>),
}

/// An epoch and a key in it.
pub(super) type KeyOf = (&'static str, &'static str);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Agreed(String),
    Claimed(Claim),
    Done(bool),
    Intended(Intended),
}

/// What the tables hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    seq: i64,
    agreement: Option<Agreement>,
    pub(super) intents: BTreeMap<i64, Intent>,
    keys: BTreeMap<(String, String), Key>,
    bindings: BTreeSet<(String, Pair)>,
    pub(super) entries: Vec<(i64, IntentState)>,
}

fn pays(intent: &Intent) -> bool {
    use IntentState::{Lost, Rejected, Reverted};
    !matches!(intent.state, Rejected | Lost | Reverted)
}

impl Model {
    pub(super) fn perform(&mut self, command: &Command, now_us: i64) -> Reply {
        match command {
            Command::Agree(epoch, patience) => {
                let patience_us = patience.as_micros().try_into().unwrap();
                // by the clock of the database, which does not advance by an hour meanwhile
                let next = Agreement::after(self.agreement.take(), epoch, 0, patience_us);
                Reply::Agreed(self.agreement.insert(next).epoch.clone())
            }
            Command::Claim(key, digest, token) => {
                Reply::Claimed(self.claim(named(*key), *digest, *token))
            }
            Command::Release(key, token) => Reply::Done(self.release(&named(*key), *token)),
            Command::Link(key, digest, id) => Reply::Done(self.join(named(*key), *digest, *id)),
            Command::Answer(key, digest, id) => {
                Reply::Done(self.answer(&named(*key), *digest, *id))
            }
            Command::Apply(id, change) => Reply::Done(self.apply(*id, change, now_us)),
            Command::Intend(new) => Reply::Intended(self.intend(new, now_us)),
        }
    }

    fn append(&mut self, id: i64, state: IntentState) {
        self.seq += 1;
        self.entries.push((id, state));
    }

    fn intents_of(&self, epoch: &str) -> impl Iterator<Item = &Intent> {
        self.intents.values().filter(move |it| it.epoch == epoch)
    }

    /// The bindings of an identity or a recipient, by what is not of this slot.
    fn bound(&self, identity: Option<Felt>, recipient: Felt, slot: Slot<'_>) -> Vec<Bound> {
        let of = |pair: &&Pair| Some(pair.identity) == identity || pair.recipient == recipient;
        let is_held = |pair: &Pair| {
            self.intents_of(slot.0).any(|it| {
                it.operation == DRIP
                    && it.subject == Some(pair.recipient)
                    && it.state.holds()
                    && it.slot() != slot
            })
        };
        let of_epoch = self.bindings.iter().filter(|(epoch, _)| epoch == slot.0);
        let found = of_epoch.map(|(_, pair)| pair).filter(of);
        found.map(|pair| Bound { pair: *pair, is_held: is_held(pair) }).collect()
    }

    fn rebind(&mut self, epoch: &str, changes: &[Rebinding]) {
        for change in changes {
            let (Rebinding::Release(pair) | Rebinding::Bind(pair)) = change;
            let pair = (epoch.to_owned(), *pair);
            match change {
                Rebinding::Release(_) => assert!(self.bindings.remove(&pair), "{pair:?}"),
                Rebinding::Bind(_) => assert!(self.bindings.insert(pair.clone()), "{pair:?}"),
            }
        }
    }

    fn fees(&self, epoch: &str, now_us: i64) -> Vec<(i64, i64)> {
        let [first, last] = minutes(Window::new(now_us, DAY_US));
        let mut sums = BTreeMap::new();
        for intent in self.intents_of(epoch).filter(|intent| intent.state.holds()) {
            let minute = intent.created_us.div_euclid(MINUTE_US);
            if (first..=last).contains(&minute) {
                *sums.entry(minute).or_default() += intent.fee_gfri;
            }
        }
        sums.into_iter().collect()
    }

    fn facts(&self, new: &NewIntent<'_>, now_us: i64) -> Facts {
        let key = new.idempotency_key.map(|key| named((new.epoch, key)));
        let key = key.and_then(|key| self.keys.get(&key)).cloned();
        let linked = key.as_ref().and_then(|key| key.intent);
        let of_slot = (new.epoch, new.signer, new.nonce);
        let slot = |it: &Intent| it.slot() == of_slot;
        let binds = |it: &&Intent| !(slot(it) && it.state == IntentState::Displaced);
        let in_window = |length: Duration| {
            let window = Window::new(now_us, length.as_micros().try_into().unwrap());
            let of_epoch = self.intents_of(new.epoch);
            let all = of_epoch.filter(move |it| window.counts(it.created_us));
            let mut paying: Vec<_> = all.filter(|it| pays(it)).filter(binds).collect();
            paying.sort_by_key(|it| std::cmp::Reverse((it.created_us, it.id)));
            paying
        };
        let cooldown = new.cooldown.unwrap_or_default();
        let mut last = in_window(cooldown).into_iter();
        let last = last.find(|it| it.operation == new.operation && it.subject == new.subject);
        let last = last.filter(|_| new.cooldown.is_some() && new.subject.is_some()).cloned();
        let is_fact = |it: &&Intent| {
            slot(it)
                || Some(it.id) == linked
                || it.state.holds()
                    && (it.digest == new.digest || it.transaction_hash == new.transaction_hash)
        };
        let drips = in_window(Duration::from_micros(DAY_US.try_into().unwrap()));
        let drips = drips.into_iter().filter(|it| it.operation == DRIP);
        let limit = new.budgets.drips.filter(|limit| *limit > 0);
        let drip = limit.and_then(|limit| drips.into_iter().nth(limit as usize - 1));
        let bound = new
            .identity
            .zip(new.subject)
            .map(|(identity, subject)| self.bound(Some(identity), subject, of_slot));
        let minutes = self.fees(new.epoch, now_us);
        Facts {
            epoch: self.agreement.as_ref().map(|agreement| agreement.epoch.clone()),
            key,
            intents: self.intents_of(new.epoch).filter(is_fact).cloned().collect(),
            last,
            bound: bound.unwrap_or_default(),
            drip_us: drip.map(|it| it.created_us),
            fees_gfri: minutes.iter().map(|(_, fee)| fee).sum(),
            minutes,
        }
    }

    fn link(&mut self, key: Named, operation: &str, digest: [u8; 32], id: IntentId) {
        let token = self.keys.get(&key).and_then(|key| key.token);
        let stored =
            Key { operation: operation.to_owned(), digest, token, intent: Some(id), answer: None };
        self.keys.insert(key, stored);
    }

    fn intend(&mut self, new: &NewIntent<'_>, now_us: i64) -> Intended {
        let id = IntentId(self.seq + 1);
        let (reply, link) = match ledger::intend(new, &self.facts(new, now_us), now_us) {
            Intention::Refuse { reply, link } => (reply, link),
            Intention::Insert(bindings) => {
                self.append(id.0, IntentState::Intended);
                self.append(id.0, IntentState::Sent);
                self.rebind(new.epoch, &bindings);
                self.intents.insert(id.0, as_sent(id, new, now_us));
                (Intended::New(id), Some(id))
            }
        };
        if let (Some(key), Some(id)) = (new.idempotency_key, link) {
            self.link(named((new.epoch, key)), new.operation, new.digest, id);
        }
        reply
    }

    fn apply(&mut self, id: IntentId, change: &Change<'_>, now_us: i64) -> bool {
        let epoch = self.intents[&id.0].epoch.clone();
        let all: Vec<_> = self.intents_of(&epoch).cloned().collect();
        let Some(steps) = ledger::change(id, change, &all, now_us) else { return false };
        for step in &steps.steps {
            self.append(step.intent.id.0, step.intent.state);
            self.intents.insert(step.intent.id.0, step.intent.clone());
            let keys = self.keys.values_mut().filter(|key| key.intent == Some(step.intent.id));
            keys.filter(|_| step.withdraws).for_each(|key| key.answer = None);
        }
        let it = &self.intents[&id.0];
        let mut bound = Vec::new();
        for (identity, recipient) in steps.of_interest() {
            for found in self.bound(identity, recipient, it.slot()) {
                if !bound.contains(&found) {
                    bound.push(found);
                }
            }
        }
        if !steps.of_interest().is_empty() {
            self.rebind(&epoch, &steps.rebind(&bound));
        }
        true
    }

    fn claim(&mut self, key: Named, digest: [u8; 32], token: ClaimToken) -> Claim {
        if let Some(stored) = self.keys.get(&key) {
            let linked = stored.intent.and_then(|id| self.intents.get(&id.0)).cloned();
            return stored.clone().claimed(DRIP, &digest, token, linked);
        }
        let operation = DRIP.to_owned();
        let stored = Key { operation, digest, token: Some(token), intent: None, answer: None };
        self.keys.insert(key, stored);
        Claim::New
    }

    fn join(&mut self, key: Named, digest: [u8; 32], id: IntentId) -> bool {
        let stored = self.keys.get(&key).filter(|key| key.is_of(DRIP, &digest));
        let Some(stored) = stored else { return false };
        if stored.intent == Some(id) {
            return true;
        }
        let former = stored.intent.and_then(|id| self.intents.get(&id.0));
        let may = stored.may_name(former, &self.intents[&id.0]);
        if may {
            self.link(key, DRIP, digest, id);
        }
        may
    }

    fn answer(&mut self, key: &Named, digest: [u8; 32], id: IntentId) -> bool {
        let stored = self.keys.get_mut(key).filter(|key| key.is_of(DRIP, &digest));
        let open = stored.filter(|key| key.intent == Some(id) && key.answer.is_none());
        open.map(|key| key.answer = Some((200, "x".to_owned()))).is_some()
    }

    fn release(&mut self, key: &Named, token: ClaimToken) -> bool {
        let is_bare = |key: &&Key| key.intent.is_none() && key.answer.is_none();
        let owned = self.keys.get(key).filter(is_bare).is_some_and(|key| key.token == Some(token));
        owned && self.keys.remove(key).is_some()
    }

    /// Rows that a unique index forbids: these are alarms, and no decision leads to them.
    pub(super) fn contradiction(&self) -> Option<String> {
        let mut taken = BTreeSet::new();
        let mut is_taken = |row: String| (!taken.insert(row.clone())).then_some(row);
        for it in self.intents.values() {
            let Intent { epoch, signer, nonce, state, transaction_hash, .. } = it;
            let rows = [
                state.holds().then(|| format!("transaction {epoch} {transaction_hash}")),
                state.occupies().then(|| format!("nonce {epoch} {signer} {nonce}")),
                state.is_unresolved().then(|| format!("open request {epoch} {}", hex(&it.digest))),
            ];
            if let Some(twice) = rows.into_iter().flatten().find_map(&mut is_taken) {
                return Some(twice);
            }
        }
        self.bindings.iter().find_map(|(epoch, pair)| {
            let identity = is_taken(format!("identity {epoch} {}", pair.identity));
            identity.or(is_taken(format!("recipient {epoch} {}", pair.recipient)))
        })
    }

    /// The epoch, keys and bindings, as [`ROWS`] finds them, sorted.
    pub(super) fn rows(&self) -> Vec<String> {
        let key = |((epoch, name), key): (&Named, &Key)| {
            let token = key.token.map(|token| hex(&token.0)).unwrap_or_default();
            let intent = key.intent.map(|id| id.to_string()).unwrap_or_default();
            let body = key.answer.as_ref().map_or("", |(_, body)| body);
            format!("{epoch} {name} {} {token} {intent} {body}", hex(&key.digest))
        };
        let binding =
            |(epoch, it): &(String, Pair)| format!("{epoch} {} {}", it.identity, it.recipient);
        let bindings = self.bindings.iter().map(binding);
        let epoch = self.agreement.iter().map(|agreement| format!("epoch {}", agreement.epoch));
        let mut rows: Vec<_> = self.keys.iter().map(key).chain(bindings).chain(epoch).collect();
        rows.sort();
        rows
    }
}

type Slot<'a> = (&'a str, Felt, u64);
type Named = (String, String);

fn named((epoch, key): (&str, &str)) -> Named {
    (epoch.to_owned(), key.to_owned())
}

/// The epoch in force, all keys and all bindings, as the model shows them.
pub(super) const ROWS: &str = "SELECT epoch || ' ' || key || ' ' || digest || ' ' \
    || coalesce(claim_token, '') || ' ' || coalesce(CAST(intent_id AS TEXT), '') || ' ' \
    || coalesce(body, '') FROM idempotency \
    UNION ALL SELECT epoch || ' ' || identity || ' ' || recipient FROM faucet_binding \
    UNION ALL SELECT 'epoch ' || epoch FROM chain_epoch";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn as_sent(id: IntentId, new: &NewIntent<'_>, now_us: i64) -> Intent {
    Intent {
        id,
        epoch: new.epoch.to_owned(),
        operation: new.operation.to_owned(),
        digest: new.digest,
        subject: new.subject,
        identity: new.identity,
        request: new.request.to_owned(),
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
