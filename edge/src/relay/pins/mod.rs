//! Pins: the state that the chain must have before anything is written to it.
//!
//! A [`Proof`] reads and compares every pin; it proves all of them or none, and is valid for a few
//! seconds. Concurrent requests share one proof. A pin that cannot be read is unproven. This reads
//! the chain; `chain::proof` of the pure crate concludes, in the state of the node. The list is in
//! `table`.

mod table;

use super::settings::{Pins, Settings};
use crate::http::clients::Running;
use crate::node::Node;
use crate::node::chain::Chain;
use portcullis_base::config::{Amount, MAX_NODE_TIMEOUT};
use portcullis_base::io::cold;
use portcullis_base::io::shared::Shared;
use portcullis_base::telemetry::{Metrics, PinState};
use portcullis_filters::chain::{Observation, Pin, Proof};
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::settings::Required;
use portcullis_store::Store;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The pin of the store: the epoch of the chain that its relays write to.
const SHARED_EPOCH: &str = "shared_epoch";
/// The row of the accounts that cannot write yet because of what earlier processes left.
const EARLIER_WRITES: &str = "earlier_writes";
/// How long, in addition to the validity of a proof, another chain must be proven before the relays
/// of a store write to it: each of them makes a proof in that time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The row of the accounts of these roles, which still have open writes of earlier processes.
pub(super) fn earlier_writes(roles: &[&str]) -> Pin {
    Pin {
        name: EARLIER_WRITES,
        ok: false,
        expected: "settled".to_owned(),
        actual: format!("open: {}", roles.join(", ")),
    }
}

/// Makes proofs, and caches the newest while it is valid.
pub struct Prover {
    pins: Arc<Pins>,
    chain: Arc<Chain>,
    running: Arc<Running<Settings>>,
    /// The store that other relays may share; `None` if no proof permits a write.
    store: Option<Arc<Store>>,
    proofs: Shared<(), Arc<Proof>>,
    metrics: Arc<Metrics>,
}

impl Prover {
    /// Nothing is proven yet.
    pub fn new(
        pins: Arc<Pins>,
        chain: Arc<Chain>,
        running: Arc<Running<Settings>>,
        store: Option<Arc<Store>>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pins,
            chain,
            running,
            store,
            proofs: Shared::new(1, |_| 1),
            metrics,
        })
    }

    /// A valid proof, made now if none is cached.
    pub async fn prove(self: &Arc<Self>) -> Arc<Proof> {
        let prover = Arc::clone(self);
        let made = async move {
            let proof = Arc::new(prover.make().await);
            let at = SystemTime::UNIX_EPOCH + proof.checked_at;
            let (ready, took) = (proof.is_ready(), at.elapsed().unwrap_or_default());
            log::debug!(ready, took:?; "pins checked");
            prover.metrics.relay.proved(&PinState {
                ready,
                unproven: proof.pins.iter().filter(|pin| !pin.ok).count(),
                at,
            });
            prover.node().observe(Observation::Proved(&proof));
            let lifetime = proof.lifetime(prover.pins.max_age);
            (proof, lifetime)
        };
        let proof = self.proofs.get((), made).await;
        proof.unwrap_or_else(|_| Arc::new(self.unproven(since_1970())))
    }

    /// The node, which knows the newest proof.
    pub(super) fn node(&self) -> &Node {
        self.chain.0.shared()
    }

    /// Drops the cached proof: a write may have changed a pin.
    pub(super) fn forget(&self) {
        self.proofs.invalidate(&());
    }

    /// The epoch of the chain, if its pins permit a write.
    pub(super) async fn require(self: &Arc<Self>, required: Required) -> Result<String, NotSent> {
        required.permit(&*self.prove().await)
    }

    /// The chain's epoch, even if pins do not hold; the last known one while the node is
    /// unavailable.
    pub(super) async fn epoch(self: &Arc<Self>) -> Result<String, NotSent> {
        let proof = self.prove().await;
        if let Some(epoch) = &proof.epoch {
            return Ok(epoch.clone());
        }
        let last = self
            .node()
            .read(|known| known.proven.epoch().map(str::to_owned));
        last.ok_or(NotSent::PinsUnproven)
    }

    fn drip(&self) -> Amount {
        self.running.settings().drip_cost()
    }

    async fn make(&self) -> Proof {
        let checked_at = since_1970();
        // as long as one call may take, so that requests do not wait longer for a proof
        let read = tokio::time::timeout(MAX_NODE_TIMEOUT, self.read(checked_at)).await;
        read.ok()
            .flatten()
            .unwrap_or_else(|| self.unproven(checked_at))
    }

    fn unproven(&self, checked_at: Duration) -> Proof {
        Proof {
            checked_at,
            epoch: None,
            head: 0,
            pins: table::unreadable(&self.pins, self.drip()),
        }
    }

    /// Reads every pin, and the chain's epoch unless it changed; `None` if the node is unavailable
    /// or no head of the epoch is known.
    async fn read(&self, checked_at: Duration) -> Option<Proof> {
        let before = self.chain.epoch().await.ok()?;
        let read = self.chain.head().await.ok().map(|block| block.number);
        let head = self
            .node()
            .read(|known| known.proven.head_of(&before, read))?;
        let drip = self.drip();
        if self.pins.accounts.faucet.is_some() {
            self.metrics.relay.drip(drip.fri());
        }
        let pins = table::read(&self.pins, drip, &self.chain, &self.metrics).await;
        let epoch = self
            .chain
            .epoch()
            .await
            .ok()
            .filter(|after| *after == before);
        let mut proof = Proof {
            checked_at,
            epoch,
            head,
            pins,
        };
        proof.pins.extend(self.shared_epoch(&proof).await);
        Some(proof)
    }

    /// Whether the relays of the store write to the chain that was proven.
    async fn shared_epoch(&self, proof: &Proof) -> Option<Pin> {
        let store = self.store.as_ref()?;
        // no relay may write to a chain without the contracts
        let epoch = Required::AllButV2.permit(proof).ok()?;
        // a relay with a store of its own waits for no other relay's proof
        let others = if store.is_exclusive() {
            self.pins.max_age.min(PATIENCE)
        } else {
            self.pins.max_age
        };
        match cold(store.agree(&epoch, others + PATIENCE)).await {
            // no other process shares the store, and a new chain is in force
            Ok(expected) if expected == epoch && store.is_exclusive() => None,
            Ok(expected) => Some(Pin {
                name: SHARED_EPOCH,
                ok: expected == epoch,
                expected,
                actual: epoch,
            }),
            Err(error) => {
                // without the store nothing is written
                error.log();
                None
            }
        }
    }
}

/// The time since 1970.
fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}
