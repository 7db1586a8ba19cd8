//! The protected write path: nothing reaches the chain that the policy did not approve, and nothing
//! approved is lost or sent twice.
//!
//! In: admitted requests. Out: replies. One stage per file, in the order they run: `settings`
//! (configuration), `handler` (one request), `pins` (what the chain must hold), `transaction`
//! (users' own) and `operation` (ours, with `claim`, `operations`, `state`, `signers`), `submit`
//! (journal, node, receipt), `reconcile` (after a crash), `rollbacks` with `evidence` (after a
//! receipt), `outcome` and `answer` (the reply). Requests run on a runtime of their own: a client
//! that disconnects does not cancel one.

mod answer;
mod claim;
mod evidence;
mod handler;
mod operation;
mod operations;
mod outcome;
pub(crate) mod pins;
mod reconcile;
mod rollbacks;
pub mod settings;
mod signers;
mod state;
mod submit;
mod transaction;

pub(crate) use answer::format as error_format;
pub(crate) use handler::Request;
pub(crate) use submit::Trace;

use crate::config::RelayConfig;
use crate::http::clients::Running;
use crate::node::Node;
use crate::node::chain::Chain;
use crate::reply::Reply;
use crate::store::Store;
use crate::telemetry::Metrics;
use evidence::Evidence;
use handler::Handler;
use operation::Operations;
use pins::{Proof, Prover};
use reconcile::Reconciler;
use settings::{Account, Keys, Pins, Settings};
use signers::Signers;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use submit::{Journal, Submitter, WritesInFlight};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use transaction::Transactions;

/// The relay: its policy and its stages.
pub struct Relay {
    /// The settings in force, and the clients.
    pub(crate) running: Arc<Running<Settings>>,
    prover: Arc<Prover>,
    signers: Arc<Signers>,
    submitter: Arc<Submitter>,
    handler: Arc<Handler>,
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
        let journal = Journal { store: Arc::clone(&store), unsettled: Notify::new() };
        let prover = Prover::new(
            Arc::clone(&pins),
            Arc::clone(&chain),
            Arc::clone(&running),
            Some(store),
            Arc::clone(&metrics),
        );
        let submitter = Arc::new(Submitter { chain, journal, running: Arc::clone(&running) });
        let reconciler = Arc::new(Reconciler {
            prover: Arc::clone(&prover),
            signers: Arc::clone(&signers),
            submitter: Arc::clone(&submitter),
            metrics: Arc::clone(&metrics),
            evidence: Evidence::new(&submitter.chain),
            followed: AtomicUsize::new(0),
            reconciled: Mutex::default(),
        });
        runtime.spawn(Arc::clone(&reconciler).run());
        let transactions = Transactions {
            account_class: pins.config.account_class,
            prover: Arc::clone(&prover),
            signers: Arc::clone(&signers),
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
        let handler = Arc::new(Handler {
            prover: Arc::clone(&prover),
            submitter: Arc::clone(&submitter),
            transactions: Arc::new(transactions),
            operations: Arc::new(operations),
            metrics,
        });
        Arc::new(Self { running, prover, signers, submitter, handler, runtime })
    }

    /// Responds to a request, in a task that does not end with the caller. Also returns the name
    /// for the log.
    pub(crate) async fn respond(&self, request: Request) -> (&'static str, Reply) {
        match self.runtime.spawn(Arc::clone(&self.handler).handle(request)).await {
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
