//! Random histories on the database and on a model that keeps its rows in maps: after each command
//! both have given the same reply, and hold the same. The model selects the facts of a command and
//! writes its changes; what it decides is the code of the store.

use crate::world::{EPOCH, NOW, Random, World, felt, token};
use portcullis::store::{
    Budgets, Change, Claim, ClaimToken, Inclusion, Intended, Intent, IntentId, IntentState,
    NewIntent, Search, Store, Verified,
};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    self, Bound, DAY_US, Facts, Intention, Key, MINUTE_US, Pair, Rebinding, gfri, minutes,
};
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const DRIP: &str = "faucet-drip";
const STRK: u128 = 1_000_000_000_000_000_000;
const COOLDOWN: Duration = Duration::from_secs(3_600);
const HISTORIES: u64 = 6;
const COMMANDS: u64 = 200;

/// What the tables hold.
#[derive(Default)]
struct Model {
    seq: i64,
    intents: BTreeMap<i64, Intent>,
    keys: BTreeMap<String, Key>,
    bindings: BTreeSet<Pair>,
    entries: Vec<(i64, IntentState)>,
}

fn pays(intent: &Intent) -> bool {
    use IntentState::{Lost, Rejected, Reverted};
    !matches!(intent.state, Rejected | Lost | Reverted)
}

impl Model {
    fn append(&mut self, id: i64, state: IntentState) {
        self.seq += 1;
        self.entries.push((id, state));
    }

    /// The bindings of an identity or a recipient, by what is not of this slot.
    fn bound(
        &self,
        identity: Option<Felt>,
        recipient: Felt,
        signer: Felt,
        nonce: u64,
    ) -> Vec<Bound> {
        let of = |pair: &&Pair| Some(pair.identity) == identity || pair.recipient == recipient;
        let is_held = |pair: &Pair| {
            self.intents.values().any(|it| {
                it.operation == DRIP
                    && it.subject == Some(pair.recipient)
                    && it.state.holds()
                    && (it.signer, it.nonce) != (signer, nonce)
            })
        };
        let found = self.bindings.iter().filter(of);
        found.map(|pair| Bound { pair: *pair, is_held: is_held(pair) }).collect()
    }

    fn rebind(&mut self, changes: &[Rebinding]) {
        for change in changes {
            match change {
                Rebinding::Release(pair) => assert!(self.bindings.remove(pair), "{pair:?}"),
                Rebinding::Bind(pair) => assert!(self.bindings.insert(*pair), "{pair:?}"),
            }
        }
    }

    fn fees(&self, now_us: i64) -> Vec<(i64, i64)> {
        let [first, last] = minutes(Window::new(now_us, DAY_US));
        let mut sums = BTreeMap::new();
        for intent in self.intents.values().filter(|intent| intent.state.holds()) {
            let minute = intent.created_us.div_euclid(MINUTE_US);
            if (first..=last).contains(&minute) {
                *sums.entry(minute).or_default() += intent.fee_gfri;
            }
        }
        sums.into_iter().collect()
    }

    fn facts(&self, new: &NewIntent<'_>, now_us: i64) -> Facts {
        let key = new.idempotency_key.and_then(|key| self.keys.get(key)).cloned();
        let linked = key.as_ref().and_then(|key| key.intent);
        let slot = |it: &Intent| (it.signer, it.nonce) == (new.signer, new.nonce);
        let binds = |it: &&Intent| !(slot(it) && it.state == IntentState::Displaced);
        let in_window = |length: Duration| {
            let window = Window::new(now_us, length.as_micros().try_into().unwrap());
            let all = self.intents.values().filter(move |it| window.counts(it.created_us));
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
            .map(|(identity, subject)| self.bound(Some(identity), subject, new.signer, new.nonce));
        let minutes = self.fees(now_us);
        Facts {
            epoch: None,
            key,
            intents: self.intents.values().filter(is_fact).cloned().collect(),
            last,
            bound: bound.unwrap_or_default(),
            drip_us: drip.map(|it| it.created_us),
            fees_gfri: minutes.iter().map(|(_, fee)| fee).sum(),
            minutes,
        }
    }

    fn link(&mut self, key: &str, operation: &str, digest: [u8; 32], id: IntentId) {
        let token = self.keys.get(key).and_then(|key| key.token);
        let stored =
            Key { operation: operation.to_owned(), digest, token, intent: Some(id), answer: None };
        self.keys.insert(key.to_owned(), stored);
    }

    fn intend(&mut self, new: &NewIntent<'_>, now_us: i64) -> Intended {
        let id = IntentId(self.seq + 1);
        let (reply, link) = match ledger::intend(new, &self.facts(new, now_us), now_us) {
            Intention::Refuse { reply, link } => (reply, link),
            Intention::Insert(bindings) => {
                self.append(id.0, IntentState::Intended);
                self.append(id.0, IntentState::Sent);
                self.rebind(&bindings);
                self.intents.insert(id.0, as_sent(id, new, now_us));
                (Intended::New(id), Some(id))
            }
        };
        if let (Some(key), Some(id)) = (new.idempotency_key, link) {
            self.link(key, new.operation, new.digest, id);
        }
        reply
    }

    fn apply(&mut self, id: IntentId, change: &Change<'_>, now_us: i64) -> bool {
        let all: Vec<_> = self.intents.values().cloned().collect();
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
            for found in self.bound(identity, recipient, it.signer, it.nonce) {
                if !bound.contains(&found) {
                    bound.push(found);
                }
            }
        }
        if !steps.of_interest().is_empty() {
            self.rebind(&steps.rebind(&bound));
        }
        true
    }

    fn claim(&mut self, key: &str, digest: [u8; 32], token: ClaimToken) -> Claim {
        if let Some(stored) = self.keys.get(key) {
            let linked = stored.intent.and_then(|id| self.intents.get(&id.0)).cloned();
            return stored.clone().claimed(DRIP, &digest, token, linked);
        }
        let operation = DRIP.to_owned();
        let stored = Key { operation, digest, token: Some(token), intent: None, answer: None };
        self.keys.insert(key.to_owned(), stored);
        Claim::New
    }

    fn join(&mut self, key: &str, digest: [u8; 32], id: IntentId) -> bool {
        let stored = self.keys.get(key).filter(|key| key.is_of(DRIP, &digest));
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

    fn answer(&mut self, key: &str, digest: [u8; 32], id: IntentId) -> bool {
        let stored = self.keys.get_mut(key).filter(|key| key.is_of(DRIP, &digest));
        let open = stored.filter(|key| key.intent == Some(id) && key.answer.is_none());
        open.map(|key| key.answer = Some((200, "x".to_owned()))).is_some()
    }

    fn release(&mut self, key: &str, token: ClaimToken) -> bool {
        let is_bare = |key: &&Key| key.intent.is_none() && key.answer.is_none();
        let owned = self.keys.get(key).filter(is_bare).is_some_and(|key| key.token == Some(token));
        owned && self.keys.remove(key).is_some()
    }

    /// Keys and bindings, as the query below shows them.
    fn rows(&self) -> Vec<String> {
        let key = |(name, key): (&String, &Key)| {
            let token = key.token.map(|token| hex(&token.0)).unwrap_or_default();
            let intent = key.intent.map(|id| id.to_string()).unwrap_or_default();
            let body = key.answer.as_ref().map_or("", |(_, body)| body);
            format!("{name} {} {token} {intent} {body}", hex(&key.digest))
        };
        let bindings = self.bindings.iter().map(|it| format!("{} {}", it.identity, it.recipient));
        let mut rows: Vec<_> = self.keys.iter().map(key).chain(bindings).collect();
        rows.sort();
        rows
    }
}

const ROWS: &str = "SELECT key || ' ' || digest || ' ' || coalesce(claim_token, '') || ' ' || \
    coalesce(CAST(intent_id AS TEXT), '') || ' ' || coalesce(body, '') FROM idempotency \
    UNION ALL SELECT identity || ' ' || recipient FROM faucet_binding";

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

/// A command's chance.
struct Chance(Random);

impl Chance {
    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }

    fn digest(&mut self) -> [u8; 32] {
        [self.one(&[1, 2, 3, 4, 5]); 32]
    }

    fn new_intent(&mut self, known: &[IntentId]) -> NewIntent<'static> {
        let (digest, nonce) = (self.digest(), self.one(&[1, 2, 3, 4, 5, 6, 7, 8]));
        let variant = self.one(&[0, 0, 1]);
        let operation = self.one(&[DRIP, DRIP, DRIP, "register"]);
        let identity = self.one(&[Some(felt(0x11)), Some(felt(0x12)), None, None]);
        NewIntent {
            operation,
            digest,
            subject: Some(felt(self.one(&[0x21, 0x22, 0x23]))),
            identity: identity.filter(|_| operation == DRIP),
            request: "{}",
            epoch: EPOCH,
            born: self.0.below(9),
            signer: felt(1),
            nonce,
            transaction_hash: felt(0x1000 * u64::from(digest[0]) + 0x10 * nonce + variant),
            transaction: "{}",
            idempotency_key: self.one(&[None, None, None, Some("k"), Some("l")]),
            replaces: self.one(&[false, true]).then(|| known.last().copied()).flatten(),
            max_fee: self.one(&[0, STRK]),
            budgets: Budgets {
                drips: self
                    .one(&[None, None, None, Some(4), Some(0)])
                    .filter(|_| operation == DRIP),
                fees: self.one(&[None, None, Some(3 * STRK)]),
            },
            cooldown: self.one(&[None, None, Some(COOLDOWN)]),
        }
    }

    fn change(&mut self) -> Change<'static> {
        let fingerprint = [self.one(&[1, 2]); 32];
        let block = Some(Inclusion { number: self.0.below(9), fingerprint });
        let block = self.one(&[None, block]);
        let fee = self.one(&[None, Some(STRK / 2)]);
        self.one(&[
            Change::Accepted,
            Change::Included { outcome: Ok(()), fee, block },
            Change::Included { outcome: Err(Some("why")), fee, block },
            Change::Rejected("code 1"),
            Change::Displaced("gone"),
            Change::Displaced("gone"),
            Change::Lost("taken"),
        ])
    }
}

pub(crate) async fn histories_agree_with_the_model(world: World) {
    let mut seen = BTreeMap::<&str, u32>::new();
    for seed in 0..HISTORIES {
        let one = world.open().await;
        // two processes, where that is possible
        let two = if world.is_sqlite() { None } else { Some(world.open().await) };
        history(&world, [&one, two.as_ref().unwrap_or(&one)], seed, &mut seen).await;
        one.close().await;
        if let Some(two) = two {
            two.close().await;
        }
        world.empty().await;
    }
    for reply in
        ["New", "Known", "KeyConflict", "NonceTaken", "Elsewhere", "OverBudget", "TooSoon", "moved"]
    {
        assert!(seen.contains_key(reply), "{reply} is missing in {seen:?}");
    }
}

fn name_of(reply: &Intended) -> &'static str {
    match reply {
        Intended::New(_) => "New",
        Intended::Known(_) => "Known",
        Intended::KeyConflict => "KeyConflict",
        Intended::NonceTaken(_) => "NonceTaken",
        Intended::Elsewhere(_) => "Elsewhere",
        Intended::OtherChain => "OtherChain",
        Intended::OverBudget(_) => "OverBudget",
        Intended::TooSoon { .. } => "TooSoon",
    }
}

async fn history(
    world: &World,
    stores: [&Store; 2],
    seed: u64,
    seen: &mut BTreeMap<&'static str, u32>,
) {
    let (mut model, mut chance) = (Model::default(), Chance(Random::new(seed)));
    let (mut known, mut now_us) = (Vec::new(), NOW);
    for number in 0..COMMANDS {
        let at = format!("command {number} of seed {seed}");
        let store = chance.one(&stores);
        now_us += chance.one(&[0, 1, 60_000_000, 600_000_000, 3_600_000_000]);
        let (key, digest, owner) = (chance.one(&["k", "l"]), chance.digest(), chance.one(&[1, 2]));
        let some = chance.one(&[3, 2, 1, 1, 1]).min(known.len());
        let id = known.len().checked_sub(some).and_then(|at| known.get(at)).copied();
        let keys = store.keys(EPOCH);
        match (chance.0.below(12), id) {
            (0, _) => {
                let claim = keys.claim(key, DRIP, &digest, &token(owner), now_us).await.unwrap();
                assert_eq!(claim, model.claim(key, digest, token(owner)), "claim: {at}");
            }
            (1, _) => {
                let released = keys.release(key, &token(owner)).await.unwrap();
                assert_eq!(released, model.release(key, token(owner)), "release: {at}");
            }
            (2, Some(id)) => {
                let linked = keys.link(key, DRIP, &digest, id).await.unwrap();
                assert_eq!(linked, model.join(key, digest, id), "link: {at}");
            }
            (3, Some(id)) => {
                let answered = keys.answer(key, DRIP, &digest, id, 200, "x").await.unwrap();
                assert_eq!(answered, model.answer(key, digest, id), "answer: {at}");
            }
            (4..=8, Some(id)) => {
                let change = chance.change();
                let moved = store.intents().apply(id, &change, now_us).await;
                let moved = moved.unwrap_or_else(|error| panic!("{change:?}: {at}: {error}"));
                assert_eq!(moved, model.apply(id, &change, now_us), "{change:?}: {at}");
                *seen.entry(if moved { "moved" } else { "unmoved" }).or_default() += 1;
            }
            _ => {
                let new = chance.new_intent(&known);
                let reply = store.intents().intend(&new, now_us).await;
                let reply = reply.unwrap_or_else(|error| panic!("{new:?}: {at}: {error}"));
                assert_eq!(reply, model.intend(&new, now_us), "{new:?}: {at}");
                *seen.entry(name_of(&reply)).or_default() += 1;
                if let Intended::New(id) = reply {
                    known.push(id);
                }
            }
        }
        agrees(world, store, &model, &at).await;
    }
    let entries = store_entries(stores[0]).await;
    assert_eq!(entries, model.entries, "seed {seed}");
    let verified = stores[0].journal().verify().await.unwrap();
    assert!(matches!(verified, Verified::Whole { .. }), "{verified:?}");
}

async fn agrees(world: &World, store: &Store, model: &Model, at: &str) {
    let mut stored = store.journal().search(&Search::default(), i64::MAX, 500).await.unwrap();
    stored.reverse();
    let expected: Vec<_> = model.intents.values().cloned().collect();
    assert_eq!(stored, expected, "{at}");
    let mut rows = world.texts(ROWS).await;
    rows.sort();
    assert_eq!(rows, model.rows(), "{at}");
}

async fn store_entries(store: &Store) -> Vec<(i64, IntentState)> {
    let mut entries = Vec::new();
    let mut next = 1;
    loop {
        let page = store.journal().entries(next, 500).await.unwrap();
        let Some(last) = page.last() else { return entries };
        next = last.seq + 1;
        entries.extend(
            page.iter().filter_map(|entry| {
                Some((entry.intent?.0, IntentState::parse(entry.kind.name())?))
            }),
        );
    }
}
