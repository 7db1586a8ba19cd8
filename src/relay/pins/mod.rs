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
use crate::io::shared::Shared;
use crate::node::chain::Chain;
use crate::store::Store;
use crate::telemetry::{Metrics, PinState};
use arc_swap::ArcSwapOption;
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::settings::Required;
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

/// The number of a block that was recently the newest of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Head {
    epoch: String,
    number: u64,
}

impl Head {
    /// The head of a proof of this epoch: the one that was read or, if that failed, the last known
    /// one. A lower head is true as well, and a search begins further down; `None` proves nothing.
    fn of(epoch: &str, read: Option<u64>, last: Option<&Self>) -> Option<Self> {
        let last = last.filter(|last| last.epoch == epoch);
        let number = read.or(last.map(|last| last.number))?;
        Some(Self {
            epoch: epoch.to_owned(),
            number,
        })
    }
}

/// Makes proofs, and caches the newest while it is valid.
pub(crate) struct Prover {
    pins: Arc<Pins>,
    chain: Arc<Chain>,
    running: Arc<Running<Settings>>,
    /// The store that other relays may share; `None` if no proof permits a write.
    store: Option<Arc<Store>>,
    proofs: Shared<(), Arc<Proof>>,
    /// The newest proof, valid or not.
    newest: ArcSwapOption<Proof>,
    /// The newest epoch that a proof found, with its head.
    found: ArcSwapOption<Head>,
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
        let (proofs, newest) = (Shared::new(1, |_| 1), ArcSwapOption::empty());
        let found = ArcSwapOption::empty();
        Arc::new(Self {
            pins,
            chain,
            running,
            store,
            proofs,
            newest,
            found,
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
            (
                proof,
                if ready {
                    prover.pins.max_age
                } else {
                    prover.pins.max_age.min(RETRY)
                },
            )
        };
        let proof = self.proofs.get((), made).await;
        proof.unwrap_or_else(|_| Arc::new(self.unproven(SystemTime::now())))
    }

    /// The newest proof, valid or not. Does not start another one.
    pub(crate) fn newest(&self) -> Option<Arc<Proof>> {
        self.newest.load_full()
    }

    /// The number of a block that was recently the newest of this epoch: a transaction that is
    /// signed now can only be in a later one. `None` if the newest proof is of another epoch.
    pub(super) fn head(&self, epoch: &str) -> Option<u64> {
        let found = self.found.load();
        let head = found.as_ref().filter(|head| head.epoch == epoch)?;
        Some(head.number)
    }

    /// Drops the cached proof: a write may have changed a pin.
    pub(super) fn forget(&self) {
        self.proofs.invalidate(&());
    }

    /// The epoch of the chain, if its pins permit a write.
    pub(super) async fn require(self: &Arc<Self>, required: Required) -> Result<String, NotSent> {
        let proof = self.prove().await;
        let epoch = proof.epoch.clone().filter(|_| proof.proves(required));
        epoch.ok_or_else(|| {
            if required == Required::Drip && proof.is_faucet_empty() {
                NotSent::FaucetEmpty
            } else {
                NotSent::PinsUnproven
            }
        })
    }

    /// The chain's epoch, even if pins do not hold; the last known one while the node is
    /// unavailable.
    pub(super) async fn epoch(self: &Arc<Self>) -> Result<String, NotSent> {
        let last = || self.found.load().as_ref().map(|head| head.epoch.clone());
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
            pins: table::unreadable(&self.pins, self.drip()),
        }
    }

    /// Reads every pin, and the chain's epoch unless it changed; `None` if the node is unavailable
    /// or no head of the epoch is known.
    async fn read(&self, checked_at: SystemTime) -> Option<Proof> {
        let before = self.chain.epoch().await.ok()?;
        let read = self.chain.head().await.ok().map(|block| block.number);
        let head = Head::of(&before, read, self.found.load().as_deref())?;
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
        if epoch.is_some() {
            self.found.store(Some(Arc::new(head)));
        }
        let mut proof = Proof {
            checked_at,
            epoch,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn head(epoch: &str, number: u64) -> Head {
        Head {
            epoch: epoch.to_owned(),
            number,
        }
    }

    #[test]
    fn a_head_that_was_not_read_is_never_zero() {
        let last = Some(head("a", 7));
        for (read, last, expected, why) in [
            (Some(9), &last, Some(9), "it was read"),
            (Some(5), &last, Some(5), "blocks were rolled back"),
            (Some(0), &None, Some(0), "the first block"),
            (None, &last, Some(7), "the last one that is known"),
            (None, &None, None, "none is known"),
            (None, &Some(head("b", 7)), None, "that of another epoch"),
        ] {
            let found = Head::of("a", read, last.as_ref());
            assert_eq!(found, expected.map(|number| head("a", number)), "{why}");
        }
    }
}
