//! The public read path: a permitted read to one verified answer of the node.
//!
//! It holds the policy and what the policy counts with. It never sees a head or a body that the
//! policy did not, and never writes to a client. Next: `node`, which fetches the answer.

use crate::config::{CorsOrigins, GatewayConfig};
use crate::node::{Answer, Fault, Node, Over};
use arc_swap::ArcSwap;
use http::HeaderValue;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_filters::client::{Client, TrustedProxies};
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Millis, Quota, SharedLimiter, Standing};
use portcullis_filters::policy::{Admission, GatewayPolicy};
use portcullis_filters::rpc::MethodSet;
use portcullis_filters::verdict::ReadPermit;
use std::hash::RandomState;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The gateway's policy and state.
pub struct Gateway {
    settings: ArcSwap<Settings>,
    limiter: SharedLimiter<RandomState>,
    in_flight: Inflight,
    started: Instant,
    node: Arc<Node>,
}

/// What a running gateway can change.
#[derive(Debug)]
pub struct Settings {
    /// The policy.
    pub policy: GatewayPolicy,
    /// Which web pages may read answers.
    pub cors: CorsOrigins,
    /// `RateLimit-Policy`, as every answer carries it.
    pub quota_header: HeaderValue,
    quota: Quota,
    max_in_flight: isize,
}

impl From<&GatewayConfig> for Settings {
    fn from(config: &GatewayConfig) -> Self {
        let quota = config.requests_per_minute;
        Self {
            policy: GatewayPolicy {
                methods: MethodSet::new(&config.methods),
                trusted_proxies: TrustedProxies::from(config.trusted_proxies.clone()),
            },
            cors: config.cors_origins.clone(),
            quota_header: HeaderValue::try_from(format!("\"minute\";q={quota};w=60"))
                .expect("digits, letters and ASCII punctuation are a header value"),
            quota: Quota::per_minute(quota)
                .expect("the configuration takes 1 to 1,000,000,000, and so does a quota"),
            max_in_flight: isize::try_from(config.max_in_flight_per_client).unwrap_or(isize::MAX),
        }
    }
}

impl Gateway {
    /// A gateway as configured, before this node.
    pub fn new(config: &GatewayConfig, node: Arc<Node>) -> Self {
        let settings = Settings::from(config);
        let capacity = u32::try_from(config.max_clients).unwrap_or(u32::MAX);
        let capacity = NonZeroU32::new(capacity).unwrap_or(NonZeroU32::MIN);
        Self {
            limiter: SharedLimiter::new(settings.quota, capacity, RandomState::new()),
            settings: ArcSwap::from_pointee(settings),
            in_flight: Inflight::new(),
            started: Instant::now(),
            node,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes over other settings, for the requests to come.
    pub fn change(&self, settings: Settings) {
        self.limiter.set_quota(settings.quota);
        self.settings.store(Arc::new(settings));
    }

    /// Judges a head that came at `now`.
    pub fn admit(&self, settings: &Settings, head: &Head<'_>, now: Instant) -> Admission<Guard> {
        settings.policy.admit(head, &self.limiter, self.millis(now), |client| {
            let (guard, count) = self.in_flight.incr(client, 1);
            (count <= settings.max_in_flight).then_some(guard)
        })
    }

    /// How a peer stands with its limit, without counting anything.
    pub fn standing(&self, peer: Client) -> Standing {
        self.limiter.peek(peer.key, self.millis(Instant::now()))
    }

    fn millis(&self, now: Instant) -> Millis {
        let millis = now.duration_since(self.started).as_millis();
        Millis(u64::try_from(millis).unwrap_or(u64::MAX))
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

    /// Clients that the limiter remembers, and how many it forgot because it was full.
    pub fn limiter_population(&self) -> (u64, u64) {
        (u64::from(self.limiter.population()), self.limiter.evicted())
    }
}
