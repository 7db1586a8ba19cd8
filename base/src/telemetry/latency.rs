//! A histogram as the operator's page reads it.

use prometheus::Histogram;
use prometheus::core::Metric as _;

/// A histogram of durations at one time.
#[derive(Debug)]
pub struct Latency {
    /// Observations in all.
    pub count: u64,
    /// Their sum in seconds.
    pub sum: f64,
    /// Observations up to each bound of [`super::LATENCY`].
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

    /// Subtracts `other`, which counts a part of the observations.
    pub(super) fn without(self, other: &Self) -> Self {
        let below = self.below.iter().zip(&other.below);
        Self {
            // the two are not read at the same moment
            count: self.count.saturating_sub(other.count),
            sum: (self.sum - other.sum).max(0.0),
            below: below.map(|(all, part)| all.saturating_sub(*part)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_part_the_rest_is_left() {
        let all = Latency {
            count: 10,
            sum: 2.0,
            below: vec![4, 9, 10],
        };
        let failed = Latency {
            count: 4,
            sum: 0.5,
            below: vec![4, 4, 4],
        };
        let rest = all.without(&failed);
        assert_eq!((rest.count, rest.sum, rest.below), (6, 1.5, vec![0, 5, 6]));
    }

    #[test]
    fn a_part_that_was_read_later_leaves_nothing() {
        let all = Latency {
            count: 1,
            sum: 0.1,
            below: vec![1],
        };
        let failed = Latency {
            count: 2,
            sum: 0.2,
            below: vec![2],
        };
        let rest = all.without(&failed);
        assert_eq!((rest.count, rest.sum, rest.below), (0, 0.0, vec![0]));
    }
}
