//! Starts calls up to the limits, lets some wait, and refuses those with the weakest claim.
//!
//! A driver holds one for each URL behind a lock. After each [`Admission::enter`] and
//! [`Admission::end`] it starts the calls that [`Admission::next`] returns. A waiter that is
//! dropped is refused.

use super::CostClass;
use super::in_flight::InFlight;
use super::limit::{ConcurrencyLimit, Sample};
use super::shares::Shares;
use crate::client::ClientKey;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// The longest time for which latencies are measured while the limits are halved.
const PROBE_TIME: Duration = Duration::from_secs(1);
/// The longest time until no more calls than that are in flight.
const MAX_SETTLING: Duration = Duration::from_secs(4);

/// A call that was started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    pub(super) class: CostClass,
    pub(super) at: Duration,
    /// The calls of its class in flight, including this one.
    pub(super) in_flight: u32,
    pub(super) era: u32,
    pub(super) sample: Option<Sample>,
}

/// The place of a call that waits: by its client's rank, then by its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    rank: u32,
    arrival: u64,
}

/// How a call was received.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// It starts at once.
    Starts(Started),
    /// It waits: its waiter is stored.
    Waits(Place),
    /// It is refused: too many with a better claim wait.
    Refused,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a valid answer, or at its deadline: its latency counts.
    Timed,
    /// The node refused it as one too many.
    Refused,
    /// The caller left before the end.
    Abandoned,
    /// In another way, which shows nothing.
    Failed,
}

/// The state of all classes, for metrics.
pub type ReadStats = [(CostClass, AdmissionStats); CostClass::ALL.len()];

/// The state of a class, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionStats {
    /// The calls that the node answers well.
    pub limit: u32,
    /// The calls in flight.
    pub in_flight: u32,
    /// The calls that wait.
    pub waiting: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    client: ClientKey,
    waiter: T,
}

/// The calls of one class.
#[derive(Debug)]
struct Class<T> {
    limit: ConcurrencyLimit,
    in_flight: InFlight,
    waiting: BTreeMap<Place, Waiting<T>>,
}

/// The limits are halved, until this time at the latest.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// Calls of before are in flight.
    Settling(Duration),
    /// Calls that start now are measured.
    Measuring(Duration),
}

/// The calls to one URL. `T` is the driver's handle of a waiting call.
#[derive(Debug)]
pub struct Admission<T> {
    lookups: Class<T>,
    classes: Class<T>,
    executions: Class<T>,
    shares: Shares,
    arrivals: u64,
    /// The measurement of a calm node, in which all classes take part: otherwise they would wait
    /// for each other's calls.
    probe: Option<Probe>,
}

impl<T> Class<T> {
    fn new(most: u32) -> Self {
        Self {
            limit: ConcurrencyLimit::new(most),
            in_flight: InFlight::default(),
            waiting: BTreeMap::new(),
        }
    }

    fn stats(&self) -> AdmissionStats {
        AdmissionStats {
            limit: self.limit.calls(),
            in_flight: self.in_flight.all(),
            waiting: self.waiting.len(),
        }
    }

    /// The calls that hold a slot.
    fn holding(&mut self, now: Duration) -> u32 {
        let holding = self.in_flight.holding(now);
        if self.limit.is_slow() {
            self.in_flight.all()
        } else {
            holding
        }
    }

    fn has_slot(&mut self, now: Duration) -> bool {
        let in_flight = self.holding(now);
        self.limit.admits(in_flight, now)
    }

    fn is_settled(&mut self, now: Duration) -> bool {
        self.holding(now) <= self.limit.half()
    }

    fn start(&mut self, class: CostClass, now: Duration) -> Started {
        self.in_flight.begin(now);
        let in_flight = self.holding(now);
        self.limit.start(class, in_flight, now)
    }

    /// Removes the waiting call with the weakest claim, if it is weaker than that of `place`.
    /// Returns its client.
    fn evict(&mut self, place: Place) -> Option<ClientKey> {
        let last = self.waiting.last_entry()?;
        if *last.key() < place {
            return None;
        }
        Some(last.remove().client)
    }
}

impl<T> Admission<T> {
    /// Admits at most `most` concurrent calls of each class.
    pub fn new(most: u32) -> Self {
        Self {
            lookups: Class::new(most),
            classes: Class::new(most),
            executions: Class::new(most),
            shares: Shares::default(),
            arrivals: 0,
            probe: None,
        }
    }

    /// The state of each class, for metrics.
    pub fn stats(&self) -> ReadStats {
        [
            (CostClass::Lookup, self.lookups.stats()),
            (CostClass::Class, self.classes.stats()),
            (CostClass::Execution, self.executions.stats()),
        ]
    }

    /// Receives a call of a client. `waiter` makes its handle if it has to wait.
    pub fn enter(
        &mut self,
        class: CostClass,
        client: ClientKey,
        now: Duration,
        waiter: impl FnOnce() -> T,
    ) -> Entry {
        self.end_late_probe(now);
        let own = self.class(class);
        if own.waiting.is_empty() && own.has_slot(now) {
            return Entry::Starts(own.start(class, now));
        }
        let is_full = own.waiting.len() >= own.limit.waiting();
        let place = Place {
            rank: self.shares.arrive(client, now),
            arrival: self.arrivals,
        };
        self.arrivals = self.arrivals.wrapping_add(1);
        if is_full {
            let Some(evicted) = self.class(class).evict(place) else {
                self.shares.refuse(client, now);
                return Entry::Refused;
            };
            self.shares.refuse(evicted, now);
        }
        let waiter = waiter();
        let waiting = &mut self.class(class).waiting;
        waiting.insert(place, Waiting { client, waiter });
        Entry::Waits(place)
    }

    /// A waiting call that may start now.
    pub fn next(&mut self, now: Duration) -> Option<(T, Started)> {
        for class in CostClass::ALL {
            let own = self.class(class);
            if !own.waiting.is_empty()
                && own.has_slot(now)
                && let Some((_, first)) = own.waiting.pop_first()
            {
                return Some((first.waiter, own.start(class, now)));
            }
        }
        None
    }

    /// Removes a call that waited too long, or whose caller left. Returns false if it started, or
    /// was refused.
    pub fn leave(&mut self, class: CostClass, place: Place, now: Duration) -> bool {
        let Some(Waiting { client, .. }) = self.class(class).waiting.remove(&place) else {
            return false;
        };
        self.shares.refuse(client, now);
        true
    }

    /// Records the end of a call.
    pub fn end(&mut self, started: Started, ended: Ended, now: Duration) {
        let Class {
            limit, in_flight, ..
        } = self.class(started.class);
        in_flight.end(started.at, now);
        match ended {
            Ended::Timed => limit.note(started, now),
            Ended::Refused => limit.note_refused(started, now),
            Ended::Abandoned => limit.note_abandoned(started, now),
            Ended::Failed => limit.discard(started),
        }
        if limit.wants_probe() && self.probe.is_none() {
            self.begin_probe(now);
        }
        if self.probe.is_some() {
            self.advance_probe(now);
        }
    }

    fn class(&mut self, class: CostClass) -> &mut Class<T> {
        match class {
            CostClass::Lookup => &mut self.lookups,
            CostClass::Class => &mut self.classes,
            CostClass::Execution => &mut self.executions,
        }
    }

    fn all(&mut self) -> [&mut Class<T>; CostClass::ALL.len()] {
        let Self {
            lookups,
            classes,
            executions,
            ..
        } = self;
        [lookups, classes, executions]
    }

    fn begin_probe(&mut self, now: Duration) {
        let latencies = self.all().map(|class| class.limit.recent_latency());
        let slowest = latencies.into_iter().max().unwrap_or_default();
        let settling = slowest.saturating_mul(2).min(MAX_SETTLING);
        self.probe = Some(Probe::Settling(now.saturating_add(settling)));
        for class in self.all() {
            class.limit.begin_probe();
        }
    }

    fn advance_probe(&mut self, now: Duration) {
        let settling = matches!(self.probe, Some(Probe::Settling(_)));
        if settling && self.all().into_iter().all(|class| class.is_settled(now)) {
            self.probe = Some(Probe::Measuring(now.saturating_add(PROBE_TIME)));
            for class in self.all() {
                class.limit.settle_probe();
            }
        }
        if self
            .all()
            .into_iter()
            .all(|class| class.limit.is_probed(now))
        {
            self.end_probe(now);
        }
        self.end_late_probe(now);
    }

    fn end_late_probe(&mut self, now: Duration) {
        if let Some(Probe::Settling(until) | Probe::Measuring(until)) = self.probe
            && now >= until
        {
            self.end_probe(now);
        }
    }

    fn end_probe(&mut self, now: Duration) {
        self.probe = None;
        for class in self.all() {
            class.limit.end_probe(now);
        }
        self.share_waits(now);
    }

    /// Lets each class wait as long as a slower one does, for the node may have one queue.
    fn share_waits(&mut self, now: Duration) {
        let waits = self.all().map(|class| class.limit.usual_wait(now));
        for class in self.all() {
            class.limit.share_wait(&waits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    #[test]
    fn a_burst_at_an_unknown_node_starts_at_once() {
        let mut admission = Admission::new(1_024);
        for at in 0..512_u32 {
            let [.., net, host] = at.to_be_bytes();
            let client = ClientKey::of(IpAddr::from([10, 0, net, host]));
            let now = Duration::from_micros(at.into());
            let entry = admission.enter(CostClass::Lookup, client, now, || ());
            assert!(matches!(entry, Entry::Starts(_)), "call {at}: {entry:?}");
        }
    }
}
