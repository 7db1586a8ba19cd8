//! The operations that we sign: the chain's state decides, then an intent is durable as sent, then
//! the transaction is sent, and its effect is read back.
//!
//! An idempotency key stores the first final response; without one, an operation that is in flight
//! or whose end is unknown is not started a second time.

use super::operations::{self, role, subject, verification};
use super::outcome::{Details, Outcome};
use super::pins::{Prover, Required};
use super::reconcile::{Intending, Reconciler};
use super::rollbacks::{Confirmed, Repeated};
use super::settings::{Pins, Settings};
use super::signers::{DEADLINE, Signed, Signer, SignerGuard, Signers};
use super::state::{Decision, State};
use super::submit::{Submitter, Trace, WritesInFlight};
use crate::io::cold;
use crate::store::{Budgets, Intent, IntentId, IntentState, NewIntent};
use crate::telemetry::Metrics;
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::Operation;
use portcullis_filters::policy::OperationPermit;
use portcullis_filters::txm::request;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Turns of one operation: its nonce may be used elsewhere, and what the journal has may be found
/// to be in doubt.
const TURNS: usize = 3;

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

/// What an operation needs to be sent.
struct Prepared {
    signed: Signed,
    /// The identity to which the store has to bind the subject.
    identity: Option<Felt>,
    /// The intent of the same request whose nonce it takes.
    replaces: Option<IntentId>,
}

/// One turn of an operation while its account is locked.
enum Turn {
    /// The node has accepted the transaction, which is not journaled yet.
    Sent(IntentId, Felt),
    /// Another relay has written it.
    Written(Box<Intent>),
    /// What the journal has was found to be in doubt: once more.
    Again,
}

/// An operation to be carried out, detached from its request.
pub(super) struct Task {
    operation: Operation,
    pub(super) digest: [u8; 32],
    request: String,
    pub(super) request_id: String,
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
        let outcome = self.once(&task, Some(claimed.epoch.clone())).await;
        if let Err(error) = self.end_claim(key, &claimed, &outcome, &task).await {
            // a repeat is answered from the intent
            error.log();
        }
        Answer::Outcome(outcome)
    }

    /// Carries an operation out once, however often it is requested at the same time. With a key it
    /// has the `epoch` in which that was claimed.
    async fn once(self: &Arc<Self>, task: &Arc<Task>, epoch: Option<String>) -> Outcome {
        let (digest, writer, task) = (task.digest, Arc::clone(self), Arc::clone(task));
        self.in_flight.join(digest, async move { writer.carry_out(&task, epoch).await }).await
    }

    async fn carry_out(&self, task: &Task, claimed: Option<String>) -> Result<Outcome, Outcome> {
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
        claimed: Option<String>,
    ) -> Result<Outcome, Outcome> {
        let (deadline, required) = (Instant::now() + DEADLINE, task.required());
        let since_us = self.submitter.journal.store.now_us();
        if required == Required::AllButV2 && verification::is_v2_active(&self.state("")).await? {
            // that holds with unproven pins, too
            return Ok(Outcome::already(Details::V2_ACTIVE));
        }
        let proven = self.reconciler.permit(required, deadline);
        let epoch = task.trace.stage("pins", proven).await?;
        if claimed.is_some_and(|claimed| claimed != epoch) {
            return Err(Outcome::restarted());
        }
        // one that was not sent is settled below, while the account is locked, and so is a doubt
        if let Some(earlier) = self.earlier(task, &epoch, since_us).await?
            && !matches!(earlier.state, IntentState::Intended | IntentState::Displaced)
            && let Some(outcome) = self.reconciler.known(&earlier).await?
        {
            return Ok(outcome);
        }
        let signer = self.signers.of(role(task.operation.kind()));
        let queue = task.trace.stage("queue", signer.lock(deadline));
        let mut guard = queue.await?;
        let turn = self.turns(task, &mut guard, &epoch, since_us).await;
        // the next operation starts meanwhile: its nonce is the node's, which counts this one
        let accepted = async {
            if let Ok(Turn::Sent(id, hash)) = &turn {
                self.submitter.accepted(*id, *hash).await?;
            }
            Ok::<_, Outcome>(())
        };
        let (accepted, ()) = tokio::join!(accepted, guard.release());
        accepted?;
        match turn? {
            Turn::Sent(id, hash) => cold(self.confirm(task, id, hash, &epoch)).await,
            Turn::Written(earlier) => {
                self.reconciler.known(&earlier).await?.ok_or_else(Outcome::unsettled)
            }
            Turn::Again => Err(Outcome::unsettled()),
        }
    }

    /// Takes turns until the operation is written, or is not to be.
    async fn turns(
        &self,
        task: &Task,
        guard: &mut SignerGuard<'_>,
        epoch: &str,
        since_us: i64,
    ) -> Result<Turn, Outcome> {
        let mut nonce = None;
        let mut may_conflict = true;
        for _ in 0..TURNS {
            match cold(self.turn(task, guard, epoch, since_us, &mut nonce)).await {
                Ok(Turn::Again) => {}
                // the key was used elsewhere: once more, with the node's next nonce
                Err(outcome) if may_conflict && outcome.reason() == Some(Reason::NonceConflict) => {
                    may_conflict = false;
                }
                turn => return turn,
            }
        }
        Err(Outcome::unsettled())
    }

    /// The intent that this request is about, if there is one.
    async fn earlier(
        &self,
        task: &Task,
        epoch: &str,
        since_us: i64,
    ) -> Result<Option<Intent>, Outcome> {
        let store = &self.submitter.journal.store;
        let linked = match task.key.as_deref() {
            Some(key) => store.keys(epoch).intent(key, task.name(), &task.digest).await?,
            None => None,
        };
        let newest = store.intents().newest_by_digest(epoch, &task.digest).await?;
        Ok(request::earlier(linked, newest, since_us))
    }

    /// Writes while the account is locked, but not with the `nonce` of the turn before. What other
    /// relays have written meanwhile is read again; what is in doubt is sent again.
    ///
    /// # Errors
    /// Nothing was written: it is not possible, or not necessary.
    async fn turn(
        &self,
        task: &Task,
        guard: &mut SignerGuard<'_>,
        epoch: &str,
        since_us: i64,
        nonce: &mut Option<u64>,
    ) -> Result<Turn, Outcome> {
        let mut replaces = None;
        if let Some(earlier) = self.earlier(task, epoch, since_us).await? {
            match earlier.state {
                IntentState::Intended => {}
                IntentState::Displaced => {
                    guard.check().await?;
                    self.prover.require(task.required()).await?;
                    match self.reconciler.send_again(&earlier).await? {
                        Repeated::Accepted => {
                            return Ok(Turn::Sent(earlier.id, earlier.transaction_hash));
                        }
                        Repeated::Shown => return Ok(Turn::Again),
                        Repeated::Refused => replaces = Some(earlier),
                    }
                }
                _ => return Ok(Turn::Written(Box::new(earlier))),
            }
        }
        let signer = guard.signer;
        let signed =
            timeout_at(guard.deadline, self.prepare(task, signer, epoch, replaces.as_ref()));
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
        self.send(task, signer, &prepared, epoch).await
    }

    /// Decides and signs. Nothing is stored or sent yet, so that it can be cut off.
    async fn prepare(
        &self,
        task: &Task,
        signer: &Signer,
        epoch: &str,
        replaces: Option<&Intent>,
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
        if replaces.is_some_and(|replaced| replaced.nonce != nonce) {
            return Err(Outcome::unsettled());
        }
        // after the nonce: it shows the effect of every transaction that the nonce counts
        let slot = self.submitter.journal.store.intents();
        let slot = slot.of_slot(epoch, signer.account.address, nonce).await?;
        let is_in_doubt = slot.iter().any(|other| other.state.holds());
        let state = State { is_in_doubt, ..self.state(epoch) };
        let decision = cold(operations::decide(&task.operation, &state)).await?;
        let (calls, identity) = match decision {
            Decision::Already(details) => return Err(Outcome::already(details)),
            Decision::Write(calls) => (calls, None),
            Decision::Bind(identity, calls) => (calls, Some(identity)),
        };
        let settings = self.submitter.running.settings();
        let in_doubt = slot.iter().filter(|other| other.state == IntentState::Displaced).count();
        let signed = signer.sign(&calls, nonce, in_doubt, &settings.config.policy).await?;
        Ok(Prepared { signed, identity, replaces: replaces.map(|replaced| replaced.id) })
    }

    /// Journals and submits. Returns once the node has accepted it, which is not journaled yet.
    async fn send(
        &self,
        task: &Task,
        signer: &Signer,
        prepared: &Prepared,
        epoch: &str,
    ) -> Result<Turn, Outcome> {
        let settings = self.submitter.running.settings();
        let intent = task.intent(signer, prepared, epoch, self.prover.head(), &settings);
        // side by side: what is journaled is sent only if the chain is still the one that was read
        let intended = self.reconciler.intend(&intent);
        let (same_epoch, intended) = tokio::join!(self.prover.check_epoch(epoch), intended);
        if let Err(outcome) = same_epoch {
            return match intended {
                Ok(Intending::New(id)) => {
                    let why = "not sent: the chain was not confirmed";
                    self.submitter.rejected(id, intent.transaction_hash, why).await?;
                    Err(outcome)
                }
                Err(unknown) if unknown.reason() == Some(Reason::OutcomeUnknown) => Err(unknown),
                _ => Err(outcome),
            };
        }
        let id = match intended? {
            Intending::New(id) => id,
            Intending::Displaced(_) => return Ok(Turn::Again),
            Intending::NonceTaken => return Err(Outcome::unsettled()),
        };
        self.metrics.relay.nonce(signer.account.role, intent.nonce);
        self.submitter.submit(id, &intent, &task.trace).await?;
        Ok(Turn::Sent(id, intent.transaction_hash))
    }

    /// Waits for the receipt and reads the effect back.
    async fn confirm(
        &self,
        task: &Task,
        id: IntentId,
        hash: Felt,
        epoch: &str,
    ) -> Result<Outcome, Outcome> {
        let receipt = self.submitter.receipt(id, hash);
        let receipt = task.trace.stage("receipt", receipt).await.unwrap_or_else(|error| {
            // the journal has it as accepted: the reconciler settles it
            error.log();
            None
        });
        let Some(receipt) = receipt else { return Ok(Outcome::pending(hash).of_intent(id)) };
        if let Err(reason) = receipt.outcome {
            return Err(Outcome::reverted(hash, reason.as_deref()).of_intent(id));
        }
        if task.required() == Required::AllButV2 {
            self.prover.forget();
        }
        let read_back = operations::read_back(&task.operation, &self.state(epoch)).await;
        let details = read_back.ok().flatten();
        if details.is_none() {
            let intent = self.submitter.journal.store.intents().get(id).await?;
            if let Some(intent) = intent
                && !matches!(
                    self.reconciler.confirm(&intent).await?,
                    Confirmed::Shown | Confirmed::Unavailable
                )
            {
                return Err(Outcome::unsettled());
            }
            // undone in the meantime, or the node is away
            log::warn!(operation = task.operation.kind().name(); "the effect was not read back");
        }
        Ok(Outcome::written(hash, details.unwrap_or_default()).of_intent(id))
    }

    fn state<'a>(&'a self, epoch: &'a str) -> State<'a> {
        State {
            chain: &self.submitter.chain,
            pins: &self.pins,
            settings: self.submitter.running.settings(),
            store: &self.submitter.journal.store,
            is_in_doubt: false,
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

    /// The operation's name.
    pub(super) fn name(&self) -> &'static str {
        self.operation.kind().name()
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
        born: u64,
        settings: &Settings,
    ) -> NewIntent<'a> {
        let Prepared { signed, identity, replaces } = prepared;
        let is_drip = matches!(self.operation, Operation::FaucetDrip(_));
        let budgets = settings.budgets();
        NewIntent {
            operation: self.name(),
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
            born,
            replaces: *replaces,
            max_fee: signed.max_fee,
            budgets: Budgets { drips: budgets.drips.filter(|_| is_drip), ..budgets },
            cooldown: is_drip.then_some(settings.config.policy.faucet_cooldown),
        }
    }
}
