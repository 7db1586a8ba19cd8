//! What is known of each URL of the node, shared by all clients of it.

use super::NodeError;
use super::breaker::CallFailure;
use super::cause::Cause;
use crate::config::{NodeConfig, NodeUrl};
use crate::telemetry::Metrics;
use parking_lot::Mutex;
use prometheus::IntCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The outcomes of an attempt: an answer, or each error.
const OUTCOMES: usize = 1 + NodeError::ALL.len();

/// One URL: its name, and what became of attempts at it.
#[derive(Debug)]
pub(super) struct UrlRecord {
    /// Its place in the configuration.
    pub(super) index: usize,
    /// As it is shown: without what may be a key, and unlike every other.
    pub(super) url: String,
    attempts: [IntCounter; OUTCOMES],
    /// The place of the URL that answered a call most recently, one for all.
    latest: Arc<AtomicUsize>,
    /// Why the most recent failed attempt failed.
    cause: Mutex<Option<Cause>>,
}

impl UrlRecord {
    /// A record for each configured URL.
    pub(super) fn all(config: &NodeConfig, metrics: &Metrics) -> Vec<Arc<Self>> {
        let shown: Vec<String> = config.url.iter().map(NodeUrl::shown).collect();
        let latest = Arc::new(AtomicUsize::new(0));
        let record = |(index, url): (usize, &String)| {
            let is_unique = shown.iter().filter(|other| *other == url).count() == 1;
            let url = if is_unique { url.clone() } else { format!("{url} ({index})") };
            let label = index.to_string();
            let attempts = std::array::from_fn(|outcome| {
                let error = outcome.checked_sub(1).and_then(|error| NodeError::ALL.get(error));
                let outcome = error.map_or("ok", |error| error.name());
                metrics.node_attempts.with_label_values(&[&*label, outcome])
            });
            let latest = Arc::clone(&latest);
            Arc::new(Self { index, url, attempts, latest, cause: Mutex::default() })
        };
        shown.iter().enumerate().map(record).collect()
    }

    /// Counts an attempt.
    pub(super) fn count(&self, failure: Option<CallFailure>) {
        let outcome = failure.map_or(0, |failure| 1 + failure.error() as usize);
        if let Some(counter) = self.attempts.get(outcome) {
            counter.inc();
        }
    }

    /// Remembers that it answered a call: a probe does not make it the one that serves.
    pub(super) fn serves(&self) {
        self.latest.store(self.index, Ordering::Relaxed);
    }

    /// Attempts that were answered.
    pub(super) fn answers(&self) -> u64 {
        self.attempts[0].get()
    }

    /// Whether no other URL has answered a call since this one did.
    pub(super) fn is_latest(&self) -> bool {
        self.latest.load(Ordering::Relaxed) == self.index
    }

    /// Remembers why an attempt failed.
    pub(super) fn note(&self, cause: Cause) {
        *self.cause.lock() = Some(cause);
    }

    /// Why the most recent failed attempt failed, in words; `None` if none failed.
    pub(super) fn cause(&self) -> Option<String> {
        self.cause.lock().as_ref().map(ToString::to_string)
    }
}
