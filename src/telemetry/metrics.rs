//! Every metric, its name and its label set. Nothing else registers one.
//!
//! Labels come from closed sets and each child is made once, at start, so a request costs a few
//! atomic additions and no look-up, and no client can grow the number of series.

use super::log::verdict;
use super::process::ProcessMetrics;
use super::relay::RelayMetrics;
use super::reloads::ReloadMetrics;
use super::sampled::{Sample, Sampled};
use super::sidecar::SidecarMetrics;
use super::tls::TlsMetrics;
use crate::gateway::EpochCause;
use crate::node::NodeError;
use portcullis_filters::rpc::Method;
use portcullis_filters::verdict::Reason;
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};
use std::time::Duration;

/// A surface of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// The public read path.
    Gateway,
    /// The operator's listener.
    Admin,
    /// The protected write path.
    Relay,
    /// The service endpoints.
    Sidecar,
}

impl Surface {
    /// Every surface, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Gateway, Self::Admin, Self::Relay, Self::Sidecar];

    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Admin => "admin",
            Self::Relay => "relay",
            Self::Sidecar => "sidecar",
        }
    }
}

/// How the cache took part in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheUse {
    /// The answer was kept from an earlier call.
    Hit,
    /// The same call was under way for somebody else.
    Shared,
    /// The node was asked.
    Miss,
    /// Nothing is kept or shared.
    Off,
}

impl CacheUse {
    /// Every one, in the order of the variants.
    pub const ALL: [Self; 4] = [Self::Hit, Self::Shared, Self::Miss, Self::Off];

    /// The name in metrics and in `X-Cache`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Shared => "shared",
            Self::Miss => "miss",
            Self::Off => "off",
        }
    }
}

/// Seconds; the node's deadline is 8 s, a cached answer takes microseconds.
pub const LATENCY: [f64; 14] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 4.0, 8.0];
/// Bytes; a request is at most 64 KiB, an answer at most 4 MiB.
const SIZE: [f64; 8] = [128.0, 512.0, 2048.0, 8192.0, 32768.0, 131_072.0, 524_288.0, 4_194_304.0];

/// The metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests_answered: IntCounter,
    /// None for what only the relay says.
    requests_unanswered: [Option<IntCounter>; Reason::ALL.len()],
    request_seconds: Histogram,
    request_bytes: Histogram,
    response_bytes: Histogram,
    calls: [[IntCounter; CacheUse::ALL.len()]; Method::ALL.len()],
    cache_epochs: [IntCounter; EpochCause::ALL.len()],
    node_calls_ok: IntCounter,
    node_calls_failed: [IntCounter; NodeError::ALL.len()],
    node_seconds: Histogram,
    /// Connections that the pool replaced because the node had closed them.
    pub node_retries: IntCounter,
    /// Connections open, by surface.
    pub connections: BySurface<IntGauge>,
    /// Connections that may be open, by surface; 0 for one that is off.
    pub connections_limit: BySurface<IntGauge>,
    connections_accepted: BySurface<IntCounter>,
    connections_refused: BySurface<IntCounter>,
    /// Requests between their head and the end of their answer.
    pub in_flight: IntGauge,
    /// 1 while the process is shutting down.
    pub draining: IntGauge,
    /// Of the configuration.
    pub reloads: ReloadMetrics,
    /// The relay's.
    pub relay: RelayMetrics,
    /// The sidecar's.
    pub sidecar: SidecarMetrics,
    /// Of handshakes and certificates.
    pub tls: TlsMetrics,
    process: ProcessMetrics,
    sampled: Sampled,
}

/// Makes and registers metrics; the first failure is kept and told once.
pub(super) struct Maker {
    registry: Registry,
}

impl Maker {
    fn new() -> Self {
        let make = Self { registry: Registry::new() };
        let build = make.gauges("portcullis_build_info", "1, with the version.", "version");
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        make
    }

    fn add<C: prometheus::core::Collector + Clone + 'static>(
        &self,
        made: prometheus::Result<C>,
    ) -> C {
        let metric = made.expect("names and labels are literals that tests register");
        self.registry
            .register(Box::new(metric.clone()))
            .expect("each metric is registered once, here");
        metric
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    pub(super) fn float_counter(&self, name: &str, help: &str) -> Counter {
        self.add(Counter::new(name, help))
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    pub(super) fn gauges(&self, name: &str, help: &str, label: &str) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), &[label]))
    }

    pub(super) fn float(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    pub(super) fn floats(&self, name: &str, help: &str, label: &str) -> GaugeVec {
        self.add(GaugeVec::new(Opts::new(name, help), &[label]))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }
}

/// Whether the gateway can answer so.
const fn is_of_the_gateway(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotFound
            | Reason::WrongHttpMethod
            | Reason::RateLimited
            | Reason::TooManyInFlight
            | Reason::ConflictingFraming
            | Reason::HeaderTooLarge
            | Reason::ExpectationFailed
            | Reason::UnsupportedMediaType
            | Reason::UnsupportedEncoding
            | Reason::BodyTooLarge
            | Reason::RequestTimeout
            | Reason::ParseError
            | Reason::InvalidRequest
            | Reason::Batch
            | Reason::MethodNotAllowed
            | Reason::InvalidParams
            | Reason::UpstreamTimeout
            | Reason::UpstreamUnreachable
            | Reason::UpstreamRedirect
            | Reason::UpstreamStatus
            | Reason::UpstreamOversized
            | Reason::UpstreamInvalid
            | Reason::Overloaded
            | Reason::Draining
    )
}

/// One of each surface.
pub type BySurface<T> = [T; Surface::ALL.len()];

/// A gauge for each surface.
fn by_surface(make: &Maker, name: &str, help: &str) -> BySurface<IntGauge> {
    let gauges = make.gauges(name, help, "surface");
    Surface::ALL.map(|surface| gauges.with_label_values(&[surface.name()]))
}

/// Connections accepted and refused.
fn connections(make: &Maker) -> (BySurface<IntCounter>, BySurface<IntCounter>) {
    let come = make.counters(
        "portcullis_connections_total",
        "Client connections by whether they were served or turned away.",
        &["surface", "outcome"],
    );
    let with = |outcome: &'static str| {
        Surface::ALL.map(|surface| come.with_label_values(&[surface.name(), outcome]))
    };
    (with("accepted"), with("refused"))
}

fn calls(make: &Maker) -> [[IntCounter; CacheUse::ALL.len()]; Method::ALL.len()] {
    let calls = make.counters(
        "portcullis_calls_total",
        "Calls that passed the policy, by method and by how the cache took part.",
        &["method", "cache"],
    );
    Method::ALL.map(|method| {
        CacheUse::ALL.map(|cache| calls.with_label_values(&[method.name(), cache.name()]))
    })
}

fn cache_epochs(make: &Maker) -> [IntCounter; EpochCause::ALL.len()] {
    let epochs = make.counters(
        "portcullis_cache_epochs_total",
        "Times that the gateway's cache was emptied, by what was seen of the chain.",
        &["cause"],
    );
    EpochCause::ALL.map(|cause| epochs.with_label_values(&[cause.name()]))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers every metric with a registry of its own.
    pub fn new() -> Self {
        let make = Maker::new();
        let requests = make.counters(
            "portcullis_requests_total",
            "Gateway requests by what came of them and why.",
            &["verdict", "reason"],
        );
        let with = |reason: Option<Reason>| {
            requests.with_label_values(&[verdict(reason), reason.map_or("none", Reason::name)])
        };
        let node = make.counters(
            "portcullis_node_calls_total",
            "Calls to the node by outcome.",
            &["outcome"],
        );
        let (connections_accepted, connections_refused) = connections(&make);
        Self {
            requests_answered: with(None),
            requests_unanswered: Reason::ALL
                .map(|reason| is_of_the_gateway(reason).then(|| with(Some(reason)))),
            request_seconds: make.histogram(
                "portcullis_request_duration_seconds",
                "From the whole head of a request to the last byte of its answer.",
                &LATENCY,
            ),
            request_bytes: make.histogram(
                "portcullis_request_size_bytes",
                "Bodies of gateway requests.",
                &SIZE,
            ),
            response_bytes: make.histogram(
                "portcullis_response_size_bytes",
                "Bodies of gateway answers.",
                &SIZE,
            ),
            calls: calls(&make),
            cache_epochs: cache_epochs(&make),
            node_calls_ok: node.with_label_values(&["ok"]),
            node_calls_failed: NodeError::ALL.map(|fault| node.with_label_values(&[fault.name()])),
            node_seconds: make.histogram(
                "portcullis_node_call_duration_seconds",
                "Calls to the node, from the first connect to the last byte.",
                &LATENCY,
            ),
            node_retries: make.counter(
                "portcullis_node_retries_total",
                "Calls sent again because a pooled connection had died before its first byte.",
            ),
            connections: by_surface(&make, "portcullis_connections", "Client connections open."),
            connections_limit: by_surface(
                &make,
                "portcullis_connections_limit",
                "Client connections that may be open; 0 for a surface that is off.",
            ),
            connections_accepted,
            connections_refused,
            in_flight: make.gauge("portcullis_requests_in_flight", "Requests being answered."),
            draining: make.gauge("portcullis_draining", "1 while the process is shutting down."),
            reloads: ReloadMetrics::new(&make),
            relay: RelayMetrics::new(&make),
            sidecar: SidecarMetrics::new(&make),
            process: ProcessMetrics::new(&make),
            tls: TlsMetrics::new(&make),
            sampled: Sampled::new(&make),
            registry: make.registry,
        }
    }

    /// Counts a request that is over. `bytes` are those of the answer's body.
    pub fn request(&self, reason: Option<Reason>, bytes: usize, total: Duration) {
        let counter = match reason {
            Some(reason) => self.requests_unanswered.get(reason as usize).and_then(Option::as_ref),
            None => Some(&self.requests_answered),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        self.request_seconds.observe(total.as_secs_f64());
        self.response_bytes.observe(bytes as f64);
    }

    /// Counts a call that passed the policy, with the bytes of its body.
    pub fn call(&self, method: Method, cache: CacheUse, bytes: usize) {
        let counters = self.calls.get(method as usize);
        if let Some(counter) = counters.and_then(|counters| counters.get(cache as usize)) {
            counter.inc();
        }
        self.request_bytes.observe(bytes as f64);
    }

    /// Counts that the gateway's cache was emptied.
    pub fn cache_epoch(&self, cause: EpochCause) {
        if let Some(counter) = self.cache_epochs.get(cause as usize) {
            counter.inc();
        }
    }

    /// Counts a call to the node.
    pub fn node_call(&self, fault: Option<NodeError>, took: Duration) {
        let counter = match fault {
            Some(fault) => self.node_calls_failed.get(fault as usize),
            None => Some(&self.node_calls_ok),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        self.node_seconds.observe(took.as_secs_f64());
    }

    /// Counts a client connection.
    pub fn connection(&self, surface: Surface, accepted: bool) {
        let counters =
            if accepted { &self.connections_accepted } else { &self.connections_refused };
        if let Some(counter) = counters.get(surface as usize) {
            counter.inc();
        }
    }

    /// Every metric with its series, the sampled ones as `sample` has them. One caller at a time,
    /// as the admin listener's one thread is: what is counted elsewhere is taken over here.
    pub fn gather(&self, sample: &Sample) -> Vec<MetricFamily> {
        self.sampled.set(sample);
        self.tls.set(sample.certificates_end);
        self.process.read();
        self.registry.gather()
    }

    /// The same in Prometheus' text format.
    pub fn text(&self, sample: &Sample) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 << 10);
        // the families are our own; encoding them to memory does not fail
        let _ = TextEncoder::new().encode(&self.gather(sample), &mut out);
        out
    }
}
