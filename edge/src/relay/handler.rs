//! One request with a valid token, from its body to its reply.
//!
//! It runs in a task of its own: a client that leaves, or resets its stream, ends neither a write
//! nor the record of a refusal.

use super::answer::{self, RpcCall};
use super::driver::Driver;
use super::error_format;
use super::pins::earlier_writes;
use super::settings::Settings;
use super::trace::Trace;
use crate::reply::{JSON, Reply};
use bytes::Bytes;
use portcullis_filters::ledger::Refusal as RecordedRefusal;
use portcullis_filters::policy::{Endpoint, Inspected, OperationPermit, RelayPolicy, Unverified};
use portcullis_filters::txm::io::Io as _;
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::operation::{Answer, Task, operate};
use portcullis_filters::txm::outcome::{Outcome, OutcomeKind};
use portcullis_filters::txm::reconcile;
use portcullis_filters::txm::settings::Role;
use portcullis_filters::txm::transaction::{self, Approved};
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// An admitted request.
pub(crate) struct Request {
    pub(crate) settings: Arc<Settings>,
    pub(crate) endpoint: Endpoint,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) trace: Arc<Trace>,
    pub(crate) request_id: String,
}

/// How long a readiness check waits for an account whose earlier writes are not resolved.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Handles requests.
pub(super) struct Handler(pub(super) Arc<Driver>);

impl Handler {
    /// Inspects the body and responds. Also returns the name for the log.
    pub(super) async fn handle(self: Arc<Self>, request: Request) -> (&'static str, Reply) {
        let Request {
            settings,
            endpoint,
            body,
            ..
        } = &request;
        if *endpoint == Endpoint::Ready {
            return (endpoint.name(), self.readiness().await);
        }
        match settings.policy.inspect(*endpoint, body, now()) {
            Ok(Inspected::Transaction(unverified)) => self.transact(unverified, &request).await,
            Ok(Inspected::Operation(permit)) => {
                (endpoint.name(), self.operate(&permit, &request).await)
            }
            Err(refusal) => self.refuse(&refusal, &request).await,
        }
    }

    /// Responds to a request that the policy does not permit.
    async fn refuse(&self, refusal: &Refusal, request: &Request) -> (&'static str, Reply) {
        let Request {
            endpoint,
            request_id,
            ..
        } = request;
        self.record(endpoint.name(), refusal.reason, request_id)
            .await;
        let format = error_format(Some(*endpoint));
        (endpoint.name(), Reply::refusal(format, refusal, request_id))
    }

    /// Proves the pins, and resolves what earlier processes left of our accounts.
    async fn readiness(&self) -> Reply {
        let driver = &*self.0;
        let proof = driver.prover.prove().await;
        let mut unresolved = None;
        if let Some(epoch) = &proof.epoch
            && proof.is_ready()
        {
            let deadline = driver.now() + CATCH_UP;
            let roles: Vec<_> = reconcile::blocked_roles(driver, epoch, deadline)
                .await
                .map(Role::name)
                .collect();
            if !roles.is_empty() {
                unresolved = Some(earlier_writes(&roles));
            }
        }
        answer::readiness(&proof, unresolved)
    }

    /// Responds to a user's transaction.
    async fn transact(
        &self,
        unverified: Unverified<'_>,
        request: &Request,
    ) -> (&'static str, Reply) {
        let call = RpcCall {
            id: unverified.id().as_str().into(),
            deployed: unverified.deployed(),
        };
        let kind = unverified.kind();
        if let Some(refusal) = transaction::refusal(&*self.0, &unverified).await {
            return self.refuse(refusal, request).await;
        }
        let policy = &request.settings.policy;
        let transacted = self.try_transact(unverified, policy, &request.trace).await;
        let outcome = transacted.unwrap_or_else(Outcome::from);
        self.report(kind, Endpoint::Rpc.name(), &outcome, &request.request_id)
            .await;
        let answer = answer::transaction(&outcome, call, &request.request_id)
            .with_retry_after_of(self.0.chain.0.shared());
        (kind, answer)
    }

    /// Submits a transaction, once its signature is verified.
    async fn try_transact(
        &self,
        unverified: Unverified<'_>,
        policy: &RelayPolicy,
        trace: &Arc<Trace>,
    ) -> Result<Outcome, NotSent> {
        let proven = transaction::account(&*self.0, &unverified);
        let (epoch, account) = trace.stage("pins", proven).await?;
        let permit = unverified.verify(policy, account)?;
        let approved = Approved::new(&permit, epoch, trace);
        Ok(transaction::submit(&self.0, approved).await)
    }

    /// Responds to an operation. A repeat under the same idempotency key gets the same response.
    async fn operate(&self, permit: &OperationPermit, request: &Request) -> Reply {
        let request_id = request.request_id.as_str();
        let task = Task::new(
            permit,
            request.idempotency_key.as_deref(),
            &request.trace,
            request_id,
        );
        let kind = permit.operation().kind().name();
        match operate(&self.0, &task).await {
            Answer::First(status, body) => {
                self.0.metrics.relay.write(kind, OutcomeKind::Idempotent);
                Reply::new(status, JSON, body)
            }
            Answer::Outcome(outcome) => {
                self.report(kind, kind, &outcome, request_id).await;
                answer::operation(&outcome, request_id).with_retry_after_of(self.0.chain.0.shared())
            }
        }
    }

    /// Counts an outcome, and records a refusal that has no intent in the journal.
    async fn report(
        &self,
        operation: &str,
        endpoint: &'static str,
        outcome: &Outcome,
        request_id: &str,
    ) {
        self.0.metrics.relay.write(operation, outcome.kind());
        if let Some(reason) = outcome.reason()
            && outcome.is_recorded_as_refusal()
        {
            self.record(endpoint, reason, request_id).await;
        }
    }

    async fn record(&self, endpoint: &'static str, reason: Reason, request_id: &str) {
        let store = &self.0.store;
        let refusal = RecordedRefusal {
            operation: endpoint.to_owned(),
            reason: reason.name().to_owned(),
            request_id: request_id.to_owned(),
        };
        let intents = store.intents();
        if let Err(error) = intents.record_refusal(refusal, store.now_us()).await {
            store.failed(&error);
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs()
}
