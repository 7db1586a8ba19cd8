//! The public read path: a permitted read to one verified answer of the node.
//!
//! It holds the policy and what the policy counts with. It never sees a head or a body that the
//! policy did not, and never writes to a client. Next: `node`, which fetches the answer.

use crate::config::GatewayConfig;
use crate::node::{Answer, Fault, Node};
use arc_swap::ArcSwap;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Millis, Quota, SharedLimiter};
use portcullis_filters::policy::{Admission, GatewayPolicy};
use portcullis_filters::rpc::MethodSet;
use portcullis_filters::verdict::ReadPermit;
use std::hash::RandomState;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The gateway's policy and state.
pub struct Gateway {
    policy: ArcSwap<GatewayPolicy>,
    limiter: SharedLimiter<RandomState>,
    in_flight: Inflight,
    max_in_flight: AtomicIsize,
    started: Instant,
    node: Arc<Node>,
}

impl Gateway {
    /// A gateway as configured, before this node.
    pub fn new(config: &GatewayConfig, node: Arc<Node>) -> Self {
        let capacity = u32::try_from(config.max_clients).unwrap_or(u32::MAX);
        let capacity = NonZeroU32::new(capacity).unwrap_or(NonZeroU32::MIN);
        Self {
            policy: ArcSwap::from_pointee(policy(config)),
            limiter: SharedLimiter::new(quota(config), capacity, RandomState::new()),
            in_flight: Inflight::new(),
            max_in_flight: AtomicIsize::new(max_in_flight(config)),
            started: Instant::now(),
            node,
        }
    }

    /// Takes over what a running gateway can change: the policy, the limits.
    pub fn reconfigure(&self, config: &GatewayConfig) {
        self.policy.store(Arc::new(policy(config)));
        self.limiter.set_quota(quota(config));
        self.max_in_flight.store(max_in_flight(config), Ordering::Relaxed);
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<GatewayPolicy> {
        self.policy.load_full()
    }

    /// Judges a head that came at `now`.
    pub fn admit(&self, policy: &GatewayPolicy, head: &Head<'_>, now: Instant) -> Admission<Guard> {
        let now = now.duration_since(self.started).as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        policy.admit(head, &self.limiter, Millis(now), |client| {
            let (guard, count) = self.in_flight.incr(client, 1);
            (count <= self.max_in_flight.load(Ordering::Relaxed)).then_some(guard)
        })
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
        self.node.fetch(permit, traceparent, took).await
    }

    /// Clients that the limiter remembers, and how many it forgot because it was full.
    pub fn limiter_population(&self) -> (u64, u64) {
        (u64::from(self.limiter.population()), self.limiter.evicted())
    }
}

/// The policy that a configuration asks for.
pub fn policy(config: &GatewayConfig) -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&config.methods),
        trusted_proxies: TrustedProxies::from(config.trusted_proxies.clone()),
    }
}

fn quota(config: &GatewayConfig) -> Quota {
    Quota::per_minute(config.requests_per_minute)
        .expect("the configuration takes 1 to 1,000,000,000 requests, and so does a quota")
}

fn max_in_flight(config: &GatewayConfig) -> isize {
    isize::try_from(config.max_in_flight_per_client).unwrap_or(isize::MAX)
}
