//! The protected write path: nothing reaches the chain that the policy did not approve, and nothing
//! approved is lost or sent twice.
//!
//! In: permits, which only the policy makes. Out: replies. One stage per file, in the order they
//! run: `settings` (configuration), `pins` (what the chain must hold), `transaction` (users' own)
//! and `operation` (ours, with `operations`, `state` and `signers`), `submit` (journal, node,
//! receipt), `reconcile` (after a crash), `outcome` and `answer` (the reply). Writes run on a
//! runtime of their own: a client that disconnects does not cancel one.

mod answer;
mod operation;
mod operations;
mod outcome;
pub(crate) mod pins;
mod reconcile;
pub mod settings;
mod signers;
mod state;
mod submit;
mod transaction;

pub(crate) use answer::format as error_format;
pub(crate) use submit::Trace;

use crate::config::RelayConfig;
use crate::http::clients::Running;
use crate::node::Node;
use crate::node::chain::Chain;
use crate::reply::{JSON, Reply};
use crate::store::Store;
use crate::telemetry::Metrics;
use answer::RpcCall;
use operation::{Answer, Operations, Task};
use outcome::{Outcome, Status};
use pingora_limits::rate::Rate;
use pins::{Proof, Prover};
use portcullis_filters::client::ClientKey;
use portcullis_filters::policy::{Endpoint, RelayPolicy};
use portcullis_filters::verdict::{OperationPermit, Reason, Refusal, Unverified};
use reconcile::Reconciler;
use settings::{Account, Keys, Pins, Settings};
use signers::Signers;
use std::sync::Arc;
use std::time::Duration;
use submit::{Journal, Submitter, WritesInFlight};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use transaction::{Approved, Transactions};

/// Wrong tokens that a client may send per minute before its requests are refused unread.
const MAX_FAILED_AUTH: isize = 10;

/// The relay: its policy and its stages.
pub struct Relay {
    /// The settings in force, and the clients.
    pub(crate) running: Arc<Running<Settings>>,
    failed_auth: Rate,
    prover: Arc<Prover>,
    signers: Arc<Signers>,
    submitter: Arc<Submitter>,
    transactions: Arc<Transactions>,
    operations: Arc<Operations>,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

/// The dependencies of a relay.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    pub(crate) chain: Chain,
    pub(crate) store: Arc<Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) runtime: Handle,
}

impl Relay {
    /// Builds the stages, and starts to settle what earlier processes left open.
    pub(crate) fn start(config: &RelayConfig, parts: Parts) -> Arc<Self> {
        let Parts { settings, keys, chain, store, metrics, runtime } = parts;
        let pins = Arc::new(Pins::new(config, &keys));
        metrics.relay.minimum_balance(pins.config.minimum_balance.fri());
        let chain = Arc::new(chain);
        let running = Arc::new(Running::new(settings, &config.clients));
        let signers = Arc::new(Signers::new(&pins, keys, &chain, &store));
        let journal = Journal { store, unsettled: Notify::new() };
        let prover = Prover::new(
            Arc::clone(&pins),
            Arc::clone(&chain),
            config.pins_max_age,
            Arc::clone(&metrics),
        );
        let submitter = Arc::new(Submitter { chain, journal, running: Arc::clone(&running) });
        let reconciler = Arc::new(Reconciler {
            prover: Arc::clone(&prover),
            signers: Arc::clone(&signers),
            submitter: Arc::clone(&submitter),
            metrics: Arc::clone(&metrics),
            reconciled: Mutex::default(),
        });
        runtime.spawn(Arc::clone(&reconciler).run());
        let transactions = Transactions {
            account_class: pins.config.account_class,
            prover: Arc::clone(&prover),
            reconciler: Arc::clone(&reconciler),
            submitter: Arc::clone(&submitter),
            in_flight: WritesInFlight::new(),
        };
        let operations = Operations {
            pins,
            prover: Arc::clone(&prover),
            signers: Arc::clone(&signers),
            reconciler,
            submitter: Arc::clone(&submitter),
            metrics: Arc::clone(&metrics),
            in_flight: WritesInFlight::new(),
        };
        Arc::new(Self {
            running,
            failed_auth: Rate::new(Duration::from_secs(60)),
            prover,
            signers,
            submitter,
            transactions: Arc::new(transactions),
            operations: Arc::new(operations),
            metrics,
            runtime,
        })
    }

    /// Counts a wrong token; returns whether the client has sent too many.
    pub(crate) fn count_failed_auth(&self, client: ClientKey) -> bool {
        self.failed_auth.observe(&client, 1) > MAX_FAILED_AUTH
    }

    /// Responds to `GET /readyz` from a valid proof of the pins.
    pub(crate) async fn readiness(&self) -> Reply {
        let prover = Arc::clone(&self.prover);
        answer::readiness(&*self.run(async move { prover.prove().await }).await)
    }

    /// Responds to a user's transaction.
    pub(crate) async fn transact(
        &self,
        unverified: Unverified<'_>,
        policy: &RelayPolicy,
        trace: &Arc<Trace>,
        request_id: &str,
    ) -> Reply {
        let call = RpcCall { id: unverified.id().as_str().into(), deployed: unverified.deployed() };
        let kind = unverified.kind();
        let outcome = Outcome::merge(self.try_transact(unverified, policy, trace).await);
        self.report(kind, Endpoint::Rpc.name(), &outcome, request_id).await;
        answer::transaction(&outcome, call, request_id)
    }

    async fn try_transact(
        &self,
        unverified: Unverified<'_>,
        policy: &RelayPolicy,
        trace: &Arc<Trace>,
    ) -> Result<Outcome, Outcome> {
        let (stage, sender) = (Arc::clone(&self.transactions), unverified.sender());
        let (epoch, account) = self.run(async move { stage.account(sender).await }).await?;
        let permit = unverified.verify(policy, account)?;
        let approved = Approved::new(&permit, epoch, trace);
        Ok(self.run(Arc::clone(&self.transactions).submit(approved)).await)
    }

    /// Responds to an operation. A repeat under the same idempotency `key` gets the same response.
    pub(crate) async fn operate(
        &self,
        permit: &OperationPermit,
        key: Option<&str>,
        trace: &Arc<Trace>,
        request_id: &str,
    ) -> Reply {
        let task = Task::new(permit, key, trace, request_id);
        let answer = self.run(Arc::clone(&self.operations).operate(task)).await;
        let kind = permit.operation().kind().name();
        match answer {
            Answer::First(status, body) => {
                self.metrics.relay.write(kind, "idempotent");
                Reply::new(status, JSON, body)
            }
            Answer::Outcome(outcome) => {
                self.report(kind, kind, &outcome, request_id).await;
                answer::operation(&outcome, request_id)
            }
        }
    }

    /// Responds with a refusal by the policy, which the journal records.
    pub(crate) async fn refuse(
        &self,
        endpoint: Endpoint,
        refusal: &Refusal,
        request_id: &str,
    ) -> Reply {
        self.record(endpoint.name(), refusal.reason, request_id).await;
        Reply::refusal(error_format(Some(endpoint)), refusal, request_id)
    }

    /// Counts an outcome, and records a refusal that has no intent in the journal.
    async fn report(
        &self,
        operation: &str,
        endpoint: &'static str,
        outcome: &Outcome,
        request_id: &str,
    ) {
        self.metrics.relay.write(operation, outcome.name());
        if let Status::Refused(refusal) = &outcome.status
            // the transaction that caused a cooldown is an earlier one
            && (outcome.transaction_hash.is_none() || refusal.reason == Reason::FaucetCooldown)
            // the store has just failed
            && refusal.reason != Reason::StoreUnavailable
        {
            self.record(endpoint, refusal.reason, request_id).await;
        }
    }

    async fn record(&self, endpoint: &'static str, reason: Reason, request_id: &str) {
        let (submitter, request_id) = (Arc::clone(&self.submitter), request_id.to_owned());
        self.run(async move { submitter.journal.refused(endpoint, reason, &request_id).await })
            .await;
    }

    /// Runs `task` to its end, even if the caller is dropped.
    async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        match self.runtime.spawn(task).await {
            Ok(done) => done,
            // a panic ends this request as well
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// The accounts that sign, each with the number of operations in its queue.
    pub(crate) fn signers(&self) -> impl Iterator<Item = (Account, usize)> {
        self.signers.iter().map(|signer| (signer.account, signer.waiting()))
    }

    /// The newest proof of the pins, valid or not; makes none.
    pub(crate) fn newest_proof(&self) -> Option<Arc<Proof>> {
        self.prover.newest()
    }

    pub(crate) fn node(&self) -> &Node {
        &self.submitter.chain.0
    }
}
