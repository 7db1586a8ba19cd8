//! The tables of the relay, in maps: they select the facts of a command and take its changes. What
//! a command decides is the ledger's code. The store's tests compare them with both databases.

use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    self, Agreement, Bound, Claim, ClaimToken, DAY_US, Facts, Intended, Intent, IntentId,
    IntentState, Intention, Key, MINUTE_US, NewIntent, Pair, Rebinding, Steps, gfri, minutes,
};
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const DRIP: &str = "faucet-drip";

/// An epoch and a key in it.
pub(crate) type Named = (String, String);

type Slot<'a> = (&'a str, Felt, u64);

/// A key, and the request that it is used with.
#[derive(Clone, Debug)]
pub(crate) struct RequestKey {
    pub(crate) named: Named,
    pub(crate) operation: String,
    pub(crate) digest: [u8; 32],
}

/// The rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    pub(crate) seq: i64,
    pub(crate) agreement: Option<Agreement>,
    pub(crate) intents: BTreeMap<IntentId, Intent>,
    pub(crate) keys: BTreeMap<Named, Key>,
    pub(crate) bindings: BTreeSet<(String, Pair)>,
    /// The journal's entries of intents.
    pub(crate) entries: Vec<(IntentId, IntentState)>,
}

/// Whether an intent counts for cooldowns and the faucet's budget.
pub(crate) fn pays(intent: &Intent) -> bool {
    use IntentState::{Lost, Rejected, Reverted};
    !matches!(intent.state, Rejected | Lost | Reverted)
}

/// The pair of a drip.
pub(crate) fn pair_of(intent: &Intent) -> Option<Pair> {
    Some(Pair {
        identity: intent.identity?,
        recipient: intent.subject?,
    })
}

impl Tables {
    pub(crate) fn agree(&mut self, epoch: &str, now_us: i64, patience_us: i64) -> String {
        let next = Agreement::after(self.agreement.take(), epoch, now_us, patience_us);
        self.agreement.insert(next).epoch.clone()
    }

    pub(crate) fn of_epoch<'a>(
        &'a self,
        epoch: &'a str,
    ) -> impl DoubleEndedIterator<Item = &'a Intent> + Clone {
        self.intents.values().filter(move |it| it.epoch == epoch)
    }

    fn append(&mut self, id: IntentId, state: IntentState) {
        self.seq += 1;
        self.entries.push((id, state));
    }

    /// The bindings of an identity or a recipient, and the pairs of drips in doubt that may bind
    /// them again, by what is not of this slot.
    fn bound(&self, identity: Option<Felt>, recipient: Felt, slot: Slot<'_>) -> Vec<Bound> {
        let is_of = |pair: &Pair| Some(pair.identity) == identity || pair.recipient == recipient;
        let drips = || {
            let of_epoch = self.of_epoch(slot.0).filter(|it| it.operation == DRIP);
            of_epoch.filter(|it| it.slot() != slot)
        };
        let is_held = |pair: &Pair| {
            drips().any(|it| {
                let is_its = it.identity.is_none_or(|identity| identity == pair.identity);
                is_its && it.subject == Some(pair.recipient) && it.state.holds()
            })
        };
        let of_epoch = self.bindings.iter().filter(|(epoch, _)| epoch == slot.0);
        let in_force: BTreeSet<Pair> = of_epoch.map(|(_, pair)| *pair).collect();
        let doubted = drips().filter(|it| it.state == IntentState::Displaced);
        let doubted: BTreeSet<Pair> = doubted.filter_map(pair_of).collect();
        let doubted = doubted.difference(&in_force).map(|pair| Bound {
            pair: *pair,
            is_in_force: false,
            is_held: true,
        });
        let bound = in_force.iter().map(|pair| Bound {
            pair: *pair,
            is_in_force: true,
            is_held: is_held(pair),
        });
        bound.chain(doubted).filter(|it| is_of(&it.pair)).collect()
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
        for intent in self.of_epoch(epoch).filter(|intent| intent.state.holds()) {
            let minute = intent.created_us.div_euclid(MINUTE_US);
            if (first..=last).contains(&minute) {
                *sums.entry(minute).or_default() += intent.fee_gfri;
            }
        }
        sums.into_iter().collect()
    }

    /// The intents in a window that pay, and are not displaced in the slot of a new one; the newest
    /// first.
    fn paying<'a>(&'a self, new: &NewIntent<'a>, length_us: i64, now_us: i64) -> Vec<&'a Intent> {
        let slot = (new.epoch, new.signer, new.nonce);
        let window = Window::new(now_us, length_us);
        let binds = |it: &&Intent| !(it.slot() == slot && it.state == IntentState::Displaced);
        let all = self
            .of_epoch(new.epoch)
            .filter(|it| window.counts(it.created_us));
        let mut paying: Vec<_> = all.filter(|it| pays(it)).filter(binds).collect();
        paying.sort_by_key(|it| std::cmp::Reverse((it.created_us, it.id)));
        paying
    }

    /// Dates the intents anew that a clock which was ahead has dated; returns these.
    pub(crate) fn date_anew(&mut self, now_us: i64) -> Vec<IntentId> {
        let newest = self.intents.last_key_value();
        let newest_us = newest.map(|(_, intent)| intent.created_us);
        let Some(after_us) = ledger::ahead_after_us(newest_us, now_us) else {
            return Vec::new();
        };
        let newest = self.intents.values_mut().rev();
        let ahead = newest.take_while(|it| it.created_us > after_us);
        ahead
            .map(|intent| {
                intent.created_us = now_us;
                intent.id
            })
            .collect()
    }

    /// The facts that a new intent may conflict with.
    pub(crate) fn facts(&self, new: &NewIntent<'_>, now_us: i64) -> Facts {
        let slot = (new.epoch, new.signer, new.nonce);
        let of = |key: &str| self.keys.get(&(new.epoch.to_owned(), key.to_owned()));
        let key = new.idempotency_key.and_then(of).cloned();
        let linked = key.as_ref().and_then(|key| key.intent);
        let cooldown = new.cooldown.filter(|_| new.subject.is_some());
        let last = cooldown.and_then(|cooldown| {
            let mut paying = self.paying(new, micros(cooldown), now_us).into_iter();
            paying
                .find(|it| it.operation == new.operation && it.subject == new.subject)
                .cloned()
        });
        let is_fact = |it: &&Intent| {
            let is_equal = it.digest == new.digest || it.transaction_hash == new.transaction_hash;
            Some(it.id) == linked
                || it.slot() == slot
                || it.epoch == new.epoch && it.state.holds() && is_equal
        };
        let drip_us = new
            .budgets
            .drips
            .filter(|limit| *limit > 0)
            .and_then(|limit| {
                let day = self.paying(new, DAY_US, now_us);
                let mut drips = day.into_iter().filter(|it| it.operation == DRIP);
                drips.nth(limit as usize - 1).map(|it| it.created_us)
            });
        let pair = new.identity.zip(new.subject);
        let bound = pair.map(|(identity, subject)| self.bound(Some(identity), subject, slot));
        let minutes = self.fees(new.epoch, now_us);
        Facts {
            epoch: self
                .agreement
                .as_ref()
                .map(|agreement| agreement.epoch.clone()),
            key,
            intents: self.intents.values().filter(is_fact).cloned().collect(),
            last,
            bound: bound.unwrap_or_default(),
            drip_us,
            fees_gfri: minutes.iter().map(|(_, fee)| fee).sum(),
            minutes,
            newest_us: None,
        }
    }

    /// Stores an intent, if that was decided.
    pub(crate) fn store(
        &mut self,
        new: &NewIntent<'_>,
        intention: Intention,
        now_us: i64,
    ) -> Intended {
        let id = IntentId(self.seq + 1);
        let (reply, link) = match intention {
            Intention::Refuse { reply, link } => (reply, link),
            Intention::Insert(bindings) => {
                self.append(id, IntentState::Intended);
                self.append(id, IntentState::Sent);
                self.rebind(new.epoch, &bindings);
                self.intents.insert(id, as_sent(id, new, now_us));
                (Intended::New(id), Some(id))
            }
        };
        if let (Some(key), Some(id)) = (new.idempotency_key, link) {
            let named = (new.epoch.to_owned(), key.to_owned());
            self.set_link(
                &RequestKey {
                    named,
                    operation: new.operation.to_owned(),
                    digest: new.digest,
                },
                id,
            );
        }
        reply
    }

    /// Writes what follows from a change of an intent.
    pub(crate) fn write(&mut self, id: IntentId, steps: &Steps) {
        let it = self.intents[&id].clone();
        for step in &steps.steps {
            if step.has_entry() {
                self.append(step.intent.id, step.intent.state);
            }
            self.intents.insert(step.intent.id, step.intent.clone());
            let keys = self
                .keys
                .values_mut()
                .filter(|key| key.intent == Some(step.intent.id));
            keys.filter(|_| step.withdraws)
                .for_each(|key| key.answer = None);
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
    }

    /// The intents of the slot of one, and those with the digest of one of these.
    pub(crate) fn related(&self, id: IntentId) -> Vec<Intent> {
        let of = &self.intents[&id];
        let slot = self.of_epoch(&of.epoch).filter(|it| it.slot() == of.slot());
        let digests: BTreeSet<_> = slot.map(|it| it.digest).collect();
        let is_related = |it: &&Intent| it.slot() == of.slot() || digests.contains(&it.digest);
        self.of_epoch(&of.epoch)
            .filter(is_related)
            .cloned()
            .collect()
    }

    fn set_link(&mut self, key: &RequestKey, id: IntentId) {
        let token = self.keys.get(&key.named).and_then(|key| key.token);
        self.keys.insert(
            key.named.clone(),
            Key {
                intent: Some(id),
                ..bare(key, token)
            },
        );
    }

    pub(crate) fn claim(&mut self, key: &RequestKey, token: ClaimToken) -> Claim {
        if let Some(stored) = self.keys.get(&key.named) {
            let linked = stored.intent.and_then(|id| self.intents.get(&id)).cloned();
            return stored
                .clone()
                .claimed(&key.operation, &key.digest, token, linked);
        }
        self.keys.insert(key.named.clone(), bare(key, Some(token)));
        Claim::New
    }

    pub(crate) fn link(&mut self, key: &RequestKey, id: IntentId) -> bool {
        let stored = self.keys.get(&key.named);
        let Some(stored) = stored.filter(|stored| stored.is_of(&key.operation, &key.digest)) else {
            return false;
        };
        let next = &self.intents[&id];
        if stored.intent == Some(id) {
            return stored.is_for(next);
        }
        let former = stored.intent.and_then(|id| self.intents.get(&id));
        let may = stored.may_name(former, next);
        if may {
            self.set_link(key, id);
        }
        may
    }

    pub(crate) fn answer(
        &mut self,
        key: &RequestKey,
        id: IntentId,
        status: u16,
        body: &str,
    ) -> bool {
        let is_foreign = self
            .intents
            .get(&id)
            .is_none_or(|it| it.epoch != key.named.0);
        if is_foreign {
            return false;
        }
        let stored = self.keys.get_mut(&key.named);
        let stored = stored.filter(|stored| stored.is_of(&key.operation, &key.digest));
        let open = stored.filter(|stored| stored.intent == Some(id) && stored.answer.is_none());
        open.map(|open| open.answer = Some((status, body.to_owned())))
            .is_some()
    }

    pub(crate) fn release(&mut self, key: &Named, token: ClaimToken) -> bool {
        let is_bare = |key: &&Key| key.intent.is_none() && key.answer.is_none();
        let owned = self
            .keys
            .get(key)
            .filter(is_bare)
            .is_some_and(|key| key.token == Some(token));
        owned && self.keys.remove(key).is_some()
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a cooldown is short")
}

/// A key without an intent and an answer.
fn bare(key: &RequestKey, token: Option<ClaimToken>) -> Key {
    let RequestKey {
        named: (epoch, _),
        operation,
        digest,
    } = key;
    Key {
        epoch: epoch.clone(),
        operation: operation.clone(),
        digest: *digest,
        token,
        intent: None,
        answer: None,
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
