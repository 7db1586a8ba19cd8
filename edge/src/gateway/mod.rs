//! The public read path: from an admitted request to one verified answer of the node.
//!
//! A read comes from the cache (`cache`), from an identical read that is under way (`flights`), or
//! from the node (`crate::node`). A body that repeats an earlier one is not parsed again
//! (`parsed_bodies`). `watcher` polls the chain; the pure crate decides when, and for how long
//! answers are valid. Nothing here reads from or writes to a client.

mod cache;
mod flights;
mod parsed_bodies;
mod watcher;

pub use cache::{CacheStats, ReadRequest};
pub use watcher::Watcher;

use crate::fleet::Fleet;
use crate::http::clients::{self, ClientLimits, Running};
use crate::node::{Answer, Call, ClientRead, Node, NodeClient, NodeError, Route, chain};
use ahash::RandomState;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use cache::{Cache, CacheKey, Latest};
use flights::{Flights, Role};
use ipnet::IpNet;
use parsed_bodies::ParsedBodyCache;
use portcullis_base::config::{CorsOrigins, GatewayConfig, GatewayLive, NodeConfig};
use portcullis_base::io::MemoryPool;
use portcullis_base::io::gzip::GzipForm;
use portcullis_base::telemetry::{CacheUse, Metrics};
use portcullis_filters::chain::View;
use portcullis_filters::client::{Client, ClientKey, TrustedProxies};
use portcullis_filters::concurrency::{CostClass, MAX_WAIT};
use portcullis_filters::networks::{NetworkMap, Networks};
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::position::ChainPosition;
use portcullis_filters::rpc::{CacheClass, Method, MethodSet};
use portcullis_filters::verdict::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The gateway's policy and state.
pub struct Gateway {
    /// The settings in force, and the clients.
    pub running: Running<Settings>,
    node: Arc<NodeClient>,
    cache: Arc<Cache>,
    bodies: ParsedBodyCache,
    flights: Arc<Flights<Result<Answer, NodeError>>>,
    /// Seeds the hash of every [`CacheKey`].
    keys: RandomState,
    latest: Latest,
    /// The version of the API that the node returned last to a client.
    version: ArcSwapOption<String>,
}

/// The settings of a running gateway that a reload changes.
#[derive(Debug)]
pub struct Settings {
    /// The policy.
    pub policy: GatewayPolicy,
    /// Which web pages may read answers.
    pub cors: CorsOrigins,
    /// The limits of each client.
    pub limits: ClientLimits,
    /// The limits of the clients in some networks.
    pub networks: NetworkMap<Arc<ClientLimits>>,
    /// The clients that the rate limit does not count.
    pub exempt: Networks,
    /// Whether identical concurrent reads share one call to the node.
    pub single_flight: bool,
    /// Whether answers that cannot change are cached.
    pub cache: bool,
    /// Whether answers of 1 KiB and more are compressed for clients that accept gzip.
    pub gzip: bool,
}

impl From<&GatewayLive> for Settings {
    fn from(live: &GatewayLive) -> Self {
        let GatewayLive {
            methods,
            cors_origins,
            single_flight,
            docs,
            gzip,
            exempt,
            blocked,
            clients,
            networks,
            tls: _,
            cache,
        } = live;
        let networks = networks.iter().flat_map(|own| {
            let limits = Arc::new(ClientLimits::of_network(own, clients));
            let with_limits = move |network: &IpNet| (*network, Arc::clone(&limits));
            own.networks.iter().map(with_limits)
        });
        Self {
            policy: GatewayPolicy {
                methods: MethodSet::new(methods),
                trusted_proxies: TrustedProxies::from(&*clients.trusted_proxies),
                blocked: Networks::from(&**blocked),
                has_documents: *docs,
            },
            cors: cors_origins.clone(),
            limits: ClientLimits::new(clients),
            networks: networks.collect(),
            exempt: Networks::from(&**exempt),
            single_flight: *single_flight,
            cache: cache.enabled,
            gzip: *gzip,
        }
    }
}

impl clients::Settings for Settings {
    fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    fn limits_of(&self, client: Client) -> &ClientLimits {
        match self.networks.get(client.address) {
            Some(own) => own,
            None => &self.limits,
        }
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.policy.trusted_proxies
    }
}

/// How long a request waits for this instance's view to reach the required position.
const CATCHING_UP: Duration = Duration::from_millis(100);
/// The longest version, such as `0.10.4-rc.1`, in bytes.
const MAX_VERSION: usize = 24;
/// Timeout for the node to report its height.
const HEIGHT_TIMEOUT: Duration = Duration::from_secs(1);

/// Per-request data of a read.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The client.
    pub client: ClientKey,
    /// The trace context to pass on, if this read is sent to the node.
    pub traceparent: Option<&'a [u8]>,
    /// The position that the answer must reach, which [`Gateway::catch_up`] has confirmed.
    pub position: Option<ChainPosition>,
}

/// The result of looking up a read in the cache.
pub enum Lookup<'a> {
    /// The cached answer, and the chain's position.
    Cached(Answer, Option<ChainPosition>),
    /// The answer has to be fetched.
    Pending(PendingRead<'a>),
}

impl Lookup<'_> {
    /// How the cache was used.
    pub fn cache(&self) -> CacheUse {
        match self {
            Self::Cached(..) => CacheUse::Hit,
            Self::Pending(pending) => pending.cache,
        }
    }

    /// The chain's known position before the answer, or the required one if that is later.
    pub fn position(&self) -> Option<ChainPosition> {
        match self {
            Self::Cached(_, position) => *position,
            Self::Pending(PendingRead {
                view, caller, pin, ..
            }) => pinned(view.position(), *pin).max(caller.position),
        }
    }
}

/// A read whose answer comes from the node, or from the leader of an identical read.
pub struct PendingRead<'a> {
    gateway: &'a Gateway,
    request: &'a ReadRequest,
    caller: Caller<'a>,
    /// The call to the node, and which URL may answer it.
    call: (Arc<CacheKey>, Route),
    /// The block that `latest` is pinned to, if it is the same for several nodes.
    pin: Option<u64>,
    /// The state of the chain before the node is queried.
    view: View,
    /// How the answer may be cached, if it may.
    class: Option<CacheClass>,
    /// `None` when single-flight is off.
    role: Option<Role<Result<Answer, NodeError>>>,
    cache: CacheUse,
}

/// The position of an answer from a pinned block, which may be behind the newest one.
fn pinned(position: Option<ChainPosition>, pin: Option<u64>) -> Option<ChainPosition> {
    let at = position?;
    Some(ChainPosition {
        height: pin.map_or(at.height, |pin| pin.min(at.height)),
        ..at
    })
}

impl Gateway {
    /// Creates a gateway in front of `node`. Cached answers take their memory from `memory`.
    pub fn new(config: &GatewayConfig, node: Arc<NodeClient>, memory: Arc<MemoryPool>) -> Self {
        let latest = if node.shared().is_group() {
            Latest::Pinnable
        } else {
            Latest::OfNode
        };
        Self {
            running: Running::new(Settings::from(&config.live), &config.clients),
            node,
            cache: Arc::new(Cache::new(&config.cache, &config.live.cache, memory)),
            bodies: ParsedBodyCache::new(),
            flights: Flights::new(),
            keys: RandomState::new(),
            latest,
            version: ArcSwapOption::empty(),
        }
    }

    /// Creates the service that watches the chain for this gateway's cache.
    pub fn watcher(
        &self,
        config: &GatewayConfig,
        node: &NodeConfig,
        metrics: Arc<Metrics>,
        fleet: Option<Arc<Fleet>>,
    ) -> Watcher {
        let interval = config.cache.watch_interval;
        let shared = self.node.shared();
        Watcher::new(
            Arc::clone(&self.cache),
            interval,
            shared,
            node,
            metrics,
            fleet,
        )
    }

    /// Applies other settings to later requests.
    pub fn change(&self, settings: Settings) {
        if settings.cache {
            self.cache.enable();
        } else {
            self.cache.disable();
        }
        self.running.change(settings);
    }

    /// The state of the cache, for metrics.
    pub fn cache(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Records the version of the API that the node returned, as JSON.
    fn note_version(&self, json: &[u8]) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        match serde_json::from_slice::<String>(json) {
            Ok(version) if version.len() <= MAX_VERSION && version.chars().all(is_part) => {
                self.version.store(Some(Arc::new(version)));
            }
            _ => {}
        }
    }

    /// The version of the API that the node returned last to a client.
    pub fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
    }

    /// The node that answers.
    pub fn node(&self) -> &Node {
        self.node.shared()
    }

    /// Inspects the body of an admitted request. Returns the permitted read and the JSON text of
    /// the request's id.
    ///
    /// # Errors
    /// Returns the policy's refusal.
    pub fn inspect<'a>(
        &self,
        settings: &Settings,
        body: &'a [u8],
    ) -> Result<(Arc<ReadRequest>, &'a str), Refusal> {
        let key = self.bodies.key(body);
        if let Some(key) = &key
            && let Some(request) = self.bodies.get(key)
            && settings.policy.methods.contains(request.method())
        {
            return Ok((request, key.id()));
        }
        let permit = settings.policy.inspect(body)?;
        let id = permit.id();
        let request = Arc::new(ReadRequest::new(
            permit.into_read(),
            &self.keys,
            self.latest,
        ));
        if let Some(key) = key {
            self.bodies.insert(&key, id, &request);
        }
        Ok((request, id.as_str()))
    }

    /// Makes the gzip form of an answer's payload, once, and adds it to the weight of a cached
    /// answer.
    pub async fn make_gzip(&self, request: &ReadRequest, payload: &Bytes, form: &GzipForm) {
        if form.make(payload, Some(&self.cache.memory)).await {
            self.cache.reweigh(request.cached_under(), form);
        }
    }

    /// The chain's position, if the chain is observed.
    pub fn position(&self) -> Option<ChainPosition> {
        self.cache.view().position()
    }

    /// Waits until this instance, or else the node, is known to have reached this position. Returns
    /// whether one has.
    ///
    /// # Errors
    /// Returns why the node's answer about its height cannot be used.
    pub async fn catch_up(
        &self,
        position: ChainPosition,
        client: ClientKey,
    ) -> Result<bool, NodeError> {
        if self.cache.view().reaches(position) {
            return Ok(true);
        }
        self.cache.reach(position, CATCHING_UP).await;
        if self.cache.view().reaches(position) {
            return Ok(true);
        }
        let write = |id, out: &mut Vec<u8>| {
            chain::write_request(id, "starknet_blockNumber", "[]", out);
        };
        let deadline = Instant::now() + HEIGHT_TIMEOUT.min(self.node.timeout());
        let share = self.running.clients().answers_of(client);
        let route = if self.node.shared().pinned_head().is_some() {
            // this client only is beyond the pin
            Route::Primary
        } else {
            Route::HeadOfPrimary
        };
        let read = ClientRead {
            client,
            class: CostClass::Lookup,
            until: Instant::now() + MAX_WAIT,
        };
        let call = Call::new(write, deadline).by(route).for_client(share);
        let call = call.reading(read);
        let answer = self.node.fetch(call).await?;
        let height = serde_json::from_slice::<u64>(&answer.payload);
        Ok(answer.is_result() && height.is_ok_and(|height| height >= position.height))
    }

    /// Looks up a client's permitted read.
    pub fn lookup<'a>(
        &'a self,
        settings: &Settings,
        request: &'a ReadRequest,
        caller: Caller<'a>,
    ) -> Lookup<'a> {
        let view = self.cache.view();
        // if the view is behind the required position, the cache is skipped
        let is_far = caller
            .position
            .is_none_or(|position| view.reaches(position));
        let class = request
            .class
            .filter(|_| settings.cache && view.in_use && is_far);
        let cached = || class.and_then(|_| self.cache.get(request.cached_under(), &view));
        if let Some(answer) = cached() {
            return Lookup::Cached(answer, view.position());
        }
        let pin = self.pin(&view, caller.position);
        let call = self.call(request, pin);
        let joins = settings.single_flight && is_far;
        let mut role = joins.then(|| self.join(&view, &call.0));
        if let Some(Role::Leader(leader)) = role {
            // the flight before this one may have ended after the lookup above
            if let Some(answer) = cached() {
                leader.complete(&Ok(answer.clone()));
                return Lookup::Cached(answer, view.position());
            }
            role = Some(Role::Leader(leader));
        }
        let cache = match role {
            None if !settings.cache => CacheUse::Off,
            None | Some(Role::Leader(_)) => CacheUse::Miss,
            Some(Role::Follower(_)) => CacheUse::Shared,
        };
        log::debug!(
            method = request.method().name(), cache = cache.name(), in_use = view.in_use,
            epoch = view.generation, settled:? = view.settled; "not in the cache"
        );
        let gateway = self;
        Lookup::Pending(PendingRead {
            gateway,
            request,
            caller,
            call,
            pin,
            view,
            class,
            role,
            cache,
        })
    }

    /// The block that `latest` is pinned to, if it has reached `position`; otherwise the primary is
    /// queried, which has.
    fn pin(&self, view: &View, position: Option<ChainPosition>) -> Option<u64> {
        let head = self
            .node
            .shared()
            .pinned_head()
            .filter(|_| self.latest == Latest::Pinnable)?;
        let is_far = |wanted| pinned(view.position(), Some(head)).is_some_and(|own| own >= wanted);
        position.is_none_or(is_far).then_some(head)
    }

    /// The call to the node for a read. Where `latest` is pinned, reads at different pins are
    /// different calls.
    fn call(&self, request: &ReadRequest, pin: Option<u64>) -> (Arc<CacheKey>, Route) {
        if let Some(head) = pin
            && let Some(pinned) = request.pinned_to(head, &self.keys)
        {
            return (Arc::new(pinned), Route::Block(head));
        }
        let route = request.route();
        // beyond the pin: read from the primary, for this client only
        let is_beyond =
            pin.is_none() && route.is_at_head() && self.node.shared().pinned_head().is_some();
        (
            Arc::clone(&request.key),
            if is_beyond { Route::Primary } else { route },
        )
    }

    fn join(&self, view: &View, call: &Arc<CacheKey>) -> Role<Result<Answer, NodeError>> {
        self.flights
            .join((view.generation, view.position()), Arc::clone(call))
    }
}

impl PendingRead<'_> {
    /// Waits for the answer, and writes to `took` how long that took.
    ///
    /// # Errors
    /// Returns why the node's answer cannot be passed on.
    pub fn answer(
        mut self,
        took: &mut Duration,
    ) -> impl Future<Output = Result<Answer, NodeError>> {
        let start = Instant::now();
        // a block: an `async fn` would hold its arguments twice
        async move {
            let deadline = start + self.gateway.node.timeout();
            let answer = loop {
                let Some(Role::Follower(answer)) = &mut self.role else {
                    break self.fetch_and_cache(start).await;
                };
                match timeout_at(deadline, answer).await {
                    Ok(Ok(answer)) => break answer,
                    Err(_) => break Err(NodeError::Timeout),
                    // the leader is gone
                    Ok(Err(_)) => {
                        self.role = Some(self.gateway.join(&self.view, &self.call.0));
                    }
                }
            };
            // a leader over its share, or with a weak claim, is replaced by one of its followers
            if let Some(Role::Leader(leader)) = self.role.take()
                && !matches!(answer, Err(NodeError::OverShare | NodeError::Crowded))
            {
                leader.complete(&answer);
            }
            *took = start.elapsed();
            answer
        }
    }

    /// Fetches the answer for a client that has waited since `start`.
    async fn fetch_and_cache(&self, start: Instant) -> Result<Answer, NodeError> {
        if let Some(block) = self.view.settled.filter(|_| self.class.is_some())
            && let Some(settled) = self.request.at(block, &self.gateway.keys)
        {
            // boxed: few reads have a final form
            let answer = Box::pin(self.fetch(&settled, Route::Block(block), start)).await?;
            if answer.is_result() {
                self.store(CacheClass::ClassAt(block), &answer);
                return Ok(answer);
            }
            // the class is newer than the settled block, or the node no longer has that block's
            // state
        }
        let (call, route) = (&*self.call.0, self.call.1);
        if route == Route::HeadNumber
            && let Some(head) = self.pin
        {
            return Ok(self.gateway.node.answer_with(head.to_string()));
        }
        let answer = self.fetch(call, route, start).await?;
        if self.request.method() == Method::SpecVersion && answer.is_result() {
            self.gateway.note_version(&answer.payload);
        }
        if let Some(class) = self.class.filter(|_| answer.is_result()) {
            self.store(class, &answer);
        }
        Ok(answer)
    }

    fn fetch<'a>(
        &'a self,
        key: &'a CacheKey,
        route: Route,
        start: Instant,
    ) -> impl Future<Output = Result<Answer, NodeError>> + 'a {
        let write = |id, out: &mut Vec<u8>| key.call().write_request(id, out);
        let share = self
            .gateway
            .running
            .clients()
            .answers_of(self.caller.client);
        let read = ClientRead {
            client: self.caller.client,
            class: CostClass::of(self.request.method()),
            until: start + MAX_WAIT,
        };
        let deadline = start + self.gateway.node.timeout();
        let call = Call::new(write, deadline).by(route).for_client(share);
        let call = call.traced(self.caller.traceparent).reading(read);
        self.gateway.node.fetch(call)
    }

    fn store(&self, class: CacheClass, answer: &Answer) {
        let result = std::str::from_utf8(&answer.payload).ok();
        let decision = match result.and_then(|result| class.policy(result)) {
            Some(policy) => {
                let key = Arc::clone(self.request.cached_under());
                self.gateway.cache.insert(key, answer, policy, &self.view)
            }
            None => "later blocks may change it",
        };
        log::debug!(method = self.request.method().name(), decision; "answer for the cache");
    }
}
