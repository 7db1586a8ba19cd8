//! The metrics of the configuration in force: whether the last reload was one.

use super::metrics::Maker;
use prometheus::{IntCounter, IntGauge};
use std::time::SystemTime;

/// The metrics of reloads.
#[derive(Debug)]
pub struct ReloadMetrics {
    ok: IntCounter,
    failed: IntCounter,
    is_last_ok: IntGauge,
    last_ok_at: IntGauge,
}

impl ReloadMetrics {
    pub(super) fn new(make: &Maker) -> Self {
        let reloads = make.counters(
            "portcullis_config_reloads_total",
            "Reloads of the configuration by outcome.",
            &["outcome"],
        );
        let metrics = Self {
            ok: reloads.with_label_values(&["ok"]),
            failed: reloads.with_label_values(&["failed"]),
            is_last_ok: make.gauge(
                "portcullis_config_last_reload_successful",
                "1 when the files were fit for use when they were read last, else 0.",
            ),
            last_ok_at: make.gauge(
                "portcullis_config_last_reload_success_timestamp_seconds",
                "When the configuration in force was read, in seconds since 1970.",
            ),
        };
        // the start is a reading, too
        metrics.in_force();
        metrics
    }

    /// Counts a reload.
    pub fn count(&self, is_ok: bool) {
        if is_ok {
            self.ok.inc();
            self.in_force();
        } else {
            self.failed.inc();
            self.is_last_ok.set(0);
        }
    }

    fn in_force(&self) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        self.is_last_ok.set(1);
        self.last_ok_at.set(i64::try_from(now).unwrap_or(i64::MAX));
    }
}
