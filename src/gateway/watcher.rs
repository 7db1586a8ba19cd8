//! Polls the chain at every tick and reports to the cache what still holds.
//!
//! It has connections and memory of its own, so that load on the gateway does not hide the chain.
//! While the cache is disabled it polls nothing.

use super::cache::Cache;
use super::watch::{EpochCause, L1, Poll, Step, Watch};
use crate::config::NodeConfig;
use crate::io::MemoryPool;
use crate::node::chain::{BlockIdentity, Chain, RpcError};
use crate::node::{MAX_ANSWER, Node};
use crate::telemetry::Metrics;
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Blocks in one poll.
const BLOCKS: usize = 5;
/// A poll may take one interval, or this long if the interval is shorter.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Watches the chain for the gateway's cache.
pub struct Watcher {
    cache: Arc<Cache>,
    interval: Duration,
    chain: Chain,
    metrics: Arc<Metrics>,
}

#[async_trait]
impl BackgroundService for Watcher {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let _unwatched = SuspendOnDrop(&self.cache);
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
        }
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
        (node, config): (&Node, &NodeConfig),
        metrics: Arc<Metrics>,
    ) -> Self {
        let memory = MemoryPool::new(BLOCKS * MAX_ANSWER);
        let config = NodeConfig {
            max_idle: config.max_idle.max(BLOCKS),
            max_connections: config.max_connections.max(BLOCKS),
            ..config.clone()
        };
        let chain = Chain(node.apart(&config, memory));
        Self { cache, interval, chain, metrics }
    }

    async fn run(&self) {
        let mut switch = self.cache.switched();
        loop {
            while !*switch.borrow_and_update() {
                // an unfinished poll may have applied its result since
                self.cache.suspend();
                if switch.changed().await.is_err() {
                    return;
                }
            }
            self.watch(&mut switch).await;
        }
    }

    /// Polls until the cache is disabled.
    async fn watch(&self, switch: &mut tokio::sync::watch::Receiver<bool>) {
        let mut watch = Watch::default();
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_blind = false;
        while *switch.borrow_and_update() {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = switch.changed() => continue,
            }
            let start = Instant::now();
            let poll = self.poll(&watch);
            let Ok(poll) = tokio::time::timeout(self.interval.max(MIN_TIMEOUT), poll).await else {
                // its first blocks may be gone by now, so its result proves nothing
                self.cache.pause();
                log::debug!("chain not polled in time");
                continue;
            };
            let (outcome, took) =
                (poll.as_ref().map_or_else(|cause| cause.name(), |_| "ok"), start.elapsed());
            let head = poll.as_ref().map(|poll| poll.head.number).unwrap_or_default();
            log::debug!(outcome, head, took:?; "chain polled");
            let step = watch.step(poll, Instant::now());
            self.cache.apply(&step);
            self.log(&step, was_blind);
            was_blind = step.chain.is_none();
        }
    }

    fn log(&self, step: &Step, was_blind: bool) {
        if let Some(cause) = step.broke {
            self.metrics.cache_epoch(cause.name());
            log::warn!(cause = cause.name(); "cache purged: chain continuity cannot be proved");
        }
        if was_blind && step.chain.is_some() {
            log::info!("node reachable again: cache in use");
        }
    }

    /// Fetches the newest block, then all others concurrently.
    async fn poll(&self, watch: &Watch) -> Result<Poll, EpochCause> {
        let (settled, candidate) = (watch.settled(), watch.candidate());
        let head = self
            .chain
            .fetch_block("\"latest\"")
            .await
            .map_err(cause)?
            .ok_or(EpochCause::Strange)?;
        let anchor = self.chain.0.anchor();
        let (genesis, settled_block, candidate_block, l1) = tokio::join!(
            self.fetch_block(Some(anchor)),
            // the anchor is fetched anyway
            self.fetch_block(settled.filter(|number| *number != anchor)),
            self.fetch_block(candidate.filter(|number| *number != anchor)),
            self.chain.fetch_l1_head(),
        );
        let genesis = genesis.map_err(cause)?.ok_or(EpochCause::Strange)?;
        let or_genesis = |number, block| if number == Some(anchor) { Some(genesis) } else { block };
        Ok(Poll {
            head,
            genesis,
            settled: or_genesis(settled, settled_block.map_err(cause)?),
            candidate: or_genesis(candidate, candidate_block.map_err(cause)?),
            l1: match l1 {
                Ok(block) => L1::Head(block),
                Err(RpcError::Node(_)) => return Err(EpochCause::Unreachable),
                Err(_) => L1::Unknown,
            },
        })
    }

    /// The block at this number, if there are both.
    async fn fetch_block(&self, number: Option<u64>) -> Result<Option<BlockIdentity>, RpcError> {
        let Some(number) = number else { return Ok(None) };
        let block = self.chain.fetch_block(&format!(r#"{{"block_number":{number}}}"#)).await?;
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
