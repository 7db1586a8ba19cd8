//! The part of an instance in the watch of the chain, and what the store's answers say of it.
//!
//! In: the answers to heartbeats. Out: whether this instance leads, and the arguments of the next
//! heartbeat.

use parking_lot::Mutex;
use portcullis_base::io::clock::millis;
use redis::{FromRedisValue, ParsingError, Value, from_redis_value};
use std::time::Duration;
use tokio::time::Instant;

/// The part of an instance in the watch of the chain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// No role: the instance is only alive.
    Member,
    /// Leads if no other instance does.
    Candidate { lease: Duration },
    /// Leads, and polled the chain at `polled`.
    Leader {
        lease: Duration,
        state: &'a str,
        polled: Instant,
    },
    /// No longer leads.
    Resign,
}

/// A lead that this instance was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    /// Newer than the fence of each earlier leader.
    pub(super) fence: u64,
    /// When the heartbeat was sent whose answer granted the lead.
    since: Instant,
    lease: Duration,
}

/// The answer to a heartbeat.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) now: u64,
    pub(super) instances: u32,
    pub(super) fence: u64,
    pub(super) epoch: u64,
    pub(super) polled: u64,
    pub(super) state: String,
}

impl FromRedisValue for Heard {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (now, instances, fence, epoch, polled, state) = from_redis_value(value)?;
        Ok(Self {
            now,
            instances,
            fence,
            epoch,
            polled,
            state,
        })
    }
}

/// A reading of the store's clock, and the instant of its arrival here.
#[derive(Clone, Copy, Debug)]
struct StoreTime {
    now: u64,
    at: Instant,
}

/// The arguments of a heartbeat that depend on the part, for `heartbeat.lua`. Times are in
/// milliseconds.
#[derive(Default)]
pub(super) struct PartArguments<'a> {
    pub(super) part: &'static str,
    pub(super) fence: u64,
    pub(super) lease: u64,
    /// When the chain was polled, by the store's clock.
    pub(super) polled: u64,
    pub(super) state: &'a str,
}

/// The lead of this instance, and the store's clock.
#[derive(Debug, Default)]
pub(super) struct Leadership {
    /// The store's clock, as of the last heartbeat.
    clock: Mutex<Option<StoreTime>>,
    pub(super) lead: Mutex<Option<Lead>>,
}

impl Leadership {
    /// The lead of this instance, unless it has expired by the clock here.
    pub(super) fn lead(&self) -> Option<Lead> {
        self.lead
            .lock()
            .filter(|lead| lead.since.elapsed() < lead.lease)
    }

    /// How long ago a heartbeat for the watch of the chain was answered, if one was.
    pub(super) fn last_heard(&self) -> Option<Duration> {
        self.clock.lock().map(|clock| clock.at.elapsed())
    }

    /// The arguments of a heartbeat that depend on the part.
    pub(super) fn arguments<'a>(&self, part: Part<'a>) -> PartArguments<'a> {
        let fence = self.lead().map_or(0, |lead| lead.fence);
        let named = |part| PartArguments {
            part,
            ..PartArguments::default()
        };
        match part {
            Part::Member => named("member"),
            Part::Candidate { lease } => PartArguments {
                lease: millis(lease),
                ..named("candidate")
            },
            Part::Leader {
                lease,
                state,
                polled,
            } => {
                let polled = self.clock.lock().map_or(0, |clock| clock.at(polled));
                PartArguments {
                    part: "leader",
                    fence,
                    lease: millis(lease),
                    polled,
                    state,
                }
            }
            Part::Resign => PartArguments {
                fence,
                ..named("resign")
            },
        }
    }

    /// Records the answer to a heartbeat that was sent at `sent`.
    pub(super) fn note(&self, part: Part<'_>, heard: &Heard, sent: Instant) {
        let lease = match part {
            Part::Member => return,
            Part::Candidate { lease } | Part::Leader { lease, .. } => lease,
            Part::Resign => Duration::ZERO,
        };
        *self.clock.lock() = Some(StoreTime {
            now: heard.now,
            at: Instant::now(),
        });
        let lead = Lead {
            fence: heard.fence,
            since: sent,
            lease,
        };
        *self.lead.lock() = (heard.fence != 0).then_some(lead);
    }
}

impl StoreTime {
    /// The store's clock at that moment, or slightly earlier: its answer took time to arrive.
    fn at(self, moment: Instant) -> u64 {
        match moment.checked_duration_since(self.at) {
            Some(later) => self.now.saturating_add(millis(later)),
            None => self
                .now
                .saturating_sub(millis(self.at - moment).saturating_add(1)),
        }
    }
}
