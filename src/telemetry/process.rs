//! What the process takes of its machine, under the names that Prometheus' own clients give it, so
//! that dashboards and alerts made for any program fit.
//!
//! Asked of the kernel at each scrape; what it does not tell keeps its last value.

use super::metrics::Maker;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use prometheus::{Counter, IntGauge};
use std::fs;
use std::time::SystemTime;

/// The process's metrics.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    cpu: Counter,
    resident: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
}

impl ProcessMetrics {
    /// Takes now for the process's start.
    pub(super) fn new(make: &Maker) -> Self {
        let started = make.float(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
        );
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        started.set(now.as_secs_f64());
        Self {
            cpu: make.float_counter(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
            ),
            resident: make.gauge("process_resident_memory_bytes", "Resident memory size in bytes."),
            open_fds: make.gauge("process_open_fds", "Number of open file descriptors."),
            max_fds: make.gauge("process_max_fds", "Maximum number of open file descriptors."),
        }
    }

    /// Asks how it stands.
    pub(super) fn read(&self) {
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let spent = (usage.user_time() + usage.system_time()).num_microseconds();
            // a counter that went back would be a restart
            self.cpu.inc_by((spent as f64 / 1e6 - self.cpu.get()).max(0.0));
        }
        if let Some(bytes) = resident() {
            self.resident.set(bytes);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            // but the one that lists them
            let open = entries.count().saturating_sub(1);
            self.open_fds.set(i64::try_from(open).unwrap_or(i64::MAX));
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            self.max_fds.set(i64::try_from(soft).unwrap_or(i64::MAX));
        }
    }
}

/// Bytes of memory that are not swapped out: `VmRSS`, which is in KiB. proc(5)
fn resident() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
