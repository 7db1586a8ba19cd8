//! The sidecar's metrics: calls by function, events by outcome, components by status.
//!
//! Label sets are closed: functions, reasons, outcomes of an event, components.

use super::metrics::Maker;
use super::requests::Requests;
use portcullis_filters::policy::Function;
use portcullis_filters::verdict::Reason;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec};
use std::time::Duration;

/// What can come of a webhook's event that was well-formed and signed.
const OUTCOMES: [&str; 6] = ["applied", "duplicate", "stale", "invalid", "conflict", "unknown"];

/// The sidecar's metrics.
#[derive(Debug)]
pub struct SidecarMetrics {
    requests: Requests,
    calls: [IntCounter; Function::ALL.len()],
    events: IntCounterVec,
    components: IntGaugeVec,
}

impl SidecarMetrics {
    pub(super) fn new(make: &Maker) -> Self {
        let calls = make.counters(
            "portcullis_sidecar_calls_total",
            "Calls whose head passed the policy, by function.",
            &["function"],
        );
        let events = make.counters(
            "portcullis_sidecar_age_events_total",
            "Signed events of the age verifier by outcome.",
            &["outcome"],
        );
        for outcome in OUTCOMES {
            events.with_label_values(&[outcome]);
        }
        Self {
            requests: Requests::new(
                make,
                [
                    "portcullis_sidecar_requests_total",
                    "Sidecar requests by what came of them and why.",
                ],
                [
                    "portcullis_sidecar_request_duration_seconds",
                    "From the whole head of a sidecar request to the last byte of its answer.",
                ],
            ),
            calls: Function::ALL.map(|function| calls.with_label_values(&[function.name()])),
            events,
            components: make.gauges(
                "portcullis_sidecar_component_healthy",
                "1 while a configured dependency was well at the last health check, else 0.",
                "component",
            ),
        }
    }

    /// Counts a request that is over.
    pub fn request(&self, reason: Option<Reason>, total: Duration) {
        self.requests.count(reason, total);
    }

    /// Counts a call that passed the policy.
    pub fn call(&self, function: Function) {
        if let Some(counter) = self.calls.get(function as usize) {
            counter.inc();
        }
    }

    /// Counts an event. The outcome comes from a closed list.
    pub fn event(&self, outcome: &'static str) {
        self.events.with_label_values(&[outcome]).inc();
    }

    /// A component was asked.
    pub fn component(&self, component: &'static str, is_healthy: bool) {
        self.components.with_label_values(&[component]).set(i64::from(is_healthy));
    }
}
