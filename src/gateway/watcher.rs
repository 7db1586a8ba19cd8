//! Polls the chain at every tick and reports to the cache what still holds.
//!
//! It has connections and memory of its own, so that load on the gateway does not hide the chain.
//! While the cache is disabled it polls nothing. In a fleet one instance polls, the leader, and
//! publishes what it saw; the others follow, and cache for as long as that is fresh. While
//! no state is published, each instance polls for itself, less often, and caches what that proves.

use super::cache::Cache;
use super::watch::{ChainState, EpochCause, L1, Poll, Step, Watch};
use crate::config::NodeConfig;
use crate::fleet::{Fleet, FleetError, Published, lease};
use crate::io::MemoryPool;
use crate::io::clock::millis;
use crate::node::chain::{BlockIdentity, Chain, RpcError};
use crate::node::{MAX_ANSWER, Node, NodeError};
use crate::telemetry::{Metrics, as_gauge};
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep_until, timeout};

/// Blocks in one poll.
const BLOCKS: usize = 5;
/// A poll may take one interval, or this long if the interval is shorter. Instances that poll for
/// themselves do so at most once in this time.
const SECOND: Duration = Duration::from_secs(1);
/// How long a poll waits for a node that is behind what clients have seen, before the cache is
/// bypassed.
const PATIENCE: Duration = Duration::from_millis(150);
/// A published state is fresh for this many intervals: the leader publishes once in each.
const FRESH: u32 = 2;

/// Watches the chain for the gateway's cache.
pub struct Watcher {
    cache: Arc<Cache>,
    interval: Duration,
    chain: Chain,
    metrics: Arc<Metrics>,
    fleet: Option<Arc<Fleet>>,
}

/// The state of one watch, from switch to switch.
struct Turns {
    watch: Watch,
    /// The epoch of the cache that was applied last.
    applied: u64,
    /// Whether the last poll of this instance failed.
    is_blind: bool,
    /// When the newest published state was polled; the begin of the watch before.
    published: Instant,
    /// When this instance polls for itself, if it does.
    due: Instant,
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
        node: &Node,
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
        let chain = Chain(node.apart(&config, memory).with_patience(PATIENCE));
        Self { cache, interval, chain, metrics, fleet }
    }

    async fn run(&self) {
        let mut switch = self.cache.switched();
        let mut newest = 0;
        loop {
            while !*switch.borrow_and_update() {
                // an unfinished poll may have applied its result since
                self.cache.suspend();
                if switch.changed().await.is_err() {
                    return;
                }
            }
            newest = self.watch(&mut switch, newest).await;
            self.resign().await;
        }
    }

    /// Watches until the cache is disabled. Epochs get later numbers than `newest`; returns the
    /// newest of them.
    async fn watch(&self, switch: &mut tokio::sync::watch::Receiver<bool>, newest: u64) -> u64 {
        let mut next = Instant::now();
        let mut turns = Turns {
            watch: Watch::after(newest),
            applied: 0,
            is_blind: false,
            published: next,
            due: next,
        };
        while *switch.borrow_and_update() {
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.news() => {}
                _ = switch.changed() => continue,
            }
            next = self.turn(&mut turns).await;
        }
        self.cache.follows.store(false, Ordering::Relaxed);
        self.metrics.fleet.is_watcher.set(0);
        self.metrics.fleet.state_age.set(0);
        turns.watch.newest()
    }

    /// Waits, as a follower, until the leader publishes something or a request needs it.
    async fn news(&self) {
        match &self.fleet {
            Some(fleet) if self.cache.follows.load(Ordering::Relaxed) => tokio::select! {
                () = fleet.pushed() => {}
                () = self.cache.outdated.notified() => {}
            },
            _ => std::future::pending().await,
        }
    }

    /// Polls the chain, or looks for what the leader published; returns when to do so next.
    async fn turn(&self, turns: &mut Turns) -> Instant {
        let Some(fleet) = &self.fleet else {
            let start = Instant::now();
            if let Some((step, _)) = self.poll_in_time(turns).await {
                self.apply(turns, &step, None);
            }
            return start + self.interval;
        };
        if fleet.is_connecting() {
            return Instant::now() + SECOND / 20;
        }
        let next = match fleet.is_available() {
            false => None,
            true if fleet.leads() => self.lead(fleet, turns).await.ok(),
            true => self.follow(fleet, turns).await.ok().flatten(),
        };
        let leads = fleet.is_available() && fleet.leads();
        self.cache.follows.store(next.is_some() && !leads, Ordering::Relaxed);
        self.metrics.fleet.is_watcher.set(i64::from(leads));
        self.metrics.fleet.state_age.set(as_gauge(turns.published.elapsed().as_secs()));
        match next {
            Some(next) => next,
            None => self.watch_alone(fleet, turns).await,
        }
    }

    /// Polls the chain for the fleet, and applies the result once it is published.
    async fn lead(&self, fleet: &Fleet, turns: &mut Turns) -> Result<Instant, FleetError> {
        let start = Instant::now();
        let next = start + self.interval;
        turns.due = next;
        // without a publication another instance leads soon
        let Some((step, polled)) = self.poll_in_time(turns).await else { return Ok(next) };
        if step.chain.is_none() {
            // others may reach the node, and prove that the chain continues
            self.cache.pause();
            fleet.resign().await;
            return Ok(start + self.interval / 4);
        }
        if step.broke.is_some() {
            self.cache.pause();
        }
        let (text, newest) = (turns.watch.state().to_text(), turns.watch.newest());
        let published = fleet.publish(&text, polled, self.interval, newest).await;
        if let Ok(dropped) = &published
            && (!dropped.leads || dropped.is_elected)
        {
            return Ok(self.heard(published?, turns).unwrap_or(start));
        }
        self.apply(turns, &step, Some(polled + self.interval * FRESH));
        turns.watch.has_seen(published?.epoch);
        turns.published = polled;
        Ok(next)
    }

    /// Looks for what the leader published. `None` if this instance has to watch for itself.
    async fn follow(
        &self,
        fleet: &Fleet,
        turns: &mut Turns,
    ) -> Result<Option<Instant>, FleetError> {
        // one that does not reach the node is no leader
        let candidate = (!turns.is_blind).then_some(self.interval);
        let published = fleet.follow(candidate, turns.watch.newest()).await?;
        Ok(self.heard(published, turns))
    }

    fn heard(&self, published: Published, turns: &mut Turns) -> Option<Instant> {
        let now = Instant::now();
        let Published { leads, state, epoch, .. } = published;
        let state = state.and_then(|(text, polled)| Some((ChainState::parse(&text)?, polled)));
        let mut next = now + self.interval / 4;
        let mut is_fresh = false;
        if let Some((state, polled)) = state {
            let step = turns.watch.inherit(state, now);
            let until = polled + self.interval * FRESH;
            is_fresh = now < until;
            if is_fresh {
                turns.published = polled;
                self.apply(turns, &step, Some(until));
                // a little after the leader publishes again
                next = next.max(polled + self.interval + self.interval / 4);
            }
        }
        if leads {
            log::info!("this instance watches the chain for the fleet");
            turns.watch.has_seen(epoch);
            return Some(now);
        }
        let is_awaited = !turns.is_blind && turns.published.elapsed() < self.patience();
        (is_fresh || is_awaited).then_some(next)
    }

    /// Polls the chain for this instance alone.
    async fn watch_alone(&self, fleet: &Fleet, turns: &mut Turns) -> Instant {
        let start = Instant::now();
        if turns.due <= start {
            // all together poll hardly more often than a leader
            turns.due = start + (self.interval * fleet.instances()).max(SECOND);
            if let Some((step, polled)) = self.poll_in_time(turns).await {
                self.apply(turns, &step, Some(polled + self.interval * FRESH));
            }
        }
        turns.due.min(start + self.interval)
    }

    /// Without a fresh state for this long, an instance watches for itself: election and poll.
    fn patience(&self) -> Duration {
        lease(self.interval) + self.interval
    }

    /// Polls the chain. `None` if that took too long to prove anything.
    async fn poll_in_time(&self, turns: &mut Turns) -> Option<(Step, Instant)> {
        let (start, limit) = (Instant::now(), self.interval.max(SECOND));
        let poll = timeout(limit, self.poll(&turns.watch)).await;
        let polled = Instant::now();
        // also if the process was suspended meanwhile: its first blocks may be gone by now
        let poll = poll.ok().filter(|_| polled - start <= limit);
        // a node that is behind proves nothing: blocks that it lacks may exist or be gone
        let is_behind =
            |poll: &Result<_, _>| matches!(poll, Err(RpcError::Node(NodeError::Lagging)));
        let Some(poll) = poll.filter(|poll| !is_behind(poll)) else {
            self.cache.pause();
            log::debug!("chain not polled in time");
            return None;
        };
        let poll = poll.map_err(cause);
        let outcome = poll.as_ref().map_or_else(|cause| cause.name(), |_| "ok");
        let head = poll.as_ref().map(|poll| poll.head.number).unwrap_or_default();
        log::debug!(outcome, head, took:? = polled - start; "chain polled");
        let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let step = turns.watch.step(poll, polled, millis(since_1970));
        let was_blind = std::mem::replace(&mut turns.is_blind, step.chain.is_none());
        if was_blind && !turns.is_blind {
            log::info!("node reachable again: cache in use");
        }
        Some((step, polled))
    }

    fn apply(&self, turns: &mut Turns, step: &Step, until: Option<Instant>) {
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
        let (settled, candidate) = (watch.settled(), watch.candidate());
        let head = self.chain.fetch_latest().await?.ok_or(RpcError::MalformedAnswer)?;
        let anchor = self.chain.0.anchor();
        let (genesis, settled_block, candidate_block, l1) = tokio::join!(
            self.chain.fetch_anchor(),
            // the anchor is fetched anyway
            self.fetch_block(settled.filter(|number| *number != anchor)),
            self.fetch_block(candidate.filter(|number| *number != anchor)),
            self.chain.fetch_l1_head(),
        );
        let genesis = genesis?.ok_or(RpcError::MalformedAnswer)?;
        let or_genesis = |number, block| if number == Some(anchor) { Some(genesis) } else { block };
        Ok(Poll {
            head,
            genesis,
            settled: or_genesis(settled, settled_block?),
            candidate: or_genesis(candidate, candidate_block?),
            l1: match l1 {
                Ok(block) => L1::Head(block),
                Err(error @ RpcError::Node(_)) => return Err(error),
                Err(_) => L1::Unknown,
            },
        })
    }

    /// The block at this number, if there are both.
    async fn fetch_block(&self, number: Option<u64>) -> Result<Option<BlockIdentity>, RpcError> {
        let Some(number) = number else { return Ok(None) };
        let block = self.chain.fetch_block(number).await?;
        // not another block than the requested one
        Ok(block.filter(|block| block.number == number))
    }
}

fn cause(error: RpcError) -> EpochCause {
    match error {
        RpcError::Node(_) => EpochCause::Unreachable,
        RpcError::Returned(_) | RpcError::MalformedAnswer => EpochCause::Strange,
    }
}
