//! The sidecar's metrics: requests, calls by function, events by outcome, components by health.

use super::registry::metrics;
use super::requests::{Calls, Requests};
use super::webhooks::WebhookRefusals;
use portcullis_filters::policy::Function;
use portcullis_filters::verdict::Api;
use portcullis_filters::webhook::EventOutcomeKind;
use portcullis_filters::websub::PingOutcome;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use std::time::Duration;

/// Functions that serve rows of the content tables.
const OF_CONTENT: [Function; 3] = [
    Function::GetFeedSkeleton,
    Function::PodcastRssFeed,
    Function::SeoSitemap,
];

metrics! {
    /// The sidecar's metrics.
    pub struct SidecarMetrics(registry) {
        pub calls: IntCounterVec = counters("portcullis_sidecar_calls_total",
            "Calls whose head passed the policy, by function.", &["function"]);
        pub events: IntCounterVec = series("portcullis_sidecar_age_events_total",
            "Signed events of the age verifier by outcome.",
            "outcome", &EventOutcomeKind::ALL.map(EventOutcomeKind::name));
        pub skipped: IntCounterVec = series("portcullis_sidecar_skipped_total",
            "Malformed rows and members of rows that a rendering left out, by function.",
            "function", &OF_CONTENT.map(Function::name));
        pub components: IntGaugeVec = gauges("portcullis_sidecar_component_healthy",
            "1 while the last health check of a configured dependency succeeded, else 0.",
            "component", &[]);
        hub_pings: [IntCounter; PingOutcome::ALL.len()] =
            counter_array("portcullis_sidecar_hub_pings_total",
                "Pings to the hub of podcasts by outcome.",
                "outcome", PingOutcome::ALL.map(PingOutcome::name));
        replica_used: IntGauge = gauge("portcullis_store_replica_used",
            "1 while feeds, podcasts and the sitemap are read from the replica of the store.");
        replica_lag: Gauge = float("portcullis_store_replica_lag_seconds",
            "By how many seconds the replica of the store is behind, at most; 0 until known.");
    }
    with {
        /// The webhooks that were refused.
        pub refused_webhooks: WebhookRefusals = WebhookRefusals::default();
        /// The sidecar's requests.
        pub requests: Requests = Requests::new(
            registry,
            ["portcullis_sidecar_requests_total", "Sidecar requests by verdict and reason."],
            ["portcullis_sidecar_request_duration_seconds",
             "Seconds from the complete head of a sidecar request to the last byte of its \
              response."],
            Api::Sidecar,
            Calls::new(
                registry,
                ["portcullis_sidecar_call_duration_seconds",
                 "Seconds of a sidecar request whose head passed the policy, by function."],
                ["portcullis_sidecar_calls_failed_total",
                 "Sidecar requests that failed, by function."],
                "function",
                Function::ALL.map(Function::name),
            ),
        );
        by_function: [IntCounter; Function::ALL.len()] =
            Function::ALL.map(|function| calls.with_label_values(&[function.name()]));
    }
}

impl SidecarMetrics {
    /// Counts a call that passed the policy.
    pub fn call(&self, function: Function) {
        self.by_function[function as usize].inc();
    }

    /// Counts an event of the age verifier.
    pub fn event(&self, outcome: EventOutcomeKind) {
        self.events.with_label_values(&[outcome.name()]).inc();
    }

    /// Counts a ping to the hub of podcasts.
    pub fn hub_ping(&self, outcome: PingOutcome) {
        self.hub_pings[outcome as usize].inc();
    }

    /// Counts the rows and members that a rendering left out.
    pub fn skip(&self, function: Function, count: u64) {
        self.skipped
            .with_label_values(&[function.name()])
            .inc_by(count);
    }

    /// Sets the replica's lag, and whether documents are read from it: only without a `cause` not
    /// to.
    pub fn replica(&self, lag: Option<Duration>, cause: Option<&str>) {
        self.replica_lag.set(lag.unwrap_or_default().as_secs_f64());
        self.replica_used.set(i64::from(cause.is_none()));
    }

    /// The gauge of a component's health: 1 or 0.
    pub fn component(&self, component: &'static str) -> IntGauge {
        self.components.with_label_values(&[component])
    }
}
