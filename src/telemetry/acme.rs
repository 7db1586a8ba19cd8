//! The metrics of certificates that are ordered by ACME.

use super::registry::{Registry, as_gauge};
use portcullis_filters::named;
use prometheus::{IntCounter, IntGauge};

named! {
    /// The outcome of an attempt to get a certificate.
    pub enum OrderOutcome {
        /// There is a new certificate.
        Issued = "issued",
        /// The authority refused.
        Refused = "refused",
        /// The authority gave no usable answer, or the folder cannot be written.
        Failed = "failed",
    }
}

/// Counts attempts.
#[derive(Debug)]
pub struct AcmeMetrics {
    orders: [IntCounter; OrderOutcome::ALL.len()],
    failed_attempts: IntGauge,
}

impl AcmeMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let orders = registry.counters(
            "portcullis_acme_orders_total",
            "Attempts to get a certificate by ACME, by outcome.",
            &["outcome"],
        );
        Self {
            orders: OrderOutcome::ALL.map(|outcome| orders.with_label_values(&[outcome.name()])),
            failed_attempts: registry.gauge(
                "portcullis_acme_failed_attempts",
                "Failed attempts since the last certificate, of the domains with the most.",
            ),
        }
    }

    /// Counts an attempt.
    pub fn ordered(&self, outcome: OrderOutcome) {
        self.orders[outcome as usize].inc();
    }

    /// How many attempts have failed in a row.
    pub fn failed_attempts(&self, failed: u32) {
        self.failed_attempts.set(as_gauge(failed));
    }
}
