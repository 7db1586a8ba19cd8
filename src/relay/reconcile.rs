//! Settles the intents whose end the journal does not know: after a crash, and whenever an answer
//! was lost.
//!
//! Runs before anything is written, and in the background. The chain decides: a receipt settles an
//! intent; one that may have been sent, and whose nonce is still free, is sent once more as the
//! same transaction, which can be executed only once; one that an earlier version left unsent is
//! rejected. Intents of an earlier epoch of the chain are out of force, and stay as they are. What
//! follows after a receipt is in `rollbacks`.

use super::evidence::Evidence;
use super::operations;
use super::outcome::Outcome;
use super::pins::{Prover, Required};
use super::rollbacks::Confirmed;
use super::signers::{DEADLINE, Signer, Signers};
use super::submit::Submitter;
use crate::io::cold;
use crate::node::chain::{ErrorObject, RpcError, code};
use crate::store::{
    Change, Chore, ChoreLock, Intended, Intent, IntentId, IntentState, NewIntent, StoreError,
};
use crate::telemetry::Metrics;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// How often the background task runs when no intent is reported.
const INTERVAL: Duration = Duration::from_secs(2);
/// An answer may still be on its way this long: before, nothing is sent again.
const GRACE: Duration = Duration::from_secs(10);
/// How often a write of another process is read again.
const FOLLOW: Duration = Duration::from_millis(100);

/// What stands in the way of a new intent, or its id.
pub(super) enum Intending {
    /// It is durable as sent.
    New(IntentId),
    /// Another transaction of the account has its nonce.
    NonceTaken,
    /// An equal one is in doubt: that is sent again.
    Displaced(Box<Intent>),
}

/// Settles open intents.
pub(super) struct Reconciler {
    pub(super) prover: Arc<Prover>,
    pub(super) signers: Arc<Signers>,
    pub(super) submitter: Arc<Submitter>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) evidence: Evidence,
    /// How many displaced intents were looked for, so that each is.
    pub(super) followed: AtomicUsize,
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
        let Submitter { chain, journal, .. } = &*self.submitter;
        if let Some(number) = journal.store.intents().floor(epoch).await? {
            // what was acknowledged is not taken back by a URL that is behind
            chain.0.note_shown(number);
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

    /// Makes an intent durable as sent, unless an earlier one is in its way.
    ///
    /// # Errors
    /// The outcome of an equal intent; a budget is exceeded, or a cooldown not over; the chain or
    /// the store is unavailable, or did not confirm it: then it may be sent later.
    pub(super) async fn intend(&self, new: &NewIntent<'_>) -> Result<Intending, Outcome> {
        let store = &self.submitter.journal.store;
        let intents = store.intents();
        loop {
            let now_us = store.now_us();
            let intended = intents.intend(new, now_us).await;
            if let Err(error @ StoreError::Unconfirmed(_)) = &intended {
                return Err(self.submitter.unconfirmed(error, new.transaction_hash));
            }
            match intended? {
                Intended::New(id) => return Ok(Intending::New(id)),
                Intended::Known(intent) if intent.state == IntentState::Displaced => {
                    return Ok(Intending::Displaced(intent));
                }
                Intended::Known(intent) => {
                    if let Some(outcome) = self.known(&intent).await? {
                        return Err(outcome);
                    }
                }
                // the chain says that it is free: its block may have been rolled back
                Intended::NonceTaken(intent) if intent.state.is_included() => {
                    match self.confirm(&intent).await? {
                        Confirmed::Displaced => {}
                        Confirmed::Unknown => return Err(Outcome::unsettled()),
                        Confirmed::Shown | Confirmed::Unavailable => {
                            return Ok(Intending::NonceTaken);
                        }
                    }
                }
                Intended::NonceTaken(_) => return Ok(Intending::NonceTaken),
                Intended::Elsewhere(binding) => operations::check_binding(binding)?,
                Intended::OtherChain => return Err(Outcome::restarted()),
                Intended::OverBudget(over) => return Err(Outcome::over_budget(over, now_us)),
                Intended::KeyConflict => return Err(Outcome::key_conflict()),
                Intended::TooSoon { last, until_us } => {
                    return Err(Outcome::too_soon(&last, until_us, now_us));
                }
            }
        }
    }

    /// The outcome of a journaled intent, which is not sent again; `None` if it has no effect, or
    /// is in doubt. Waits for a process that is writing it.
    ///
    /// # Errors
    /// It was included, and no URL shows that it still is; the chain or the store is unavailable.
    pub(super) async fn known(&self, intent: &Intent) -> Result<Option<Outcome>, Outcome> {
        let (start, mut intent) = (Instant::now(), intent.clone());
        let intents = self.submitter.journal.store.intents();
        loop {
            if intent.state.is_included() {
                return self.known_included(&intent).await;
            }
            if intent.state.is_unresolved() {
                intent = self.submitter.refreshed(&intent).await?.unwrap_or(intent);
            }
            let known = Outcome::of(&intent);
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
            intent = intents.get(intent.id).await?.unwrap_or(intent);
        }
    }

    async fn known_included(&self, intent: &Intent) -> Result<Option<Outcome>, Outcome> {
        match self.confirm(intent).await? {
            Confirmed::Unavailable => Ok(Outcome::of(intent)),
            Confirmed::Displaced => Ok(None),
            Confirmed::Unknown => Err(Outcome::unseen(intent)),
            Confirmed::Shown => {
                let intents = self.submitter.journal.store.intents();
                Ok(intents.get(intent.id).await?.as_ref().and_then(Outcome::of))
            }
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
            return Ok(
                age >= grace && journal.apply(intent.id, &Change::Rejected("never sent")).await?
            );
        }
        match chain.receipt(intent.transaction_hash).await? {
            Some(receipt) if receipt.accepted => {
                journal.include(intent.id, &receipt).await?;
                return Ok(true);
            }
            None if age >= grace => {}
            _ => return Ok(false),
        }
        if self.next_nonce(intent).await? > intent.nonce {
            // used by it, or by another one: which of them is found out in the background
            return Ok(false);
        }
        self.prover.check_epoch(&intent.epoch).await?;
        self.submitter.resend(intent).await
    }

    /// Since it last changed.
    pub(super) fn age(&self, intent: &Intent) -> Duration {
        let now_us = self.submitter.journal.store.now_us();
        Duration::from_micros(now_us.abs_diff(intent.updated_us))
    }

    pub(super) async fn next_nonce(&self, intent: &Intent) -> Result<u64, Outcome> {
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
        let _followed = self.follow(epoch, GRACE).await;
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
