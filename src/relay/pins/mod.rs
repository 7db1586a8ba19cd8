//! Pins: what the chain must hold before anything is written to it.
//!
//! A [`Proof`] reads every pin and compares; it proves all of them or none, and is valid for a few
//! seconds. One proof at a time is made, however many requests wait for it. A pin that cannot be
//! read is unproven. The list is in `table`.

mod table;

use super::outcome::Outcome;
use super::settings::Pins;
use crate::config::MAX_NODE_TIMEOUT;
use crate::io::shared::{Aborted, Shared};
use crate::node::chain::{Chain, RpcError};
use crate::telemetry::{Metrics, PinState};
use arc_swap::ArcSwapOption;
use portcullis_filters::verdict::Reason;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A failed proof is valid no longer than this, so that a repaired chain is noticed soon.
const RETRY: Duration = Duration::from_secs(1);
/// The pin that `/require-v2` makes true.
const V2: &str = "verification_v2_required";

/// One pin, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pin {
    #[serde(rename = "pin")]
    pub(crate) name: &'static str,
    /// Whether the chain holds what is expected.
    pub(crate) ok: bool,
    /// What the chain must hold.
    pub(crate) expected: String,
    /// What it holds; `unreadable` if the node did not say.
    pub(crate) actual: String,
}

/// All pins at one time.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) checked_at: SystemTime,
    /// The chain's epoch, if it did not change in the meantime: a test network can start again.
    pub(crate) epoch: Option<String>,
    pub(crate) pins: Vec<Pin>,
}

/// The pins that a write requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Required {
    All,
    /// All but the one that `/require-v2` makes true.
    AllButV2,
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
}

/// Makes proofs, and caches the newest while it is valid.
pub(crate) struct Prover {
    pins: Arc<Pins>,
    chain: Arc<Chain>,
    max_age: Duration,
    proofs: Shared<(), Arc<Proof>>,
    /// The newest proof, valid or not.
    newest: ArcSwapOption<Proof>,
    metrics: Arc<Metrics>,
}

impl Prover {
    pub(crate) fn new(
        pins: Arc<Pins>,
        chain: Arc<Chain>,
        max_age: Duration,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let (proofs, newest) = (Shared::new(1, |_| 1), ArcSwapOption::empty());
        Arc::new(Self { pins, chain, max_age, proofs, newest, metrics })
    }

    /// A valid proof, made now if none is cached.
    pub(crate) async fn prove(self: &Arc<Self>) -> Arc<Proof> {
        let prover = Arc::clone(self);
        let made = async move {
            let proof = Arc::new(prover.make().await);
            let ready = proof.is_ready();
            prover.metrics.relay.proved(&PinState {
                ready,
                unproven: proof.pins.iter().filter(|pin| !pin.ok).count(),
                at: proof.checked_at,
            });
            prover.newest.store(Some(Arc::clone(&proof)));
            (proof, if ready { prover.max_age } else { prover.max_age.min(RETRY) })
        };
        let proof = self.proofs.get((), made).await;
        proof.unwrap_or_else(|Aborted| Arc::new(self.unproven(SystemTime::now())))
    }

    /// The newest proof, valid or not; makes none.
    pub(crate) fn newest(&self) -> Option<Arc<Proof>> {
        self.newest.load_full()
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
            let message = "the chain's pins are not proven: see GET /readyz; nothing was sent";
            Outcome::refused(Reason::PinsUnproven, message)
        })
    }

    /// Refuses if the chain started again since it was proven: within the seconds for which a proof
    /// is valid, a test network can do so. Called right before anything is sent.
    pub(super) async fn check_epoch(&self, proven: &str) -> Result<(), Outcome> {
        if epoch(&self.chain).await? == proven {
            return Ok(());
        }
        self.forget();
        let message = "the chain started again: nothing was sent";
        Err(Outcome::refused(Reason::PinsUnproven, message))
    }

    async fn make(&self) -> Proof {
        let checked_at = SystemTime::now();
        // as long as one call may take, so that requests do not wait longer for a proof
        let read = tokio::time::timeout(MAX_NODE_TIMEOUT, self.read()).await;
        match read.ok().flatten() {
            Some((epoch, pins)) => Proof { checked_at, epoch, pins },
            None => self.unproven(checked_at),
        }
    }

    fn unproven(&self, checked_at: SystemTime) -> Proof {
        Proof { checked_at, epoch: None, pins: table::unreadable(&self.pins) }
    }

    /// The chain's epoch, unless it changed meanwhile, and every pin; `None` if the node is away.
    async fn read(&self) -> Option<(Option<String>, Vec<Pin>)> {
        let before = epoch(&self.chain).await.ok()?;
        let pins = table::read(&self.pins, &self.chain, &self.metrics).await;
        let after = epoch(&self.chain).await.ok().filter(|after| *after == before);
        Some((after, pins))
    }
}

/// The chain's epoch: its first block. A test network that starts again has another timestamp
/// there, even if the hash is the same.
async fn epoch(chain: &Chain) -> Result<String, RpcError> {
    let anchor = chain.anchor().await?;
    Ok(format!("{}@{}", anchor.hash, anchor.timestamp))
}
