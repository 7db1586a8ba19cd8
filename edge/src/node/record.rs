//! The record of one URL that all clients of the node share: its name, its failures in words, and
//! the counters of attempts. None of it decides anything.

use super::NodeError;
use super::answer::{Payload, failure_class};
use super::cause::{FailedAttempt, Failures};
use parking_lot::{Mutex, MutexGuard};
use portcullis_base::config::{NodeConfig, NodeUrl};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::chain::FailureClass;
use prometheus::IntCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The classes of failures that have no [`NodeError`] of their own.
const CLASSES: [FailureClass; 3] = [
    FailureClass::Internal,
    FailureClass::Limited,
    FailureClass::Refused,
];

/// The record of one URL.
#[derive(Debug)]
pub(super) struct UrlRecord {
    /// Its index in the configuration.
    pub(super) index: usize,
    /// The URL as it is shown: without parts that may be a key, and unique.
    pub(super) url: String,
    attempts: Attempts,
    /// The index of the URL that answered a call most recently; shared by all records.
    latest: Arc<AtomicUsize>,
    failures: Mutex<Failures>,
}

/// The counters of attempts at a URL, by outcome.
#[derive(Debug)]
struct Attempts {
    answered: IntCounter,
    classes: [IntCounter; CLASSES.len()],
    errors: [IntCounter; NodeError::ALL.len()],
}

impl Attempts {
    fn new(with: impl Fn(&str) -> IntCounter) -> Self {
        Self {
            answered: with("ok"),
            classes: CLASSES.map(|class| with(class.name())),
            errors: NodeError::ALL.map(|error| with(error.name())),
        }
    }
}

impl UrlRecord {
    /// A record for each configured URL.
    pub(super) fn all(config: &NodeConfig, metrics: &Metrics) -> Vec<Arc<Self>> {
        let shown: Vec<String> = config.url.iter().map(NodeUrl::shown).collect();
        let latest = Arc::new(AtomicUsize::new(0));
        let record = |(index, url): (usize, &String)| {
            let is_unique = shown.iter().filter(|other| *other == url).count() == 1;
            let url = if is_unique {
                url.clone()
            } else {
                format!("{url} ({index})")
            };
            let label = index.to_string();
            let attempts = Attempts::new(|outcome| {
                metrics.node_attempts.with_label_values(&[&*label, outcome])
            });
            let latest = Arc::clone(&latest);
            Arc::new(Self {
                index,
                url,
                attempts,
                latest,
                failures: Mutex::default(),
            })
        };
        shown.iter().enumerate().map(record).collect()
    }

    /// Counts an attempt: its answer or its failure.
    pub(super) fn count(&self, outcome: Result<&Payload, &FailedAttempt>) {
        let class = match outcome {
            Ok(payload) => failure_class(payload),
            Err(failed) => failed.class(),
        };
        let at = CLASSES.iter().position(|counted| Some(*counted) == class);
        let counter = match (at, outcome) {
            (Some(at), _) => &self.attempts.classes[at],
            (None, Ok(_)) => &self.attempts.answered,
            (None, Err(failed)) => &self.attempts.errors[failed.failure.error() as usize],
        };
        counter.inc();
    }

    /// Records that the URL answered a call; an answered probe does not count.
    pub(super) fn serves(&self) {
        self.latest.store(self.index, Ordering::Relaxed);
    }

    /// Attempts that were answered.
    pub(super) fn answers(&self) -> u64 {
        self.attempts.answered.get()
    }

    /// Whether no other URL has answered a call since this one did.
    pub(super) fn is_latest(&self) -> bool {
        self.latest.load(Ordering::Relaxed) == self.index
    }

    /// The recorded failures of attempts.
    pub(super) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock()
    }
}
