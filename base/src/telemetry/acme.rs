//! The metrics of certificates that are ordered by ACME.

use super::registry::{as_gauge, metrics};
use portcullis_filters::named;
use prometheus::{IntCounter, IntGauge};

named! {
    /// The outcome of an attempt to get a certificate.
    pub enum OrderOutcome {
        /// There is a new certificate.
        Issued = "issued",
        /// The authority refused.
        Refused = "refused",
        /// The authority returned no usable answer, or the folder cannot be written.
        Failed = "failed",
    }
}

metrics! {
    /// Counts attempts to get certificates.
    pub struct AcmeMetrics(registry) {
        orders: [IntCounter; OrderOutcome::ALL.len()] =
            counter_array("portcullis_acme_orders_total",
                "Attempts to get a certificate by ACME, by outcome.",
                "outcome", OrderOutcome::ALL.map(OrderOutcome::name));
        failed_attempts: IntGauge = gauge("portcullis_acme_failed_attempts",
            "Failed attempts since the last certificate, of the domains with the most.");
    }
}

impl AcmeMetrics {
    /// Counts an attempt.
    pub fn ordered(&self, outcome: OrderOutcome) {
        self.orders[outcome as usize].inc();
    }

    /// Sets how many attempts have failed in a row.
    pub fn failed_attempts(&self, failed: u32) {
        self.failed_attempts.set(as_gauge(failed));
    }
}
