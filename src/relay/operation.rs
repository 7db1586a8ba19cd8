//! The operations that we sign: state first, then a durable intent, then the chain, then a look at
//! what it holds.
//!
//! A key of the client's (`Idempotency-Key`) keeps the first answer; without one, an operation that
//! is under way, or whose end is not known, is not begun a second time.

use super::operations::{self, role, subject};
use super::outcome::{Details, Outcome};
use super::signers::{Signed, Signer, Turn};
use super::state::{Decision, State};
use super::submit::Submission;
use super::{Relay, WriteContext, answer};
use crate::reply::Reply;
use crate::store::clock::now_us;
use crate::store::{Claim, Intended, IntentId, NewIntent};
use portcullis_filters::operation::Operation;
use portcullis_filters::verdict::{OperationPermit, Reason};
use std::sync::Arc;
use std::time::Duration;

/// The result of a request under an idempotency key.
enum Answer {
    Outcome(Outcome),
    /// The first response under the key: status and body.
    First(u16, String),
}

/// An operation being carried out, free of the request it came in.
struct Task {
    operation: Operation,
    digest: [u8; 32],
    request: String,
    request_id: String,
    key: Option<String>,
    traceparent: Option<Vec<u8>>,
}

impl Relay {
    /// Carries an operation out. A repeat under the same idempotency `key` gets the first response.
    pub async fn operate(
        self: &Arc<Self>,
        permit: &OperationPermit,
        key: Option<&str>,
        context: WriteContext<'_>,
    ) -> Reply {
        let task = Task {
            operation: permit.operation().clone(),
            digest: permit.digest(),
            request: permit.canonical(),
            request_id: context.request_id.to_owned(),
            key: key.map(str::to_owned),
            traceparent: context.traceparent.map(<[u8]>::to_vec),
        };
        let relay = Arc::clone(self);
        let (answer, took) = self
            .run(async move {
                let mut took = Duration::ZERO;
                let answer = relay.under_key(&task, &mut took).await;
                (answer, took)
            })
            .await;
        *context.upstream += took;
        let kind = permit.operation().kind().name();
        match answer {
            Answer::First(status, body) => {
                self.metrics.relay.write(kind, "idempotent");
                Reply::json(status, body)
            }
            Answer::Outcome(outcome) => {
                self.metrics.relay.write(kind, outcome.name());
                self.journal_failure(kind, &outcome, context.request_id).await;
                answer::operation(&outcome, context.request_id)
            }
        }
    }

    async fn under_key(&self, task: &Task, upstream: &mut Duration) -> Answer {
        let Some(key) = task.key.as_deref() else {
            return Answer::Outcome(self.once(task, upstream).await);
        };
        let name = task.operation.kind().name();
        let now = now_us();
        // an open claim is joined, not waited for, so none is ever taken over
        let claim = self.store.claim_key(key, name, &task.digest, now, 0).await;
        let (outcome, claimed_us) = match claim {
            Ok(Claim::Answered { status, body }) => return Answer::First(status, body),
            Ok(Claim::Conflict) => {
                let message = "the idempotency key was used with another request";
                return Answer::Outcome(Outcome::refused(Reason::IdempotencyConflict, message));
            }
            Ok(Claim::Open { intent: Some(intent), since_us }) => {
                let outcome = match self.answer_known(&intent).await {
                    Ok(Some(outcome)) => outcome,
                    Ok(None) => self.once(task, upstream).await,
                    Err(error) => error.into(),
                };
                (outcome, since_us)
            }
            Ok(Claim::Open { intent: None, since_us }) => {
                (self.once(task, upstream).await, since_us)
            }
            Ok(Claim::New) => (self.once(task, upstream).await, now),
            Err(error) => return Answer::Outcome(error.into()),
        };
        let kept = if outcome.is_final() {
            let reply = answer::operation(&outcome, &task.request_id);
            let [body, ..] = reply.body.pieces();
            self.store.answer_key(key, reply.status, &String::from_utf8_lossy(body)).await
        } else {
            self.store.release_key(key, claimed_us).await
        };
        if let Err(error) = kept {
            // the answer stands all the same: the journal has what it needs to repeat it
            log::error!("store: {error}");
        }
        Answer::Outcome(outcome)
    }

    async fn once(&self, task: &Task, upstream: &mut Duration) -> Outcome {
        let write = async {
            match self.carry_out(task, upstream).await {
                Ok(outcome) | Err(outcome) => outcome,
            }
        };
        self.flights.join(task.digest, write).await
    }

    async fn carry_out(&self, task: &Task, upstream: &mut Duration) -> Result<Outcome, Outcome> {
        let for_v2 = task.is_for_v2();
        if for_v2 && let Decision::Already(details) = self.decide(task, "").await? {
            // whatever else holds, even with pins unproven
            return Ok(Outcome::already(details));
        }
        let epoch = self.proven(for_v2).await?;
        self.ready_for(&epoch).await?;
        if let Some(intent) = self.store.unresolved_by_digest(&epoch, &task.digest).await?
            && let Some(outcome) = self.answer_known(&intent).await?
        {
            return Ok(outcome);
        }
        let signer = self.signers.of(role(task.operation.kind()));
        let mut turn = signer.turn(&self.store).await?;
        let written = self.write(task, signer, &mut turn, &epoch, upstream).await;
        turn.release().await;
        let (id, signed) = match written? {
            Written::Nothing(outcome) => return Ok(outcome),
            Written::Sent(id, signed) => (id, signed),
        };
        self.confirm(task, &id, &signed, &epoch).await
    }

    /// Decides and writes, in the account's turn.
    async fn write(
        &self,
        task: &Task,
        signer: &Signer,
        turn: &mut Turn<'_>,
        epoch: &str,
        upstream: &mut Duration,
    ) -> Result<Written, Outcome> {
        // the wait for the turn may have been longer than a proof serves
        self.proven(task.is_for_v2()).await?;
        self.finish_own(epoch, signer, Duration::ZERO).await?;
        let calls = match self.decide(task, epoch).await? {
            Decision::Already(details) => return Ok(Written::Nothing(Outcome::already(details))),
            Decision::No(outcome) => return Err(outcome),
            Decision::Write(calls) => calls,
        };
        let rules = self.settings().rules;
        let signed = signer.sign(&calls, &self.chain, self.pins.chain_id, &rules).await?;
        turn.check().await?;
        self.still(epoch).await?;
        if let Some(taken) = operations::reserve(&task.operation, &self.state(epoch)).await? {
            return Err(taken);
        }
        let id = match self.store.intend(&task.intent(signer, &signed, epoch), now_us()).await? {
            Intended::New(id) => id,
            Intended::Known(intent) => {
                let outcome = self.answer_known(&intent).await?;
                return outcome.map(Written::Nothing).ok_or_else(Outcome::unsettled);
            }
            Intended::NonceTaken => return Err(Outcome::unsettled()),
        };
        self.metrics.relay.nonce(signer.account.role, signed.nonce);
        let method = "starknet_addInvokeTransaction";
        let submission = Submission { id: &id, method, params: &signed.params, hash: signed.hash };
        let sent = self.submit(&submission, task.traceparent.as_deref(), upstream).await;
        if matches!(&sent, Err(outcome) if outcome.transaction_hash.is_none())
            && let Err(halt) = operations::give_back(&task.operation, &self.state(epoch)).await
        {
            let Outcome { status, .. } = halt.into();
            log::warn!("the reservation was not released: {status:?}");
        }
        sent.map(|()| Written::Sent(id, signed))
    }

    /// Waits for the receipt, and reads back what it was for.
    async fn confirm(
        &self,
        task: &Task,
        id: &IntentId,
        signed: &Signed,
        epoch: &str,
    ) -> Result<Outcome, Outcome> {
        let receipt = self.receipt(id, signed.hash).await.unwrap_or_else(|error| {
            // the node has it, and the journal knows that: how it ends is written down later
            log::error!("store: {error}");
            None
        });
        let Some(receipt) = receipt else { return Ok(Outcome::pending(signed.hash)) };
        if let Err(reason) = receipt.outcome {
            return Err(Outcome::reverted(Some(signed.hash), reason.as_deref()));
        }
        if task.is_for_v2() {
            self.prover.forget().await;
        }
        let read_back = operations::read_back(&task.operation, &self.state(epoch)).await;
        match read_back.map_err(Outcome::from) {
            Ok(Some(details)) => Ok(Outcome::written(signed.hash, details)),
            // it succeeded, and what it did was undone or can not be read just now
            Ok(None) | Err(_) => {
                log::warn!(operation = task.operation.kind().name(); "not read back");
                Ok(Outcome::written(signed.hash, Details::None))
            }
        }
    }

    async fn decide(&self, task: &Task, epoch: &str) -> Result<Decision, Outcome> {
        Ok(operations::decide(&task.operation, &self.state(epoch)).await?)
    }

    fn state<'a>(&'a self, epoch: &'a str) -> State<'a> {
        State {
            chain: &self.chain,
            pins: &self.pins,
            rules: self.settings().rules,
            store: &self.store,
            epoch,
            now_us: now_us(),
        }
    }
}

/// What came of an account's turn.
enum Written {
    /// Nothing was to be written.
    Nothing(Outcome),
    /// The node took this.
    Sent(IntentId, Signed),
}

impl Task {
    /// Whether it is there to make the V2 pin true, which therefore need not hold before.
    fn is_for_v2(&self) -> bool {
        matches!(self.operation, Operation::RequireV2(_))
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
