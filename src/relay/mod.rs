//! The protected write path: nothing reaches the chain that policy did not approve, and nothing
//! approved is lost or sent twice.
//!
//! In: permits, which only the policy makes. Out: an [`Outcome`]. One file per stage, in the order
//! they run: `settings` (what is configured), `pins` (what the chain must hold), `transaction`
//! (users' own) and `operation` (ours, with `operations`, `state` and `signers`), `submit`
//! (journal, node, receipt), `reconcile` (what a crash left). Writes run on a runtime of their own:
//! a client that goes away does not end one.

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

pub use operation::Answer;
pub use outcome::Outcome;

use crate::config::RelayConfig;
use crate::node::chain::Chain;
use crate::store::Store;
use crate::telemetry::Metrics;
use arc_swap::ArcSwap;
use flights::Flights;
use pingora_limits::inflight::{Guard, Inflight};
use pingora_limits::rate::Rate;
use pins::{Proof, Prover};
use portcullis_filters::client::{Client, ClientKey};
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Millis, SharedLimiter, Standing};
use portcullis_filters::policy::RelayAdmission;
use portcullis_filters::verdict::Reason;
use settings::{Keys, Pins, Rules, Settings};
use signers::Signers;
use std::hash::RandomState;
use std::num::NonZeroU32;
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
    limiter: SharedLimiter<RandomState>,
    in_flight: Inflight,
    guesses: Rate,
    started: Instant,
    pins: Pins,
    rules: Rules,
    signers: Signers,
    prover: Prover,
    chain: Chain,
    store: Store,
    flights: Flights,
    /// The life of the chain for which earlier processes' business is finished.
    reconciled: Mutex<Option<String>>,
    wake: Notify,
    metrics: Arc<Metrics>,
    runtime: Handle,
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
    pub store: Store,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where writes run.
    pub runtime: Handle,
}

impl Relay {
    /// A relay as configured. Looks after what earlier processes left unfinished from now on.
    pub fn start(config: &RelayConfig, parts: Parts) -> Arc<Self> {
        let Parts { settings, keys, chain, store, metrics, runtime } = parts;
        let capacity = u32::try_from(config.max_clients).unwrap_or(u32::MAX);
        let capacity = NonZeroU32::new(capacity).unwrap_or(NonZeroU32::MIN);
        let pins = Pins::new(config, &keys);
        let relay = Arc::new(Self {
            limiter: SharedLimiter::new(settings.quota, capacity, RandomState::new()),
            settings: ArcSwap::from_pointee(settings),
            in_flight: Inflight::new(),
            guesses: Rate::new(Duration::from_secs(60)),
            started: Instant::now(),
            rules: Rules::from(config),
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
        self.limiter.set_quota(settings.quota);
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
        settings.policy.admit(head, &self.limiter, self.millis(now), too_many_guesses, |client| {
            let (guard, count) = self.in_flight.incr(client, 1);
            (count <= settings.max_in_flight).then_some(guard)
        })
    }

    /// How a peer stands with its limit, without counting anything.
    pub fn standing(&self, peer: Client) -> Standing {
        self.limiter.peek(peer.key, self.millis(Instant::now()))
    }

    fn millis(&self, now: Instant) -> Millis {
        let millis = now.duration_since(self.started).as_millis();
        Millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// A proof of the pins that is fresh.
    pub async fn prove(self: &Arc<Self>) -> Arc<Proof> {
        let relay = Arc::clone(self);
        self.run(async move { relay.prover.prove(&relay.chain).await }).await
    }

    /// Journals that a request with a good token was refused.
    pub async fn journal_refusal(
        self: &Arc<Self>,
        endpoint: &'static str,
        reason: Reason,
        request_id: &str,
    ) {
        let (relay, request_id) = (Arc::clone(self), request_id.to_owned());
        let refused = async move {
            let now = submit::now_us();
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

    /// For the metrics: the role of each signing account, and how many operations wait for it.
    pub fn queues(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.signers.all().map(|signer| (signer.account.role, signer.waiting()))
    }
}

/// The node's method for what an intent submits.
fn method_of(operation: &str) -> &'static str {
    match operation {
        transaction::DEPLOY => "starknet_addDeployAccountTransaction",
        _ => "starknet_addInvokeTransaction",
    }
}
