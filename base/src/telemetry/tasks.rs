//! The metric of background tasks that panicked, and their condition.

use super::conditions::{Condition, Conditions, Finding};
use super::registry::metrics;
use parking_lot::Mutex;
use portcullis_filters::named;
use prometheus::IntCounter;
use std::time::SystemTime;

named! {
    /// A background task.
    pub enum Task {
        /// Renews certificates.
        Acme = "acme",
        /// Watches the chain for the cache.
        CacheWatch = "cache_watch",
        /// Sends events to the backend.
        Events = "events",
        /// Announces this instance to its fleet.
        Fleet = "fleet",
        /// Fetches the fleet's key of TLS sessions.
        FleetTickets = "fleet_tickets",
        /// Checks for conditions.
        Health = "health",
        /// Samples the metrics for the operator's page.
        History = "history",
        /// Pings the hub of podcasts.
        HubPings = "hub_pings",
        /// Writes log lines.
        Log = "log",
        /// Polls the URLs of the node.
        NodePoller = "node_poller",
        /// Looks at the certificates of servers.
        PeerCertificates = "peer_certificates",
        /// Resolves open intents of the relay.
        Reconciliation = "reconciliation",
        /// Prepares a store that could not be used at the start.
        StorePreparation = "store_preparation",
        /// Exports spans.
        Trace = "trace",
        /// Pings the watchdog of the service manager.
        Watchdog = "watchdog",
    }
}

/// In builds with debug assertions, makes each task panic once.
const REHEARSAL: &str = "PORTCULLIS_TEST_PANICS";

impl Task {
    /// Whether the task is over some day, while the process runs.
    pub fn ends(self) -> bool {
        self == Self::StorePreparation
    }

    /// Whether a test wants this task to panic once, to see that it is started again.
    pub fn rehearses_panic(self) -> bool {
        cfg!(debug_assertions) && std::env::var_os(REHEARSAL).is_some()
    }
}

metrics! {
    /// Counts failures of background tasks, and keeps which tasks have failed.
    pub struct TaskMetrics(registry) {
        failures: [IntCounter; Task::ALL.len()] = counter_array("portcullis_task_failures_total",
            "Panics and early ends of background tasks, each of which is started again.",
            "task", Task::ALL.map(Task::name));
    }
    with {
        failing: Mutex<[bool; Task::ALL.len()]> = Mutex::default();
    }
}

impl TaskMetrics {
    /// Counts a panic of a task; its condition is present until it has run for a while.
    pub fn failed(&self, task: Task, conditions: &Conditions, now: SystemTime) {
        self.failures[task as usize].inc();
        let mut failing = self.failing.lock();
        failing[task as usize] = true;
        conditions.update(Condition::Task, findings(&*failing), now);
    }

    /// Whether the task has failed since the start.
    pub fn has_failed(&self, task: Task) -> bool {
        self.failures[task as usize].get() > 0
    }

    /// Ends the condition of a task.
    pub fn recovered(&self, task: Task, conditions: &Conditions, now: SystemTime) {
        let mut failing = self.failing.lock();
        failing[task as usize] = false;
        conditions.update(Condition::Task, findings(&*failing), now);
    }
}

fn findings(failing: &[bool]) -> Vec<Finding> {
    let cause = "a defect of the program ended it, and it was started again: see the log";
    let tasks = Task::ALL.into_iter().zip(failing);
    tasks
        .filter(|(_, is_failing)| **is_failing)
        .map(|(task, _)| Finding {
            subject: task.name().to_owned(),
            cause: cause.to_owned(),
            is_failing: false,
            needs_node: false,
        })
        .collect()
}
