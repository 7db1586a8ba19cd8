//! The public read path: a permitted read to one verified answer of the node.
//!
//! It holds the policy and what the policy counts with. It never sees a head or a body that the
//! policy did not, and never writes to a client. Next: `node`, which fetches the answer.

use crate::clients::{ClientLimits, Clients};
use crate::config::{CorsOrigins, GatewayConfig};
use crate::node::{Answer, Fault, Node, Over};
use arc_swap::ArcSwap;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::head::Head;
use portcullis_filters::policy::{Admission, GatewayPolicy};
use portcullis_filters::rpc::MethodSet;
use portcullis_filters::verdict::ReadPermit;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The gateway's policy and state.
pub struct Gateway {
    settings: ArcSwap<Settings>,
    clients: Clients,
    node: Arc<Node>,
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
        }
    }
}

impl Gateway {
    /// A gateway as configured, before this node.
    pub fn new(config: &GatewayConfig, node: Arc<Node>) -> Self {
        let settings = Settings::from(config);
        Self {
            clients: Clients::new(&settings.limits, &config.clients),
            settings: ArcSwap::from_pointee(settings),
            node,
        }
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
    pub fn admit(&self, settings: &Settings, head: &Head<'_>, now: Instant) -> Admission<Guard> {
        let enter = |client| self.clients.enter(client, &settings.limits);
        settings.policy.admit(head, self.clients.limiter(), self.clients.millis(now), enter)
    }

    /// Answers a permitted read, and says in `took` how long the node took.
    ///
    /// # Errors
    /// The fault that kept the node's answer from being passed on.
    pub async fn answer(
        &self,
        permit: &ReadPermit<'_>,
        traceparent: Option<&[u8]>,
        took: &mut Duration,
    ) -> Result<Answer, Fault> {
        self.node
            .fetch(
                |id, out: &mut Vec<u8>| permit.write_request(id, out),
                Over::Pool,
                traceparent,
                took,
            )
            .await
    }

    /// Its clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }
}
