//! The fleet's metrics: whether its store answers, and how long messages to it take.

use super::registry::metrics;
use super::surface::{BySurface, Surface};
use portcullis_filters::named;
use prometheus::{Histogram, IntCounter, IntGauge};
use std::time::Duration;

/// Bucket bounds in seconds: a message takes a tenth of a millisecond, and at most 20 ms.
const SECONDS: [f64; 9] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2];

named! {
    /// How a message to the fleet's store ended.
    pub enum FleetMessage {
        /// Requests were leased.
        Granted = "granted",
        /// The client's quota is used up.
        Refused = "refused",
        /// The message only reported admitted requests.
        Reported = "reported",
        /// The store has lost its state of the client.
        Forgotten = "forgotten",
        /// No answer in time.
        Timeout = "timeout",
        /// The connection or the store failed.
        Failed = "failed",
        /// Not sent: too many messages were in flight.
        Busy = "busy",
    }
}

metrics! {
    /// The fleet's metrics.
    #[expect(rustdoc::broken_intra_doc_links, reason = "[fleet] is a section of the configuration")]
    pub struct FleetMetrics(registry) {
        pub up: IntGauge = gauge("portcullis_fleet_up",
            "1 while each server of the fleet's store answers; 0 while not, and without [fleet].");
        pub instances: IntGauge = gauge("portcullis_fleet_instances",
            "Instances that share their limits, as last known; 0 without [fleet].");
        pub is_watcher: IntGauge = gauge("portcullis_fleet_is_watcher",
            "1 while this instance polls the chain for all; 0 while not, and without [fleet].");
        pub state_age: IntGauge = gauge("portcullis_fleet_state_age_seconds",
            "Seconds since the chain was polled for all, as last known; 0 without [fleet].");
        messages: [IntCounter; FleetMessage::ALL.len()] =
            counter_array("portcullis_fleet_messages_total",
                "Messages about clients to the fleet's store, by outcome.",
                "outcome", FleetMessage::ALL.map(FleetMessage::name));
        seconds: Histogram = histogram("portcullis_fleet_message_seconds",
            "Seconds until the fleet's store answered a message.", &SECONDS);
        fallback: BySurface<IntCounter> = counter_array("portcullis_fleet_fallback_admitted_total",
            "Requests that this instance admitted by its own count, without the fleet's store.",
            "surface", Surface::ALL.map(Surface::name));
    }
}

impl FleetMetrics {
    /// Counts a message, with its time if the store answered.
    pub fn message(&self, outcome: FleetMessage, took: Option<Duration>) {
        self.messages[outcome as usize].inc();
        if let Some(took) = took {
            self.seconds.observe(took.as_secs_f64());
        }
    }

    /// The messages so far, by outcome.
    pub fn messages(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FleetMessage::ALL
            .into_iter()
            .map(|of| (of.name(), self.messages[of as usize].get()))
    }

    /// Requests that were admitted without the store so far, by surface.
    pub fn fallback(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Surface::ALL
            .into_iter()
            .map(|of| (of.name(), self.fallback[of as usize].get()))
    }

    /// Counts a request that was admitted without the store.
    pub fn fell_back(&self, surface: Surface) {
        self.fallback[surface as usize].inc();
    }
}
