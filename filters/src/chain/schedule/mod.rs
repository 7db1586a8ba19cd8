//! Decides which instance polls the chain, and when. Pure: facts and time are passed in.
//!
//! In a fleet one instance, the leader, polls and publishes the chain's state; the others follow,
//! and cache as long as that state is fresh. While no state is published, each instance polls for
//! itself, less often, and caches what that proves. In: an [`Event`], and the [`Facts`] at that
//! time. Out: each [`Effect`] and the [`Task`] that the watcher performs; the end of the task is
//! the next event.

use super::continuity::{ChainState, Step};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// A poll may take one interval, or this long if the interval is shorter. Instances that poll for
/// themselves do so at most once in this time.
pub const SECOND: Duration = Duration::from_secs(1);
/// How long an instance waits for the first answer of the store before it checks again.
const CONNECTING: Duration = Duration::from_millis(50);
/// A published state is fresh for this many intervals: the leader publishes once in each.
const FRESH: u32 = 2;

/// Shortest lease of a leader, for polls each second or more often.
const MIN_LEASE: Duration = Duration::from_secs(3);
/// Length of a lease in poll intervals, if that is longer than [`MIN_LEASE`].
const INTERVALS: u32 = 3;

/// The lease of a leader that polls at this interval: how long it leads without publishing.
pub fn lease(interval: Duration) -> Duration {
    MIN_LEASE.max(interval.saturating_mul(INTERVALS))
}

/// The fleet's state of the chain, in the time of the instance.
#[derive(Debug)]
pub struct Published {
    /// Whether this instance leads.
    pub leads: bool,
    /// Whether it was elected just now: then it verifies the state that its predecessor published.
    pub is_elected: bool,
    /// The newest published state, and a time at or before its poll.
    pub state: Option<(String, Duration)>,
    /// The newest epoch that an instance named.
    pub epoch: u64,
}

/// How an instance watches the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Without a fleet: the instance polls once per interval.
    Single,
    /// The instance polls for the fleet, and applies the result once it is published.
    Leading,
    /// The instance applies what the leader publishes.
    Following,
    /// In a fleet without a published state: the instance polls for itself.
    Detached,
}

/// The role of this instance in its fleet, as far as it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// There is no fleet.
    None,
    /// Whether the store answers is not known yet.
    Connecting,
    /// The store does not answer.
    Unavailable,
    /// Another instance leads, or none.
    Member,
    /// This instance leads.
    Leader,
}

/// The facts at the moment of an event.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The time.
    pub now: Duration,
    /// The role of this instance.
    pub fleet: Membership,
    /// Instances that are alive, as last known.
    pub instances: u32,
}

/// The result of this instance's poll, and when the poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The proof of the poll.
    pub step: Step,
    /// When it ended.
    pub polled: Duration,
}

/// The end of a [`Task`].
#[derive(Debug)]
pub enum Event {
    /// The next turn is due, or a follower expects a newer state.
    Due,
    /// The chain was polled; `None` if that took too long to prove anything.
    Polled(Option<Observation>),
    /// This observation was sent; `None` if the store did not answer.
    Published(Observation, Option<Published>),
    /// The published state was read; `None` if the store did not answer.
    Followed(Option<Published>),
    /// This instance no longer leads.
    Resigned,
}

/// A change that takes no time.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bypass the cache until something is applied.
    Pause,
    /// Apply this to the cache, until this time or until the next poll.
    Apply(Step, Option<Duration>),
    /// Continue from the state of another instance; if it is fresh, apply it until this time.
    Inherit(ChainState, Option<Duration>),
    /// This instance was elected; the fleet has seen an epoch of this number.
    Elected(u64),
    /// This instance still leads; the fleet has seen an epoch of this number.
    Renewed(u64),
    /// The node answers again.
    Reachable,
    /// The current mode, and the age of the newest published state.
    Enter(Mode, Duration),
}

/// The action of the watcher after the effects of a step.
#[derive(Debug, PartialEq, Eq)]
pub enum Task {
    /// Poll the chain.
    Poll,
    /// Publish the chain's state after this observation.
    Publish(Observation),
    /// Read the published state; with an interval, as a candidate that would poll at that interval.
    Follow(Option<Duration>),
    /// Let another instance lead.
    Resign,
    /// The next turn is due at this time.
    Wait(Duration),
}

/// The turns of an instance that watches the chain.
#[derive(Debug)]
pub struct Schedule {
    interval: Duration,
    mode: Mode,
    /// Whether the last poll of this instance failed.
    is_blind: bool,
    /// When the newest published state was polled; before the first one, when the schedule began.
    published: Duration,
    /// When this instance began its last poll.
    start: Duration,
    /// When this instance polls for itself, if it does.
    due: Duration,
    /// The effects of this step.
    effects: Vec<Effect>,
}

impl Schedule {
    /// The schedule of an instance that starts at `now`, and polls once per `interval`.
    pub fn new(interval: Duration, now: Duration) -> Self {
        Self {
            interval,
            mode: Mode::Single,
            is_blind: false,
            published: now,
            start: now,
            due: now,
            effects: vec![],
        }
    }

    /// The mode of the last turn.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Decides what an event changes, and what the watcher does after that.
    pub fn step(&mut self, event: Event, facts: Facts) -> (Vec<Effect>, Task) {
        debug_assert!(self.effects.is_empty(), "the last step's effects are taken");
        let task = match event {
            Event::Due => self.begin(facts),
            Event::Polled(None) => {
                self.effects.push(Effect::Pause);
                // without a publication, another instance soon leads
                self.rest(facts)
            }
            Event::Polled(Some(observation)) => self.observe(observation, facts),
            Event::Published(observation, None) => {
                self.apply(observation);
                self.settle(None, facts)
            }
            Event::Published(
                observation,
                Some(Published {
                    leads,
                    is_elected,
                    epoch,
                    ..
                }),
            ) if leads && !is_elected => {
                self.apply(observation);
                self.effects.push(Effect::Renewed(epoch));
                self.published = observation.polled;
                self.rest(facts)
            }
            Event::Published(_, Some(published)) => {
                let next = self.judge(published, facts.now).unwrap_or(self.start);
                self.settle(Some(next), facts)
            }
            Event::Followed(published) => {
                let next = published.and_then(|published| self.judge(published, facts.now));
                self.settle(next, facts)
            }
            Event::Resigned => self.settle(Some(self.start.saturating_add(self.quarter())), facts),
        };
        (core::mem::take(&mut self.effects), task)
    }

    /// Until when a state that was polled at this time is fresh.
    fn fresh_until(&self, polled: Duration) -> Duration {
        polled.saturating_add(self.interval.saturating_mul(FRESH))
    }

    fn quarter(&self) -> Duration {
        self.interval.checked_div(4).unwrap_or_default()
    }

    fn begin(&mut self, facts: Facts) -> Task {
        match facts.fleet {
            Membership::None => self.poll(Mode::Single, self.interval, facts.now),
            Membership::Connecting => Task::Wait(facts.now.saturating_add(CONNECTING)),
            Membership::Unavailable => self.settle(None, facts),
            // an instance that does not reach the node is no candidate
            Membership::Member => Task::Follow((!self.is_blind).then_some(self.interval)),
            Membership::Leader => self.poll(Mode::Leading, self.interval, facts.now),
        }
    }

    fn poll(&mut self, mode: Mode, period: Duration, now: Duration) -> Task {
        self.mode = mode;
        self.start = now;
        self.due = now.saturating_add(period);
        Task::Poll
    }

    fn observe(&mut self, observation: Observation, facts: Facts) -> Task {
        let step = observation.step;
        let was_blind = core::mem::replace(&mut self.is_blind, step.chain.is_none());
        if was_blind && !self.is_blind {
            self.effects.push(Effect::Reachable);
        }
        if self.mode != Mode::Leading {
            self.apply(observation);
            return self.rest(facts);
        }
        if self.is_blind || step.broke.is_some() {
            self.effects.push(Effect::Pause);
        }
        // others may reach the node, and prove that the chain continues
        if self.is_blind {
            Task::Resign
        } else {
            Task::Publish(observation)
        }
    }

    fn apply(&mut self, Observation { step, polled }: Observation) {
        let until = (self.mode != Mode::Single).then_some(self.fresh_until(polled));
        self.effects.push(Effect::Apply(step, until));
    }

    /// Ends a turn in which this instance polled.
    fn rest(&mut self, facts: Facts) -> Task {
        let next = self.start.saturating_add(self.interval);
        match self.mode {
            Mode::Leading => self.settle(Some(next), facts),
            _ => Task::Wait(next),
        }
    }

    /// Judges a published state. Returns when the next turn is due; `None` if this instance has to
    /// poll for itself.
    fn judge(&mut self, published: Published, now: Duration) -> Option<Duration> {
        let Published {
            leads,
            state,
            epoch,
            ..
        } = published;
        let state = state.and_then(|(text, polled)| Some((ChainState::parse(&text)?, polled)));
        let mut next = now.saturating_add(self.quarter());
        let mut fresh = None;
        if let Some((state, polled)) = state {
            fresh = Some(self.fresh_until(polled)).filter(|until| now < *until);
            self.effects.push(Effect::Inherit(state, fresh));
            if fresh.is_some() {
                self.published = polled;
                // a little after the leader publishes again
                let following = polled.saturating_add(self.interval);
                next = next.max(following.saturating_add(self.quarter()));
            }
        }
        if leads {
            self.effects.push(Effect::Elected(epoch));
            return Some(now);
        }
        // without a fresh state for an election and a poll, the instance polls for itself
        let patience = lease(self.interval).saturating_add(self.interval);
        let is_awaited = !self.is_blind && now.saturating_sub(self.published) < patience;
        (fresh.is_some() || is_awaited).then_some(next)
    }

    /// Enters the mode that follows from the fleet's state. Without a `next` turn, this instance
    /// polls for itself.
    fn settle(&mut self, next: Option<Duration>, facts: Facts) -> Task {
        self.mode = match next {
            None => Mode::Detached,
            Some(_) if facts.fleet == Membership::Leader => Mode::Leading,
            Some(_) => Mode::Following,
        };
        self.effects.push(Effect::Enter(
            self.mode,
            facts.now.saturating_sub(self.published),
        ));
        match next {
            Some(next) => Task::Wait(next),
            None if self.due > facts.now => {
                Task::Wait(self.due.min(facts.now.saturating_add(self.interval)))
            }
            // all instances together poll hardly more often than a leader
            None => {
                let period = self.interval.saturating_mul(facts.instances).max(SECOND);
                self.poll(Mode::Detached, period, facts.now)
            }
        }
    }
}

#[cfg(test)]
mod tests;
