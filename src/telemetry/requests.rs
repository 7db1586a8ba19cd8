//! The requests of a surface: what came of them and why, and how long they took.

use super::log::verdict;
use super::metrics::{LATENCY, Maker};
use portcullis_filters::verdict::Reason;
use prometheus::{Histogram, IntCounter};
use std::time::Duration;

/// Requests, counted.
#[derive(Debug)]
pub(super) struct Requests {
    answered: IntCounter,
    unanswered: [IntCounter; Reason::ALL.len()],
    seconds: Histogram,
}

impl Requests {
    /// Counts in the first metric and times in the second: the name and the meaning of each.
    pub(super) fn new(make: &Maker, count: [&str; 2], time: [&str; 2]) -> Self {
        let requests = make.counters(count[0], count[1], &["verdict", "reason"]);
        let with = |reason: Option<Reason>| {
            requests.with_label_values(&[verdict(reason), reason.map_or("none", Reason::name)])
        };
        Self {
            answered: with(None),
            unanswered: Reason::ALL.map(|reason| with(Some(reason))),
            seconds: make.histogram(time[0], time[1], &LATENCY),
        }
    }

    /// Counts one that is over.
    pub(super) fn count(&self, reason: Option<Reason>, total: Duration) {
        let counter = match reason {
            Some(reason) => self.unanswered.get(reason as usize),
            None => Some(&self.answered),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        self.seconds.observe(total.as_secs_f64());
    }
}
