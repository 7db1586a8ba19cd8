//! The protected write path: nothing reaches the chain that the policy did not approve, and nothing
//! approved is lost or sent twice.
//!
//! In: admitted requests. Out: replies. `settings` (configuration), `handler` (one request), `pins`
//! (what the chain must hold), `signers` (keys and locks), `driver` (the I/O of the transaction
//! manager, `portcullis_filters::txm`), `background` (resolves open intents), `answer` (the reply),
//! `events` and `receiver` (what the backend is sent). Requests run on a runtime of their own: a
//! client that disconnects does not cancel one.

mod answer;
mod background;
#[cfg(test)]
mod contract;
mod driver;
mod events;
mod handler;
pub mod pins;
mod receiver;
pub mod settings;
mod signers;
mod trace;

pub(crate) use answer::format as error_format;
pub(crate) use handler::Request;
pub(crate) use trace::Trace;

use crate::http::clients::Running;
use crate::node::NodeClient;
use crate::node::chain::Chain;
use crate::reply::Reply;
use background::Reconciliation;
use driver::Driver;
use events::{EventSender, Events};
use handler::Handler;
use pins::Prover;
use portcullis_base::config::{RelayConfig, RelayLive};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::chain::Proof;
use portcullis_store::Store;
use settings::{Account, Keys, LiveSecrets, Pinned, Pins, Settings};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The relay: its policy and its parts.
pub struct Relay {
    /// The settings in force, and the clients.
    pub running: Arc<Running<Settings>>,
    driver: Arc<Driver>,
    handler: Arc<Handler>,
    events: Arc<Events>,
    runtime: Handle,
}

/// The dependencies of a relay.
pub struct Parts {
    /// The secrets that a reload renews.
    pub secrets: LiveSecrets,
    /// The keys that sign.
    pub keys: Keys,
    /// The node, by typed calls.
    pub chain: Chain,
    /// The journal.
    pub store: Arc<Store>,
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Runs what outlives a request.
    pub runtime: Handle,
}

impl Relay {
    /// Builds the parts. [`Self::reconciliation`] resolves the open intents of earlier processes.
    pub fn new(config: &RelayConfig, parts: Parts) -> Arc<Self> {
        let Parts {
            secrets,
            keys,
            chain,
            store,
            metrics,
            runtime,
        } = parts;
        let pins = Arc::new(Pins::new(config, &keys));
        metrics
            .relay
            .minimum_balance(pins.config.minimum_balance.fri());
        let chain = Arc::new(chain);
        let LiveSecrets { tokens, receiver } = secrets;
        let events = Arc::new(Events::new(receiver, &store, &metrics));
        let settings = Settings::new(&config.live, tokens, Pinned::new(&config.pins));
        let running = Arc::new(Running::new(settings, &config.clients));
        let signers = signers::new(&pins, keys, &store);
        let prover = Prover::new(
            Arc::clone(&pins),
            Arc::clone(&chain),
            Arc::clone(&running),
            Some(Arc::clone(&store)),
            Arc::clone(&metrics),
        );
        let pins = pins.for_writes();
        let driver = Arc::new(Driver::new(
            pins, &chain, store, &prover, signers, &running, &metrics,
        ));
        let handler = Arc::new(Handler(Arc::clone(&driver)));
        Arc::new(Self {
            running,
            driver,
            handler,
            events,
            runtime,
        })
    }

    /// Applies other settings to later requests.
    pub fn change(&self, live: &RelayLive, secrets: LiveSecrets) {
        let LiveSecrets { tokens, receiver } = secrets;
        self.events.change(receiver);
        let pinned = self.running.settings().pinned();
        self.running.change(Settings::new(live, tokens, pinned));
    }

    /// The task that resolves open intents.
    pub fn reconciliation(&self) -> Reconciliation {
        Reconciliation {
            driver: Arc::clone(&self.driver),
            runtime: self.runtime.clone(),
        }
    }

    /// The task that sends events.
    pub fn event_sender(&self) -> EventSender {
        EventSender {
            events: Arc::clone(&self.events),
            runtime: self.runtime.clone(),
        }
    }

    /// Responds to a request, in a task that does not end with the caller. Also returns the name
    /// for the log.
    pub(crate) async fn respond(&self, request: Request) -> (&'static str, Reply) {
        match self
            .runtime
            .spawn(Arc::clone(&self.handler).handle(request))
            .await
        {
            Ok(done) => done,
            // a panic ends this request as well
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// The accounts that sign, each with the number of operations in its queue.
    pub fn signers(&self) -> impl Iterator<Item = (Account, usize)> {
        self.driver
            .signers
            .iter()
            .map(|signer| (signer.account, signer.waiting()))
    }

    /// The newest proof of the pins, valid or not. Does not start another one.
    pub fn newest_proof(&self) -> Option<Arc<Proof>> {
        let node = self.driver.chain.0.shared();
        node.read(|known| known.proven.newest.clone())
    }

    /// The node, over the connections of the relay.
    pub fn node(&self) -> &NodeClient {
        &self.driver.chain.0
    }
}
