//! The metrics as the page reads them: the same series that `/metrics` shows.
//!
//! In: the families of the registry. Out: numbers by name and label. A name that is not there
//! counts as zero; `tests/tidy.rs` sees to it that every name here exists.

use super::state::{Count, Latency};
use prometheus::proto::{Metric, MetricFamily, MetricType};

/// Every metric at one time.
pub(super) struct Numbers(Vec<MetricFamily>);

impl Numbers {
    /// What the registry says.
    pub(super) fn new(families: Vec<MetricFamily>) -> Self {
        Self(families)
    }

    fn series(&self, name: &str) -> impl Iterator<Item = (&Metric, f64)> {
        let family = self.0.iter().find(|family| family.name() == name);
        let values = family.map(|family| {
            let is_counter = family.get_field_type() == MetricType::COUNTER;
            family.get_metric().iter().map(move |metric| {
                let counter = || metric.get_counter().get_value();
                let value = if is_counter { counter() } else { metric.get_gauge().get_value() };
                (metric, value)
            })
        });
        values.into_iter().flatten()
    }

    /// The sum of the series that have all of these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let series = self.series(name);
        let sum: f64 = series.filter(|(metric, _)| has(metric, labels)).map(|(_, v)| v).sum();
        sum as u64
    }

    /// The value of the series with this label, if there is one.
    pub(super) fn value(&self, name: &str, label: (&str, &str)) -> Option<f64> {
        self.series(name).find(|(metric, _)| has(metric, &[label])).map(|(_, value)| value)
    }

    /// The sums by the value of a label, in the order in which they are.
    pub(super) fn by(&self, name: &str, label: &str) -> Vec<Count> {
        self.by_where(name, label, &[])
    }

    /// The same of the series that have all of these labels.
    pub(super) fn by_where(&self, name: &str, label: &str, labels: &[(&str, &str)]) -> Vec<Count> {
        let mut counts: Vec<Count> = Vec::new();
        for (metric, value) in self.series(name).filter(|(metric, _)| has(metric, labels)) {
            let Some(named) = value_of(metric, label) else { continue };
            match counts.iter_mut().find(|count| count.name == named) {
                Some(count) => count.total += value as u64,
                None => counts.push(Count { name: named.to_owned(), total: value as u64 }),
            }
        }
        counts
    }

    /// A histogram that has no labels.
    pub(super) fn latency(&self, name: &str) -> Latency {
        let family = self.0.iter().find(|family| family.name() == name);
        let metric = family.and_then(|family| family.get_metric().first());
        metric.map_or_else(Latency::default, |metric| {
            let histogram = metric.get_histogram();
            let buckets = histogram.get_bucket();
            Latency {
                count: histogram.get_sample_count(),
                sum: histogram.get_sample_sum(),
                below: buckets.iter().map(|bucket| bucket.cumulative_count()).collect(),
            }
        })
    }
}

fn value_of<'a>(metric: &'a Metric, label: &str) -> Option<&'a str> {
    let pair = metric.get_label().iter().find(|pair| pair.name() == label);
    pair.map(|pair| pair.value())
}

fn has(metric: &Metric, labels: &[(&str, &str)]) -> bool {
    labels.iter().all(|(label, value)| value_of(metric, label) == Some(value))
}
