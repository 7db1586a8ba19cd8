//! The metrics of configuration reloads.

use super::registry::{Registry, as_gauge};
use prometheus::{IntCounter, IntGauge};
use std::time::SystemTime;

/// Counts reloads, and keeps the result and time of the last one.
#[derive(Debug)]
pub struct ReloadMetrics {
    ok: IntCounter,
    failed: IntCounter,
    is_last_ok: IntGauge,
    last_ok_at: IntGauge,
}

impl ReloadMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let reloads = registry.counters(
            "portcullis_config_reloads_total",
            "Configuration reloads by outcome.",
            &["outcome"],
        );
        let metrics = Self {
            ok: reloads.with_label_values(&["ok"]),
            failed: reloads.with_label_values(&["failed"]),
            is_last_ok: registry.gauge(
                "portcullis_config_last_reload_successful",
                "1 if the last reload succeeded, else 0.",
            ),
            last_ok_at: registry.gauge(
                "portcullis_config_last_reload_success_timestamp_seconds",
                "When the active configuration was read, in seconds since 1970.",
            ),
        };
        // the start has read it, too
        metrics.mark_read();
        metrics
    }

    /// Counts a reload that was applied.
    pub fn succeeded(&self) {
        self.ok.inc();
        self.mark_read();
    }

    /// Counts a reload that was rejected.
    pub fn failed(&self) {
        self.failed.inc();
        self.is_last_ok.set(0);
    }

    fn mark_read(&self) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        self.is_last_ok.set(1);
        self.last_ok_at.set(as_gauge(now));
    }
}
