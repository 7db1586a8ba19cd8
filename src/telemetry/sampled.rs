//! The metrics whose values their owners keep: they are read at each scrape.

use super::Surface;
use super::metrics::{BySurface, Maker};
use crate::gateway::CacheStats;
use prometheus::{IntCounter, IntGauge};

/// Surfaces whose clients are limited.
const LIMITED: [Surface; 3] = [Surface::Gateway, Surface::Relay, Surface::Sidecar];

/// What the owners of the sampled metrics say at a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Clients that the limiters of gateway, relay and sidecar remember, and how many each forgot
    /// because it was full.
    pub limiters: [(u64, u64); LIMITED.len()],
    /// Bytes held by node answers, in flight and in the gateway's cache.
    pub answer_memory: u64,
    /// Bytes that they may hold.
    pub answer_memory_limit: u64,
    /// The gateway's cache.
    pub cache: CacheStats,
    /// Idle connections to the node.
    pub node_idle: u64,
    /// Connections to the node with a call under way.
    pub node_busy: u64,
    /// Node URLs whose circuit breaker is open.
    pub node_open_breakers: u64,
    /// Log lines dropped.
    pub log_dropped: u64,
    /// When each surface's certificate ends, in seconds since 1970.
    pub certificates_end: BySurface<Option<u64>>,
}

/// The sampled metrics.
#[derive(Debug)]
pub(super) struct Sampled {
    limiter_clients: [IntGauge; LIMITED.len()],
    limiter_evictions: [IntCounter; LIMITED.len()],
    answer_memory: IntGauge,
    answer_memory_limit: IntGauge,
    cache_enabled: IntGauge,
    cache_entries: IntGauge,
    cache_bytes: IntGauge,
    cache_settled_block: IntGauge,
    cache_suspended: IntGauge,
    node_idle: IntGauge,
    node_busy: IntGauge,
    node_open_breakers: IntGauge,
    log_dropped: IntCounter,
}

/// Clients remembered and clients forgotten, by surface.
fn limiters(make: &Maker) -> ([IntGauge; LIMITED.len()], [IntCounter; LIMITED.len()]) {
    let clients = make.gauges(
        "portcullis_limiter_clients",
        "Clients that a rate limiter remembers.",
        "surface",
    );
    let evictions = make.counters(
        "portcullis_limiter_evictions_total",
        "Clients forgotten because a rate limiter was full.",
        &["surface"],
    );
    let surfaces = LIMITED.map(Surface::name);
    (
        surfaces.map(|surface| clients.with_label_values(&[surface])),
        surfaces.map(|surface| evictions.with_label_values(&[surface])),
    )
}

impl Sampled {
    pub(super) fn new(make: &Maker) -> Self {
        let (limiter_clients, limiter_evictions) = limiters(make);
        let node = make.gauges(
            "portcullis_node_connections",
            "Connections to the node by what they are doing.",
            "state",
        );
        Self {
            limiter_clients,
            limiter_evictions,
            answer_memory: make.gauge(
                "portcullis_answer_memory_bytes",
                "Held by node answers, in flight and in the cache.",
            ),
            answer_memory_limit: make
                .gauge("portcullis_answer_memory_limit_bytes", "What they may hold."),
            cache_enabled: make
                .gauge("portcullis_cache_enabled", "1 while the gateway's cache is switched on."),
            cache_entries: make
                .gauge("portcullis_cache_entries", "Answers in the gateway's cache."),
            cache_bytes: make.gauge("portcullis_cache_bytes", "What they weigh."),
            cache_settled_block: make.gauge(
                "portcullis_cache_settled_block",
                "The newest block that a kept answer may stand on; -1 while there is none.",
            ),
            cache_suspended: make.gauge(
                "portcullis_cache_suspended",
                "1 while the cache gives no answer: it is off, or the node is not seen.",
            ),
            node_idle: node.with_label_values(&["idle"]),
            node_busy: node.with_label_values(&["busy"]),
            node_open_breakers: make.gauge(
                "portcullis_node_open_breakers",
                "Node URLs that the gateway does not ask because they failed.",
            ),
            log_dropped: make.counter(
                "portcullis_log_dropped_lines_total",
                "Log lines dropped because stderr was not read.",
            ),
        }
    }

    pub(super) fn set(&self, sample: &Sample) {
        for (gauge, value) in [
            (&self.answer_memory, sample.answer_memory),
            (&self.answer_memory_limit, sample.answer_memory_limit),
            (&self.cache_enabled, u64::from(sample.cache.enabled)),
            (&self.cache_entries, sample.cache.entries),
            (&self.cache_bytes, sample.cache.bytes),
            (&self.cache_suspended, u64::from(sample.cache.suspended)),
            (&self.node_idle, sample.node_idle),
            (&self.node_busy, sample.node_busy),
            (&self.node_open_breakers, sample.node_open_breakers),
        ] {
            gauge.set(number(value));
        }
        let limiters = self.limiter_clients.iter().zip(&self.limiter_evictions);
        for ((clients, evictions), (remembered, forgotten)) in limiters.zip(sample.limiters) {
            clients.set(number(remembered));
            raise(evictions, forgotten);
        }
        raise(&self.log_dropped, sample.log_dropped);
        self.cache_settled_block.set(sample.cache.settled.map_or(-1, number));
    }
}

/// As a gauge holds it.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Brings a counter to what its owner has counted.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}
