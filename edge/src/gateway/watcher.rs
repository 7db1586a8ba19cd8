//! Polls the chain at every tick, and reports to the cache which answers are still valid.
//!
//! It has connections and memory of its own, so that load on the gateway does not block its polls.
//! While the cache is disabled it polls nothing. `Schedule` decides when it polls, when it follows
//! the leader of a fleet, and what it applies to the cache; this module performs it.

use super::cache::Cache;
use crate::fleet::Fleet;
use crate::node::{Node, Poller};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::config::NodeConfig;
use portcullis_base::io::clock::millis;
use portcullis_base::io::monotonic;
use portcullis_base::telemetry::{Metrics, as_gauge};
use portcullis_filters::chain::continuity::{Step, Watch};
use portcullis_filters::chain::schedule::{
    Effect, Event, Facts, Membership, Mode, Observation, Published, SECOND, Schedule, Task,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep_until, timeout};

/// Watches the chain for the gateway's cache.
pub struct Watcher {
    cache: Arc<Cache>,
    interval: Duration,
    node: Arc<Node>,
    poller: Poller,
    metrics: Arc<Metrics>,
    fleet: Option<Arc<Fleet>>,
}

/// The state of one watch, from when the cache is enabled until it is disabled.
struct Turns {
    schedule: Schedule,
    /// The generation of the cache that was applied last.
    applied: u64,
}

#[async_trait]
impl BackgroundService for Watcher {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let _unwatched = SuspendOnDrop(&self.cache);
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
        }
        self.resign().await;
    }
}

/// Bypasses the cache when the watcher stops, for whatever reason.
struct SuspendOnDrop<'a>(&'a Cache);

impl Drop for SuspendOnDrop<'_> {
    fn drop(&mut self) {
        self.0.suspend();
    }
}

impl Watcher {
    pub(super) fn new(
        cache: Arc<Cache>,
        interval: Duration,
        node: &Arc<Node>,
        config: &NodeConfig,
        metrics: Arc<Metrics>,
        fleet: Option<Arc<Fleet>>,
    ) -> Self {
        Self {
            cache,
            interval,
            node: Arc::clone(node),
            poller: Poller::new(config, node),
            metrics,
            fleet,
        }
    }

    async fn run(&self) {
        let mut switch = self.cache.switched();
        loop {
            while !*switch.borrow_and_update() {
                if switch.changed().await.is_err() {
                    return;
                }
            }
            self.watch(&mut switch).await;
            // an unfinished poll may have applied its result since the cache was disabled
            self.cache.suspend();
            self.resign().await;
        }
    }

    /// Watches until the cache is disabled.
    async fn watch(&self, switch: &mut tokio::sync::watch::Receiver<bool>) {
        self.node.update(|known, _| {
            known.continuity = Watch::after(known.continuity.newest());
        });
        let mut next = Instant::now();
        let mut turns = Turns {
            schedule: Schedule::new(self.interval, monotonic::of(next)),
            applied: 0,
        };
        while *switch.borrow_and_update() {
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.news(turns.schedule.mode()) => {}
                _ = switch.changed() => continue,
            }
            next = self.turn(&mut turns).await;
        }
        self.enter(Mode::Single, Duration::ZERO);
    }

    /// Waits, as a follower, until the leader publishes something or a request needs a newer state.
    async fn news(&self, mode: Mode) {
        match &self.fleet {
            Some(fleet) if mode == Mode::Following => tokio::select! {
                () = fleet.pushed() => {}
                () = self.cache.outdated.notified() => {}
            },
            _ => std::future::pending().await,
        }
    }

    /// Performs a turn of the schedule; returns when the next one is due.
    async fn turn(&self, turns: &mut Turns) -> Instant {
        let mut event = Event::Due;
        loop {
            let facts = self.facts();
            let (effects, task) = turns.schedule.step(event, facts);
            for effect in effects {
                self.perform(turns, effect);
            }
            event = match task {
                Task::Poll => Event::Polled(self.poll_in_time().await),
                Task::Publish(seen) => Event::Published(seen, self.publish(seen).await),
                Task::Follow(candidate) => Event::Followed(self.follow(candidate).await),
                Task::Resign => {
                    self.resign().await;
                    Event::Resigned
                }
                Task::Wait(next) => return monotonic::instant(next),
            };
        }
    }

    fn facts(&self) -> Facts {
        let fleet = match &self.fleet {
            None => Membership::None,
            Some(fleet) if fleet.is_connecting() => Membership::Connecting,
            Some(fleet) if !fleet.is_available() => Membership::Unavailable,
            Some(fleet) if fleet.leads() => Membership::Leader,
            Some(_) => Membership::Member,
        };
        let instances = self.fleet.as_ref().map_or(1, |fleet| fleet.instances());
        Facts {
            now: monotonic::now(),
            fleet,
            instances,
        }
    }

    fn perform(&self, turns: &mut Turns, effect: Effect) {
        match effect {
            Effect::Pause => self.cache.pause(),
            Effect::Apply(step, until) => self.apply(turns, &step, until),
            Effect::Inherit(state, fresh) => {
                let step = self
                    .node
                    .update(|known, now| known.continuity.inherit(state, now));
                if fresh.is_some() {
                    self.apply(turns, &step, fresh);
                }
            }
            Effect::Elected(epoch) => {
                log::info!("this instance watches the chain for the fleet");
                self.has_seen(epoch);
            }
            Effect::Renewed(epoch) => self.has_seen(epoch),
            Effect::Reachable => log::info!("node reachable again: cache in use"),
            Effect::Enter(mode, age) => self.enter(mode, age),
        }
    }

    fn has_seen(&self, epoch: u64) {
        self.node
            .update(|known, _| known.continuity.has_seen(epoch));
    }

    /// Reports the mode, and the age of the newest published state.
    fn enter(&self, mode: Mode, age: Duration) {
        self.cache
            .follows
            .store(mode == Mode::Following, Ordering::Relaxed);
        self.metrics
            .fleet
            .is_watcher
            .set(i64::from(mode == Mode::Leading));
        self.metrics.fleet.state_age.set(as_gauge(age.as_secs()));
    }

    /// Publishes the chain's state. `None` if the store does not answer.
    async fn publish(&self, seen: Observation) -> Option<Published> {
        let text = self.node.read(|known| known.continuity.state().to_text());
        let newest = self.node.read(|known| known.continuity.newest());
        let fleet = self.fleet.as_ref()?;
        let published = fleet.publish(&text, seen.polled, self.interval, newest);
        published.await.ok()
    }

    /// Reads the published state. `None` if the store does not answer.
    async fn follow(&self, candidate: Option<Duration>) -> Option<Published> {
        let fleet = self.fleet.as_ref()?;
        let newest = self.node.read(|known| known.continuity.newest());
        fleet.follow(candidate, newest).await.ok()
    }

    /// Polls the chain. `None` if that took too long to prove anything, or if the node is behind
    /// what clients have seen.
    async fn poll_in_time(&self) -> Option<Observation> {
        let (start, limit) = (Instant::now(), self.interval.max(SECOND));
        let poll = timeout(limit, self.poller.watch(limit)).await;
        let ended = Instant::now();
        // checked again, as the process may have been suspended: the first blocks may be gone by
        // now
        let is_late = ended - start > limit;
        let poll = match poll {
            Ok(Ok(poll)) if !is_late => Ok(poll),
            Ok(Err(Some(cause))) if !is_late => Err(cause),
            // a node that is behind proves nothing, either
            _ => {
                log::debug!("chain not polled in time");
                return None;
            }
        };
        let outcome = poll.as_ref().map_or_else(|cause| cause.name(), |_| "ok");
        let head = poll
            .as_ref()
            .map(|poll| poll.head.number)
            .unwrap_or_default();
        log::debug!(outcome, head, took:? = ended - start; "chain polled");
        let polled = monotonic::of(ended);
        let since_1970 = millis(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
        let step = self
            .node
            .update(|known, _| known.continuity.step(poll, polled, since_1970));
        Some(Observation { step, polled })
    }

    fn apply(&self, turns: &mut Turns, step: &Step, until: Option<Duration>) {
        self.cache.apply(step, until);
        let before = std::mem::replace(&mut turns.applied, step.generation);
        if before != step.generation
            && let Some(cause) = self.node.read(|known| known.continuity.state().cause())
            && (before != 0 || step.broke.is_some())
        {
            self.metrics.cache_epoch(cause.name());
            log::warn!(cause = cause.name(); "cache purged: chain continuity cannot be proved");
        }
    }

    async fn resign(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.resign().await;
        }
    }
}
