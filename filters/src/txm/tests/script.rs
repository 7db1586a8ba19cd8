//! A scripted node, journal and clock, which record every call that changes something.

use super::{EPOCH, START_US, intent, no_answer, run};
use crate::felt::Felt;
use crate::ledger::{
    Binding, Change, Claim, ClaimToken, Intended, Intent, IntentId, IntentState, NewIntent,
    Requested,
};
use crate::operations::tests::chain::Chain;
use crate::tx::{Bounds, Invoke};
use crate::txm::io::{
    Called, Flight, Io, JournalError, JournalIo, KeyOf, LockError, NodeIo, Note, Purpose,
    SignedText, Stored,
};
use crate::txm::memory::Memory;
use crate::txm::node::{Block, ListedBlock, Receipt, Sender};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::Outcome;
use crate::txm::settings::{Pins, Required, Role, Settings};
use crate::window::Window;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};

/// Everything that the node shows, and what was done.
pub(in crate::txm) struct State {
    pub(in crate::txm) now: Duration,
    /// The time of the journal's clock since the start.
    pub(in crate::txm) later_us: i64,
    pub(in crate::txm) is_exclusive: bool,
    /// The epoch of the chain as the node says, and as it was proven.
    pub(in crate::txm) anchor: Called<String>,
    pub(in crate::txm) proven: Result<String, NotSent>,
    /// Whether the pins no longer hold once an account was waited for.
    pub(in crate::txm) unproven_once_locked: bool,
    /// Next nonces of every account; the last one remains.
    pub(in crate::txm) nonces: VecDeque<Called<u64>>,
    pub(in crate::txm) receipts: BTreeMap<Felt, Receipt>,
    /// Whether a receipt is shown once, and never again.
    pub(in crate::txm) shown_once: bool,
    /// Whether a receipt is shown only once its transaction was sent here.
    pub(in crate::txm) shown_once_sent: bool,
    pub(in crate::txm) is_away: bool,
    /// Accepted blocks, with the sender's nonce and the hash of each transaction.
    pub(in crate::txm) blocks: BTreeMap<u64, (Felt, Vec<(u64, Felt)>)>,
    /// Blocks whose receipts the node does not return.
    pub(in crate::txm) unreadable: BTreeSet<u64>,
    /// Blocks that the node does not return at all.
    pub(in crate::txm) unlisted: BTreeSet<u64>,
    pub(in crate::txm) estimate: Called<Bounds>,
    /// Replies to submissions; when they are used up, the hash of the transaction.
    pub(in crate::txm) added: VecDeque<Called<Felt>>,
    pub(in crate::txm) intents: Vec<Intent>,
    /// The changes of intents by other processes, and when they happen.
    pub(in crate::txm) others: Vec<(Duration, IntentId, IntentState)>,
    /// Replies of the ledger; when they are used up, the intent is stored.
    pub(in crate::txm) intended: VecDeque<Stored<Intended>>,
    pub(in crate::txm) apply_fails: bool,
    pub(in crate::txm) claims: VecDeque<Stored<Claim>>,
    pub(in crate::txm) linked: Option<IntentId>,
    pub(in crate::txm) may_link: Stored<bool>,
    pub(in crate::txm) answers: VecDeque<Stored<bool>>,
    /// Outcomes of equal writes of other requests; when they are used up, a write is carried out.
    pub(in crate::txm) flights: VecDeque<Outcome>,
    /// The flights that were joined or begun.
    pub(in crate::txm) joined: Vec<Flight>,
    pub(in crate::txm) done: Vec<String>,
}

/// Everything outside the write path.
pub(in crate::txm) struct Script {
    pub(in crate::txm) chain: Chain,
    state: Mutex<State>,
    memory: Mutex<Memory>,
}

impl Script {
    /// A chain at block 20 that confirms everything, and an empty journal.
    pub(in crate::txm) fn new() -> Self {
        let block = |number: u64| (number, (Felt::from(number), Vec::new()));
        let price = (1, 1);
        let state = State {
            now: Duration::from_secs(1_000),
            later_us: 0,
            is_exclusive: false,
            anchor: Ok(EPOCH.into()),
            proven: Ok(EPOCH.into()),
            unproven_once_locked: false,
            nonces: [Ok(7)].into(),
            receipts: BTreeMap::new(),
            shown_once: false,
            shown_once_sent: false,
            is_away: false,
            blocks: (0..=20).map(block).collect(),
            unreadable: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            estimate: Ok(Bounds {
                l1_gas: price,
                l1_data_gas: price,
                l2_gas: price,
            }),
            added: VecDeque::new(),
            intents: Vec::new(),
            others: Vec::new(),
            intended: VecDeque::new(),
            apply_fails: false,
            claims: VecDeque::new(),
            linked: None,
            may_link: Ok(true),
            answers: VecDeque::new(),
            flights: VecDeque::new(),
            joined: Vec::new(),
            done: Vec::new(),
        };
        let (state, memory) = (Mutex::new(state), Mutex::default());
        Self {
            chain: Chain::new(),
            state,
            memory,
        }
    }

    pub(in crate::txm) fn with(intents: &[Intent]) -> Self {
        let script = Self::new();
        script.state().intents = intents.to_vec();
        script
    }

    pub(in crate::txm) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    /// The actions since the last call.
    pub(in crate::txm) fn done(&self) -> Vec<String> {
        core::mem::take(&mut self.state().done)
    }

    fn does(&self, what: impl Into<String>) {
        self.state().done.push(what.into());
    }

    /// The state of an intent.
    pub(in crate::txm) fn state_of(&self, id: i64) -> IntentState {
        let state = self.state();
        state
            .intents
            .iter()
            .find(|it| it.id == IntentId(id))
            .expect("it is stored")
            .state
    }

    fn shown<T>(&self, read: impl FnOnce(&State) -> T) -> Called<T> {
        let state = self.state();
        if state.is_away {
            no_answer(true)
        } else {
            Ok(read(&state))
        }
    }

    fn intents(&self, is_one: impl Fn(&Intent) -> bool) -> Vec<Intent> {
        self.state()
            .intents
            .iter()
            .filter(|it| is_one(it))
            .cloned()
            .collect()
    }
}

impl NodeIo for Script {
    type Url = ();

    async fn call(&self, to: Felt, of: Felt, args: &[Felt]) -> Called<Vec<Felt>> {
        self.chain.call(to, of, args).await
    }

    async fn class_hash_at(&self, address: Felt) -> Called<Option<Felt>> {
        self.chain.class_hash_at(address).await
    }

    async fn nonce(&self, _: Felt) -> Called<u64> {
        let mut state = self.state();
        if state.nonces.len() > 1 {
            return state.nonces.pop_front().expect("there are two");
        }
        state.nonces.front().expect("one remains").clone()
    }

    async fn head(&self) -> Called<Block> {
        self.chain.head().await
    }

    async fn anchor(&self) -> Called<String> {
        self.state().anchor.clone()
    }

    async fn estimate(&self, _: &str) -> Called<Bounds> {
        self.state().estimate.clone()
    }

    async fn receipt(&self, hash: Felt) -> Called<Option<Receipt>> {
        let sent = format!("sends {hash}");
        let shown = self.shown(|state| {
            let is_there = !state.shown_once_sent || state.done.contains(&sent);
            state.receipts.get(&hash).filter(|_| is_there).cloned()
        });
        let mut state = self.state();
        if state.shown_once {
            state.receipts.remove(&hash);
        }
        shown
    }

    fn urls(&self) -> Vec<()> {
        vec![()]
    }

    async fn head_of(&self, (): ()) -> Called<u64> {
        self.shown(|state| *state.blocks.keys().next_back().expect("there is one"))
    }

    async fn block_of(&self, (): (), number: u64) -> Called<Option<ListedBlock>> {
        if self.state().unlisted.contains(&number) {
            return no_answer(false);
        }
        self.shown(|state| {
            let (hash, listed) = state.blocks.get(&number)?;
            let transactions = listed.iter().map(|(_, hash)| *hash).collect();
            Some(ListedBlock {
                hash: *hash,
                transactions,
            })
        })
    }

    async fn transaction_of(
        &self,
        (): (),
        number: u64,
        _: Felt,
        nonce: u64,
    ) -> Called<Option<Felt>> {
        self.does(format!("reads block {number}"));
        if self.state().unreadable.contains(&number) {
            return no_answer(false);
        }
        self.shown(|state| {
            let (_, listed) = state.blocks.get(&number)?;
            listed
                .iter()
                .find(|(of, _)| *of == nonce)
                .map(|(_, hash)| *hash)
        })
    }

    async fn nonce_of(&self, (): (), account: Felt) -> Called<u64> {
        self.nonce(account).await
    }

    async fn sender_of(&self, (): (), hash: Felt) -> Called<Option<Sender>> {
        self.does(format!("reads transaction {hash}"));
        self.shown(|state| {
            let listed = state.blocks.values().flat_map(|(_, listed)| listed);
            let (nonce, _) = listed.into_iter().find(|(_, of)| *of == hash)?;
            Some(Sender {
                account: self.chain.pins.accounts.owner,
                nonce: *nonce,
            })
        })
    }

    async fn receipt_of(&self, (): (), hash: Felt) -> Called<Option<Receipt>> {
        self.receipt(hash).await
    }

    fn note_shown(&self, number: u64) {
        self.does(format!("block {number} was shown"));
    }
}

impl JournalIo for Script {
    fn clock_us(&self) -> i64 {
        START_US + self.state().later_us
    }

    fn clock_error_us(&self) -> i64 {
        0
    }

    fn is_exclusive(&self) -> bool {
        self.state().is_exclusive
    }

    async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Stored<Intended> {
        self.does(format!("stores nonce {}", new.nonce));
        let mut state = self.state();
        if let Some(reply) = state.intended.pop_front() {
            return reply;
        }
        let id = 100 + state.intents.len() as i64;
        state.intents.push(Intent {
            operation: new.operation.into(),
            digest: new.digest,
            transaction_hash: new.transaction_hash,
            transaction: new.transaction.into(),
            created_us: now_us,
            ..intent(id, new.nonce, IntentState::Sent)
        });
        Ok(Intended::New(IntentId(id)))
    }

    async fn apply(&self, id: IntentId, change: &Change<'_>) -> Stored<bool> {
        let mut state = self.state();
        if state.apply_fails {
            return Err(JournalError::Failed);
        }
        let found = state
            .intents
            .iter_mut()
            .find(|it| it.id == id)
            .expect("it is stored");
        let is_late = found.is_sent_again() && matches!(change, Change::Rejected(_));
        // another block had it since
        let is_outdated = matches!(
            change,
            Change::Displaced { from: Some(from), .. } if found.included != Some(*from)
        );
        let is_applied = !is_late && !is_outdated && found.state.may_become(change.state());
        if is_applied {
            found.state = change.state();
            if let Change::Included { block, .. } = change {
                found.included = block.or(found.included);
            }
            found.detail = matches!(change, Change::SentAgain).then(|| "again".to_owned());
            state
                .done
                .push(format!("{id} is {}", change.state().name()));
        }
        Ok(is_applied)
    }

    async fn intent(&self, id: IntentId) -> Stored<Option<Intent>> {
        Ok(self.intents(|it| it.id == id).pop())
    }

    async fn requested(
        &self,
        _: &str,
        digest: &[u8; 32],
        key: Option<&KeyOf<'_>>,
    ) -> Stored<Requested> {
        let id = key.and(self.state().linked);
        let linked = self.intents(|it| Some(it.id) == id).pop();
        let newest = self
            .intents(|it| it.digest == *digest && it.state.holds())
            .pop();
        Ok(Requested { linked, newest })
    }

    async fn unresolved(&self, _: &str, signer: Option<Felt>) -> Stored<Vec<Intent>> {
        let is_of = |it: &Intent| signer.is_none_or(|signer| it.signer == signer);
        Ok(self.intents(|it| it.state.is_unresolved() && is_of(it)))
    }

    async fn displaced(&self, _: &str, below: Option<IntentId>, limit: u32) -> Stored<Vec<Intent>> {
        let is_below = |it: &Intent| below.is_none_or(|below| it.id < below);
        let mut found = self.intents(|it| it.state == IntentState::Displaced && is_below(it));
        found.sort_by_key(|it| core::cmp::Reverse(it.id));
        found.truncate(limit as usize);
        Ok(found)
    }

    async fn of_slot(&self, _: &str, signer: Felt, nonce: u64) -> Stored<Vec<Intent>> {
        Ok(self.intents(|it| (it.signer, it.nonce) == (signer, nonce)))
    }

    async fn included_newest(&self, _: &str, limit: u32) -> Stored<Vec<Intent>> {
        let mut newest = self.intents(|it| it.state.is_included() && it.included.is_some());
        newest.sort_by_key(|it| core::cmp::Reverse(it.included.map(|block| block.number)));
        newest.truncate(limit as usize);
        Ok(newest)
    }

    async fn included_anywhere(
        &self,
        _: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Stored<Vec<Intent>> {
        let is_below = |it: &Intent| below.is_none_or(|below| it.id < below);
        let is_anywhere = |it: &Intent| it.state.is_included() && it.included.is_none();
        let mut found = self.intents(|it| is_anywhere(it) && is_below(it));
        found.sort_by_key(|it| core::cmp::Reverse(it.id));
        found.truncate(limit as usize);
        Ok(found)
    }

    async fn floor(&self, _: &str) -> Stored<Option<u64>> {
        Ok(Some(10))
    }

    async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> Stored<Option<Intent>> {
        self.chain
            .last_of(operation, subject, epoch, cooldown)
            .await
    }

    async fn binding(&self, epoch: &str, identity: Felt, recipient: Felt) -> Stored<Binding> {
        self.chain.binding(epoch, identity, recipient).await
    }

    async fn claim(&self, _: &KeyOf<'_>, _: &ClaimToken) -> Stored<Claim> {
        self.does("claims");
        self.state().claims.pop_front().unwrap_or(Ok(Claim::New))
    }

    async fn link(&self, _: &KeyOf<'_>, intent: IntentId) -> Stored<bool> {
        self.does(format!("links {intent}"));
        self.state().may_link
    }

    async fn answer(&self, _: &KeyOf<'_>, id: IntentId, _: &Outcome, _: &str) -> Stored<bool> {
        self.does(format!("answers with {id}"));
        self.state().answers.pop_front().unwrap_or(Ok(true))
    }

    async fn release_claim(&self, _: &KeyOf<'_>, _: &ClaimToken) -> Stored<bool> {
        self.does("releases");
        Ok(true)
    }
}

impl Io for Script {
    type Trace = ();
    type Guard = ();

    fn pins(&self) -> &Pins {
        self.chain.pins()
    }

    fn settings(&self) -> Settings {
        self.chain.settings()
    }

    fn now(&self) -> Duration {
        self.state().now
    }

    async fn sleep(&self, time: Duration) {
        let mut state = self.state();
        state.now += time;
        state.later_us += time.as_micros() as i64;
        let State {
            now,
            others,
            intents,
            ..
        } = &mut *state;
        for (at, id, becomes) in others.iter().filter(|(at, ..)| *at <= *now) {
            let changed = intents
                .iter_mut()
                .find(|it| it.id == *id && it.updated_us == START_US);
            if let Some(changed) = changed {
                (changed.state, changed.updated_us) = (*becomes, at.as_micros() as i64);
            }
        }
    }

    fn random(&self) -> Option<[u8; 16]> {
        Some([1; 16])
    }

    fn memory<T>(&self, use_it: impl FnOnce(&mut Memory) -> T) -> T {
        use_it(&mut self.memory.lock().expect("no test panics with it"))
    }

    async fn require(&self, _: Required) -> Result<String, NotSent> {
        self.state().proven.clone()
    }

    async fn epoch(&self) -> Result<String, NotSent> {
        self.state().proven.clone()
    }

    fn forget_proof(&self) {
        self.does("forgets the proof");
    }

    fn proven_head(&self, _: &str) -> Option<u64> {
        Some(20)
    }

    async fn lock(&self, role: Role, _: Duration) -> Result<(), LockError> {
        self.does(format!("locks {}", role.name()));
        let mut state = self.state();
        if state.unproven_once_locked {
            state.proven = Err(NotSent::PinsUnproven);
        }
        Ok(())
    }

    async fn check_lock(&self, (): &mut ()) -> Stored<()> {
        Ok(())
    }

    async fn unlock(&self, (): ()) {
        self.does("unlocks");
    }

    fn sign(&self, _: Role, invoke: Invoke, purpose: Purpose) -> SignedText {
        let price = invoke.bounds.l1_data_gas.1;
        if purpose == Purpose::Write {
            self.does(format!("signs for a price of {price}"));
        }
        let hash = Felt::from(1_000 + price);
        SignedText {
            hash,
            text: hash.to_string(),
        }
    }

    async fn add(&self, _: &str, transaction: &str, _: Option<&()>) -> Called<Felt> {
        let hash = Felt::parse(transaction).expect("it is its hash");
        self.does(format!("sends {hash}"));
        self.state().added.pop_front().unwrap_or(Ok(hash))
    }

    async fn join(
        &self,
        flight: Flight,
        write: impl Future<Output = Outcome> + Send + 'static,
    ) -> Outcome {
        let other = {
            let mut state = self.state();
            state.joined.push(flight);
            state.flights.pop_front()
        };
        match other {
            Some(outcome) => outcome,
            None => write.await,
        }
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        run(work);
    }

    async fn stage<T: Send>(
        &self,
        (): &(),
        _: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> T {
        work.await
    }

    fn wake(&self) {
        self.does("wakes the reconciliation");
    }

    fn note(&self, note: Note<'_>) {
        let note = match note {
            Note::Displaced(intent, _) => format!("notes {} displaced", intent.id),
            Note::Lost(intent, _) => format!("notes {} lost", intent.id),
            Note::Unreadable(_, number) => format!("notes that block {number} is unreadable"),
            Note::Back(intent) => format!("notes {} back", intent.id),
            Note::PaidTwice(drip, other) => {
                format!("notes {} paid in addition to {}", drip.id, other.id)
            }
            Note::NotReadBack(operation) => format!("notes that {operation} was not read back"),
            Note::Nonce(..) => return,
        };
        self.does(note);
    }
}
