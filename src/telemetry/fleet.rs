//! The fleet's metrics: whether its store answers, and what the messages to it cost.

use super::metrics::Surface;
use super::registry::Registry;
use portcullis_filters::named;
use prometheus::{Histogram, IntCounter, IntGauge};
use std::time::Duration;

/// Bucket bounds in seconds: a message takes a tenth of a millisecond, and has 20 ms.
const SECONDS: [f64; 9] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2];

named! {
    /// How a message to the fleet's store ended.
    pub enum FleetMessage {
        /// Requests were leased.
        Granted = "granted",
        /// The client's quota is used up.
        Refused = "refused",
        /// It only reported what was admitted.
        Reported = "reported",
        /// The store has lost what it knew of the client.
        Forgotten = "forgotten",
        /// No answer in time.
        Timeout = "timeout",
        /// The connection or the store failed.
        Failed = "failed",
        /// Not sent: too many messages were under way.
        Busy = "busy",
    }
}

/// The metrics of what instances share.
#[derive(Debug)]
pub struct FleetMetrics {
    /// 1 while the store answers.
    pub up: IntGauge,
    /// Instances that share their limits.
    pub instances: IntGauge,
    /// 1 while this instance polls the chain for all.
    pub is_watcher: IntGauge,
    /// Seconds since the newest published state of the chain was polled.
    pub state_age: IntGauge,
    messages: [IntCounter; FleetMessage::ALL.len()],
    seconds: Histogram,
    fallback: [IntCounter; Surface::ALL.len()],
}

impl FleetMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let messages = registry.counters(
            "portcullis_fleet_messages_total",
            "Messages about clients to the fleet's store, by outcome.",
            &["outcome"],
        );
        let fallback = registry.counters(
            "portcullis_fleet_fallback_admitted_total",
            "Requests that this instance admitted by its own count, without the fleet's store.",
            &["surface"],
        );
        Self {
            up: registry.gauge(
                "portcullis_fleet_up",
                "1 while the fleet's store answers; 0 while not, and without [fleet].",
            ),
            instances: registry.gauge(
                "portcullis_fleet_instances",
                "Instances that share their limits, as last known; 0 without [fleet].",
            ),
            is_watcher: registry.gauge(
                "portcullis_fleet_is_watcher",
                "1 while this instance polls the chain for all; 0 while not, and without [fleet].",
            ),
            state_age: registry.gauge(
                "portcullis_fleet_state_age_seconds",
                "Seconds since the chain was polled for all, as last known; 0 without [fleet].",
            ),
            messages: FleetMessage::ALL
                .map(|outcome| messages.with_label_values(&[outcome.name()])),
            seconds: registry.histogram(
                "portcullis_fleet_message_seconds",
                "Seconds until the fleet's store answered a message.",
                &SECONDS,
            ),
            fallback: Surface::ALL.map(|surface| fallback.with_label_values(&[surface.name()])),
        }
    }

    /// Counts a message, with its time if the store answered.
    pub fn message(&self, outcome: FleetMessage, took: Option<Duration>) {
        self.messages[outcome as usize].inc();
        if let Some(took) = took {
            self.seconds.observe(took.as_secs_f64());
        }
    }

    /// The messages so far, by outcome.
    pub fn messages(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FleetMessage::ALL.into_iter().map(|of| (of.name(), self.messages[of as usize].get()))
    }

    /// Requests that were admitted without the store so far, by surface.
    pub fn fallback(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Surface::ALL.into_iter().map(|of| (of.name(), self.fallback[of as usize].get()))
    }

    /// Counts a request that was admitted without the store.
    pub fn fell_back(&self, surface: Surface) {
        self.fallback[surface as usize].inc();
    }
}
