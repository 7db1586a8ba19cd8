//! Polls the newest block of every URL of the node, so that one that stands still is noticed:
//! `node.max_block_age`. Without that key nothing is polled here; the time of a block is then known
//! only from the polls of the gateway's cache.

use super::target::Target;
use super::{Call, MAX_ANSWER, Node, chain};
use crate::config::NodeConfig;
use crate::io::{MemoryPermit, MemoryPool};
use async_trait::async_trait;
use futures_util::future::join_all;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_filters::chain::HeadTime;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often every URL is polled: a third of the shortest `node.max_block_age`.
const INTERVAL: Duration = Duration::from_secs(10);

/// Polls the newest block of every URL.
pub struct HeadPolls {
    targets: Arc<[Target]>,
    memory: Arc<MemoryPool>,
    timeout: Duration,
}

impl HeadPolls {
    /// Creates the polls; `None` without a limit on the age.
    pub fn new(config: &NodeConfig, node: &Arc<Node>) -> Option<Self> {
        config.max_block_age?;
        let targets = Target::all(node, config);
        Some(Self {
            memory: MemoryPool::new(targets.len() * MAX_ANSWER),
            targets,
            timeout: config.timeout,
        })
    }

    async fn poll(&self, target: &Target) {
        let write = |id: u64, out: &mut Vec<u8>| {
            let params = r#"{"block_id":"latest"}"#;
            chain::write_request(id, "starknet_getBlockWithTxHashes", params, out);
        };
        let call = Call::new(write, Instant::now() + self.timeout).polling();
        let answer = target.ask(&call, &mut MemoryPermit::of(&self.memory)).await;
        // a failure is counted and explained already
        let Ok(answered) = answer else { return };
        let (_, payload) = target.keep(answered);
        if let Ok(block) = serde_json::from_slice(&payload)
            && let Some(head) = head_time(&block)
        {
            target.record.note_head_time(head);
        }
    }
}

/// The number and the time of a block; `None` for an error.
pub(super) fn head_time(block: &Value) -> Option<HeadTime> {
    Some(HeadTime {
        number: block["block_number"].as_u64()?,
        timestamp: block["timestamp"].as_u64()?,
    })
}

#[async_trait]
impl BackgroundService for HeadPolls {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = ticks.tick() => {}
            }
            let polls = self.targets.iter().map(|target| self.poll(target));
            let _all: Vec<()> = join_all(polls).await;
        }
    }
}
