//! The resources that the process uses, under the names that Prometheus' own clients use, so that
//! common dashboards and alerts fit. Read from the kernel at each scrape; what cannot be read keeps
//! its last value.

use super::registry::{Registry, as_gauge};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use prometheus::{Counter, IntGauge};
use std::fs;
use std::time::SystemTime;

/// Registers the metrics of the process, which starts now.
pub(super) fn register(registry: &Registry) {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    registry
        .float(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
        )
        .set(now.as_secs_f64());
    registry.sample(
        Counter::new(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
        ),
        |cpu| {
            if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
                let spent = (usage.user_time() + usage.system_time()).num_microseconds();
                // a counter that decreased would look like a restart
                cpu.inc_by((spent as f64 / 1e6 - cpu.get()).max(0.0));
            }
        },
    );
    for (name, help, read) in [
        (
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            resident as fn() -> _,
        ),
        (
            "process_open_fds",
            "Number of open file descriptors.",
            open_fds,
        ),
        (
            "process_max_fds",
            "Maximum number of open file descriptors.",
            max_fds,
        ),
    ] {
        registry.sample(IntGauge::new(name, help), move |gauge| {
            if let Some(value) = read() {
                gauge.set(value);
            }
        });
    }
}

fn open_fds() -> Option<i64> {
    // without the descriptor of the listing itself
    Some(as_gauge(
        fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1),
    ))
}

fn max_fds() -> Option<i64> {
    Some(as_gauge(getrlimit(Resource::RLIMIT_NOFILE).ok()?.0))
}

/// Resident memory in bytes: `VmRSS` of proc(5), which is in KiB.
fn resident() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}
