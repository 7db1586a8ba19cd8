//! Polls the chain at every tick, and reports to the cache which answers are still valid.
//!
//! It has connections and memory of its own, so that load on the gateway does not block its polls.
//! While the cache is disabled it polls nothing. `Schedule` decides when it polls, when it follows
//! the leader of a fleet, and what it applies to the cache; this module performs it.

use super::cache::Cache;
use crate::config::NodeConfig;
use crate::fleet::Fleet;
use crate::io::clock::millis;
use crate::io::{MemoryPool, monotonic};
use crate::node::chain::{Chain, RpcError};
use crate::node::{MAX_ANSWER, Node, NodeClient, NodeError};
use crate::telemetry::{Metrics, as_gauge};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_filters::chain::continuity::{L1, Poll, Step, Watch};
use portcullis_filters::chain::schedule::{
    Effect, Event, Facts, Membership, Mode, Observation, Published, SECOND, Schedule, Task,
};
use portcullis_filters::chain::{BlockIdentity, PurgeCause};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep_until, timeout};

/// The number of blocks in one poll.
const BLOCKS: usize = 5;
/// How long a poll waits for a node that is behind what clients have seen, before the cache is
/// bypassed.
const PATIENCE: Duration = Duration::from_millis(150);

/// Watches the chain for the gateway's cache.
pub struct Watcher {
    cache: Arc<Cache>,
    interval: Duration,
    chain: Chain,
    metrics: Arc<Metrics>,
    fleet: Option<Arc<Fleet>>,
}

/// The state of one watch, from when the cache is enabled until it is disabled.
struct Turns {
    schedule: Schedule,
    watch: Watch,
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
        let memory = MemoryPool::new(BLOCKS * MAX_ANSWER);
        let config = NodeConfig {
            max_idle: config.max_idle.max(BLOCKS),
            max_connections: config.max_connections.max(BLOCKS),
            ..config.clone()
        };
        let client = NodeClient::new(&config, node, memory);
        let client = client.with_patience(PATIENCE).polling();
        let chain = Chain(client);
        Self {
            cache,
            interval,
            chain,
            metrics,
            fleet,
        }
    }

    async fn run(&self) {
        let mut switch = self.cache.switched();
        let mut newest = 0;
        loop {
            while !*switch.borrow_and_update() {
                if switch.changed().await.is_err() {
                    return;
                }
            }
            newest = self.watch(&mut switch, newest).await;
            // an unfinished poll may have applied its result since the cache was disabled
            self.cache.suspend();
            self.resign().await;
        }
    }

    /// Watches until the cache is disabled. Numbers epochs above `newest`, and returns the newest
    /// number.
    async fn watch(&self, switch: &mut tokio::sync::watch::Receiver<bool>, newest: u64) -> u64 {
        let mut next = Instant::now();
        let mut turns = Turns {
            schedule: Schedule::new(self.interval, monotonic::of(next)),
            watch: Watch::after(newest),
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
        turns.watch.newest()
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
                self.perform(turns, effect, facts.now);
            }
            event = match task {
                Task::Poll => Event::Polled(self.poll_in_time(&mut turns.watch).await),
                Task::Publish(seen) => Event::Published(seen, self.publish(turns, seen).await),
                Task::Follow(candidate) => Event::Followed(self.follow(turns, candidate).await),
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

    fn perform(&self, turns: &mut Turns, effect: Effect, now: Duration) {
        match effect {
            Effect::Pause => self.cache.pause(),
            Effect::Apply(step, until) => self.apply(turns, &step, until),
            Effect::Inherit(state, fresh) => {
                let step = turns.watch.inherit(state, now);
                if fresh.is_some() {
                    self.apply(turns, &step, fresh);
                }
            }
            Effect::Elected(epoch) => {
                log::info!("this instance watches the chain for the fleet");
                turns.watch.has_seen(epoch);
            }
            Effect::Renewed(epoch) => turns.watch.has_seen(epoch),
            Effect::Reachable => log::info!("node reachable again: cache in use"),
            Effect::Enter(mode, age) => self.enter(mode, age),
        }
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
    async fn publish(&self, turns: &Turns, seen: Observation) -> Option<Published> {
        let (text, newest) = (turns.watch.state().to_text(), turns.watch.newest());
        let fleet = self.fleet.as_ref()?;
        let published = fleet.publish(&text, seen.polled, self.interval, newest);
        published.await.ok()
    }

    /// Reads the published state. `None` if the store does not answer.
    async fn follow(&self, turns: &Turns, candidate: Option<Duration>) -> Option<Published> {
        let fleet = self.fleet.as_ref()?;
        fleet.follow(candidate, turns.watch.newest()).await.ok()
    }

    /// Polls the chain. `None` if that took too long to prove anything.
    async fn poll_in_time(&self, watch: &mut Watch) -> Option<Observation> {
        let (start, limit) = (Instant::now(), self.interval.max(SECOND));
        let poll = timeout(limit, self.poll(watch)).await;
        let ended = Instant::now();
        // checked again, as the process may have been suspended: the first blocks may be gone by
        // now
        let poll = poll.ok().filter(|_| ended - start <= limit);
        // a node that is behind proves nothing: blocks that it lacks may exist or be gone
        let is_behind =
            |poll: &Result<_, _>| matches!(poll, Err(RpcError::Node(NodeError::Lagging)));
        let Some(poll) = poll.filter(|poll| !is_behind(poll)) else {
            log::debug!("chain not polled in time");
            return None;
        };
        let poll = poll.map_err(cause);
        let outcome = poll.as_ref().map_or_else(|cause| cause.name(), |_| "ok");
        let head = poll
            .as_ref()
            .map(|poll| poll.head.number)
            .unwrap_or_default();
        log::debug!(outcome, head, took:? = ended - start; "chain polled");
        let polled = monotonic::of(ended);
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Some(Observation {
            step: watch.step(poll, polled, millis(since_1970)),
            polled,
        })
    }

    fn apply(&self, turns: &mut Turns, step: &Step, until: Option<Duration>) {
        self.cache.apply(step, until);
        let before = std::mem::replace(&mut turns.applied, step.generation);
        if before != step.generation
            && let Some(cause) = turns.watch.state().cause()
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

    /// Fetches the newest block, then all others concurrently.
    async fn poll(&self, watch: &Watch) -> Result<Poll, RpcError> {
        let settled = watch.settled();
        let candidate = watch.candidate();
        let head = self
            .chain
            .fetch_latest()
            .await?
            .ok_or(RpcError::MalformedAnswer)?;
        let anchor = self.chain.0.shared().anchor();
        let (genesis, settled_block, candidate_block, l1) = tokio::join!(
            self.fetch_anchor(head, watch),
            // the anchor and the newest block are fetched anyway
            self.fetch_block(settled.filter(|number| ![anchor, head.number].contains(number))),
            self.fetch_block(candidate.filter(|number| ![anchor, head.number].contains(number))),
            self.chain.fetch_l1_head(),
        );
        let genesis = genesis?;
        Ok(Poll {
            head,
            genesis,
            settled: find(settled, [head, genesis]).or(settled_block?),
            candidate: find(candidate, [head, genesis]).or(candidate_block?),
            l1: match l1 {
                Ok(block) => L1::Head(block),
                Err(error @ RpcError::Node(_)) => return Err(error),
                Err(_) => L1::Unknown,
            },
        })
    }

    /// The anchor, which may be the newest block, or proved by it.
    async fn fetch_anchor(
        &self,
        head: BlockIdentity,
        watch: &Watch,
    ) -> Result<BlockIdentity, RpcError> {
        if let Some(anchor) = watch.anchor_under(head) {
            return Ok(anchor);
        }
        if head.number == self.chain.0.shared().anchor() {
            return Ok(head);
        }
        let anchor = self.chain.fetch_anchor().await?;
        anchor.ok_or(RpcError::MalformedAnswer)
    }

    /// The block at this number; `None` without a number or a block.
    async fn fetch_block(&self, number: Option<u64>) -> Result<Option<BlockIdentity>, RpcError> {
        let Some(number) = number else {
            return Ok(None);
        };
        let block = self.chain.fetch_block(number).await?;
        // not another block than the requested one
        Ok(block.filter(|block| block.number == number))
    }
}

/// The block of this number among those that are known.
fn find(number: Option<u64>, known: [BlockIdentity; 2]) -> Option<BlockIdentity> {
    known.into_iter().find(|block| Some(block.number) == number)
}

fn cause(error: RpcError) -> PurgeCause {
    match error {
        RpcError::Node(_) => PurgeCause::Unreachable,
        RpcError::Returned(_) | RpcError::MalformedAnswer => PurgeCause::Strange,
    }
}
