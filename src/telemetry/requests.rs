//! The requests of a surface: outcomes, reasons and durations.

use super::log::verdict;
use super::metrics::LATENCY;
use super::registry::Registry;
use portcullis_filters::verdict::Reason;
use prometheus::core::Metric as _;
use prometheus::{Histogram, IntCounter};
use std::time::Duration;

/// Counts and times requests.
#[derive(Debug)]
pub struct Requests {
    answered: IntCounter,
    /// `None` for a reason that the surface never has.
    unanswered: [Option<IntCounter>; Reason::ALL.len()],
    seconds: Histogram,
}

/// A histogram of durations at one time.
#[derive(Debug)]
pub struct Latency {
    /// Observations in all.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
    /// Observations up to each bound of [`LATENCY`].
    pub below: Vec<u64>,
}

impl Latency {
    /// Reads a histogram.
    pub fn of(histogram: &Histogram) -> Self {
        let metric = histogram.metric();
        let buckets = metric.get_histogram().get_bucket().iter();
        Self {
            count: histogram.get_sample_count(),
            sum: histogram.get_sample_sum(),
            below: buckets.map(|bucket| bucket.cumulative_count()).collect(),
        }
    }
}

impl Requests {
    /// Counts in the first metric and times in the second, each with its name and help text; the
    /// reasons that `has` names have a series.
    pub(super) fn new(
        registry: &Registry,
        [count, count_help]: [&str; 2],
        [time, time_help]: [&str; 2],
        has: fn(Reason) -> bool,
    ) -> Self {
        let requests = registry.counters(count, count_help, &["verdict", "reason"]);
        let with = |reason: Option<Reason>| {
            requests.with_label_values(&[verdict(reason), reason.map_or("none", Reason::name)])
        };
        Self {
            answered: with(None),
            unanswered: Reason::ALL.map(|reason| has(reason).then(|| with(Some(reason)))),
            seconds: registry.histogram(time, time_help, &LATENCY),
        }
    }

    /// Counts a finished request.
    pub fn count(&self, reason: Option<Reason>, total: Duration) {
        let counter = match reason {
            Some(reason) => self.unanswered.get(reason as usize).and_then(Option::as_ref),
            None => Some(&self.answered),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        self.seconds.observe(total.as_secs_f64());
    }

    /// Requests answered, also with an error from the node.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Requests not answered, by reason; reasons without any are left out.
    pub fn unanswered(&self) -> impl Iterator<Item = (Reason, u64)> {
        let counts = Reason::ALL.into_iter().zip(&self.unanswered);
        counts
            .filter_map(|(reason, count)| Some((reason, count.as_ref()?.get())))
            .filter(|(_, count)| *count > 0)
    }

    /// How long requests took.
    pub fn latency(&self) -> Latency {
        Latency::of(&self.seconds)
    }
}
