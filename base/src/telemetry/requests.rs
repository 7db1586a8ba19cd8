//! The requests of a surface, by verdict and reason, and their latency; and its calls by name.

use super::latency::Latency;
use super::registry::Registry;
use portcullis_filters::verdict::{Api, Reason};
use prometheus::{Histogram, IntCounter};
use std::time::Duration;

/// Bucket bounds in seconds: the node's deadline is 8 s, a cache hit takes microseconds.
pub const LATENCY: [f64; 14] = [
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0, 4.0, 8.0,
];

/// The verdict on a request: `answered`, also with an error from the node; `refused` by the policy;
/// or `failed`, if it passed the policy and could not be answered.
pub(super) fn verdict(reason: Option<Reason>) -> &'static str {
    match reason {
        None => "answered",
        Some(reason) if reason.is_failure() => "failed",
        Some(_) => "refused",
    }
}

/// Bucket bounds of the latency by name, in seconds: which calls are slow. The histogram of the
/// surface says how slow.
const BY_NAME: [f64; 1] = [1.0];

/// Counts and times the calls of a surface by name: a method, an operation or a function.
#[derive(Debug)]
pub(super) struct Calls {
    names: Vec<&'static str>,
    seconds: Vec<Histogram>,
    failed: Vec<IntCounter>,
}

impl Calls {
    /// Registers a histogram and a counter of failures, each by name and help text. Each of the
    /// names, which are values of `label`, has its series.
    pub(super) fn new(
        registry: &Registry,
        [time, time_help]: [&str; 2],
        [failed, failed_help]: [&str; 2],
        label: &str,
        names: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        let seconds = registry.histograms(time, time_help, label, &BY_NAME);
        let failures = registry.series(failed, failed_help, label, &names);
        let seconds = names.iter().map(|name| seconds.with_label_values(&[name]));
        let failed = names.iter().map(|name| failures.with_label_values(&[name]));
        Self {
            seconds: seconds.collect(),
            failed: failed.collect(),
            names,
        }
    }

    /// Counts a finished request. One that was refused before its name was known has none.
    fn count(&self, name: &str, reason: Option<Reason>, total: Duration) {
        let Some(at) = self.names.iter().position(|known| *known == name) else {
            return;
        };
        self.seconds[at].observe(total.as_secs_f64());
        if reason.is_some_and(Reason::is_failure) {
            self.failed[at].inc();
        }
    }
}

/// Counts and times requests.
#[derive(Debug)]
pub struct Requests {
    calls: Calls,
    answered: IntCounter,
    /// `None` for a reason that the surface never has.
    unanswered: [Option<IntCounter>; Reason::ALL.len()],
    seconds: Histogram,
    /// The part of `seconds` for requests that were not answered.
    unanswered_seconds: Histogram,
}

impl Requests {
    /// Registers a counter and a histogram, each by name and help text. Each reason that the API
    /// gives has a series.
    pub(super) fn new(
        registry: &Registry,
        [count, count_help]: [&str; 2],
        [time, time_help]: [&str; 2],
        api: Api,
        calls: Calls,
    ) -> Self {
        let requests = registry.counters(count, count_help, &["verdict", "reason"]);
        let with = |reason: Option<Reason>| {
            requests.with_label_values(&[verdict(reason), reason.map_or("none", Reason::name)])
        };
        Self {
            calls,
            answered: with(None),
            unanswered: Reason::ALL.map(|reason| {
                if !reason.is_of(api) {
                    return None;
                }
                Some(with(Some(reason)))
            }),
            seconds: registry.histogram(time, time_help, &LATENCY),
            unanswered_seconds: Registry::unregistered("unanswered_seconds", &LATENCY),
        }
    }

    /// Counts a finished request; `name` is empty if it is not known.
    pub fn count(&self, name: &str, reason: Option<Reason>, total: Duration) {
        self.calls.count(name, reason, total);
        let counter = match reason {
            Some(reason) => {
                let counter = self.unanswered[reason as usize].as_ref();
                debug_assert!(counter.is_some(), "{reason:?} is of another API");
                counter
            }
            None => Some(&self.answered),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
        if reason.is_some() {
            self.unanswered_seconds.observe(total.as_secs_f64());
        }
        self.seconds.observe(total.as_secs_f64());
    }

    /// Requests answered, also with an error from the node.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Requests not answered, by reason; reasons with no request are left out.
    pub fn unanswered(&self) -> impl Iterator<Item = (Reason, u64)> {
        let counts = Reason::ALL.into_iter().zip(&self.unanswered);
        counts
            .filter_map(|(reason, count)| Some((reason, count.as_ref()?.get())))
            .filter(|(_, count)| *count > 0)
    }

    /// The latency of answered requests only: a refusal takes microseconds, as does a failure while
    /// the node is down.
    pub fn latency(&self) -> Latency {
        Latency::of(&self.seconds).without(&Latency::of(&self.unanswered_seconds))
    }
}
