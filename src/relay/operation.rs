//! The operations that we sign: the chain's state decides, then an intent is durable as sent, then
//! the transaction is sent, and its effect is read back.
//!
//! An idempotency key stores the first final response; without one, an operation that is in flight
//! or whose end is unknown is not started a second time.

use super::answer;
use super::operations::{self, role, subject, verification};
use super::outcome::{Details, Outcome};
use super::pins::{Prover, Required};
use super::reconcile::Reconciler;
use super::settings::{Pins, Settings};
use super::signers::{DEADLINE, Signed, Signer, SignerGuard, Signers};
use super::state::{Decision, State};
use super::submit::{Submitter, Trace, WritesInFlight};
use crate::io::cold;
use crate::store::{Budgets, Claim, IntentId, IntentState, NewIntent, StoreError};
use crate::telemetry::Metrics;
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::Operation;
use portcullis_filters::policy::OperationPermit;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Attempts to claim a key, if the chain changes meanwhile.
const CLAIMS: usize = 3;

/// The result of a request.
pub(super) enum Answer {
    Outcome(Outcome),
    /// The first final response under the idempotency key: status and body.
    First(u16, String),
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// A claimed idempotency key.
#[derive(Clone)]
struct Claimed {
    epoch: String,
    /// When it was claimed, in microseconds since 1970.
    since_us: i64,
    /// The earlier intent under it, if any.
    intent: Option<IntentId>,
}

/// What an operation needs to be sent.
struct Prepared {
    signed: Signed,
    /// The identity to which the store has to bind the subject.
    identity: Option<Felt>,
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

impl Operations {
    /// Carries an operation out, or finds the first response under its idempotency key.
    pub(super) async fn operate(self: Arc<Self>, task: Arc<Task>) -> Answer {
        let Some(key) = task.key.as_deref() else {
            return Answer::Outcome(self.once(&task, None).await);
        };
        let claimed = match self.claim(key, &task).await {
            Ok(claimed) => claimed,
            Err(answer) => return answer,
        };
        let outcome = self.once(&task, Some(claimed.clone())).await;
        if let Err(error) = self.end_claim(key, &claimed, &outcome, &task.request_id).await {
            // a repeat is answered from the intent
            error.log();
        }
        Answer::Outcome(outcome)
    }

    /// Claims a key in the chain's epoch. A stored response whose transaction was rolled back is
    /// withdrawn.
    ///
    /// # Errors
    /// The stored response, or a refusal.
    async fn claim(&self, key: &str, task: &Task) -> Result<Claimed, Answer> {
        let (store, name) = (&self.submitter.journal.store, task.operation.kind().name());
        let now = store.now_us();
        for _ in 0..CLAIMS {
            let epoch = self.prover.epoch().await?;
            // a request joins an open claim, so that claims need no timeout
            let claim = store.keys(&epoch).claim(key, name, &task.digest, now, 0).await;
            let answer = match claim.map_err(Outcome::from)? {
                Claim::New => return Ok(Claimed { epoch, since_us: now, intent: None }),
                Claim::Open { intent, since_us } => {
                    return Ok(Claimed { epoch, since_us, intent: intent.map(|intent| intent.id) });
                }
                Claim::Answered { intent: Some(intent), .. }
                    if self.reconciler.lose_if_rolled_back(&intent).await? =>
                {
                    continue;
                }
                Claim::Answered { status, body, .. } => Answer::First(status, body),
                Claim::Conflict => {
                    let message = "the idempotency key was used with another request";
                    Outcome::refused(Reason::IdempotencyConflict, message).into()
                }
            };
            if !self.prover.has_restarted(&epoch).await {
                return Err(answer);
            }
        }
        Err(Outcome::restarted().into())
    }

    /// Stores a final response under its key; releases the key otherwise.
    async fn end_claim(
        &self,
        key: &str,
        claimed: &Claimed,
        outcome: &Outcome,
        request_id: &str,
    ) -> Result<bool, StoreError> {
        let keys = self.submitter.journal.store.keys(&claimed.epoch);
        if !outcome.is_final() {
            return keys.release(key, claimed.since_us).await;
        }
        let reply = answer::operation(outcome, request_id);
        let [body, ..] = reply.body.pieces();
        keys.answer(key, reply.status, &String::from_utf8_lossy(body)).await
    }

    /// Carries an operation out once, however often it is requested at the same time.
    async fn once(self: &Arc<Self>, task: &Arc<Task>, claimed: Option<Claimed>) -> Outcome {
        let (digest, writer, task) = (task.digest, Arc::clone(self), Arc::clone(task));
        self.in_flight.join(digest, async move { writer.carry_out(&task, claimed).await }).await
    }

    async fn carry_out(&self, task: &Task, claimed: Option<Claimed>) -> Result<Outcome, Outcome> {
        match self.try_carry_out(task, claimed).await {
            Err(refused) if refused.reason() == Some(Reason::RefusedByChain) => {
                Err(self.prover.explain(task.required(), refused).await)
            }
            outcome => outcome,
        }
    }

    async fn try_carry_out(
        &self,
        task: &Task,
        claimed: Option<Claimed>,
    ) -> Result<Outcome, Outcome> {
        let (deadline, required) = (Instant::now() + DEADLINE, task.required());
        if required == Required::AllButV2 && verification::is_v2_active(&self.state("")).await? {
            // that holds with unproven pins, too
            return Ok(Outcome::already(Details::V2_ACTIVE));
        }
        let proven = self.reconciler.permit(required, deadline);
        let epoch = task.trace.stage("pins", proven).await?;
        if claimed.as_ref().is_some_and(|claimed| claimed.epoch != epoch) {
            return Err(Outcome::restarted());
        }
        let intents = self.submitter.journal.store.intents();
        let linked = match claimed.as_ref().and_then(|claimed| claimed.intent) {
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
        let queue = task.trace.stage("queue", signer.lock(deadline));
        let (mut guard, mut nonce) = (queue.await?, None);
        let mut written = cold(self.write(task, &mut guard, &epoch, &mut nonce)).await;
        if matches!(&written, Err(outcome) if outcome.reason() == Some(Reason::NonceConflict)) {
            // the key was used elsewhere: once more, with the node's next nonce
            written = cold(self.write(task, &mut guard, &epoch, &mut nonce)).await;
        }
        // the next operation starts meanwhile: its nonce is the node's, which counts this one
        let accepted = async {
            let (id, signed) = written?;
            self.submitter.accepted(id, signed.hash).await?;
            Ok::<_, Outcome>((id, signed))
        };
        let (accepted, ()) = tokio::join!(accepted, guard.release());
        let (id, signed) = accepted?;
        cold(self.confirm(task, id, &signed, &epoch)).await
    }

    /// Writes while the account is locked, but not with the `nonce` of an attempt before.
    ///
    /// # Errors
    /// Nothing was written: it is not possible, or not necessary.
    async fn write(
        &self,
        task: &Task,
        guard: &mut SignerGuard<'_>,
        epoch: &str,
        nonce: &mut Option<u64>,
    ) -> Result<(IntentId, Signed), Outcome> {
        let signer = guard.signer;
        let signed = timeout_at(guard.deadline, self.prepare(task, signer, epoch));
        let prepared = task
            .trace
            .stage("sign", signed)
            .await
            .unwrap_or_else(|_| Err(Outcome::overloaded()))?;
        let next = prepared.signed.nonce;
        if nonce.replace(next) == Some(next) {
            return Err(Outcome::nonce_conflict());
        }
        guard.check().await?;
        let id = self.send(task, signer, &prepared, epoch).await?;
        Ok((id, prepared.signed))
    }

    /// Decides and signs. Nothing is stored or sent yet, so that it can be cut off.
    async fn prepare(
        &self,
        task: &Task,
        signer: &Signer,
        epoch: &str,
    ) -> Result<Prepared, Outcome> {
        // again: the wait for the account may have outlasted the proof
        self.prover.require(task.required()).await?;
        let nonce = match self.reconciler.free_nonce(epoch, signer).await? {
            Some(nonce) => nonce,
            None => {
                self.reconciler.settle_signer(epoch, signer, Duration::ZERO).await?;
                signer.nonce().await?
            }
        };
        // after the nonce: it shows the effect of every transaction that the nonce counts
        let decision = cold(operations::decide(&task.operation, &self.state(epoch))).await?;
        let (calls, identity) = match decision {
            Decision::Already(details) => return Err(Outcome::already(details)),
            Decision::Write(calls) => (calls, None),
            Decision::Bind(identity, calls) => (calls, Some(identity)),
        };
        let settings = self.submitter.running.settings();
        let signed = signer.sign(&calls, nonce, &settings.config.policy).await?;
        Ok(Prepared { signed, identity })
    }

    /// Journals and submits. Returns once the node has accepted it, which is not journaled yet.
    async fn send(
        &self,
        task: &Task,
        signer: &Signer,
        prepared: &Prepared,
        epoch: &str,
    ) -> Result<IntentId, Outcome> {
        let settings = self.submitter.running.settings();
        let intent = task.intent(signer, prepared, epoch, &settings);
        // side by side: what is journaled is sent only if the chain is still the one that was read
        let intended = self.reconciler.intend(&intent);
        let (same_epoch, intended) = tokio::join!(self.prover.check_epoch(epoch), intended);
        if let Err(outcome) = same_epoch {
            return match intended {
                Ok(Some(id)) => {
                    let why = "not sent: the chain was not confirmed";
                    self.submitter.rejected(id, intent.transaction_hash, why).await?;
                    Err(outcome)
                }
                Err(unknown) if unknown.reason() == Some(Reason::OutcomeUnknown) => Err(unknown),
                _ => Err(outcome),
            };
        }
        let id = intended?.ok_or_else(Outcome::unsettled)?;
        self.metrics.relay.nonce(signer.account.role, intent.nonce);
        self.submitter.submit(id, &intent, &task.trace).await?;
        Ok(id)
    }

    /// Waits for the receipt and reads the effect back.
    async fn confirm(
        &self,
        task: &Task,
        id: IntentId,
        signed: &Signed,
        epoch: &str,
    ) -> Result<Outcome, Outcome> {
        let receipt = self.submitter.receipt(id, signed.hash);
        let receipt = task.trace.stage("receipt", receipt).await.unwrap_or_else(|error| {
            // the journal has it as accepted: the reconciler settles it
            error.log();
            None
        });
        let Some(receipt) = receipt else { return Ok(Outcome::pending(signed.hash)) };
        if let Err(reason) = receipt.outcome {
            return Err(Outcome::reverted(signed.hash, reason.as_deref()));
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
            now_us: self.submitter.journal.store.now_us(),
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
            Operation::FaucetDrip(_) => Required::Drip,
            _ => Required::All,
        }
    }

    fn intent<'a>(
        &'a self,
        signer: &Signer,
        prepared: &'a Prepared,
        epoch: &'a str,
        settings: &Settings,
    ) -> NewIntent<'a> {
        let Prepared { signed, identity } = prepared;
        let is_drip = matches!(self.operation, Operation::FaucetDrip(_));
        let budgets = settings.budgets();
        NewIntent {
            operation: self.operation.kind().name(),
            digest: self.digest,
            subject: subject(&self.operation),
            identity: *identity,
            request: &self.request,
            epoch,
            signer: signer.account.address,
            nonce: signed.nonce,
            transaction_hash: signed.hash,
            transaction: &signed.params,
            idempotency_key: self.key.as_deref(),
            max_fee: signed.max_fee,
            budgets: Budgets { drips: budgets.drips.filter(|_| is_drip), ..budgets },
            cooldown: is_drip.then_some(settings.config.policy.faucet_cooldown),
        }
    }
}
