//! The sidecar's metrics: requests, calls by function, events by outcome, components by health.

use super::metrics::Requests;
use super::registry::Registry;
use portcullis_filters::policy::Function;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use std::time::Duration;

/// Outcomes of a well-formed and signed webhook event.
const OUTCOMES: [&str; 6] = ["applied", "duplicate", "stale", "invalid", "conflict", "unknown"];

/// Functions that serve rows of the content tables.
const OF_CONTENT: [Function; 3] =
    [Function::GetFeedSkeleton, Function::PodcastRssFeed, Function::SeoSitemap];

/// The sidecar's metrics.
#[derive(Debug)]
pub struct SidecarMetrics {
    /// Its requests.
    pub requests: Requests,
    /// Its calls by function.
    pub calls: IntCounterVec,
    by_function: [IntCounter; Function::ALL.len()],
    /// The age verifier's events by outcome.
    pub events: IntCounterVec,
    /// Malformed rows and members of rows that its documents left out, by function.
    pub skipped: IntCounterVec,
    /// Its dependencies by component: 1 is healthy.
    pub components: IntGaugeVec,
    replica_used: IntGauge,
    replica_lag: Gauge,
}

impl SidecarMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let calls = registry.counters(
            "portcullis_sidecar_calls_total",
            "Calls whose head passed the policy, by function.",
            &["function"],
        );
        Self {
            requests: Requests::new(
                registry,
                ["portcullis_sidecar_requests_total", "Sidecar requests by verdict and reason."],
                [
                    "portcullis_sidecar_request_duration_seconds",
                    "Seconds from the complete head of a sidecar request to the last byte of its \
                     response.",
                ],
                |_| true,
            ),
            by_function: Function::ALL.map(|function| calls.with_label_values(&[function.name()])),
            calls,
            events: registry.series(
                "portcullis_sidecar_age_events_total",
                "Signed events of the age verifier by outcome.",
                "outcome",
                &OUTCOMES,
            ),
            skipped: registry.series(
                "portcullis_sidecar_skipped_total",
                "Malformed rows and members of rows that a rendering left out, by function.",
                "function",
                &OF_CONTENT.map(Function::name),
            ),
            components: registry.gauges(
                "portcullis_sidecar_component_healthy",
                "1 while the last health check of a configured dependency succeeded, else 0.",
                "component",
            ),
            replica_used: registry.gauge(
                "portcullis_store_replica_used",
                "1 while feeds, podcasts and the sitemap are read from the replica of the store.",
            ),
            replica_lag: registry.float(
                "portcullis_store_replica_lag_seconds",
                "By how many seconds the replica of the store is behind, at most; 0 until known.",
            ),
        }
    }

    /// Counts a call that passed the policy.
    pub fn call(&self, function: Function) {
        self.by_function[function as usize].inc();
    }

    /// Counts an event. The outcome comes from a closed list.
    pub fn event(&self, outcome: &'static str) {
        self.events.with_label_values(&[outcome]).inc();
    }

    /// Counts what a rendering left out.
    pub fn skip(&self, function: Function, count: u64) {
        self.skipped.with_label_values(&[function.name()]).inc_by(count);
    }

    /// Sets by how much the replica is behind, and that documents are read from it unless there is
    /// a `cause` not to.
    pub fn replica(&self, lag: Option<Duration>, cause: Option<&str>) {
        self.replica_lag.set(lag.unwrap_or_default().as_secs_f64());
        self.replica_used.set(i64::from(cause.is_none()));
    }

    /// The health of a component: 1 or 0.
    pub fn component(&self, component: &'static str) -> IntGauge {
        self.components.with_label_values(&[component])
    }
}
