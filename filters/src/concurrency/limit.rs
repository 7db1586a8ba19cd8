//! Learns how many concurrent calls a URL answers well, from their latencies.
//!
//! Below the node's capacity a latency does not depend on the calls in flight; above it, it grows
//! with them. The base is the latency while few calls are in flight. The limit is the number of
//! calls at which the latency is a quarter above the base (Little's law), and a square root more,
//! so that the node never runs dry. While the limit is in use all the time, it is halved for a few
//! answers from time to time: latencies that stay the same show that the node became slower by
//! itself, and the base follows.
//!
//! As long as no answer shows congestion, the limit follows the demand.

use super::latencies::{Latencies, Mean, SampleId};
use super::{CostClass, MAX_WAIT, Started, average, micros};
use core::time::Duration;

/// The limit before anything is known, up to which the demand needs no answer.
const FIRST: u32 = 32;
/// The fewest calls of a sample.
const SAMPLE: u32 = 32;
/// Those of a sample that measures the base. It is small: while a node becomes overloaded, later
/// calls wait there already.
const BASE_SAMPLE: u32 = 12;
/// A wait at the node that no client notices, in microseconds: below it, a limit only costs.
const UNNOTICED: u64 = 20_000;
/// How fast the limit grows at most, in thousandths.
const MAX_GRADIENT: u64 = 1_250;
/// How long congestion keeps the limit from following the demand.
const MEMORY: Duration = Duration::from_secs(10);
/// How long a sample of a calm node is compared with one of a busy node.
const FRESH: Duration = Duration::from_secs(2);
/// How often the base is measured while the limit is in use all the time.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// A latency counts as at most this many times the base: a few hanging calls are no congestion.
const OUTLIER: u64 = 16;
/// Calls that take this many microseconds are not known to hang before their deadline.
const SLOW: u64 = 400_000;
/// The fewest refusals by the node that lower the limit.
const REFUSALS: u32 = 4;
/// A node that refuses one of so few concurrent calls has a limit of another kind, which its
/// refusals tell the clients.
const SO_FEW: u32 = 4;
/// The most calls that wait, and the fewest that may.
const MAX_WAITING: u64 = 4_096;
const MIN_WAITING: u64 = 8;

/// The limit of concurrent calls, which follows what the node answers well.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    most: u32,
    limit: u32,
    /// Changes with the limit.
    era: u32,
    /// Whether a call met the limit in this era.
    is_reached: bool,
    /// The latency of a node with few calls, in microseconds.
    base: Option<u64>,
    /// How much later than that an answer may be, because slower classes of the URL may wait in the
    /// queue that this one waits in.
    slack: u64,
    /// The latency of recent calls, in microseconds.
    recent: u64,
    /// That of the last few.
    latest: u64,
    /// The latencies of calls that began while at most half of the limit was in flight.
    calm: Latencies,
    /// Those of all others.
    busy: Latencies,
    /// The last result of `calm`, and its time.
    calmed: Option<(Mean, Duration)>,
    /// Samples of `calm` so far, up to a bound.
    samples: u64,
    /// The last result of `busy`, and its time.
    measured: Option<(Mean, Duration)>,
    /// When congestion was found last.
    congested: Option<Duration>,
    probe: Probe,
    wants_probe: bool,
    is_probed: bool,
    peak: Peak,
    answered: u32,
    refused: u32,
}

/// The sample that a call belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    Calm(SampleId),
    Busy(SampleId),
}

/// The measurement of the base while the limit is in use all the time.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// When the last one ended, and the limit at that time.
    Ended(Duration, u32),
    /// Calls of before are in flight.
    Begun,
    /// Calls that start now are measured.
    Settled,
}

/// The most calls in flight, in the current and in the previous [`MEMORY`].
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    since: Duration,
    current: u32,
    previous: u32,
}

impl ConcurrencyLimit {
    /// The limit of a node of which nothing is known; it never exceeds `most`.
    pub(super) fn new(most: u32) -> Self {
        Self {
            most: most.max(1),
            limit: FIRST.min(most).max(1),
            era: 0,
            is_reached: false,
            base: None,
            slack: 0,
            recent: 0,
            latest: 0,
            calm: Latencies::new(BASE_SAMPLE),
            busy: Latencies::new(SAMPLE),
            calmed: None,
            samples: 0,
            measured: None,
            congested: None,
            probe: Probe::Ended(Duration::ZERO, FIRST),
            wants_probe: false,
            is_probed: false,
            peak: Peak::default(),
            answered: 0,
            refused: 0,
        }
    }

    /// The calls that the node answers well.
    pub(super) const fn calls(&self) -> u32 {
        self.limit
    }

    /// Whether one more call may start while this many are in flight. If none may, the limit is in
    /// use.
    pub(super) fn admits(&mut self, in_flight: u32, now: Duration) -> bool {
        if self.is_probing() {
            return in_flight < self.half();
        }
        if in_flight >= self.limit && self.follows_demand(now) {
            self.limit = in_flight.saturating_add(1).min(self.most);
        }
        if in_flight >= self.limit {
            self.is_reached = true;
        }
        in_flight < self.limit
    }

    /// The limit while the base is measured.
    pub(super) fn half(&self) -> u32 {
        (self.limit / 2).max(1)
    }

    /// The latency of recent calls.
    pub(super) const fn recent_latency(&self) -> Duration {
        Duration::from_micros(self.recent)
    }

    /// Whether calls take long, so that a call that takes long does not hang.
    pub(super) fn is_slow(&self) -> bool {
        self.recent >= SLOW
    }

    /// Records the start of a call, by which this many are in flight.
    pub(super) fn start(&mut self, class: CostClass, in_flight: u32, now: Duration) -> Started {
        self.peak.current = self.peak.current.max(in_flight);
        if now.saturating_sub(self.peak.since) >= MEMORY {
            // the limit does not stay far above the demand
            let peak = self.peak.current.max(self.peak.previous);
            self.limit = self.limit.min(peak.saturating_mul(2).max(FIRST));
            self.peak = Peak {
                since: now,
                current: in_flight,
                previous: self.peak.current,
            };
        }
        let is_calm = self.base.is_none() || in_flight.saturating_mul(2) <= self.limit.min(FIRST);
        let sample = match self.probe {
            Probe::Begun => None,
            Probe::Ended(..) if !is_calm => self.busy.start(in_flight, now).map(Sample::Busy),
            Probe::Ended(..) | Probe::Settled => self.calm.start(in_flight, now).map(Sample::Calm),
        };
        Started {
            class,
            at: now,
            in_flight,
            era: self.era,
            sample,
        }
    }

    /// Records an answer.
    pub(super) fn note(&mut self, started: Started, now: Duration) {
        let took = micros(now.saturating_sub(started.at)).min(self.outlier());
        self.recent = average(self.recent, 7, took);
        self.latest = average(self.latest, 1, took);
        self.answered = self.answered.saturating_add(1);
        match started.sample {
            Some(Sample::Calm(id)) => self.calm.end(id, started.at, took),
            Some(Sample::Busy(id)) => self.busy.end(id, started.at, took),
            None => {}
        }
        self.conclude(now);
    }

    /// Records a call whose latency shows nothing.
    pub(super) fn discard(&mut self, started: Started) {
        match started.sample {
            Some(Sample::Calm(id)) => self.calm.discard(id, started.at, started.in_flight),
            Some(Sample::Busy(id)) => self.busy.discard(id, started.at, started.in_flight),
            None => {}
        }
    }

    /// Records a call that was given up: it is known to take longer than it did.
    pub(super) fn note_abandoned(&mut self, started: Started, now: Duration) {
        let took = micros(now.saturating_sub(started.at));
        if self.base.is_some_and(|base| took > base) {
            self.note(started, now);
        } else {
            self.discard(started);
        }
    }

    /// Records that the node refused a call as one too many. The limit is lowered if it refuses
    /// many.
    pub(super) fn note_refused(&mut self, started: Started, now: Duration) {
        self.discard(started);
        if started.era != self.era || started.in_flight <= SO_FEW {
            return;
        }
        self.refused = self.refused.saturating_add(1);
        if self.refused >= REFUSALS && self.refused.saturating_mul(3) > self.answered {
            let kept = started.in_flight.saturating_mul(9) / 10;
            self.congested = Some(now);
            self.change(self.limit.min(kept.max(1)));
        }
    }

    /// How many calls may wait: as many as are likely to start in time.
    pub(super) fn waiting(&self) -> usize {
        let calls = u64::from(self.limit).saturating_mul(micros(MAX_WAIT));
        let likely = calls.checked_div(self.recent).unwrap_or(MAX_WAITING);
        usize::try_from(likely.clamp(MIN_WAITING, MAX_WAITING)).unwrap_or(usize::MAX)
    }

    /// The longest latency that counts, in microseconds.
    fn outlier(&self) -> u64 {
        self.base.unwrap_or(u64::MAX).saturating_mul(OUTLIER)
    }

    const fn is_probing(&self) -> bool {
        matches!(self.probe, Probe::Begun | Probe::Settled)
    }

    /// Whether nothing shows that more calls would be too many.
    fn follows_demand(&self, now: Duration) -> bool {
        if self.congested.is_some_and(|at| is_recent(at, now)) {
            return false;
        }
        let Some(base) = self.base else {
            return true;
        };
        self.latest <= tolerated(base).saturating_mul(5) / 4
    }

    fn conclude(&mut self, now: Duration) {
        if self.calm.is_full(now) && !self.is_probing() {
            self.learn_base(now);
        }
        if self.busy.is_full(now) || self.is_far_slower() {
            self.adjust(now);
        }
    }

    /// Whether a few answers show enough.
    fn is_far_slower(&self) -> bool {
        let Some(base) = self.base else {
            return false;
        };
        self.busy.is_usable() && self.busy.is_above(self.allowed(base).saturating_mul(2))
    }

    fn learn_base(&mut self, now: Duration) -> Mean {
        let calm = self.calm.take(self.outlier(), now);
        let took = calm.latency.max(1);
        let busy = self.measured.filter(|(_, at)| is_recent(*at, now));
        self.calmed = Some((calm, now));
        let sure = took.saturating_add(calm.error);
        self.base = Some(match (self.base, busy) {
            (None, _) => took,
            (Some(base), _) if sure < base => average(base, 1, sure),
            (Some(base), Some((busy, _))) if is_independent(calm, busy) => average(took, 3, base),
            (Some(base), Some(_)) => base,
            // the first samples are small
            (Some(base), None) => average(base, self.samples, took),
        });
        self.samples = self.samples.saturating_add(1).min(7);
        calm
    }

    /// Adjusts the limit to the latency of a busy node.
    fn adjust(&mut self, now: Duration) {
        let busy = self.busy.take(self.outlier(), now);
        self.measured = Some((busy, now));
        let Some(mut base) = self.base else {
            return;
        };
        if let Some((calm, at)) = self.calmed
            && now.saturating_sub(at) < FRESH
            && is_independent(calm, busy)
        {
            // the node is as slow with few calls
            base = base.max(calm.latency);
            self.base = Some(base);
        }
        // no more than what the sample shows for sure
        let took = busy.latency.saturating_sub(busy.error).max(1);
        let allowed = self.allowed(base).saturating_mul(1_000);
        let gradient = allowed
            .checked_div(took)
            .unwrap_or_default()
            .min(MAX_GRADIENT);
        if took > tolerated(base) && self.is_reached {
            self.congested = Some(now);
        }
        let calls = if gradient < 1_000 {
            busy.in_flight
        } else {
            self.limit.into()
        };
        let calls = calls.saturating_mul(gradient) / 1_000;
        let aim = calls.saturating_add(calls.isqrt()).max(1);
        self.wants_probe = self.is_reached && self.is_probe_due(now);
        self.change(self.step_to(u32::try_from(aim).unwrap_or(u32::MAX)));
    }

    /// The next limit: half of the way to `aim`. A limit that is not in use stays as it is.
    fn step_to(&self, aim: u32) -> u32 {
        let sum = self.limit.saturating_add(aim);
        if !self.is_reached {
            self.limit
        } else if aim > self.limit {
            sum.div_ceil(2)
        } else {
            sum / 2
        }
    }

    fn change(&mut self, limit: u32) {
        let limit = limit.clamp(1, self.most);
        if limit != self.limit {
            self.limit = limit;
            self.begin_era();
        }
    }

    fn begin_era(&mut self) {
        self.era = self.era.wrapping_add(1);
        self.is_reached = false;
        self.busy.clear();
        self.answered = 0;
        self.refused = 0;
    }

    /// Whether the base has to be measured: after a while, or because the limit fell far.
    fn is_probe_due(&self, now: Duration) -> bool {
        let Probe::Ended(at, limit) = self.probe else {
            return false;
        };
        let fell = self.limit.saturating_mul(10) < limit.saturating_mul(7);
        fell || now.saturating_sub(at) >= PROBE_INTERVAL
    }

    /// Whether the base has to be measured now.
    pub(super) const fn wants_probe(&self) -> bool {
        self.wants_probe
    }

    /// Halves the limit, to measure the base.
    pub(super) fn begin_probe(&mut self) {
        self.probe = Probe::Begun;
        self.is_probed = !self.is_reached && !self.wants_probe;
        self.wants_probe = false;
        self.calm.clear();
        self.begin_era();
    }

    /// Starts the measurement: no more calls than the halved limits allow are in flight.
    pub(super) fn settle_probe(&mut self) {
        self.probe = Probe::Settled;
    }

    /// Whether the base has been measured, or no call met the limit before.
    pub(super) fn is_probed(&self, now: Duration) -> bool {
        self.is_probed || self.calm.is_full(now)
    }

    /// Ends the measurement, and restores the limit, unless half of it is enough.
    pub(super) fn end_probe(&mut self, now: Duration) {
        let base = self.base;
        if self.calm.is_usable() {
            let half = self.learn_base(now);
            if let Some((full, _)) = self.measured
                && is_as_fast(half, full)
            {
                self.base = self.base.map(|base| base.min(half.latency));
                let calls = half.in_flight.saturating_add(half.in_flight.isqrt());
                self.limit = self.limit.min(u32::try_from(calls).unwrap_or(u32::MAX));
            }
        }
        self.calm.clear();
        self.probe = if self.base > base {
            // the limit fell because of a wrong base, which is measured again soon
            Probe::Ended(now, self.most)
        } else {
            Probe::Ended(now, self.limit)
        };
        self.begin_era();
    }

    /// The base and the wait at the node that the limit leads to, in microseconds, if the class was
    /// busy lately.
    pub(super) fn usual_wait(&self, now: Duration) -> Option<(u64, u64)> {
        let (_, at) = self.measured?;
        if !is_recent(at, now) {
            return None;
        }
        let base = self.base?;
        let calls = u64::from(self.limit);
        let least = calls.saturating_sub(calls.isqrt()).saturating_mul(4);
        let latency = base.saturating_mul(calls).saturating_mul(5);
        let latency = latency.checked_div(least).unwrap_or(u64::MAX);
        let wait = latency.saturating_sub(base).min(base);
        Some((base, wait))
    }

    /// Takes over the longest wait of a class with a larger base.
    pub(super) fn share_wait(&mut self, waits: &[Option<(u64, u64)>]) {
        let own = self.base.unwrap_or_default();
        let slower = waits.iter().flatten().filter(|(base, _)| *base > own);
        self.slack = slower.map(|(_, wait)| *wait).max().unwrap_or_default();
    }

    /// The latency that the limit allows.
    fn allowed(&self, base: u64) -> u64 {
        base.saturating_add(self.slack).max(tolerated(base))
    }
}

fn is_recent(at: Duration, now: Duration) -> bool {
    now.saturating_sub(at) < MEMORY
}

/// The latency that a limit leads to, for this base.
fn tolerated(base: u64) -> u64 {
    base.saturating_add(UNNOTICED.max(base / 4))
}

/// Whether nothing shows that the latency depends on the calls in flight: that it grows by more
/// than a sixth of what they do.
fn is_independent(calm: Mean, busy: Mean) -> bool {
    let least = busy.latency.saturating_sub(busy.error);
    let most = calm.latency.saturating_add(calm.error);
    let slower = least.saturating_sub(most);
    let more = busy.in_flight.saturating_sub(calm.in_flight);
    let slower = slower.saturating_mul(6).saturating_mul(calm.in_flight);
    slower <= more.saturating_mul(calm.latency)
}

/// Whether the node answers at least nine tenths as many calls with half of the limit as with all
/// of it (Little's law).
fn is_as_fast(half: Mean, full: Mean) -> bool {
    let most = half.latency.saturating_add(half.error);
    let least = full.latency.saturating_sub(full.error);
    let of_half = half.in_flight.saturating_mul(least);
    let of_full = full.in_flight.saturating_mul(most);
    of_half.saturating_mul(10) >= of_full.saturating_mul(9)
}
