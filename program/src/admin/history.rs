//! The history of the page's plots: 30 minutes of each series, a point every 5 seconds, sampled
//! whether or not a page is open.
//!
//! In: the counters and histograms of the process. Out: `/history`, and the newest point for each
//! snapshot. Plots have a gap where samples are missing, as while the process is suspended.

use super::Admin;
use super::snapshot::millis;
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::telemetry::{LATENCY, Latency, Surface, counts};
use portcullis_edge::reply::Reply;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, MissedTickBehavior};

/// The time between two points.
const INTERVAL: Duration = Duration::from_secs(5);
/// The points of 30 minutes. A value takes 8 bytes and a point has at most 20: about 75 KB in all.
const POINTS: usize = 30 * 60 / 5;

/// A counter or a histogram at one time; two of them make a value.
enum Reading {
    /// A counter, whose value is its rate per second.
    Rate(u64),
    /// A counter, whose value is its share in another one.
    Share(u64, u64),
    /// A histogram, whose value is a quantile in seconds.
    Quantile(f64, Latency),
}

/// The values of an interval, with its end; `None` where nothing was counted.
#[derive(Debug, Serialize)]
struct Point {
    /// Milliseconds since 1970.
    at_ms: u64,
    values: Vec<Option<f32>>,
}

/// The points of the series, oldest first.
#[derive(Default)]
pub struct History(Mutex<Points>);

#[derive(Default)]
struct Points {
    names: Vec<String>,
    points: VecDeque<Point>,
    /// The last sample, and when it was taken.
    last: Option<(Instant, Vec<Reading>)>,
}

/// The body of `/history`.
#[derive(Serialize)]
struct Answer<'a> {
    /// Seconds between two points.
    interval_s: u64,
    /// The names of the values of each point.
    series: &'a [String],
    points: &'a VecDeque<Point>,
}

/// Takes the samples.
pub struct Sampler(pub(super) Arc<Admin>);

#[async_trait]
impl BackgroundService for Sampler {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = ticks.tick() => {}
            }
            let sample = self.0.sample();
            self.0.note_seen();
            self.0
                .history
                .add(SystemTime::now(), Instant::now(), sample);
        }
    }
}

impl Admin {
    /// The readings that series are computed from, by name. A process always has the same names.
    fn sample(&self) -> Vec<(String, Reading)> {
        let (surfaces, metrics) = (&self.surfaces, &self.process.metrics);
        let mut sample = Vec::new();
        for (surface, is_on, requests) in [
            (
                Surface::Gateway,
                surfaces.gateway.is_some(),
                &metrics.requests,
            ),
            (
                Surface::Relay,
                surfaces.relay.is_some(),
                &metrics.relay.requests,
            ),
            (
                Surface::Sidecar,
                surfaces.sidecar.is_some(),
                &metrics.sidecar.requests,
            ),
        ] {
            if is_on {
                let (mut refused, mut failed) = (0, 0);
                for (reason, count) in requests.unanswered() {
                    *(if reason.is_failure() {
                        &mut failed
                    } else {
                        &mut refused
                    }) += count;
                }
                let all = requests.answered() + refused + failed;
                let rates = [("requests", all), ("refused", refused), ("failed", failed)];
                add(&mut sample, surface.name(), &rates, || requests.latency());
            }
        }
        let calls = counts(&metrics.node_calls, "outcome");
        let all: f64 = calls.values().sum();
        let errors = all - calls.get("ok").copied().unwrap_or_default();
        let rates = [("calls", all as u64), ("errors", errors as u64)];
        add(&mut sample, "node", &rates, || metrics.node_latency());
        if surfaces.gateway.is_some() {
            let uses = counts(&metrics.calls, "cache");
            let served = ["hit", "shared"]
                .iter()
                .filter_map(|name| uses.get(*name))
                .sum::<f64>();
            let share = Reading::Share(served as u64, uses.values().sum::<f64>() as u64);
            sample.push(("cache.served".to_owned(), share));
        }
        sample
    }
}

/// Adds the rates of a part, and two quantiles of its latency.
fn add(
    sample: &mut Vec<(String, Reading)>,
    part: &str,
    rates: &[(&str, u64)],
    latency: impl Fn() -> Latency,
) {
    let rates = rates
        .iter()
        .map(|(name, count)| (*name, Reading::Rate(*count)));
    let quantiles = [("p50", 0.5), ("p99", 0.99)];
    let quantiles = quantiles.map(|(name, share)| (name, Reading::Quantile(share, latency())));
    let all = rates.chain(quantiles);
    sample.extend(all.map(|(name, reading)| (format!("{part}.{name}"), reading)));
}

impl Reading {
    /// The value of the `seconds` since `then`.
    fn since(&self, then: &Self, seconds: f64) -> Option<f32> {
        let value = match (self, then) {
            (Self::Rate(now), Self::Rate(then)) => now.saturating_sub(*then) as f64 / seconds,
            (Self::Share(part, all), Self::Share(part_then, all_then)) => {
                let all = all.saturating_sub(*all_then);
                (all > 0).then(|| part.saturating_sub(*part_then) as f64 / all as f64)?
            }
            (Self::Quantile(share, now), Self::Quantile(_, then)) => quantile(*share, now, then)?,
            _ => return None,
        };
        Some(value as f32)
    }
}

/// The quantile of the observations since `then`, interpolated linearly within a bucket as by
/// Prometheus; at most the last bound.
fn quantile(share: f64, now: &Latency, then: &Latency) -> Option<f64> {
    let all = now.count.checked_sub(then.count).filter(|all| *all > 0)?;
    let wanted = share * all as f64;
    let (mut low, mut under) = (0.0, 0.0);
    for (bound, (now, then)) in LATENCY.iter().zip(now.below.iter().zip(&then.below)) {
        let below = now.saturating_sub(*then) as f64;
        if below >= wanted {
            return Some(low + (bound - low) * (wanted - under) / (below - under));
        }
        (low, under) = (*bound, below);
    }
    Some(low)
}

impl History {
    /// Adds the point of the interval that ends with this sample. The first sample, and one after a
    /// pause of the process, adds no point: its rates would hide what happened in that time.
    fn add(&self, at: SystemTime, instant: Instant, sample: Vec<(String, Reading)>) {
        let (names, readings): (Vec<_>, Vec<_>) = sample.into_iter().unzip();
        let mut this = self.0.lock();
        let last = this
            .last
            .take()
            .map(|(then, last)| (instant.duration_since(then), last));
        if let Some((elapsed, last)) = last.filter(|(elapsed, _)| *elapsed < 2 * INTERVAL) {
            let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
            let pairs = readings.iter().zip(&last);
            let values = pairs.map(|(now, then)| now.since(then, seconds)).collect();
            let at_ms = millis(at);
            // points stay in order when the clock is set back
            while this.points.back().is_some_and(|point| point.at_ms >= at_ms) {
                this.points.pop_back();
            }
            if this.points.len() == POINTS {
                this.points.pop_front();
            }
            this.points.push_back(Point { at_ms, values });
        }
        this.names = names;
        this.last = Some((instant, readings));
    }

    /// The newest point, each value with its name.
    pub(super) fn newest(&self) -> Option<Value> {
        let Points { names, points, .. } = &*self.0.lock();
        let Point { at_ms, values } = points.back()?;
        let values = names
            .iter()
            .cloned()
            .zip(values.iter().map(|value| json!(value)));
        Some(json!({ "at_ms": at_ms, "values": values.collect::<Map<_, _>>() }))
    }

    /// The names of the series, and all points, oldest first.
    pub(super) fn reply(&self) -> Reply {
        let Points { names, points, .. } = &*self.0.lock();
        Reply::serialize(
            200,
            &Answer {
                interval_s: INTERVAL.as_secs(),
                series: names,
                points,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A latency with `count` observations in each of the first three buckets.
    fn latency(count: u64) -> Latency {
        let below = (1..=LATENCY.len() as u64)
            .map(|at| count * at.min(3))
            .collect();
        Latency {
            count: 3 * count,
            sum: 0.0,
            below,
        }
    }

    fn sample(count: u64) -> Vec<(String, Reading)> {
        let mut sample = Vec::new();
        let rates = [("requests", count), ("refused", count / 2), ("failed", 0)];
        for part in ["gateway", "relay", "sidecar"] {
            add(&mut sample, part, &rates, || latency(count));
        }
        add(&mut sample, "node", &rates[..2], || latency(count));
        sample.push(("cache.served".to_owned(), Reading::Share(count / 4, count)));
        sample
    }

    /// Adds a sample for each `(seconds, count)`.
    fn history(samples: impl IntoIterator<Item = (u64, u64)>) -> Points {
        let (history, start) = (History::default(), Instant::now());
        for (seconds, count) in samples {
            let after = Duration::from_secs(seconds);
            history.add(SystemTime::UNIX_EPOCH + after, start + after, sample(count));
        }
        history.0.into_inner()
    }

    fn times(points: &Points) -> Vec<u64> {
        points
            .points
            .iter()
            .map(|point| point.at_ms / 1000)
            .collect()
    }

    #[test]
    fn a_day_takes_no_more_than_30_minutes() {
        let day = 24 * 60 * 60 / 5;
        let points = history((0..day).map(|at| (5 * at, 7 * at)));
        assert_eq!(points.points.len(), POINTS);
        assert!(
            points.points.capacity() <= 2 * POINTS,
            "{}",
            points.points.capacity()
        );
        let values = points
            .points
            .iter()
            .map(|point| point.values.capacity())
            .sum::<usize>();
        let bytes = points.points.capacity() * size_of::<Point>() + values * 8;
        assert!(
            points.names.len() == 20 && bytes <= 128 << 10,
            "{bytes} bytes"
        );
        let history = History(Mutex::new(points));
        let json = history.reply().body.length();
        assert!(json <= 128 << 10, "{json} bytes as JSON");
    }

    #[test]
    fn values_are_those_of_their_interval() {
        let points = history([(0, 100), (5, 140), (10, 140)]);
        let value = |point: usize, name: &str| {
            let at = points
                .names
                .iter()
                .position(|known| known == name)
                .expect("a series");
            points.points[point].values[at]
        };
        assert_eq!(value(0, "gateway.requests"), Some(8.0), "40 in 5 s");
        assert_eq!(value(0, "gateway.refused"), Some(4.0));
        assert_eq!(value(0, "cache.served"), Some(0.25));
        let middle = (LATENCY[0] + LATENCY[1]) / 2.0;
        assert_eq!(
            value(0, "node.p50"),
            Some(middle as f32),
            "half of the second bucket"
        );
        assert_eq!(value(1, "gateway.requests"), Some(0.0), "none is a value");
        assert_eq!(
            (value(1, "node.p50"), value(1, "cache.served")),
            (None, None),
            "of nothing"
        );
    }

    #[test]
    fn a_pause_is_a_gap() {
        let points = history([(0, 1), (5, 2), (60, 3), (65, 4)]);
        assert_eq!(
            times(&points),
            [5, 65],
            "no point has the rate of the pause"
        );
    }

    #[test]
    fn a_clock_set_back_leaves_order() {
        let (history, start) = (History::default(), Instant::now());
        for (elapsed, clock) in [(0, 100), (5, 105), (10, 110), (15, 107), (20, 112)] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(clock);
            history.add(at, start + Duration::from_secs(elapsed), sample(elapsed));
        }
        assert_eq!(times(&history.0.into_inner()), [105, 107, 112]);
    }
}
