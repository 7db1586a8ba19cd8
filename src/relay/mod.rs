//! The protected write path: nothing reaches the chain that policy did not approve, and nothing
//! approved is lost or sent twice.
//!
//! In: permits, which only the policy makes. Out: an [`Outcome`]. One file per stage, in the order
//! they run: `settings` (what is configured), `pins` (what the chain must hold), `transaction`
//! (users' own) and `operation` (ours, with `operations`, `state` and `signers`), `submit`
//! (journal, node, receipt), `reconcile` (what a crash left). Writes run on a runtime of their own:
//! a client that goes away does not end one.

mod answer;
mod flights;
mod operation;
mod operations;
mod outcome;
pub mod pins;
mod reconcile;
pub mod settings;
mod signers;
mod state;
mod submit;
mod transaction;

pub(crate) use answer::format as error_format;

use crate::config::RelayConfig;
use crate::http::clients::Clients;
use crate::node::Node;
use crate::node::chain::Chain;
use crate::reply::Reply;
use crate::store::Store;
use crate::store::clock::now_us;
use crate::telemetry::Metrics;
use arc_swap::ArcSwap;
use flights::Flights;
use outcome::{Outcome, Status};
use pingora_limits::inflight::Guard;
use pingora_limits::rate::Rate;
use pins::{Proof, Prover};
use portcullis_filters::client::ClientKey;
use portcullis_filters::felt::Felt;
use portcullis_filters::head::Head;
use portcullis_filters::policy::{Endpoint, RelayAdmission};
use portcullis_filters::verdict::{Reason, Refusal};
use settings::{Keys, Pins, Settings};
use signers::Signers;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

/// Wrong tokens that a client may send in a minute before it is told to wait.
const MAX_GUESSES: isize = 10;

/// The relay's policy and state.
pub struct Relay {
    settings: ArcSwap<Settings>,
    clients: Clients,
    guesses: Rate,
    pins: Pins,
    signers: Signers,
    prover: Prover,
    chain: Chain,
    store: Arc<Store>,
    flights: Flights,
    /// The life of the chain for which earlier processes' business is finished.
    reconciled: Mutex<Option<String>>,
    wake: Notify,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

/// How an account that signs stands.
#[derive(Clone, Copy, Debug)]
pub struct SignerStanding {
    /// `owner`, `verifier` or `faucet`.
    pub role: &'static str,
    /// Its address.
    pub address: Felt,
    /// Operations that wait for its turn.
    pub waiting: usize,
}

/// The request that a write belongs to.
pub struct WriteContext<'a> {
    /// The request's id.
    pub request_id: &'a str,
    /// The trace context to pass on.
    pub traceparent: Option<&'a [u8]>,
    /// Incremented by the time spent on the node.
    pub upstream: &'a mut Duration,
}

/// What a relay is made of.
pub struct Parts {
    /// What can be changed while it runs.
    pub settings: Settings,
    /// The private keys.
    pub keys: Keys,
    /// The node.
    pub chain: Chain,
    /// The journal.
    pub store: Arc<Store>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where writes run.
    pub runtime: Handle,
}

impl Relay {
    /// A relay as configured. Looks after what earlier processes left unfinished from now on.
    pub fn start(config: &RelayConfig, parts: Parts) -> Arc<Self> {
        let Parts { settings, keys, chain, store, metrics, runtime } = parts;
        let pins = Pins::new(config, &keys);
        metrics.relay.minimum_balance(pins.minimum_balance.fri());
        let relay = Arc::new(Self {
            clients: Clients::new(&settings.limits, &config.clients),
            settings: ArcSwap::from_pointee(settings),
            guesses: Rate::new(Duration::from_secs(60)),
            signers: Signers::new(&pins, keys),
            prover: Prover::new(pins.clone(), config.pins_max_age, Arc::clone(&metrics)),
            pins,
            chain,
            store,
            flights: Flights::default(),
            reconciled: Mutex::new(None),
            wake: Notify::new(),
            metrics,
            runtime,
        });
        relay.runtime.spawn(Arc::clone(&relay).look_after());
        relay
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes over other settings, for the requests to come.
    pub fn change(&self, settings: Settings) {
        self.clients.change(&settings.limits);
        self.settings.store(Arc::new(settings));
    }

    /// Judges a head that came at `now`.
    pub fn admit(
        &self,
        settings: &Settings,
        head: &Head<'_>,
        now: Instant,
    ) -> RelayAdmission<Guard> {
        let too_many_guesses = |client: ClientKey| self.guesses.observe(&client, 1) > MAX_GUESSES;
        let enter = |client| self.clients.enter(client, &settings.limits);
        let (limiter, now) = (self.clients.limiter(), self.clients.millis(now));
        settings.policy.admit(head, limiter, now, too_many_guesses, enter)
    }

    /// Responds to `GET /readyz` from a fresh proof of the pins.
    pub async fn readiness(self: &Arc<Self>) -> Reply {
        let relay = Arc::clone(self);
        let proof = self.run(async move { relay.prover.prove(&relay.chain).await }).await;
        answer::readiness(&proof)
    }

    /// Journals a refusal by the policy, for a client whose token is valid, and responds with it.
    pub async fn refuse(
        self: &Arc<Self>,
        endpoint: Endpoint,
        refusal: &Refusal,
        request_id: &str,
    ) -> Reply {
        self.journal_refusal(endpoint.name(), refusal.reason, request_id).await;
        Reply::refusal(answer::format(Some(endpoint)), refusal, request_id)
    }

    /// Journals a refusal by the chain's state; a submitted transaction has its intent there.
    async fn journal_failure(
        self: &Arc<Self>,
        endpoint: &'static str,
        outcome: &Outcome,
        request_id: &str,
    ) {
        if let (Status::Refused(refusal), None) = (&outcome.status, outcome.transaction_hash)
            // the journal has just failed
            && refusal.reason != Reason::StoreUnavailable
        {
            self.journal_refusal(endpoint, refusal.reason, request_id).await;
        }
    }

    async fn journal_refusal(
        self: &Arc<Self>,
        endpoint: &'static str,
        reason: Reason,
        request_id: &str,
    ) {
        let (relay, request_id) = (Arc::clone(self), request_id.to_owned());
        let refused = async move {
            let now = now_us();
            relay.store.refused(endpoint, reason.name(), None, &request_id, now).await
        };
        if let Err(error) = self.run(refused).await {
            log::error!("store: {error}");
        }
    }

    /// Runs `task` to its end, whatever becomes of whoever waits for it.
    async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        match self.runtime.spawn(task).await {
            Ok(done) => done,
            // a panic there is a panic here: it ends this request
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// A proof that permits a write, and the life of the chain that it holds for.
    async fn proven(&self, for_v2: bool) -> Result<String, Outcome> {
        let proof = self.prover.prove(&self.chain).await;
        let ready = if for_v2 { proof.is_ready_for_v2() } else { proof.is_ready() };
        let epoch = proof.epoch.clone().filter(|_| ready);
        epoch.ok_or_else(|| {
            let message = "the chain's pins are not proven: see GET /readyz; nothing was sent";
            Outcome::refused(Reason::PinsUnproven, message)
        })
    }

    /// Refuses when the chain started again since it was proven: a proof serves for seconds, which
    /// is long enough for a test network to begin anew. Asked right before anything is sent.
    async fn still(&self, epoch: &str) -> Result<(), Outcome> {
        if pins::epoch(&self.chain).await? == epoch {
            return Ok(());
        }
        self.prover.forget().await;
        let message = "the chain started again: nothing was sent";
        Err(Outcome::refused(Reason::PinsUnproven, message))
    }

    /// How each signing account stands.
    pub fn signers(&self) -> impl Iterator<Item = SignerStanding> {
        self.signers.all().map(|signer| SignerStanding {
            role: signer.account.role,
            address: signer.account.address,
            waiting: signer.waiting(),
        })
    }

    /// The newest proof of the pins, however old; nothing is asked for it.
    pub fn newest_proof(&self) -> Option<Arc<Proof>> {
        self.prover.newest()
    }

    /// Its clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// The node as the relay asks it.
    pub fn node(&self) -> &Node {
        self.chain.node()
    }
}

/// The node's method for what an intent submits.
fn method_of(operation: &str) -> &'static str {
    match operation {
        transaction::DEPLOY => "starknet_addDeployAccountTransaction",
        _ => "starknet_addInvokeTransaction",
    }
}
