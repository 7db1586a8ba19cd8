//! Looks at the chain at every tick and tells the cache what stands.
//!
//! It runs beside the listeners, over connections of its own, so that it sees the node however busy
//! the gateway is. While the cache is switched off it asks nothing.

use super::cache::Cache;
use super::watch::{EpochCause, L1, Poll, Step, Watch};
use crate::config::NodeConfig;
use crate::io::memory::MemoryPool;
use crate::node::chain::{BlockIdentity, Chain, RpcError};
use crate::node::{MAX_ANSWER, Node};
use crate::telemetry::Metrics;
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// Blocks in one look.
const BLOCKS: usize = 5;
/// A look may take an interval, and this long where intervals are shorter.
const SLOW: Duration = Duration::from_secs(1);

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

/// However the watch ends: nothing is given from a cache that nobody watches.
struct SuspendOnDrop<'a>(&'a Cache);

impl Drop for SuspendOnDrop<'_> {
    fn drop(&mut self) {
        self.0.suspend();
    }
}

impl Watcher {
    /// With connections and memory of its own: clients who take all of theirs do not blind it.
    pub(super) fn new(
        cache: Arc<Cache>,
        interval: Duration,
        node: &NodeConfig,
        metrics: Arc<Metrics>,
    ) -> Self {
        let memory = MemoryPool::new(BLOCKS * MAX_ANSWER);
        let node = NodeConfig {
            max_idle: node.max_idle.max(BLOCKS),
            max_connections: node.max_connections.max(BLOCKS),
            ..node.clone()
        };
        let chain = Chain::new(Node::new(&node, memory, Arc::clone(&metrics)));
        Self { cache, interval, chain, metrics }
    }

    async fn run(&self) {
        let mut switch = self.cache.switched();
        loop {
            while !*switch.borrow_and_update() {
                // what an unfinished look may have said since
                self.cache.suspend();
                if switch.changed().await.is_err() {
                    return;
                }
            }
            self.watch(&mut switch).await;
        }
    }

    /// Looks until the cache is switched off.
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
            let look = self.look(&watch);
            let Ok(look) = tokio::time::timeout(self.interval.max(SLOW), look).await else {
                // blocks that it saw when it began may be gone: it is given up, and what is kept
                // waits for a look that is quick enough to be believed
                self.cache.pause();
                continue;
            };
            let step = watch.step(look, Instant::now());
            self.cache.take_over(&step);
            self.tell(&step, was_blind);
            was_blind = step.standing.is_none();
        }
    }

    fn tell(&self, step: &Step, was_blind: bool) {
        if let Some(cause) = step.broke {
            self.metrics.cache_epoch(cause);
            log::warn!(cause = cause.name(); "the cache is emptied");
        }
        if was_blind && step.standing.is_some() {
            log::info!("the node is seen again: the cache is in use");
        }
    }

    /// Asks for the newest block, and when the node answers, for all others at the same time.
    async fn look(&self, watch: &Watch) -> Result<Poll, EpochCause> {
        let (settled, candidate) = (watch.settled(), watch.candidate());
        let head = self
            .chain
            .fetch_block("\"latest\"")
            .await
            .map_err(cause)?
            .ok_or(EpochCause::Strange)?;
        let (genesis, settled_block, candidate_block, l1) = tokio::join!(
            self.fetch_block(Some(0)),
            // block 0 is asked for anyway
            self.fetch_block(settled.filter(|number| *number > 0)),
            self.fetch_block(candidate.filter(|number| *number > 0)),
            self.chain.fetch_block("\"l1_accepted\""),
        );
        let genesis = genesis.map_err(cause)?.ok_or(EpochCause::Strange)?;
        let or_genesis = |number, block| if number == Some(0) { Some(genesis) } else { block };
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

    /// The block of this number, if one is asked for and there is one.
    async fn fetch_block(&self, number: Option<u64>) -> Result<Option<BlockIdentity>, RpcError> {
        let Some(number) = number else { return Ok(None) };
        let block = self.chain.fetch_block(&format!(r#"{{"block_number":{number}}}"#)).await?;
        // another block than the one that was asked for is none
        Ok(block.filter(|block| block.number == number))
    }
}

fn cause(trouble: RpcError) -> EpochCause {
    match trouble {
        RpcError::Node(_) => EpochCause::Unreachable,
        RpcError::Returned(_) | RpcError::MalformedAnswer => EpochCause::Strange,
    }
}
