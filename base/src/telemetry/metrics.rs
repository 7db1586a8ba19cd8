//! The metrics of the process: those of the gateway, the node and connections, and those of the
//! other parts.
//!
//! Label values come from closed sets, and the series of a request are made at start, so a request
//! costs a few atomic additions. `admin` samples values that other parts hold.

use super::acme::AcmeMetrics;
use super::conditions::Conditions;
use super::connection::{ConnectionOutcome, Handshake, ProxyHeader};
use super::fleet::FleetMetrics;
use super::latency::Latency;
use super::peers::PeerMetrics;
use super::process;
use super::registry::{Registry, SurfaceCounters, metrics};
use super::relay::RelayMetrics;
use super::reloads::ReloadMetrics;
use super::requests::{Calls, LATENCY, Requests};
use super::sidecar::SidecarMetrics;
use super::surface::{BySurface, Surface};
use super::tasks::TaskMetrics;
use portcullis_filters::named;
use portcullis_filters::rpc::Method;
use portcullis_filters::verdict::{Api, Reason};
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Histogram, IntCounter, IntCounterVec, IntGauge, TextEncoder};
use std::time::Duration;

/// Bucket bounds in bytes: a request has at most 64 KiB, a response at most 4 MiB.
const SIZE: [f64; 8] = [
    128.0,
    512.0,
    2048.0,
    8192.0,
    32768.0,
    131_072.0,
    524_288.0,
    4_194_304.0,
];

named! {
    /// How a call used the cache.
    pub enum CacheUse {
        /// Answered from the cache.
        Hit = "hit",
        /// Shared the response of an identical call in flight.
        Shared = "shared",
        /// Sent to the node.
        Miss = "miss",
        /// The cache is off, or does not apply to this call.
        Off = "off",
    }
}

named! {
    /// The outcome of exporting a span.
    pub enum SpanOutcome {
        /// The collector accepted it.
        Exported = "exported",
        /// The span was dropped from the full buffer for newer ones.
        Dropped = "dropped",
        /// The collector refused it.
        Refused = "refused",
        /// The collector could not be reached in time.
        Lost = "lost",
    }
}

/// Label values that modules above know. Each gets its series at start.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelValues<'a> {
    /// The commit of a release build.
    pub revision: &'a str,
    /// Why a call to the node failed.
    pub node_errors: &'a [&'a str],
    /// Why the cache was emptied.
    pub cache_causes: &'a [&'a str],
    /// The states of an intent.
    pub intent_states: &'a [&'a str],
}

metrics! {
    /// The metrics of the process.
    pub struct Metrics(registry, values: &LabelValues<'_>) {
        request_bytes: Histogram = histogram("portcullis_request_size_bytes",
            "Size of gateway request bodies.", &SIZE);
        response_bytes: Histogram = histogram("portcullis_response_size_bytes",
            "Size of gateway response bodies.", &SIZE);
        pub calls: IntCounterVec = counters("portcullis_calls_total",
            "Calls that passed the policy, by method and cache use.", &["method", "cache"]);
        pub cache_epochs: IntCounterVec = series("portcullis_cache_epochs_total",
            "How often the gateway's cache was emptied, by cause.", "cause", values.cache_causes);
        pub node_calls: IntCounterVec = series("portcullis_node_calls_total",
            "Calls to the node by outcome.", "outcome", &[&["ok"], values.node_errors].concat());
        pub node_attempts: IntCounterVec = counters("portcullis_node_attempts_total",
            "Attempts of calls and probes at each URL of the node, by outcome.",
            &["node", "outcome"]);
        pub node_seconds: Histogram = histogram("portcullis_node_call_duration_seconds",
            "Seconds of a call to the node, from the first connect to the last byte.", &LATENCY);
        pub node_retries: IntCounter = counter("portcullis_node_retries_total",
            "Calls sent again because a pooled connection was closed before the first byte.");
        pub connections: BySurface<IntGauge> = gauge_array("portcullis_connections",
            "Open client connections.", "surface", Surface::ALL.map(Surface::name));
        pub connections_limit: BySurface<IntGauge> = gauge_array("portcullis_connections_limit",
            "Client connections that may be open; 0 for a surface that is off.",
            "surface", Surface::ALL.map(Surface::name));
        pub connections_total: BySurface<[IntCounter; ConnectionOutcome::ALL.len()]> =
            counter_matrix("portcullis_connections_total",
                "Client connections by surface and by whether they were accepted or refused.",
                ["surface", "outcome"], Surface::ALL.map(Surface::name),
                ConnectionOutcome::ALL.map(ConnectionOutcome::name));
        pub handshakes: SurfaceCounters<{ Handshake::ALL.len() }> =
            surface_counters("portcullis_tls_handshakes_total",
                "TLS handshakes by surface and outcome, of surfaces with TLS.",
                Handshake::ALL.map(Handshake::name));
        pub proxy_headers: SurfaceCounters<{ ProxyHeader::ALL.len() }> =
            surface_counters("portcullis_proxy_headers_total",
                "PROXY headers by surface and outcome, of surfaces that expect them.",
                ProxyHeader::ALL.map(ProxyHeader::name));
        pub in_flight: IntGauge = gauge("portcullis_requests_in_flight", "Requests in flight.");
        pub draining: IntGauge = gauge("portcullis_draining",
            "1 while the process is shutting down.");
        pub store_pruned: IntGauge = gauge("portcullis_store_pruned_timestamp_seconds",
            "When `store prune` last ended, else when the store was made, in seconds since 1970; \
             0 without a store.");
        pub store_bytes: IntGauge = gauge("portcullis_store_bytes",
            "Bytes of the database, with SQLite's log; 0 without a store.");
        pub(super) spans: [IntCounter; SpanOutcome::ALL.len()] =
            counter_array("portcullis_trace_spans_total",
                "Spans of traced requests, by outcome.",
                "outcome", SpanOutcome::ALL.map(SpanOutcome::name));
    }
    with {
        /// The gateway's requests.
        pub requests: Requests = Requests::new(
            registry,
            ["portcullis_requests_total", "Gateway requests by verdict and reason."],
            ["portcullis_request_duration_seconds",
             "Seconds from the complete head of a gateway request to the last byte of its \
              response."],
            Api::Gateway,
            Calls::new(
                registry,
                ["portcullis_call_duration_seconds",
                 "Seconds of a gateway request whose method is known, by method."],
                ["portcullis_calls_failed_total",
                 "Calls that passed the policy and failed, by method."],
                "method",
                Method::ALL.map(Method::name),
            ),
        );
        by_method: [[IntCounter; CacheUse::ALL.len()]; Method::ALL.len()] =
            Method::ALL.map(|method| CacheUse::ALL.map(|cache| {
                calls.with_label_values(&[method.name(), cache.name()])
            }));
        /// The series of answered calls: looked up once, not at each call.
        node_answered: IntCounter = node_calls.with_label_values(&["ok"]);
        /// The part of [`Self::node_seconds`] for calls that failed, at once if a breaker is open.
        node_failed_seconds: Histogram = Registry::unregistered("node_failed_seconds", &LATENCY);
        /// The present conditions.
        pub conditions: Conditions = Conditions::register(registry);
        /// Metrics of background tasks.
        pub tasks: TaskMetrics = TaskMetrics::register(registry);
        /// The certificates of servers.
        pub peers: PeerMetrics = PeerMetrics::register(registry);
        /// Metrics of the fleet.
        pub fleet: FleetMetrics = FleetMetrics::register(registry);
        /// Metrics of ACME orders.
        pub acme: AcmeMetrics = AcmeMetrics::register(registry);
        /// Metrics of configuration reloads.
        pub reloads: ReloadMetrics = ReloadMetrics::new(registry);
        /// Metrics of the relay.
        pub relay: RelayMetrics = RelayMetrics::register(registry, values.intent_states);
        /// Metrics of the sidecar.
        pub sidecar: SidecarMetrics = SidecarMetrics::register(registry);
        registry: Registry = registry.clone();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(&LabelValues::default())
    }
}

impl Metrics {
    /// Registers every metric with a registry of its own.
    pub fn new(values: &LabelValues<'_>) -> Self {
        let registry = Registry::default();
        process::register(&registry);
        registry.info(
            "portcullis_build_info",
            "1, with the version, and the commit of a release build.",
            [
                ("version", env!("CARGO_PKG_VERSION")),
                ("revision", values.revision),
            ],
        );
        Self::register(&registry, values)
    }

    /// Counts a finished gateway request; `method` is empty if it is not known. `bytes` is the size
    /// of the response body.
    pub fn request(&self, method: &str, reason: Option<Reason>, bytes: usize, total: Duration) {
        self.requests.count(method, reason, total);
        self.response_bytes.observe(bytes as f64);
    }

    /// Counts a call that passed the policy. `bytes` is the size of the request body.
    pub fn call(&self, method: Method, cache: CacheUse, bytes: usize) {
        self.by_method[method as usize][cache as usize].inc();
        self.request_bytes.observe(bytes as f64);
    }

    /// Counts that the gateway's cache was emptied. The cause comes from a closed list.
    pub fn cache_epoch(&self, cause: &str) {
        self.cache_epochs.with_label_values(&[cause]).inc();
    }

    /// Counts a call to the node. The error comes from a closed list.
    pub fn node_call(&self, error: Option<&str>, took: Duration) {
        match error {
            None => self.node_answered.inc(),
            Some(error) => {
                self.node_calls.with_label_values(&[error]).inc();
                self.node_failed_seconds.observe(took.as_secs_f64());
            }
        }
        self.node_seconds.observe(took.as_secs_f64());
    }

    /// The latency of the node's answers, without calls that failed.
    pub fn node_latency(&self) -> Latency {
        Latency::of(&self.node_seconds).without(&Latency::of(&self.node_failed_seconds))
    }

    /// Counts a client connection.
    pub fn connection(&self, surface: Surface, outcome: ConnectionOutcome) {
        self.connections_total[surface as usize][outcome as usize].inc();
    }

    /// Counts a TLS handshake.
    pub fn handshake(&self, surface: Surface, outcome: Handshake) {
        self.handshakes.of(surface)[outcome as usize].inc();
    }

    /// Counts a PROXY header.
    pub fn proxy_header(&self, surface: Surface, outcome: ProxyHeader) {
        self.proxy_headers.of(surface)[outcome as usize].inc();
    }

    /// Counts spans of traced requests.
    pub fn spans(&self, outcome: SpanOutcome, count: usize) {
        self.spans[outcome as usize].inc_by(count as u64);
    }

    /// Every metric with its series.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

/// Encodes metrics in Prometheus' text format.
pub fn encode(families: &[MetricFamily]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 << 10);
    // the families are our own; encoding them to memory does not fail
    let _ = TextEncoder::new().encode(families, &mut out);
    out
}
