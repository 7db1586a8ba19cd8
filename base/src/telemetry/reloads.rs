//! The metrics of configuration reloads.

use super::registry::{Registry, as_gauge, metrics};
use prometheus::{IntCounter, IntGauge};
use std::time::SystemTime;

metrics! {
    /// Counts reloads, and keeps the result and time of the last one.
    pub struct ReloadMetrics(registry) {
        reloads: [IntCounter; 2] = counter_array("portcullis_config_reloads_total",
            "Configuration reloads by outcome.", "outcome", ["ok", "failed"]);
        is_last_ok: IntGauge = gauge("portcullis_config_last_reload_successful",
            "1 if the last reload succeeded, else 0.");
        last_ok_at: IntGauge = gauge("portcullis_config_last_reload_success_timestamp_seconds",
            "When the active configuration was read, in seconds since 1970.");
        hash: IntGauge = gauge("portcullis_config_hash",
            "Hash of the values in use: equal on instances that use equal ones.");
        pending_restart: IntGauge = gauge("portcullis_config_pending_restart",
            "Keys and named files whose change was read, and needs a restart.");
    }
}

impl ReloadMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let metrics = Self::register(registry);
        // the start has read the configuration, too
        metrics.mark_read();
        metrics
    }

    /// Counts a reload that was applied.
    pub fn succeeded(&self) {
        let [ok, _] = &self.reloads;
        ok.inc();
        self.mark_read();
    }

    /// Sets the hash of the values in use, and the number of keys and files that need a restart.
    pub fn set_active(&self, hash: u64, pending_restart: usize) {
        self.hash.set(as_gauge(hash));
        self.pending_restart.set(as_gauge(pending_restart as u64));
    }

    /// Counts a reload that was rejected.
    pub fn failed(&self) {
        let [_, failed] = &self.reloads;
        failed.inc();
        self.is_last_ok.set(0);
    }

    fn mark_read(&self) {
        let now = SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default()
            .as_secs();
        self.is_last_ok.set(1);
        self.last_ok_at.set(as_gauge(now));
    }
}
