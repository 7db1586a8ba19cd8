//! Pins: what the chain must hold before anything is written to it.
//!
//! A [`Proof`] reads every pin and compares; it proves all of them or none, and serves for a few
//! seconds. One proof at a time is made, however many requests wait for it. Whatever can not be
//! read counts as not proven. The list is the owner's (`GET /readyz` proves …) and the wiring.

mod table;

use super::settings::Pins;
use crate::config::MAX_NODE_TIMEOUT;
use crate::node::chain::{Chain, RpcError};
use crate::telemetry::{Metrics, PinState};
use arc_swap::ArcSwapOption;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A failed proof serves no longer than this, so that a repaired chain is seen soon.
const RETRY: Duration = Duration::from_secs(1);
/// The pin that `/require-v2` is there to make true.
pub(super) const V2: &str = "verification_v2_required";

/// One pin, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// What is pinned.
    #[serde(rename = "pin")]
    pub name: &'static str,
    /// Whether the chain holds what is expected.
    pub ok: bool,
    /// What the chain must hold.
    pub expected: String,
    /// What it holds; `unreadable` if the node did not say.
    pub actual: String,
}

/// All pins at one time.
#[derive(Clone, Debug)]
pub struct Proof {
    /// When.
    pub checked_at: SystemTime,
    /// Which life of the chain it holds for: a test network can start again from nothing.
    pub epoch: Option<String>,
    /// Each pin.
    pub pins: Vec<Pin>,
    made: Instant,
}

impl Proof {
    /// Whether every pin holds.
    pub fn is_ready(&self) -> bool {
        self.epoch.is_some() && self.pins.iter().all(|pin| pin.ok)
    }

    /// Whether every pin holds that must before V2 is activated.
    pub fn is_ready_for_v2(&self) -> bool {
        self.epoch.is_some() && self.pins.iter().all(|pin| pin.ok || pin.name == V2)
    }
}

/// Makes proofs, and keeps the last one while it serves.
pub struct Prover {
    pins: Pins,
    max_age: Duration,
    last: Mutex<Option<Arc<Proof>>>,
    /// The newest, for whoever only looks on: it may serve no more.
    newest: ArcSwapOption<Proof>,
    metrics: Arc<Metrics>,
}

impl Prover {
    /// Of these pins; a proof serves for `max_age`.
    pub fn new(pins: Pins, max_age: Duration, metrics: Arc<Metrics>) -> Self {
        Self { pins, max_age, last: Mutex::new(None), newest: ArcSwapOption::empty(), metrics }
    }

    /// A proof that is fresh, made now if none is.
    pub async fn prove(&self, chain: &Chain) -> Arc<Proof> {
        let mut last = self.last.lock().await;
        if let Some(proof) = &*last {
            let serves = if proof.is_ready() { self.max_age } else { self.max_age.min(RETRY) };
            if proof.made.elapsed() < serves {
                return Arc::clone(proof);
            }
        }
        let proof = Arc::new(self.make(chain).await);
        self.metrics.relay.proved(&PinState {
            ready: proof.is_ready(),
            unproven: proof.pins.iter().filter(|pin| !pin.ok).count(),
            at: proof.checked_at,
        });
        self.newest.store(Some(Arc::clone(&proof)));
        *last = Some(Arc::clone(&proof));
        proof
    }

    /// The newest proof, however old; nothing is asked and nobody waited for.
    pub fn newest(&self) -> Option<Arc<Proof>> {
        self.newest.load_full()
    }

    /// The next proof is made anew: what was written may have changed a pin.
    pub async fn forget(&self) {
        *self.last.lock().await = None;
    }

    async fn make(&self, chain: &Chain) -> Proof {
        let made = Instant::now();
        let checked_at = SystemTime::now();
        // whoever waits for a proof is told within the time of one call
        let read = tokio::time::timeout(MAX_NODE_TIMEOUT, self.read(chain)).await;
        let (epoch, pins) = read.ok().flatten().unwrap_or((None, table::unreadable(&self.pins)));
        Proof { checked_at, epoch, pins, made }
    }

    /// The chain's life, unless it began anew meanwhile, and every pin; `None` when the node is
    /// away.
    async fn read(&self, chain: &Chain) -> Option<(Option<String>, Vec<Pin>)> {
        let before = epoch(chain).await.ok()?;
        let pins = table::read(&self.pins, chain, &self.metrics).await;
        // a chain that started again in the meantime proves nothing
        let after = epoch(chain).await.ok().filter(|after| *after == before);
        Some((after, pins))
    }
}

/// The chain's life: its first block. A test network that starts again has another timestamp there,
/// though the hash be the same.
pub(super) async fn epoch(chain: &Chain) -> Result<String, RpcError> {
    let genesis = chain.genesis().await?;
    Ok(format!("{}@{}", genesis.hash, genesis.timestamp))
}
