//! Problems of the process and its dependencies, and when they began: one event for each outage,
//! with its cause and its duration, instead of a line for each failed request.
//!
//! `process::health` reports its findings once a second. The begin and the end of a condition are
//! each logged, counted and shown on the operator's page: the begin with its cause, the end with
//! its duration. A condition is logged once more when requests begin to fail because of it, and not
//! while it stays the same. The verdict follows from all present conditions.

use super::registry::metrics;
use crate::config::Elapsed;
use parking_lot::Mutex;
use portcullis_filters::named;
use prometheus::{IntCounter, IntGauge};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The target of the log lines. The operator's page shows them at any level, since an end is not a
/// warning.
pub(super) const TARGET: &str = "portcullis::telemetry::conditions";

named! {
    /// A kind of problem.
    pub enum Condition {
        /// A URL of the node does not answer, or serves another chain.
        NodeUrl = "node_url",
        /// A URL of the node answers, but has no new block.
        NodeStalled = "node_stalled",
        /// The gateway's cache is bypassed.
        Cache = "cache",
        /// The chain does not match the relay's pins.
        Pins = "pins",
        /// The backend does not take the events of its writes.
        Events = "events",
        /// The store does not answer.
        Store = "store",
        /// Documents are read from the primary, as the replica of the store is not recent.
        Replica = "replica",
        /// The fleet's store does not answer.
        Fleet = "fleet",
        /// A certificate is invalid or about to be.
        Certificate = "certificate",
        /// Few file descriptors are left.
        OpenFiles = "open_files",
        /// The last reload failed, so the next start would fail, too.
        Configuration = "configuration",
        /// Many requests of a surface fail, and none of the above explains it.
        Requests = "requests",
        /// A background task panicked.
        Task = "task",
    }
}

impl Condition {
    /// The problem in a few words.
    pub const fn message(self) -> &'static str {
        let [begin, _] = self.messages();
        begin
    }

    /// The anchor of the section in the runbook that says what to do.
    pub const fn runbook(self) -> &'static str {
        match self {
            Self::NodeUrl => "portcullisnodedown",
            Self::NodeStalled => "portcullisnodestandsstill",
            Self::Cache => "portculliscachesuspended",
            Self::Pins => "portcullisrelaypinsunproven",
            Self::Events => "portcullisrelayeventslate",
            Self::Store => "portcullisstoreunavailable",
            Self::Replica => "portcullisreplicanotused",
            Self::Fleet => "portcullisfleetstoreunavailable",
            Self::Certificate => "portculliscertificateexpiressoon",
            Self::OpenFiles => "portcullisfilesnearlimit",
            Self::Configuration => "portcullisconfigreloadfailed",
            Self::Requests => "portcullisbudgetburnsfast",
            Self::Task => "backgroundtaskfailed",
        }
    }

    /// The log messages of the condition's begin and end.
    const fn messages(self) -> [&'static str; 2] {
        match self {
            Self::NodeUrl => ["node URL failed", "node URL works again"],
            Self::NodeStalled => ["node URL has no new block", "node URL has new blocks again"],
            Self::Cache => ["cache bypassed", "cache in use again"],
            Self::Pins => [
                "pins lost: the relay writes nothing",
                "pins proven: the relay writes",
            ],
            Self::Events => ["events not delivered", "events delivered again"],
            Self::Store => ["store unreachable", "store reachable again"],
            Self::Replica => [
                "replica of the store not used",
                "replica of the store used again",
            ],
            Self::Fleet => ["fleet store unreachable", "fleet store reachable again"],
            Self::Certificate => ["certificate needs renewal", "certificate valid"],
            Self::Configuration => [
                "the configuration in the file is not applied",
                "the configuration is applied",
            ],
            Self::Requests => ["requests fail", "requests are answered again"],
            Self::Task => ["background task failed", "background task works again"],
            Self::OpenFiles => [
                "few file descriptors are left",
                "file descriptors are left again",
            ],
        }
    }
}

named! {
    /// How well the process serves.
    pub enum Verdict {
        /// Nothing is wrong.
        Ok = "ok",
        /// Requests are answered, but worse than they should be, or may soon fail.
        Degraded = "degraded",
        /// Requests of a surface fail.
        Failing = "failing",
    }
}

/// A condition as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The URL or the surface that it is about; empty if there is only one.
    pub subject: String,
    /// Why, in a few words.
    pub cause: String,
    /// Whether requests fail because of it.
    pub is_failing: bool,
    /// Whether it was found because the node gave no answer.
    pub needs_node: bool,
}

/// A present condition.
#[derive(Clone, Debug)]
pub struct ActiveCondition {
    /// The kind of problem.
    pub condition: Condition,
    /// The most recent finding.
    pub finding: Finding,
    /// When it began.
    pub since: SystemTime,
}

impl ActiveCondition {
    /// Whether `others` explain this one, so that it needs no banner of its own: a node that does
    /// not answer at all also keeps the cache bypassed and the pins unreadable.
    pub fn follows_from(&self, others: &[Self]) -> bool {
        let is_silent =
            |other: &Self| other.condition == Condition::NodeUrl && other.finding.is_failing;
        self.finding.needs_node && others.iter().any(is_silent)
    }

    /// Logs that the condition began, or that requests fail because of it.
    fn log(&self) {
        let Finding {
            subject,
            cause,
            is_failing,
            ..
        } = &self.finding;
        let (condition, message) = (self.condition.name(), self.condition.message());
        let level = if *is_failing {
            log::Level::Error
        } else {
            log::Level::Warn
        };
        log::log!(target: TARGET, level, condition, subject, cause; "{message}");
    }
}

metrics! {
    /// The present conditions.
    pub struct Conditions(registry) {
        gauges: [IntGauge; Condition::ALL.len()] = gauge_array("portcullis_condition",
            "Present conditions of this kind: URLs, surfaces, or 1; 0 while nothing is wrong.",
            "condition", Condition::ALL.map(Condition::name));
        failing: [IntGauge; Condition::ALL.len()] = gauge_array("portcullis_condition_failing",
            "Present conditions of this kind that make requests fail.",
            "condition", Condition::ALL.map(Condition::name));
        changes: [[IntCounter; 2]; Condition::ALL.len()] =
            counter_matrix("portcullis_condition_changes_total",
                "How often a condition began or ended.",
                ["condition", "change"], Condition::ALL.map(Condition::name), ["began", "ended"]);
    }
    with {
        present: Mutex<BTreeMap<(u8, String), ActiveCondition>> = Mutex::default();
    }
}

impl Conditions {
    /// Replaces the conditions of one kind with those found at `now`, and logs and counts the
    /// changes.
    pub fn update(&self, condition: Condition, found: Vec<Finding>, now: SystemTime) {
        let mut present = self.present.lock();
        let of_this_kind = |key: &(u8, String)| key.0 == condition as u8;
        let ended = present.extract_if(.., |key, active| {
            of_this_kind(key)
                && found
                    .iter()
                    .all(|one| one.subject != active.finding.subject)
        });
        for (_, active) in ended {
            self.end(&active, now);
        }
        let failing = found.iter().filter(|finding| finding.is_failing).count();
        self.gauges[condition as usize].set(found.len() as i64);
        self.failing[condition as usize].set(failing as i64);
        for finding in found {
            let key = (condition as u8, finding.subject.clone());
            if let Some(known) = present.get_mut(&key) {
                let is_worse = finding.is_failing && !known.finding.is_failing;
                known.finding = finding;
                if is_worse {
                    known.log();
                }
            } else {
                let active = ActiveCondition {
                    condition,
                    finding,
                    since: now,
                };
                let [began, _] = &self.changes[condition as usize];
                began.inc();
                active.log();
                present.insert(key, active);
            }
        }
    }

    fn end(&self, active: &ActiveCondition, now: SystemTime) {
        let Finding { subject, cause, .. } = &active.finding;
        let [_, ended] = &self.changes[active.condition as usize];
        ended.inc();
        let condition = active.condition.name();
        let [_, message] = active.condition.messages();
        let lasted = now.duration_since(active.since).unwrap_or_default();
        let lasted = Elapsed(lasted);
        log::info!(target: TARGET, condition, subject, cause, lasted:%; "{message}");
    }

    /// Logs that another URL of the node serves: a less preferred one, because of `cause`, or a
    /// more preferred one again.
    pub fn node_switched(&self, from: &str, to: &str, cause: Option<&str>) {
        let level = if cause.is_some() {
            log::Level::Warn
        } else {
            log::Level::Info
        };
        let cause = cause.unwrap_or("it answers again");
        log::log!(target: TARGET, level, from, to, cause; "node URL switched");
    }

    /// Whether something of this kind is wrong now.
    pub fn has(&self, condition: Condition) -> bool {
        self.present
            .lock()
            .keys()
            .any(|(kind, _)| *kind == condition as u8)
    }

    /// The present conditions.
    pub fn present(&self) -> Vec<ActiveCondition> {
        self.present.lock().values().cloned().collect()
    }
}

impl Verdict {
    /// The verdict that follows from the present conditions: the worst one counts.
    pub fn of(present: &[ActiveCondition]) -> Self {
        match present {
            [] => Self::Ok,
            _ if present.iter().any(|active| active.finding.is_failing) => Self::Failing,
            _ => Self::Degraded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Registry;
    use std::time::Duration;

    fn down(url: &str, is_failing: bool) -> Finding {
        Finding {
            subject: url.to_owned(),
            cause: "timeout".to_owned(),
            is_failing,
            needs_node: false,
        }
    }

    #[test]
    fn a_silent_node_explains_what_was_found_without_its_answers() {
        let active = |condition, is_failing, needs_node| ActiveCondition {
            condition,
            finding: Finding {
                needs_node,
                ..down("", is_failing)
            },
            since: SystemTime::UNIX_EPOCH,
        };
        let silent = active(Condition::NodeUrl, true, false);
        let partly = active(Condition::NodeUrl, false, false);
        for needs_node in [true, false] {
            let found = active(Condition::Pins, true, needs_node);
            assert_eq!(
                found.follows_from(std::slice::from_ref(&silent)),
                needs_node
            );
            assert!(
                !found.follows_from(std::slice::from_ref(&partly)),
                "other URLs answer"
            );
            assert!(!found.follows_from(&[]), "nothing explains it");
        }
    }

    #[test]
    fn each_condition_has_its_section_of_the_runbook() {
        let runbook = include_str!("../../../conf/prometheus/RUNBOOK.md").to_lowercase();
        for condition in Condition::ALL {
            let heading = format!("### {}\n", condition.runbook());
            assert!(runbook.contains(&heading), "{condition:?}: {heading}");
        }
    }

    #[test]
    fn only_changes_are_counted() {
        let conditions = Conditions::register(&Registry::default());
        let changes = &conditions.changes[Condition::NodeUrl as usize];
        let start = SystemTime::UNIX_EPOCH;
        for (seconds, found, began, ended, verdict_now) in [
            (1, vec![], 0, 0, Verdict::Ok),
            (2, vec![down("one", false)], 1, 0, Verdict::Degraded),
            (3, vec![down("one", false)], 1, 0, Verdict::Degraded),
            (
                4,
                vec![down("one", true), down("two", true)],
                2,
                0,
                Verdict::Failing,
            ),
            (5, vec![down("two", false)], 2, 1, Verdict::Degraded),
            (6, vec![], 2, 2, Verdict::Ok),
        ] {
            let now = start + Duration::from_secs(seconds);
            conditions.update(Condition::NodeUrl, found.clone(), now);
            conditions.update(Condition::Cache, vec![], now);
            assert_eq!(
                changes.each_ref().map(IntCounter::get),
                [began, ended],
                "at {seconds} s"
            );
            let present = conditions.present();
            assert_eq!(Verdict::of(&present), verdict_now, "at {seconds} s");
            let gauge = &conditions.gauges[Condition::NodeUrl as usize];
            assert_eq!(gauge.get(), found.len() as i64, "at {seconds} s");
            let gauge = &conditions.failing[Condition::NodeUrl as usize];
            let failing = found.iter().filter(|one| one.is_failing).count();
            assert_eq!(gauge.get(), failing as i64, "at {seconds} s");
        }
    }
}
