//! Performs the I/O of the transaction manager: calls of the node, statements of the store,
//! signatures, waiting. Decides nothing.

use super::answer;
use super::pins::Prover;
use super::settings::Settings;
use super::signers::{SignerGuard, Signers};
use super::trace::Trace;
use crate::http::clients::Running;
use crate::node::chain::{CallTrace, Chain, RpcError};
use parking_lot::Mutex;
use portcullis_base::io::shared::{Aborted, Shared};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    Binding, Change, Claim, ClaimToken, Intended, Intent, IntentId, NewIntent, Requested,
};
use portcullis_filters::policy::method_of;
use portcullis_filters::tx::{Bounds, Invoke};
use portcullis_filters::txm::io::{
    Called, Flight, Io, JournalError, JournalIo, KeyOf, LockError, NodeIo, Note, Purpose,
    SignedText, Stored,
};
use portcullis_filters::txm::memory::Memory;
use portcullis_filters::txm::node::{Block, CallError, ListedBlock, Receipt, Sender};
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::txm::settings::{self, Pins, Required, Role};
use portcullis_filters::verdict::Refusal;
use portcullis_filters::window::Window;
use portcullis_store::{Store, StoreError};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The parts of the relay that the transaction manager uses.
pub(super) struct Driver {
    pub(super) pins: Pins,
    pub(super) chain: Arc<Chain>,
    pub(super) store: Arc<Store>,
    pub(super) prover: Arc<Prover>,
    pub(super) signers: Signers,
    pub(super) running: Arc<Running<Settings>>,
    pub(super) metrics: Arc<Metrics>,
    /// Signals that an intent was left open.
    pub(super) left_open: Notify,
    start: Instant,
    memory: Mutex<Memory>,
    in_flight: Shared<Flight, Outcome>,
}

impl Driver {
    pub(super) fn new(
        pins: Pins,
        chain: &Arc<Chain>,
        store: Arc<Store>,
        prover: &Arc<Prover>,
        signers: Signers,
        running: &Arc<Running<Settings>>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            pins,
            chain: Arc::clone(chain),
            store,
            prover: Arc::clone(prover),
            signers,
            running: Arc::clone(running),
            metrics: Arc::clone(metrics),
            left_open: Notify::new(),
            start: Instant::now(),
            memory: Mutex::default(),
            in_flight: Shared::new(0, |_| 0),
        }
    }

    /// Converts the result of statements; logs and counts a failure.
    fn stored<T>(&self, done: Result<T, StoreError>) -> Stored<T> {
        done.map_err(|error| {
            self.store.failed(&error);
            match error {
                StoreError::Unconfirmed(_) => JournalError::Unconfirmed,
                _ => JournalError::Failed,
            }
        })
    }

    fn at(&self, deadline: Duration) -> Instant {
        self.start + deadline
    }
}

impl NodeIo for Driver {
    type Url = usize;

    async fn call(&self, to: Felt, selector: Felt, args: &[Felt]) -> Called<Vec<Felt>> {
        Ok(self.chain.call(to, selector, args).await?)
    }

    async fn class_hash_at(&self, address: Felt) -> Called<Option<Felt>> {
        Ok(self.chain.class_hash_at(address).await?)
    }

    async fn nonce(&self, account: Felt) -> Called<u64> {
        Ok(self.chain.nonce(account).await?)
    }

    async fn head(&self) -> Called<Block> {
        Ok(self.chain.head().await?)
    }

    async fn anchor(&self) -> Called<String> {
        Ok(self.chain.epoch().await?)
    }

    async fn estimate(&self, transaction: &str) -> Called<Bounds> {
        Ok(self.chain.estimate(transaction).await?)
    }

    async fn receipt(&self, hash: Felt) -> Called<Option<Receipt>> {
        Ok(self.chain.receipt(hash).await?)
    }

    fn urls(&self) -> Vec<usize> {
        self.chain.0.shared().witnesses()
    }

    async fn head_of(&self, url: usize) -> Called<u64> {
        Ok(self.chain.url(url).head().await?)
    }

    async fn block_of(&self, url: usize, number: u64) -> Called<Option<ListedBlock>> {
        Ok(self.chain.url(url).block(number).await?)
    }

    async fn transaction_of(
        &self,
        url: usize,
        number: u64,
        account: Felt,
        nonce: u64,
    ) -> Called<Option<Felt>> {
        Ok(self
            .chain
            .url(url)
            .transaction_of(number, account, nonce)
            .await?)
    }

    async fn nonce_of(&self, url: usize, account: Felt) -> Called<u64> {
        Ok(self.chain.url(url).nonce(account).await?)
    }

    async fn sender_of(&self, url: usize, hash: Felt) -> Called<Option<Sender>> {
        Ok(self.chain.url(url).sender(hash).await?)
    }

    async fn receipt_of(&self, url: usize, hash: Felt) -> Called<Option<Receipt>> {
        Ok(self.chain.url(url).receipt(hash).await?)
    }

    fn note_shown(&self, number: u64) {
        self.chain.0.shared().note_shown(number);
    }
}

impl JournalIo for Driver {
    fn clock_us(&self) -> i64 {
        self.store.now_us()
    }

    fn clock_error_us(&self) -> i64 {
        self.store.clock_error_us()
    }

    fn is_exclusive(&self) -> bool {
        self.store.is_exclusive()
    }

    async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Stored<Intended> {
        self.stored(self.store.intents().intend(new, now_us).await)
    }

    async fn apply(&self, id: IntentId, change: &Change<'_>) -> Stored<bool> {
        self.stored(
            self.store
                .intents()
                .apply(id, change, self.store.now_us())
                .await,
        )
    }

    async fn intent(&self, id: IntentId) -> Stored<Option<Intent>> {
        self.stored(self.store.intents().get(id).await)
    }

    async fn requested(
        &self,
        epoch: &str,
        digest: &[u8; 32],
        key: Option<&KeyOf<'_>>,
    ) -> Stored<Requested> {
        let key = key.map(|of| (of.key, of.operation));
        self.stored(self.store.intents().requested(epoch, digest, key).await)
    }

    async fn unresolved(&self, epoch: &str, signer: Option<Felt>) -> Stored<Vec<Intent>> {
        self.stored(self.store.intents().unresolved(epoch, signer).await)
    }

    async fn displaced(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Stored<Vec<Intent>> {
        let intents = self.store.intents();
        self.stored(intents.displaced(epoch, below, limit).await)
    }

    async fn of_slot(&self, epoch: &str, signer: Felt, nonce: u64) -> Stored<Vec<Intent>> {
        self.stored(self.store.intents().of_slot(epoch, signer, nonce).await)
    }

    async fn included_newest(&self, epoch: &str, limit: u32) -> Stored<Vec<Intent>> {
        self.stored(self.store.intents().included_newest(epoch, limit).await)
    }

    async fn included_anywhere(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Stored<Vec<Intent>> {
        let intents = self.store.intents();
        self.stored(intents.included_anywhere(epoch, below, limit).await)
    }

    async fn floor(&self, epoch: &str) -> Stored<Option<u64>> {
        self.stored(self.store.intents().floor(epoch).await)
    }

    async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> Stored<Option<Intent>> {
        self.stored(
            self.store
                .intents()
                .last_of(operation, subject, epoch, cooldown)
                .await,
        )
    }

    async fn binding(&self, epoch: &str, identity: Felt, recipient: Felt) -> Stored<Binding> {
        self.stored(self.store.faucet().check(epoch, identity, recipient).await)
    }

    async fn claim(&self, of: &KeyOf<'_>, token: &ClaimToken) -> Stored<Claim> {
        let KeyOf {
            epoch,
            key,
            operation,
            digest,
        } = of;
        let now_us = self.store.now_us();
        self.stored(
            self.store
                .keys(epoch)
                .claim(key, operation, digest, token, now_us)
                .await,
        )
    }

    async fn link(&self, of: &KeyOf<'_>, intent: IntentId) -> Stored<bool> {
        let KeyOf {
            epoch,
            key,
            operation,
            digest,
        } = of;
        let now_us = self.store.now_us();
        self.stored(
            self.store
                .keys(epoch)
                .link(key, operation, digest, intent, now_us)
                .await,
        )
    }

    async fn answer(
        &self,
        of: &KeyOf<'_>,
        intent: IntentId,
        outcome: &Outcome,
        request_id: &str,
    ) -> Stored<bool> {
        let KeyOf {
            epoch,
            key,
            operation,
            digest,
        } = of;
        let reply = answer::operation(outcome, request_id);
        let [body, ..] = reply.body.pieces();
        let body = String::from_utf8_lossy(body);
        let keys = self.store.keys(epoch);
        self.stored(
            keys.answer(key, operation, digest, intent, reply.status, &body)
                .await,
        )
    }

    async fn release_claim(&self, of: &KeyOf<'_>, token: &ClaimToken) -> Stored<bool> {
        self.stored(self.store.keys(of.epoch).release(of.key, token).await)
    }
}

impl Io for Driver {
    type Trace = Trace;
    type Guard = SignerGuard;

    fn pins(&self) -> &Pins {
        &self.pins
    }

    fn settings(&self) -> settings::Settings {
        self.running.settings().bounds()
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn random(&self) -> Option<[u8; 16]> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(bytes)
    }

    fn memory<T>(&self, use_it: impl FnOnce(&mut Memory) -> T) -> T {
        use_it(&mut self.memory.lock())
    }

    async fn require(&self, required: Required) -> Result<String, NotSent> {
        self.prover.require(required).await
    }

    async fn epoch(&self) -> Result<String, NotSent> {
        self.prover.epoch().await
    }

    fn forget_proof(&self) {
        self.prover.forget();
    }

    fn proven_head(&self, epoch: &str) -> Option<u64> {
        let node = self.chain.0.shared();
        node.read(|known| known.proven.head_of(epoch, None))
    }

    async fn lock(&self, role: Role, deadline: Duration) -> Result<SignerGuard, LockError> {
        self.signers.of(role).lock(self.at(deadline)).await
    }

    async fn check_lock(&self, guard: &mut SignerGuard) -> Stored<()> {
        self.stored(guard.check().await)
    }

    async fn unlock(&self, guard: SignerGuard) {
        guard.release().await;
    }

    fn sign(&self, role: Role, invoke: Invoke, purpose: Purpose) -> SignedText {
        self.signers.of(role).sign(invoke, purpose)
    }

    async fn add(&self, operation: &str, transaction: &str, trace: Option<&Trace>) -> Called<Felt> {
        let (start, mut call) = (Instant::now(), CallTrace::default());
        let traceparent = trace.and_then(Trace::traceparent);
        let method = method_of(operation);
        let added = self
            .chain
            .add(method, transaction, traceparent, &mut call)
            .await;
        if let Some(trace) = trace {
            trace.note_call(start, call);
        }
        Ok(added?)
    }

    async fn join(
        &self,
        flight: Flight,
        write: impl Future<Output = Outcome> + Send + 'static,
    ) -> Outcome {
        let write = async { (write.await, Duration::ZERO) };
        self.in_flight
            .get(flight, write)
            .await
            .unwrap_or_else(not_carried_out)
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(work);
    }

    fn stage<T: Send>(
        &self,
        trace: &Trace,
        name: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        trace.stage(name, work)
    }

    fn wake(&self) {
        self.left_open.notify_one();
    }

    fn note(&self, note: Note<'_>) {
        match note {
            Note::Nonce(role, nonce) => self.metrics.relay.nonce(role.name(), nonce),
            Note::NotReadBack(operation) => log::warn!(operation; "the effect was not read back"),
            Note::Displaced(intent, why) => warn_of(intent, &format!("is displaced: {why}:"), ""),
            Note::Lost(intent, why) => warn_of(intent, &format!("is lost: {why}:"), ""),
            Note::Unreadable(intent, number) => {
                let why =
                    format!("may have lost its nonce in block {number}, which cannot be read:");
                warn_of(intent, &why, "");
            }
            Note::Back(intent) => warn_of(intent, "is back: the chain has", " again"),
            Note::PaidTwice(drip, other) => {
                self.metrics.relay.double_drips.inc();
                let change = format!("is paid in addition to intent {}:", other.id);
                warn_of(drip, &change, "");
            }
        }
    }
}

/// The outcome of a write that did not end.
fn not_carried_out(why: Aborted) -> Outcome {
    match why {
        Aborted::NotBegun => NotSent::Overdue.into(),
        Aborted::Interrupted => Outcome::interrupted(),
    }
}

/// Logs a change of an intent's state, with its transaction.
fn warn_of(intent: &Intent, change: &str, end: &str) {
    log::warn!(
        operation = intent.operation.as_str();
        "intent {} {change} transaction {}{end}", intent.id, intent.transaction_hash
    );
}

impl From<RpcError> for CallError {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Node(error) => Self::NoAnswer {
                cause: error.name(),
                is_unsent: error.is_unsent(),
                refusal: Refusal::from(error),
            },
            RpcError::Returned(error) => Self::Returned(error),
            RpcError::MalformedAnswer => Self::MalformedAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_filters::verdict::Reason;

    #[test]
    fn a_write_that_did_not_begin_is_not_unknown() {
        for (why, expected) in [
            (Aborted::NotBegun, Reason::Overloaded),
            (Aborted::Interrupted, Reason::OutcomeUnknown),
        ] {
            assert_eq!(not_carried_out(why).reason(), Some(expected), "{why:?}");
        }
    }
}
