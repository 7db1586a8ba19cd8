//! One watcher of the chain for all instances: who leads, and the state that the leader published.
//!
//! The store elects by a lease and a fence, in each [heartbeat](Part): the first candidate leads
//! until it has published nothing for the length of its lease. It publishes the state of the chain,
//! a text that `gateway` reads. Publications of other instances are dropped, so a leader that was
//! suspended changes nothing. Ages are measured by the store's clock, and continued by the
//! monotonic one here.

use super::store::Store;
use super::{Fleet, FleetError};
use crate::io::clock::millis;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};
use std::time::Duration;
use tokio::time::Instant;

/// Shortest lease of a leader, for polls each second or more often.
const MIN_LEASE: Duration = Duration::from_secs(3);
/// Length of a lease in intervals of polls, if these are longer.
const INTERVALS: u32 = 3;

/// The part of an instance in the watch of the chain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// No role: the instance is only alive.
    Member,
    /// Leads if no other instance does.
    Candidate { lease: Duration },
    /// Leads, and polled the chain at `polled`.
    Leader { lease: Duration, state: &'a str, polled: Instant },
    /// No longer leads.
    Resign,
}

/// A lead that this instance was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    /// Newer than the fence of each earlier leader.
    fence: u64,
    /// When the heartbeat was sent whose answer granted the lead.
    since: Instant,
    lease: Duration,
}

/// The answer to a heartbeat.
#[derive(Debug)]
pub(super) struct Heard {
    now: u64,
    pub(super) instances: u32,
    fence: u64,
    epoch: u64,
    polled: u64,
    state: String,
}

impl FromRedisValue for Heard {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (now, instances, fence, epoch, polled, state) = from_redis_value(value)?;
        Ok(Self { now, instances, fence, epoch, polled, state })
    }
}

/// A reading of the store's clock, and the instant of its arrival here.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreTime {
    now: u64,
    pub(super) at: Instant,
}

/// The fleet's state of the chain.
#[derive(Debug)]
pub struct Published {
    /// Whether this instance leads.
    pub leads: bool,
    /// Whether it was elected just now: then it verifies the state that its predecessor published.
    pub is_elected: bool,
    /// The newest published state, and an instant at or before its poll.
    pub state: Option<(String, Instant)>,
    /// The newest epoch that an instance named.
    pub epoch: u64,
}

impl Fleet {
    /// Whether the store answers.
    pub fn is_available(&self) -> bool {
        !self.store.is_down()
    }

    /// Whether it is still unknown if the store answers.
    pub fn is_connecting(&self) -> bool {
        self.store.is_down() && self.failure().is_none()
    }

    /// Number of live instances, as last known; at least 1.
    pub fn instances(&self) -> u32 {
        self.store.instances().max(1)
    }

    /// Whether this instance leads by its own clock. The store may have elected another one
    /// already.
    pub fn leads(&self) -> bool {
        self.store.lead().is_some()
    }

    /// Reads the published state. With `candidate`, the interval of its polls, this instance leads
    /// if no other does. `epoch` is the newest epoch that this instance named.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn follow(
        &self,
        candidate: Option<Duration>,
        epoch: u64,
    ) -> Result<Published, FleetError> {
        let part =
            candidate.map_or(Part::Member, |interval| Part::Candidate { lease: lease(interval) });
        self.published(part, epoch).await
    }

    /// Publishes the state that a poll at `polled` showed, if this instance still leads.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn publish(
        &self,
        state: &str,
        polled: Instant,
        interval: Duration,
        epoch: u64,
    ) -> Result<Published, FleetError> {
        let lease = lease(interval);
        let part = match self.leads() {
            true => Part::Leader { lease, state, polled },
            false => Part::Candidate { lease },
        };
        self.published(part, epoch).await
    }

    /// Lets another instance lead.
    pub async fn resign(&self) {
        if self.leads() {
            // without an answer, the lease expires
            let _ended = self.store.heartbeat(Part::Resign, 0).await;
        }
    }

    /// Waits until a leader publishes something new.
    pub async fn pushed(&self) {
        self.store.pushed.notified().await;
    }

    async fn published(&self, part: Part<'_>, epoch: u64) -> Result<Published, FleetError> {
        let (before, sent) = (self.store.lead(), Instant::now());
        let heard = self.store.heartbeat(part, epoch).await?;
        let age = heard.now.checked_sub(heard.polled).filter(|_| !heard.state.is_empty());
        // both are rounded down
        let polled = age.and_then(|age| sent.checked_sub(Duration::from_millis(age + 1)));
        let leads = heard.fence != 0;
        Ok(Published {
            leads,
            is_elected: leads && before.is_none_or(|before| before.fence != heard.fence),
            state: polled.map(|polled| (heard.state, polled)),
            epoch: heard.epoch,
        })
    }
}

/// The lease of a leader that polls at this interval: how long it leads without publishing.
pub fn lease(interval: Duration) -> Duration {
    MIN_LEASE.max(interval * INTERVALS)
}

impl Store {
    /// The lead of this instance, unless it has expired by the clock here.
    fn lead(&self) -> Option<Lead> {
        self.lead.lock().filter(|lead| lead.since.elapsed() < lead.lease)
    }

    /// How long ago a heartbeat for the watch of the chain was answered, if one was.
    pub(super) fn last_heard(&self) -> Option<Duration> {
        self.clock.lock().map(|clock| clock.at.elapsed())
    }

    /// The arguments of a heartbeat that depend on the part: its name, the fence, the lease, when
    /// the chain was polled by the store's clock, and the state.
    pub(super) fn arguments<'a>(&self, part: Part<'a>) -> (&'static str, u64, u64, u64, &'a str) {
        let fence = self.lead().map_or(0, |lead| lead.fence);
        match part {
            Part::Member => ("member", 0, 0, 0, ""),
            Part::Candidate { lease } => ("candidate", 0, millis(lease), 0, ""),
            Part::Leader { lease, state, polled } => {
                let polled = self.clock.lock().map_or(0, |clock| clock.at(polled));
                ("leader", fence, millis(lease), polled, state)
            }
            Part::Resign => ("resign", fence, 0, 0, ""),
        }
    }

    /// Records the answer to a heartbeat that was sent at `sent`.
    pub(super) fn note(&self, part: Part<'_>, heard: &Heard, sent: Instant) {
        let lease = match part {
            Part::Member => return,
            Part::Candidate { lease } | Part::Leader { lease, .. } => lease,
            Part::Resign => Duration::ZERO,
        };
        *self.clock.lock() = Some(StoreTime { now: heard.now, at: Instant::now() });
        let lead = Lead { fence: heard.fence, since: sent, lease };
        *self.lead.lock() = (heard.fence != 0).then_some(lead);
    }
}

impl StoreTime {
    /// The store's clock at that moment, or slightly earlier: its answer took time to arrive.
    fn at(self, moment: Instant) -> u64 {
        match moment.checked_duration_since(self.at) {
            Some(later) => self.now.saturating_add(millis(later)),
            None => self.now.saturating_sub(millis(self.at - moment).saturating_add(1)),
        }
    }
}
