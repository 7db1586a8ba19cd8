//! The operations that we sign: the chain's state decides, then an intent is durable, then the
//! transaction is sent, and its effect is read back.
//!
//! An idempotency key stores the first final response; without one, an operation that is in flight
//! or whose end is unknown is not started a second time.

use super::answer;
use super::operations::{self, role, subject, verification};
use super::outcome::{Details, Outcome};
use super::pins::{Prover, Required};
use super::reconcile::Reconciler;
use super::settings::Pins;
use super::signers::{Signed, Signer, SignerGuard, Signers};
use super::state::{Decision, State};
use super::submit::{Submitter, Trace, WritesInFlight};
use crate::io::clock::now_us;
use crate::store::{Claim, IntentId, IntentState, NewIntent, StoreError};
use crate::telemetry::Metrics;
use portcullis_filters::operation::Operation;
use portcullis_filters::verdict::{OperationPermit, Reason};
use std::sync::Arc;
use std::time::Duration;

/// The result of a request.
pub(super) enum Answer {
    Outcome(Outcome),
    /// The first final response under the idempotency key: status and body.
    First(u16, String),
}

/// An operation to be carried out, detached from its request.
pub(super) struct Task {
    operation: Operation,
    digest: [u8; 32],
    request: String,
    request_id: String,
    key: Option<String>,
    trace: Arc<Trace>,
}

/// Carries operations out.
pub(super) struct Operations {
    pub(super) pins: Arc<Pins>,
    pub(super) prover: Arc<Prover>,
    pub(super) signers: Arc<Signers>,
    pub(super) reconciler: Arc<Reconciler>,
    pub(super) submitter: Arc<Submitter>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) in_flight: WritesInFlight,
}

/// The result of an account's turn.
enum Written {
    Nothing(Outcome),
    /// The node accepted this.
    Sent(IntentId, Signed),
}

impl Operations {
    /// Carries an operation out, or finds the first response under its idempotency key.
    pub(super) async fn operate(self: Arc<Self>, task: Arc<Task>) -> Answer {
        let Some(key) = task.key.as_deref() else {
            return Answer::Outcome(self.once(&task, None).await);
        };
        let now = now_us();
        let (linked, claimed_us) = match self.claim(key, &task, now).await {
            Ok(Claim::Answered { status, body, .. }) => return Answer::First(status, body),
            Ok(Claim::Conflict) => {
                let message = "the idempotency key was used with another request";
                return Answer::Outcome(Outcome::refused(Reason::IdempotencyConflict, message));
            }
            Ok(Claim::Open { intent, since_us }) => (intent.map(|intent| intent.id), since_us),
            Ok(Claim::New) => (None, now),
            Err(outcome) => return Answer::Outcome(outcome),
        };
        let outcome = self.once(&task, linked).await;
        if let Err(error) = self.end_claim(key, claimed_us, &outcome, &task.request_id).await {
            // a repeat is answered from the intent
            error.log();
        }
        Answer::Outcome(outcome)
    }

    /// Claims a key. A stored response whose transaction was rolled back is withdrawn first.
    async fn claim(&self, key: &str, task: &Task, now_us: i64) -> Result<Claim, Outcome> {
        let (keys, name) = (self.submitter.journal.store.keys(), task.operation.kind().name());
        loop {
            // a request joins an open claim, so that claims need no timeout
            let claim = keys.claim(key, name, &task.digest, now_us, 0).await?;
            match &claim {
                Claim::Answered { intent: Some(intent), .. }
                    if self.reconciler.lose_if_rolled_back(intent).await? => {}
                _ => return Ok(claim),
            }
        }
    }

    /// Stores a final response under its key; releases the key otherwise.
    async fn end_claim(
        &self,
        key: &str,
        claimed_us: i64,
        outcome: &Outcome,
        request_id: &str,
    ) -> Result<bool, StoreError> {
        let store = &self.submitter.journal.store;
        if !outcome.is_final() {
            return store.keys().release(key, claimed_us).await;
        }
        let reply = answer::operation(outcome, request_id);
        let [body, ..] = reply.body.pieces();
        store.keys().answer(key, reply.status, &String::from_utf8_lossy(body)).await
    }

    /// Carries an operation out once, however often it is requested at the same time. `linked` is
    /// the earlier intent under its key, if any.
    async fn once(self: &Arc<Self>, task: &Arc<Task>, linked: Option<IntentId>) -> Outcome {
        let (digest, writer, task) = (task.digest, Arc::clone(self), Arc::clone(task));
        self.in_flight.join(digest, async move { writer.carry_out(&task, linked).await }).await
    }

    async fn carry_out(&self, task: &Task, linked: Option<IntentId>) -> Result<Outcome, Outcome> {
        let required = task.required();
        if required == Required::AllButV2 && verification::is_v2_active(&self.state("")).await? {
            // that holds with unproven pins, too
            return Ok(Outcome::already(Details::V2_ACTIVE));
        }
        let epoch = self.reconciler.permit(required).await?;
        let intents = self.submitter.journal.store.intents();
        let linked = match linked {
            Some(id) => intents.get(id).await?,
            None => None,
        };
        let unresolved = intents.unresolved_by_digest(&epoch, &task.digest).await?;
        for intent in linked.into_iter().chain(unresolved) {
            // one that was not sent is settled below, while the account is locked
            if intent.state != IntentState::Intended
                && let Some(outcome) = self.reconciler.known(&intent).await?
            {
                return Ok(outcome);
            }
        }
        let signer = self.signers.of(role(task.operation.kind()));
        let mut guard = signer.lock().await?;
        let written = self.write(task, signer, &mut guard, &epoch).await;
        guard.release().await;
        match written? {
            Written::Nothing(outcome) => Ok(outcome),
            Written::Sent(id, signed) => self.confirm(task, id, &signed, &epoch).await,
        }
    }

    /// Decides and writes while the account is locked.
    async fn write(
        &self,
        task: &Task,
        signer: &Signer,
        guard: &mut SignerGuard<'_>,
        epoch: &str,
    ) -> Result<Written, Outcome> {
        // again: the wait for the account may have outlasted the proof
        self.prover.require(task.required()).await?;
        self.reconciler.settle_signer(epoch, signer, Duration::ZERO).await?;
        let calls = match operations::decide(&task.operation, &self.state(epoch)).await? {
            Decision::Already(details) => return Ok(Written::Nothing(Outcome::already(details))),
            Decision::Write(calls) => calls,
        };
        let settings = self.submitter.running.settings();
        let signed = signer.sign(&calls, &settings.config.policy).await?;
        guard.check().await?;
        self.prover.check_epoch(epoch).await?;
        operations::reserve(&task.operation, &self.state(epoch)).await?;
        let intent = task.intent(signer, &signed, epoch);
        let Some(id) = self.reconciler.intend(&intent).await? else {
            return Err(Outcome::unsettled());
        };
        self.metrics.relay.nonce(signer.account.role, signed.nonce);
        let sent = self.submitter.submit(id, &intent, &task.trace).await;
        if matches!(&sent, Err(outcome) if outcome.transaction_hash.is_none())
            && let Err(error) = operations::release(&task.operation, &self.state(epoch)).await
        {
            log::warn!("the reservation was not released: {:?}", error.status);
        }
        sent.map(|()| Written::Sent(id, signed))
    }

    /// Waits for the receipt and reads the effect back.
    async fn confirm(
        &self,
        task: &Task,
        id: IntentId,
        signed: &Signed,
        epoch: &str,
    ) -> Result<Outcome, Outcome> {
        let receipt = self.submitter.receipt(id, signed.hash).await.unwrap_or_else(|error| {
            // the journal has it as accepted: the reconciler settles it
            error.log();
            None
        });
        let Some(receipt) = receipt else { return Ok(Outcome::pending(signed.hash)) };
        if let Err(reason) = receipt.outcome {
            return Err(Outcome::reverted(Some(signed.hash), reason.as_deref()));
        }
        if task.required() == Required::AllButV2 {
            self.prover.forget();
        }
        let read_back = operations::read_back(&task.operation, &self.state(epoch)).await;
        let details = read_back.ok().flatten();
        if details.is_none() {
            let intent = self.submitter.journal.store.intents().get(id).await?;
            if let Some(intent) = intent
                && self.reconciler.lose_if_rolled_back(&intent).await?
            {
                return Err(Outcome::unsettled());
            }
            // undone in the meantime, or the node is away
            log::warn!(operation = task.operation.kind().name(); "the effect was not read back");
        }
        Ok(Outcome::written(signed.hash, details.unwrap_or_default()))
    }

    fn state<'a>(&'a self, epoch: &'a str) -> State<'a> {
        State {
            chain: &self.submitter.chain,
            pins: &self.pins,
            settings: self.submitter.running.settings(),
            store: &self.submitter.journal.store,
            reconciler: &self.reconciler,
            epoch,
            now_us: now_us(),
        }
    }
}

impl Task {
    pub(super) fn new(
        permit: &OperationPermit,
        key: Option<&str>,
        trace: &Arc<Trace>,
        request_id: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            operation: permit.operation().clone(),
            digest: permit.digest(),
            request: permit.canonical(),
            request_id: request_id.to_owned(),
            key: key.map(str::to_owned),
            trace: Arc::clone(trace),
        })
    }

    /// `/require-v2` makes the V2 pin true, which therefore need not hold before.
    fn required(&self) -> Required {
        match self.operation {
            Operation::RequireV2(_) => Required::AllButV2,
            _ => Required::All,
        }
    }

    fn intent<'a>(&'a self, signer: &Signer, signed: &'a Signed, epoch: &'a str) -> NewIntent<'a> {
        NewIntent {
            operation: self.operation.kind().name(),
            digest: self.digest,
            subject: subject(&self.operation),
            request: &self.request,
            epoch,
            signer: signer.account.address,
            nonce: signed.nonce,
            transaction_hash: signed.hash,
            transaction: &signed.params,
            idempotency_key: self.key.as_deref(),
        }
    }
}
