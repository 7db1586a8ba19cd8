//! The public read path: a read that the policy permits to one verified answer of the node.
//!
//! It holds the policy and what the policy counts with. It never sees a head or a body that the
//! policy did not, and never writes to a client. Next: `reads` (one read, from its body on),
//! `bodies` (bodies that came before), `flights` (identical reads at a time), `cache` (what is
//! given again), `watch` and `watcher` (for how long), and `node`, which fetches the answer.

mod cache;
mod cache_key;
mod flights;
mod parsed_bodies;
mod reads;
mod watch;
mod watcher;

pub use cache::CacheStats;
pub use cache_key::ReadRequest;
pub use reads::{Lookup, PendingRead};
pub use watch::EpochCause;
pub use watcher::Watcher;

use crate::config::{CorsOrigins, GatewayConfig, NodeConfig};
use crate::http::clients::{ClientLimits, Clients};
use crate::io::memory::MemoryPool;
use crate::node::Node;
use crate::telemetry::Metrics;
use arc_swap::ArcSwap;
use cache::Cache;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::policy::{Admission, GatewayPolicy, JudgedHead};
use portcullis_filters::rpc::MethodSet;
use portcullis_filters::verdict::Refusal;
use reads::Reads;
use std::sync::Arc;
use tokio::time::Instant;

/// The gateway's policy and state.
pub struct Gateway {
    settings: ArcSwap<Settings>,
    clients: Clients,
    reads: Reads,
}

/// What a running gateway can change.
#[derive(Debug)]
pub struct Settings {
    /// The policy.
    pub policy: GatewayPolicy,
    /// Which web pages may read answers.
    pub cors: CorsOrigins,
    /// How much one client may ask.
    pub limits: ClientLimits,
    /// Whether identical reads at a time are one call to the node.
    pub single_flight: bool,
    /// Whether answers that can not change are given again.
    pub cache: bool,
}

impl From<&GatewayConfig> for Settings {
    fn from(config: &GatewayConfig) -> Self {
        Self {
            policy: GatewayPolicy {
                methods: MethodSet::new(&config.methods),
                trusted_proxies: TrustedProxies::from(config.clients.trusted_proxies.clone()),
            },
            cors: config.cors_origins.clone(),
            limits: ClientLimits::new(&config.clients),
            single_flight: config.single_flight,
            cache: config.cache.enabled,
        }
    }
}

impl Gateway {
    /// A gateway as configured, before this node. `memory` is where the node's answers have theirs.
    pub fn new(config: &GatewayConfig, node: Arc<Node>, memory: Arc<MemoryPool>) -> Self {
        let settings = Settings::from(config);
        Self {
            clients: Clients::new(&settings.limits, &config.clients),
            settings: ArcSwap::from_pointee(settings),
            reads: Reads::new(node, Cache::new(&config.cache, memory)),
        }
    }

    /// What watches the chain for its cache.
    pub fn watcher(
        &self,
        config: &GatewayConfig,
        node: &NodeConfig,
        metrics: Arc<Metrics>,
    ) -> Watcher {
        Watcher::new(Arc::clone(&self.reads.cache), config.cache.watch_interval, node, metrics)
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes over other settings, for the requests to come.
    pub fn change(&self, settings: Settings) {
        self.clients.change(&settings.limits);
        self.reads.cache.switch(settings.cache);
        self.settings.store(Arc::new(settings));
    }

    /// Admits a request with a judged head that came at `now`.
    pub fn admit(&self, settings: &Settings, head: &JudgedHead, now: Instant) -> Admission<Guard> {
        let enter = |client| self.clients.enter(client, &settings.limits);
        settings.policy.admit(head, self.clients.limiter(), self.clients.millis(now), enter)
    }

    /// The read that the body of an admitted call asks for, and the JSON text of the request's id.
    ///
    /// # Errors
    /// What the policy refuses it for.
    pub fn read<'a>(
        &self,
        settings: &Settings,
        body: &'a [u8],
    ) -> Result<(Arc<ReadRequest>, &'a str), Refusal> {
        self.reads.read(&settings.policy, body)
    }

    /// Begins a permitted read. `traceparent` reaches the node if this read does.
    pub fn begin<'a>(
        &'a self,
        settings: &Settings,
        wanted: &'a ReadRequest,
        traceparent: Option<&'a [u8]>,
    ) -> Lookup<'a> {
        self.reads.begin(settings, wanted, traceparent)
    }

    /// Its clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// How its cache stands.
    pub fn cache(&self) -> CacheStats {
        self.reads.cache.stats()
    }
}
