//! The record of one URL that all clients of the node share: its name, its health, its failures and
//! the counters of attempts. The pure crate concludes; this module holds the state.

use super::NodeError;
use super::answer::{Payload, error_code, failure_class};
use super::cause::{FailedAttempt, Failures};
use crate::config::{NodeConfig, NodeUrl};
use crate::io::monotonic;
use crate::telemetry::Metrics;
use parking_lot::{Mutex, MutexGuard};
use portcullis_filters::chain::{
    Asked, FailureClass, Fault, HeadTime, Repeat, Standing, UrlHealth,
};
use prometheus::IntCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

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
    /// The newest block that was seen, and when.
    head_time: Mutex<Option<(HeadTime, Duration)>>,
    health: Mutex<UrlHealth>,
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
                head_time: Mutex::default(),
                health: Mutex::default(),
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

    /// Records a verified answer to a request that was sent at `sent`.
    pub(super) fn note_answer(&self, asked: Asked, payload: &Payload, sent: Instant) {
        match failure_class(payload) {
            None => self.note_valid(asked, sent),
            // the watch reads more of the chain than some nodes have
            Some(_) if asked == Asked::Poll => {}
            class => {
                let code = error_code(payload);
                self.failures().note_error(code, Instant::now());
                self.note_failure(asked, class, sent);
            }
        }
    }

    /// Records a valid answer to a request that was sent at `sent`.
    pub(super) fn note_valid(&self, asked: Asked, sent: Instant) {
        let mut health = self.health.lock();
        health.answered(asked, monotonic::of(sent), monotonic::now());
    }

    /// Records a failure of a request that was sent at `sent`, unless it says nothing about the
    /// URL.
    pub(super) fn note_failure(&self, asked: Asked, class: Option<FailureClass>, sent: Instant) {
        if let Some(class) = class {
            let mut health = self.health.lock();
            health.failed(asked, class, monotonic::of(sent), monotonic::now());
        }
    }

    /// Why the URL is left out, if it is.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.health.lock().fault()
    }

    /// The place of the URL for a request.
    pub(super) fn standing(&self, asked: Asked, repeat: Repeat) -> Standing {
        let now = monotonic::now();
        self.health.lock().standing(asked, repeat, now)
    }

    /// How long to wait for the URL before a second one is asked.
    pub(super) fn hedge_bound(&self) -> Duration {
        self.health.lock().latency.bound()
    }

    /// Whether the URL has answered a call since then.
    pub(super) fn has_answered_since(&self, since: Instant) -> bool {
        self.health.lock().has_answered_since(monotonic::of(since))
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

    /// Records the newest block.
    pub(super) fn note_head_time(&self, head: HeadTime) {
        *self.head_time.lock() = Some((head, monotonic::now()));
    }

    /// The newest block that was seen.
    pub(super) fn head_time(&self) -> Option<HeadTime> {
        self.head_time.lock().map(|(head, _)| head)
    }

    /// Whether the newest block was read in this time.
    pub(super) fn has_shown_head_within(&self, time: Duration) -> bool {
        let seen = self.head_time.lock().map(|(_, seen)| seen);
        seen.is_some_and(|seen| monotonic::now().saturating_sub(seen) < time)
    }

    /// The recorded failures of attempts.
    pub(super) fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock()
    }
}
