//! The sidecar's metrics: requests, calls by function, events by outcome, components by health.

use super::registry::Registry;
use super::requests::Requests;
use portcullis_filters::policy::Function;
use portcullis_filters::verdict::Reason;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};
use std::time::Duration;

/// Outcomes of a well-formed and signed webhook event.
const OUTCOMES: [&str; 6] = ["applied", "duplicate", "stale", "invalid", "conflict", "unknown"];

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
    /// Its dependencies by component: 1 is healthy.
    pub components: IntGaugeVec,
}

impl SidecarMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let calls = registry.counters(
            "portcullis_sidecar_calls_total",
            "Calls whose head passed the policy, by function.",
            &["function"],
        );
        let events = registry.counters(
            "portcullis_sidecar_age_events_total",
            "Signed events of the age verifier by outcome.",
            &["outcome"],
        );
        for outcome in OUTCOMES {
            events.with_label_values(&[outcome]);
        }
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
            events,
            components: registry.gauges(
                "portcullis_sidecar_component_healthy",
                "1 while the last health check of a configured dependency succeeded, else 0.",
                "component",
            ),
        }
    }

    /// Counts a finished request.
    pub fn request(&self, reason: Option<Reason>, total: Duration) {
        self.requests.count(reason, total);
    }

    /// Counts a call that passed the policy.
    pub fn call(&self, function: Function) {
        if let Some(counter) = self.by_function.get(function as usize) {
            counter.inc();
        }
    }

    /// Counts an event. The outcome comes from a closed list.
    pub fn event(&self, outcome: &'static str) {
        self.events.with_label_values(&[outcome]).inc();
    }

    /// Sets the result of a component's health check.
    pub fn component(&self, component: &'static str, is_healthy: bool) {
        self.components.with_label_values(&[component]).set(i64::from(is_healthy));
    }
}
