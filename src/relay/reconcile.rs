//! Settles the intents whose end the journal does not know: after a crash, and whenever an answer
//! was lost.
//!
//! Runs before anything is written, and in the background. The chain decides: a receipt settles an
//! intent; one that may have been sent, and whose nonce is still free, is sent once more as the
//! same transaction, which can be executed only once; one whose nonce another transaction used is
//! lost, and so is one that an earlier version left unsent. Intents of an earlier epoch of the
//! chain are lost with it, and so is an intent whose block was rolled back: its request is written
//! again.

use super::operations;
use super::outcome::Outcome;
use super::pins::{Prover, Required};
use super::signers::{DEADLINE, Signer, Signers};
use super::submit::Submitter;
use crate::io::cold;
use crate::node::chain::{ErrorObject, RpcError, code};
use crate::store::{
    Chore, ChoreLock, Intended, Intent, IntentId, IntentState, NewIntent, Search, StoreError,
};
use crate::telemetry::Metrics;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// How often the background task runs when no intent is reported.
const INTERVAL: Duration = Duration::from_secs(2);
/// An answer may still be on its way this long: before, nothing is sent again.
const GRACE: Duration = Duration::from_secs(10);
/// How often a write of another process is read again.
const FOLLOW: Duration = Duration::from_millis(100);

/// Settles open intents.
pub(super) struct Reconciler {
    pub(super) prover: Arc<Prover>,
    pub(super) signers: Arc<Signers>,
    pub(super) submitter: Arc<Submitter>,
    pub(super) metrics: Arc<Metrics>,
    /// The epoch for which the intents of earlier processes are settled.
    pub(super) reconciled: Mutex<Option<String>>,
}

impl Reconciler {
    /// Permits a write: proves the pins and settles what earlier processes left. Returns the epoch.
    ///
    /// # Errors
    /// The pins are unproven, or the chain or the store is unavailable: nothing may be written.
    pub(super) async fn permit(
        &self,
        required: Required,
        deadline: Instant,
    ) -> Result<String, Outcome> {
        let epoch = self.prover.require(required).await?;
        self.catch_up(&epoch, deadline).await?;
        Ok(epoch)
    }

    /// Settles what earlier processes left, once per epoch.
    async fn catch_up(&self, epoch: &str, deadline: Instant) -> Result<(), Outcome> {
        let reconciled = timeout_at(deadline, self.reconciled.lock()).await;
        let mut reconciled = reconciled.map_err(|_| Outcome::overloaded())?;
        if reconciled.as_deref() == Some(epoch) {
            return Ok(());
        }
        let journal = &self.submitter.journal;
        for intent in journal.store.intents().unresolved_of_other_epochs(epoch).await? {
            journal.advance(intent.id, IntentState::Lost, Some("the chain started again")).await?;
        }
        for signer in self.signers.iter() {
            let guard = match signer.lock(deadline).await {
                Ok(guard) => guard,
                // a live process writes with it, and each write settles the earlier ones
                Err(held) if held.reason() == Some(Reason::InProgress) => continue,
                Err(outcome) => return Err(outcome),
            };
            let settled = self.settle_signer(epoch, signer, Duration::ZERO).await;
            guard.release().await;
            settled?;
        }
        // users' transactions take no lock: another live process may be writing them
        let grace = if journal.store.is_exclusive() { Duration::ZERO } else { GRACE };
        self.settle_users(epoch, grace).await?;
        *reconciled = Some(epoch.to_owned());
        Ok(())
    }

    /// Makes an intent durable as sent, unless an earlier one is in its way; `None` if that has its
    /// nonce.
    ///
    /// # Errors
    /// The outcome of an equal intent; a budget is exceeded, or a cooldown not over; the chain or
    /// the store is unavailable, or did not confirm it: then it may be sent later.
    pub(super) async fn intend(&self, new: &NewIntent<'_>) -> Result<Option<IntentId>, Outcome> {
        let store = &self.submitter.journal.store;
        let intents = store.intents();
        loop {
            let now_us = store.now_us();
            let intended = intents.intend(new, now_us).await;
            if let Err(error @ StoreError::Unconfirmed(_)) = &intended {
                return Err(self.submitter.unconfirmed(error, new.transaction_hash));
            }
            match intended? {
                Intended::New(id) => return Ok(Some(id)),
                Intended::Known(intent) => {
                    if let Some(outcome) = self.known(&intent).await? {
                        return Err(outcome);
                    }
                }
                Intended::NonceTaken(intent) => {
                    if !self.lose_if_rolled_back(&intent).await? {
                        return Ok(None);
                    }
                }
                Intended::Elsewhere(binding) => operations::check_binding(binding)?,
                Intended::OtherChain => return Err(Outcome::restarted()),
                Intended::OverBudget(over) => return Err(Outcome::over_budget(over, now_us)),
                Intended::TooSoon { last, until_us } => {
                    if !self.lose_if_rolled_back(&last).await? {
                        return Err(Outcome::too_soon(&last, until_us, now_us));
                    }
                }
            }
        }
    }

    /// The outcome of a journaled intent, which is not sent again; `None` if it has no effect.
    /// Waits for a process that is writing it.
    pub(super) async fn known(&self, intent: &Intent) -> Result<Option<Outcome>, Outcome> {
        let (start, mut intent) = (Instant::now(), intent.clone());
        loop {
            if self.lose_if_rolled_back(&intent).await? {
                return Ok(None);
            }
            let known = self.submitter.known(&intent).await?;
            if !known.as_ref().is_some_and(Outcome::is_open) {
                return Ok(known);
            }
            if self.prover.has_restarted(&intent.epoch).await {
                return Err(Outcome::restarted());
            }
            let limit = self.writing_time(&intent);
            if self.age(&intent) >= limit || start.elapsed() >= limit {
                return Ok(known);
            }
            tokio::time::sleep(FOLLOW).await;
            let store = &self.submitter.journal.store;
            intent = store.intents().get(intent.id).await?.unwrap_or(intent);
        }
    }

    /// How long another process may take to write an open intent.
    fn writing_time(&self, intent: &Intent) -> Duration {
        match intent.state {
            // what this process writes is joined in memory
            _ if self.submitter.journal.store.is_exclusive() => Duration::ZERO,
            IntentState::Intended | IntentState::Sent => GRACE,
            // an operation waits for its receipt, a user's transaction does not
            _ if self.signers.has(intent.signer) => {
                self.submitter.running.settings().config.receipt_timeout
            }
            _ => Duration::ZERO,
        }
    }

    /// Journals an intent as lost if the chain contradicts its end; returns whether it does. An
    /// unavailable node contradicts nothing.
    ///
    /// # Errors
    /// The chain that contradicts is not the proven one.
    pub(super) async fn lose_if_rolled_back(&self, intent: &Intent) -> Result<bool, Outcome> {
        if !matches!(intent.state, IntentState::Succeeded | IntentState::Reverted) {
            return Ok(false);
        }
        let is_success = intent.state == IntentState::Succeeded;
        match self.submitter.chain.receipt(intent.transaction_hash).await {
            Ok(None) => {}
            Ok(Some(receipt)) if receipt.accepted && receipt.outcome.is_ok() != is_success => {}
            Ok(Some(_)) | Err(_) => return Ok(false),
        }
        let epoch = self.prover.require(Required::AllButV2).await?;
        self.prover.check_epoch(&epoch).await?;
        self.submitter.journal.roll_back(intent).await?;
        Ok(true)
    }

    /// Settles the newest intents that were rolled back: a chain loses its newest blocks. Older
    /// ones, below what was written since, are settled when they are in the way of a request.
    async fn settle_rolled_back(&self, epoch: &str) -> Result<(), Outcome> {
        let journal = self.submitter.journal.store.journal();
        let search = Search { state: Some(IntentState::Succeeded), ..Search::default() };
        while let [newest] = journal.search(&search, i64::MAX, 1).await?.as_slice()
            && newest.epoch == epoch
            && self.lose_if_rolled_back(newest).await?
        {}
        Ok(())
    }

    /// The next nonce of one of our accounts, if no pending intent can use it: the node counts the
    /// nonce of each, whether or not the journal has it as accepted yet. Its receipt is read by the
    /// process that wrote it, or in the background.
    pub(super) async fn free_nonce(
        &self,
        epoch: &str,
        signer: &Signer,
    ) -> Result<Option<u64>, Outcome> {
        let intents = self.submitter.journal.store.intents();
        let pending = intents.unresolved(epoch, Some(signer.account.address));
        let (pending, next) = tokio::join!(pending, signer.nonce());
        let next = next?;
        Ok(pending?.iter().all(|intent| intent.nonce < next).then_some(next))
    }

    /// Settles the pending intents of one of our accounts. The caller must hold its lock.
    ///
    /// # Errors
    /// An intent is still open: nothing may be signed with the account's next nonce.
    pub(super) async fn settle_signer(
        &self,
        epoch: &str,
        signer: &Signer,
        grace: Duration,
    ) -> Result<(), Outcome> {
        let store = &self.submitter.journal.store;
        for intent in store.intents().unresolved(epoch, Some(signer.account.address)).await? {
            let is_settled = self.settle(&intent, grace).await?;
            if !is_settled && self.next_nonce(&intent).await? <= intent.nonce {
                return Err(Outcome::unsettled());
            }
        }
        Ok(())
    }

    /// Settles the pending intents of users.
    async fn settle_users(&self, epoch: &str, grace: Duration) -> Result<(), Outcome> {
        for intent in self.submitter.journal.store.intents().unresolved(epoch, None).await? {
            if !self.signers.has(intent.signer) {
                self.settle(&intent, grace).await?;
            }
        }
        Ok(())
    }

    /// Settles one intent if its end can be known; returns whether the journal has it now.
    async fn settle(&self, intent: &Intent, grace: Duration) -> Result<bool, Outcome> {
        let Submitter { chain, journal, .. } = &*self.submitter;
        let age = self.age(intent);
        if intent.state == IntentState::Intended {
            let store = &journal.store;
            return Ok(
                age >= grace && store.intents().lose(intent, "never sent", store.now_us()).await?
            );
        }
        match chain.receipt(intent.transaction_hash).await? {
            Some(receipt) if receipt.accepted => {
                journal.settle(intent.id, &receipt).await?;
                return Ok(true);
            }
            None if age >= grace => {}
            _ => return Ok(false),
        }
        if self.next_nonce(intent).await? <= intent.nonce {
            self.prover.check_epoch(&intent.epoch).await?;
            return self.submitter.resend(intent).await;
        }
        // polled again: it may have been included between the two calls
        if chain.receipt(intent.transaction_hash).await?.is_some() {
            return Ok(false);
        }
        let why = "another transaction took its nonce";
        journal.store.intents().lose(intent, why, journal.store.now_us()).await?;
        Ok(true)
    }

    /// Since it last changed.
    fn age(&self, intent: &Intent) -> Duration {
        let now_us = self.submitter.journal.store.now_us();
        Duration::from_micros(now_us.abs_diff(intent.updated_us))
    }

    async fn next_nonce(&self, intent: &Intent) -> Result<u64, Outcome> {
        match self.submitter.chain.nonce(intent.signer).await {
            // the account is not deployed yet
            Err(RpcError::Returned(ErrorObject { code: code::CONTRACT_NOT_FOUND, .. })) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Settles open intents until the process ends. Of the processes that share a store one does,
    /// and another once that ends, cannot write, or is suspended.
    pub(super) async fn run(self: Arc<Self>) {
        let store = &self.submitter.journal.store;
        let mut chore = ChoreLock::of(Chore::Reconciliation);
        loop {
            let unsettled = self.submitter.journal.unsettled.notified();
            let _elapsed = tokio::time::timeout(INTERVAL, unsettled).await;
            // an error is dropped: what needs the store reports it
            let _read = store.read_clock().await;
            let permitted = self.permit(Required::AllButV2, deadline()).await;
            let is_ours = match &permitted {
                Ok(_) => cold(chore.try_acquire(store)).await.unwrap_or(false),
                Err(_) => {
                    // one that breaks here has broken the lock as well
                    let _released = chore.release().await;
                    false
                }
            };
            self.metrics.relay.reconciles(is_ours);
            let Ok(epoch) = permitted else { continue };
            self.report_budgets(&epoch).await;
            // an error is dropped here, too: requests ask the chain themselves
            if !is_ours || cold(self.settle_open(&epoch)).await.is_ok() {
                self.report_open(&epoch).await;
            }
            self.report_counts().await;
        }
    }

    /// Settles what can be settled; fails if the intents of users cannot be read or looked up.
    async fn settle_open(&self, epoch: &str) -> Result<(), Outcome> {
        for signer in self.signers.iter() {
            // an error is dropped: the signer's next write tries again
            if let Ok(guard) = signer.lock(deadline()).await {
                let _open = self.settle_signer(epoch, signer, GRACE).await;
                guard.release().await;
            }
        }
        let _settled = self.settle_rolled_back(epoch).await;
        self.settle_users(epoch, GRACE).await
    }

    async fn report_open(&self, epoch: &str) {
        let store = &self.submitter.journal.store;
        if let Ok(open) = store.intents().unresolved(epoch, None).await {
            let oldest = open.first().map(|intent| intent.created_us);
            self.metrics.relay.reconciled(store.now_us(), oldest);
        }
    }

    async fn report_budgets(&self, epoch: &str) {
        let Submitter { journal, running, .. } = &*self.submitter;
        let (budgets, now_us) = (running.settings().budgets(), journal.store.now_us());
        let used = journal.store.intents().budgets_used(&budgets, epoch, now_us).await;
        for (budget, used) in used.into_iter().flatten() {
            self.metrics.relay.budget_used(budget.name(), used);
        }
    }

    async fn report_counts(&self) {
        if let Ok(counts) = self.submitter.journal.store.intents().counts_by_state().await {
            for state in IntentState::ALL {
                let found = counts.iter().find(|(found, _)| *found == state);
                let intents = found.map_or(0, |(_, intents)| *intents);
                self.metrics.relay.journal(state.name(), intents);
            }
        }
    }
}

fn deadline() -> Instant {
    Instant::now() + DEADLINE
}
