//! Pins: the state that the chain must have before anything is written to it.
//!
//! A [`Proof`] reads and compares every pin; it proves all of them or none, and is valid for a few
//! seconds. Concurrent requests share one proof. A pin that cannot be read is unproven. The list is
//! in `table`.

mod table;

use super::settings::{Pins, Settings};
use crate::config::{Amount, MAX_NODE_TIMEOUT};
use crate::http::clients::Running;
use crate::io::cold;
use crate::io::shared::{Aborted, Shared};
use crate::node::chain::Chain;
use crate::store::Store;
use crate::telemetry::{Metrics, PinState};
use arc_swap::ArcSwapOption;
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::txm::settings::Required;
use portcullis_filters::verdict::Reason;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A failed proof is valid no longer than this, so that a repaired chain is noticed soon.
const RETRY: Duration = Duration::from_secs(1);
/// The pin that `/require-v2` makes true.
const V2: &str = "verification_v2_required";
/// The pin of the account that pays drips.
const FAUCET: &str = "faucet_balance";
/// The pin of the store: the epoch of the chain that its relays write to.
const SHARED_EPOCH: &str = "shared_epoch";
/// The row of the accounts that cannot write yet because of what earlier processes left.
const EARLIER_WRITES: &str = "earlier_writes";
/// How long, in addition to the validity of a proof, another chain must be proven before the relays
/// of a store write to it: each of them makes a proof in that time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The value of a pin that the node did not return.
pub(crate) const UNREADABLE: &str = "unreadable";

/// A pin, compared with the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pin {
    #[serde(rename = "pin")]
    pub(crate) name: &'static str,
    /// Whether the chain has the expected value.
    pub(crate) ok: bool,
    /// The required value.
    pub(crate) expected: String,
    /// The value on the chain; `unreadable` if the node did not return it.
    pub(crate) actual: String,
}

impl Pin {
    /// These accounts still have open writes of earlier processes.
    pub(super) fn earlier_writes(roles: &[&str]) -> Self {
        Self {
            name: EARLIER_WRITES,
            ok: false,
            expected: "settled".to_owned(),
            actual: format!("open: {}", roles.join(", ")),
        }
    }
}

/// All pins at one time.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) checked_at: SystemTime,
    /// The chain's epoch, unless it changed during the proof: a test network can start again.
    pub(crate) epoch: Option<String>,
    /// The number of the newest block, if it was read.
    pub(crate) head: Option<u64>,
    pub(crate) pins: Vec<Pin>,
}

impl Proof {
    /// Whether every pin holds.
    pub(crate) fn is_ready(&self) -> bool {
        self.proves(Required::All)
    }

    fn proves(&self, required: Required) -> bool {
        let is_optional = |pin: &Pin| required == Required::AllButV2 && pin.name == V2;
        self.epoch.is_some() && self.pins.iter().all(|pin| pin.ok || is_optional(pin))
    }

    fn is_faucet_empty(&self) -> bool {
        let is_money = |pin: &Pin| pin.name == FAUCET && pin.actual != UNREADABLE;
        self.epoch.is_some() && self.pins.iter().all(|pin| pin.ok || is_money(pin))
    }
}

/// Makes proofs, and caches the newest while it is valid.
pub(crate) struct Prover {
    pins: Arc<Pins>,
    chain: Arc<Chain>,
    running: Arc<Running<Settings>>,
    /// The store that other relays may share; `None` if no proof permits a write.
    store: Option<Arc<Store>>,
    max_age: Duration,
    proofs: Shared<(), Arc<Proof>>,
    /// The newest proof, valid or not.
    newest: ArcSwapOption<Proof>,
    /// The newest epoch that a proof found.
    epoch: ArcSwapOption<String>,
    metrics: Arc<Metrics>,
}

impl Prover {
    pub(crate) fn new(
        pins: Arc<Pins>,
        chain: Arc<Chain>,
        running: Arc<Running<Settings>>,
        store: Option<Arc<Store>>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let max_age = running.settings().config.pins_max_age;
        let (proofs, newest) = (Shared::new(1, |_| 1), ArcSwapOption::empty());
        let epoch = ArcSwapOption::empty();
        Arc::new(Self {
            pins,
            chain,
            running,
            store,
            max_age,
            proofs,
            newest,
            epoch,
            metrics,
        })
    }

    /// A valid proof, made now if none is cached.
    pub(crate) async fn prove(self: &Arc<Self>) -> Arc<Proof> {
        let prover = Arc::clone(self);
        let made = async move {
            let proof = Arc::new(prover.make().await);
            let ready = proof.is_ready();
            let took = proof.checked_at.elapsed().unwrap_or_default();
            log::debug!(ready, took:?; "pins checked");
            prover.metrics.relay.proved(&PinState {
                ready,
                unproven: proof.pins.iter().filter(|pin| !pin.ok).count(),
                at: proof.checked_at,
            });
            prover.newest.store(Some(Arc::clone(&proof)));
            if let Some(epoch) = &proof.epoch {
                prover.epoch.store(Some(Arc::new(epoch.clone())));
            }
            (
                proof,
                if ready {
                    prover.max_age
                } else {
                    prover.max_age.min(RETRY)
                },
            )
        };
        let proof = self.proofs.get((), made).await;
        proof.unwrap_or_else(|Aborted| Arc::new(self.unproven(SystemTime::now())))
    }

    /// The newest proof, valid or not. Does not start another one.
    pub(crate) fn newest(&self) -> Option<Arc<Proof>> {
        self.newest.load_full()
    }

    /// The number of a block that was recently the newest; 0 if none is known. A transaction that
    /// is signed now can only be in a later one.
    pub(super) fn head(&self) -> u64 {
        self.newest().and_then(|proof| proof.head).unwrap_or(0)
    }

    /// Drops the cached proof: a write may have changed a pin.
    pub(super) fn forget(&self) {
        self.proofs.invalidate(&());
    }

    /// The epoch of the chain, if its pins permit a write.
    pub(super) async fn require(self: &Arc<Self>, required: Required) -> Result<String, Outcome> {
        let proof = self.prove().await;
        let epoch = proof.epoch.clone().filter(|_| proof.proves(required));
        epoch.ok_or_else(|| {
            if required == Required::Drip && proof.is_faucet_empty() {
                return Outcome::faucet_empty();
            }
            let message = "the chain's pins are not proven: see GET /readyz; nothing was sent";
            Outcome::refused(Reason::PinsUnproven, message)
        })
    }

    /// The chain's epoch, even if pins do not hold; the last known one while the node is
    /// unavailable.
    pub(super) async fn epoch(self: &Arc<Self>) -> Result<String, Outcome> {
        let last = || self.epoch.load().as_deref().cloned();
        match self.prove().await.epoch.clone().or_else(last) {
            Some(epoch) => Ok(epoch),
            None => self.require(Required::AllButV2).await,
        }
    }

    fn drip(&self) -> Amount {
        self.running.settings().drip_cost()
    }

    async fn make(&self) -> Proof {
        let checked_at = SystemTime::now();
        // as long as one call may take, so that requests do not wait longer for a proof
        let read = tokio::time::timeout(MAX_NODE_TIMEOUT, self.read(checked_at)).await;
        read.ok()
            .flatten()
            .unwrap_or_else(|| self.unproven(checked_at))
    }

    fn unproven(&self, checked_at: SystemTime) -> Proof {
        Proof {
            checked_at,
            epoch: None,
            head: None,
            pins: table::unreadable(&self.pins, self.drip()),
        }
    }

    /// Reads every pin, and the chain's epoch unless it changed; `None` if the node is unavailable.
    async fn read(&self, checked_at: SystemTime) -> Option<Proof> {
        let before = self.chain.epoch().await.ok()?;
        let head = self.chain.head().await.ok().map(|block| block.number);
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
        let epoch = proof
            .epoch
            .clone()
            .filter(|_| proof.proves(Required::AllButV2))?;
        // a relay with a store of its own waits for no other relay's proof
        let others = if store.is_exclusive() {
            self.max_age.min(PATIENCE)
        } else {
            self.max_age
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
