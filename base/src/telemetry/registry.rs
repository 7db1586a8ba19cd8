//! Registers metrics, and reads them back for the operator's page.
//!
//! Names, help texts and labels are literals, so a failure to register is a bug that every start
//! would show. A value that another part holds is sampled: read at each scrape.

use super::surface::{BySurface, Surface};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Result,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// Defines a struct of metrics and its `register`, which creates it from a registry and, if needed,
/// label values. Each row, `field: Type = kind("name", "help text", …);`, is a metric: `kind` is a
/// method of [`Registry`], and the help text is also the doc of the field. Other fields follow in
/// `with { … }`, and can use the rows. For example
///
/// ```text
/// /// The relay's metrics.
/// pub struct RelayMetrics(registry, states: &[&str]) {
///     pub journal: IntGaugeVec = gauges("portcullis_relay_journal_intents",
///         "Intents in the journal by state.", "state", states);
/// }
/// ```
///
/// becomes
///
/// ```text
/// /// The relay's metrics.
/// #[derive(Debug)]
/// pub struct RelayMetrics {
///     /// Intents in the journal by state.
///     pub journal: IntGaugeVec,
/// }
///
/// impl RelayMetrics {
///     pub(super) fn register(registry: &Registry, states: &[&str]) -> Self {
///         let journal = registry.gauges("portcullis_relay_journal_intents",
///             "Intents in the journal by state.", "state", states);
///         Self { journal }
///     }
/// }
/// ```
macro_rules! metrics {
    (
        $(#[$about:meta])*
        pub struct $Name:ident($registry:ident $(, $values:ident: $Values:ty)?) {$(
            $vis:vis $metric:ident: $Metric:ty =
                $kind:ident($name:literal, $help:literal $(, $argument:expr)*);
        )*}
        $(with {$(
            $(#[doc = $doc:literal])*
            $part_vis:vis $part:ident: $Part:ty = $made:expr;
        )*})?
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $Name {
            $(#[doc = $help] $vis $metric: $Metric,)*
            $($($(#[doc = $doc])* $part_vis $part: $Part,)*)?
        }

        impl $Name {
            pub(super) fn register(
                $registry: &$crate::telemetry::registry::Registry,
                $($values: $Values)?
            ) -> Self {
                $(let $metric = $registry.$kind($name, $help $(, $argument)*);)*
                $($(let $part = $made;)*)?
                Self { $($metric,)* $($($part,)*)? }
            }
        }
    };
}
pub(super) use metrics;

/// A set of metrics, which its clones share.
#[derive(Clone, Debug, Default)]
pub struct Registry(prometheus::Registry);

impl Registry {
    fn add<C: Collector + Clone + 'static>(&self, made: Result<C>) -> C {
        let metric = made.expect("names and labels are literals that tests register");
        self.register(metric.clone());
        metric
    }

    fn register(&self, metric: impl Collector + 'static) {
        self.0
            .register(Box::new(metric))
            .expect("each metric is registered once");
    }

    pub(super) fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    pub(super) fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    /// Counters of one label, with a series for each of its values.
    pub(super) fn series(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[&str],
    ) -> IntCounterVec {
        let counters = self.counters(name, help, &[label]);
        for value in values {
            counters.with_label_values(&[value]);
        }
        counters
    }

    /// Counters of one label as an array, one for each of its values.
    pub(super) fn counter_array<const VALUES: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; VALUES],
    ) -> [IntCounter; VALUES] {
        let counters = self.counters(name, help, &[label]);
        values.map(|value| counters.with_label_values(&[value]))
    }

    /// Counters of two labels as an array of arrays, one for each pair of their values.
    pub(super) fn counter_matrix<const ROWS: usize, const COLUMNS: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; 2],
        rows: [&str; ROWS],
        columns: [&str; COLUMNS],
    ) -> [[IntCounter; COLUMNS]; ROWS] {
        let counters = self.counters(name, help, &labels);
        rows.map(|row| columns.map(|column| counters.with_label_values(&[row, column])))
    }

    pub(super) fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    /// Gauges of one label, with a series for each of these values.
    pub(super) fn gauges(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: &[&str],
    ) -> IntGaugeVec {
        let gauges = self.add(IntGaugeVec::new(Opts::new(name, help), &[label]));
        for value in values {
            gauges.with_label_values(&[value]);
        }
        gauges
    }

    /// Gauges of one label as an array, one for each of its values.
    pub(super) fn gauge_array<const VALUES: usize>(
        &self,
        name: &str,
        help: &str,
        label: &str,
        values: [&str; VALUES],
    ) -> [IntGauge; VALUES] {
        let gauges = self.gauges(name, help, label, &values);
        values.map(|value| gauges.with_label_values(&[value]))
    }

    /// Registers a gauge that is always 1, for its labels.
    pub(super) fn info<const LABELS: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [(&str, &str); LABELS],
    ) {
        let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned()));
        let opts = Opts::new(name, help).const_labels(HashMap::from(labels));
        self.add(IntGauge::with_opts(opts)).set(1);
    }

    pub(super) fn float(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    pub(super) fn floats(&self, name: &str, help: &str, label: &str) -> GaugeVec {
        self.add(GaugeVec::new(Opts::new(name, help), &[label]))
    }

    pub(super) fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(
            HistogramOpts::new(name, help).buckets(buckets.to_vec()),
        ))
    }

    /// Histograms of one label.
    pub(super) fn histograms(
        &self,
        name: &str,
        help: &str,
        label: &str,
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(options, &[label]))
    }

    /// Counters of surfaces and outcomes. [`SurfaceCounters::begin`] makes the series of a surface.
    pub(super) fn surface_counters<const OUTCOMES: usize>(
        &self,
        name: &str,
        help: &str,
        outcomes: [&'static str; OUTCOMES],
    ) -> SurfaceCounters<OUTCOMES> {
        SurfaceCounters {
            counters: self.counters(name, help, &["surface", "outcome"]),
            outcomes,
            series: BySurface::default(),
        }
    }

    /// A histogram for the operator's page alone.
    pub(super) fn unregistered(name: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, "For the operator's page.");
        Histogram::with_opts(options.buckets(buckets.to_vec()))
            .expect("the name is a literal, and the bounds ascend")
    }

    /// Registers a metric that `update` refreshes at each scrape.
    pub fn sample<C: Collector + 'static>(
        &self,
        made: Result<C>,
        update: impl Fn(&C) + Send + Sync + 'static,
    ) {
        let metric = made.expect("names and labels are literals that tests register");
        self.register(Sampled { metric, update });
    }

    /// Every metric with its series. Calls must not overlap, since sampled counters are raised
    /// here.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.0.gather()
    }
}

/// Counters of the surfaces that have what is counted, by outcome.
#[derive(Debug)]
pub struct SurfaceCounters<const OUTCOMES: usize> {
    counters: IntCounterVec,
    outcomes: [&'static str; OUTCOMES],
    series: BySurface<OnceLock<[IntCounter; OUTCOMES]>>,
}

impl<const OUTCOMES: usize> SurfaceCounters<OUTCOMES> {
    /// Exports the series of a surface before anything is counted.
    pub fn begin(&self, surface: Surface) {
        self.of(surface);
    }

    /// The series of a surface, in the order of the outcomes.
    pub fn of(&self, surface: Surface) -> &[IntCounter; OUTCOMES] {
        self.series[surface as usize].get_or_init(|| {
            self.outcomes
                .map(|outcome| self.counters.with_label_values(&[surface.name(), outcome]))
        })
    }
}

/// A metric whose value another part holds.
struct Sampled<C, F> {
    metric: C,
    update: F,
}

impl<C: Collector, F: Fn(&C) + Send + Sync> Collector for Sampled<C, F> {
    fn desc(&self) -> Vec<&Desc> {
        self.metric.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.update)(&self.metric);
        self.metric.collect()
    }
}

/// Converts a number to the type of a gauge; too large ones become its maximum.
pub fn as_gauge(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Raises a counter to its owner's total.
pub fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

/// The series of a metric, summed by the value of one label.
pub fn counts(metric: &impl Collector, label: &str) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for family in metric.collect() {
        let is_counter = family.get_field_type() == MetricType::COUNTER;
        for series in family.get_metric() {
            let pair = series.get_label().iter().find(|pair| pair.name() == label);
            let Some(pair) = pair else { continue };
            let value = if is_counter {
                series.get_counter().get_value()
            } else {
                series.get_gauge().get_value()
            };
            *counts.entry(pair.value().to_owned()).or_default() += value;
        }
    }
    counts
}
