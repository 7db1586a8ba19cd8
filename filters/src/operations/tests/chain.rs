//! A chain made of tables, for the decisions of operations.

use crate::felt::Felt;
use crate::ledger::{
    Binding, Budgets, Change, Claim, ClaimToken, Intended, Intent, IntentId, NewIntent, Requested,
};
use crate::operations::OperationKind;
use crate::tx::{Bounds, Contracts, Invoke, selector};
use crate::txm::io::{
    Called, Flight, Io, JournalIo, KeyOf, LockError, NodeIo, Note, Purpose, SignedText, Stored,
};
use crate::txm::memory::Memory;
use crate::txm::node::{Block, ListedBlock, Receipt, Sender};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::Outcome;
use crate::txm::settings::{Accounts, Pins, Required, Role, Settings};
use crate::window::Window;
use core::time::Duration;
use std::collections::HashMap;

pub(crate) const TOKEN: u64 = 0xb1;
pub(crate) const CARD: u64 = 0xb4;
pub(crate) const REGISTRY: u64 = 0xb5;
pub(crate) const USERSHIP: u64 = 0xb6;
pub(crate) const FAUCET: u64 = 0xa3;
const CLASS: u64 = 0xc1;

/// Each view of the contracts, with the number of felts that it returns.
const VIEWS: [(&str, usize); 13] = [
    ("account_of", 1),
    ("attestation", 6),
    ("attestation_of", 7),
    ("balance_of", 2),
    ("get_public_key", 1),
    ("identity_of", 1),
    ("is_verified", 1),
    ("minted_to", 1),
    ("owner_of", 1),
    ("recovery_delay", 1),
    ("recovery_of", 2),
    ("usership_of", 2),
    ("verification_v2_required", 1),
];

pub(crate) fn felt(number: u64) -> Felt {
    Felt::from(number)
}

pub(crate) fn felts(numbers: &[u64]) -> Vec<Felt> {
    numbers.iter().copied().map(Felt::from).collect()
}

/// The state of the chain and of the journal. A view that is in no table returns zeros.
pub(crate) struct Chain {
    pub(crate) pins: Pins,
    pub(crate) views: HashMap<(Felt, Felt, Vec<Felt>), Vec<Felt>>,
    pub(crate) classes: HashMap<Felt, Felt>,
    /// The time of the newest block, in seconds.
    pub(crate) block_time: u64,
    /// The local time, in microseconds.
    pub(crate) time_us: i64,
    pub(crate) binding: Binding,
    pub(crate) last: Option<Intent>,
    /// Journaled proposals and drips, by their subject.
    pub(crate) journaled: Vec<Intent>,
}

impl Chain {
    pub(crate) fn new() -> Self {
        let contracts = Contracts {
            token: felt(TOKEN),
            staking: felt(0xb2),
            bridge: felt(0xb3),
            card: felt(CARD),
            registry: felt(REGISTRY),
            usership: felt(USERSHIP),
        };
        let accounts = Accounts {
            owner: felt(0xa1),
            verifier: felt(0xa2),
            faucet: Some(felt(FAUCET)),
        };
        Self {
            pins: Pins {
                chain_id: felt(0xc0),
                contracts,
                account_class: felt(CLASS),
                accounts,
            },
            views: HashMap::new(),
            classes: HashMap::new(),
            block_time: 0,
            time_us: 1_000_000_000,
            binding: Binding::Bound,
            last: None,
            journaled: Vec::new(),
        }
    }

    /// Sets the result of a contract's view for these arguments.
    pub(crate) fn shows(mut self, to: u64, view: &str, args: &[u64], result: &[u64]) -> Self {
        self.views
            .insert((felt(to), selector(view), felts(args)), felts(result));
        self
    }

    /// Sets the result of a view of the registry.
    pub(crate) fn registry(self, view: &str, args: &[u64], result: &[u64]) -> Self {
        self.shows(REGISTRY, view, args, result)
    }

    /// Deploys an account of the approved class at this address.
    pub(crate) fn deployed(mut self, address: u64) -> Self {
        self.classes.insert(felt(address), felt(CLASS));
        self
    }

    /// Deploys a contract of another class at this address.
    pub(crate) fn foreign(mut self, address: u64) -> Self {
        self.classes.insert(felt(address), felt(1));
        self
    }
}

impl NodeIo for Chain {
    type Url = ();

    async fn call(&self, to: Felt, of: Felt, args: &[Felt]) -> Called<Vec<Felt>> {
        let shown = self.views.get(&(to, of, args.to_vec())).cloned();
        let view = VIEWS
            .iter()
            .find(|(name, _)| selector(name) == of)
            .expect("a known view");
        Ok(shown.unwrap_or_else(|| vec![Felt::ZERO; view.1]))
    }

    async fn class_hash_at(&self, address: Felt) -> Called<Option<Felt>> {
        Ok(self.classes.get(&address).copied())
    }

    async fn head(&self) -> Called<Block> {
        Ok(Block {
            number: 1,
            hash: felt(1),
            timestamp: self.block_time,
        })
    }

    async fn nonce(&self, _: Felt) -> Called<u64> {
        unreachable!("no decision reads it")
    }

    async fn anchor(&self) -> Called<String> {
        unreachable!("no decision reads it")
    }

    async fn estimate(&self, _: &str) -> Called<Bounds> {
        unreachable!("no decision needs it")
    }

    async fn receipt(&self, _: Felt) -> Called<Option<Receipt>> {
        unreachable!("no decision reads it")
    }

    fn urls(&self) -> Vec<()> {
        unreachable!("no decision asks one URL")
    }

    async fn head_of(&self, (): ()) -> Called<u64> {
        unreachable!("no decision asks one URL")
    }

    async fn block_of(&self, (): (), _: u64) -> Called<Option<ListedBlock>> {
        unreachable!("no decision asks one URL")
    }

    async fn transaction_of(&self, (): (), _: u64, _: Felt, _: u64) -> Called<Option<Felt>> {
        unreachable!("no decision asks one URL")
    }

    async fn nonce_of(&self, (): (), _: Felt) -> Called<u64> {
        unreachable!("no decision asks one URL")
    }

    async fn sender_of(&self, (): (), _: Felt) -> Called<Option<Sender>> {
        unreachable!("no decision asks one URL")
    }

    async fn receipt_of(&self, (): (), _: Felt) -> Called<Option<Receipt>> {
        unreachable!("no decision asks one URL")
    }

    fn note_shown(&self, _: u64) {
        unreachable!("no decision acknowledges a block")
    }
}

impl JournalIo for Chain {
    fn clock_us(&self) -> i64 {
        self.time_us
    }

    async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        _: &str,
        window: Window,
    ) -> Stored<Option<Intent>> {
        let found = self.journaled.iter().filter(|it| {
            it.operation == operation && it.subject == Some(subject) && window.counts(it.created_us)
        });
        let newest = found.max_by_key(|it| it.created_us).cloned();
        let is_drip = operation == OperationKind::FaucetDrip.name();
        Ok(newest.or_else(|| self.last.clone().filter(|_| is_drip)))
    }

    async fn binding(&self, _: &str, _: Felt, _: Felt) -> Stored<Binding> {
        Ok(self.binding)
    }

    fn clock_error_us(&self) -> i64 {
        unreachable!("no decision compares clocks")
    }

    fn is_exclusive(&self) -> bool {
        unreachable!("no decision asks")
    }

    async fn intend(&self, _: &NewIntent<'_>, _: i64) -> Stored<Intended> {
        unreachable!("a decision stores nothing")
    }

    async fn apply(&self, _: IntentId, _: &Change<'_>) -> Stored<bool> {
        unreachable!("a decision stores nothing")
    }

    async fn intent(&self, _: IntentId) -> Stored<Option<Intent>> {
        unreachable!("no decision reads it")
    }

    async fn requested(&self, _: &str, _: &[u8; 32], _: Option<&KeyOf<'_>>) -> Stored<Requested> {
        unreachable!("no decision reads them")
    }

    async fn unresolved(&self, _: &str, _: Option<Felt>) -> Stored<Vec<Intent>> {
        unreachable!("no decision reads them")
    }

    async fn displaced(&self, _: &str, _: Option<IntentId>, _: u32) -> Stored<Vec<Intent>> {
        unreachable!("no decision reads them")
    }

    async fn of_slot(&self, _: &str, _: Felt, _: u64) -> Stored<Vec<Intent>> {
        unreachable!("no decision reads them")
    }

    async fn included_anywhere(&self, _: &str, _: Option<IntentId>, _: u32) -> Stored<Vec<Intent>> {
        unreachable!("a decision reads no other intents")
    }

    async fn included_newest(&self, _: &str, _: u32) -> Stored<Vec<Intent>> {
        unreachable!("no decision reads them")
    }

    async fn floor(&self, _: &str) -> Stored<Option<u64>> {
        unreachable!("no decision reads it")
    }

    async fn claim(&self, _: &KeyOf<'_>, _: &ClaimToken) -> Stored<Claim> {
        unreachable!("a decision stores nothing")
    }

    async fn link(&self, _: &KeyOf<'_>, _: IntentId) -> Stored<bool> {
        unreachable!("a decision stores nothing")
    }

    async fn answer(&self, _: &KeyOf<'_>, _: IntentId, _: &Outcome, _: &str) -> Stored<bool> {
        unreachable!("a decision stores nothing")
    }

    async fn release_claim(&self, _: &KeyOf<'_>, _: &ClaimToken) -> Stored<bool> {
        unreachable!("a decision stores nothing")
    }
}

impl Io for Chain {
    type Trace = ();
    type Guard = ();

    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn settings(&self) -> Settings {
        Settings {
            faucet_amount: 100,
            faucet_cooldown: Duration::from_secs(60),
            max_fee: 20,
            max_l2_gas: 1_000,
            recovery_cancel_window: Duration::from_secs(50),
            receipt_timeout: Duration::from_secs(1),
            confirmations: 1,
            budgets: Budgets::default(),
        }
    }

    fn now(&self) -> Duration {
        unreachable!("no decision waits")
    }

    async fn sleep(&self, _: Duration) {
        unreachable!("no decision waits")
    }

    fn random(&self) -> Option<[u8; 16]> {
        unreachable!("no decision draws")
    }

    fn memory<T>(&self, _: impl FnOnce(&mut Memory) -> T) -> T {
        unreachable!("no decision remembers")
    }

    async fn require(&self, _: Required) -> Result<String, NotSent> {
        unreachable!("proven before")
    }

    async fn epoch(&self) -> Result<String, NotSent> {
        unreachable!("proven before")
    }

    fn forget_proof(&self) {
        unreachable!("proven before")
    }

    fn proven_head(&self, _: &str) -> Option<u64> {
        unreachable!("proven before")
    }

    async fn lock(&self, _: Role, _: Duration) -> Result<(), LockError> {
        unreachable!("a decision locks nothing")
    }

    async fn check_lock(&self, (): &mut ()) -> Stored<()> {
        unreachable!("a decision locks nothing")
    }

    async fn unlock(&self, (): ()) {
        unreachable!("a decision locks nothing")
    }

    fn sign(&self, _: Role, _: Invoke, _: Purpose) -> SignedText {
        unreachable!("a decision signs nothing")
    }

    async fn add(&self, _: &str, _: &str, _: Option<&()>) -> Called<Felt> {
        unreachable!("a decision sends nothing")
    }

    async fn join(&self, _: Flight, _: impl Future<Output = Outcome> + Send + 'static) -> Outcome {
        unreachable!("a decision waits for nobody")
    }

    fn spawn(&self, _: impl Future<Output = ()> + Send + 'static) {
        unreachable!("a decision starts nothing")
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
        unreachable!("a decision wakes nobody")
    }

    fn note(&self, _: Note<'_>) {
        unreachable!("a decision has nothing to tell")
    }
}
