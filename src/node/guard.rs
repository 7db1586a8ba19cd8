//! Polls the chain of every URL of the node once a second, over connections of its own. If there
//! are several, their heads are polled, too, so that `group` knows which URLs may serve.

use super::cause::FailedAttempt;
use super::chain::code;
use super::group::Group;
use super::http1::Connection;
use super::target::Target;
use super::{CallFailure, MAX_ANSWER, Node, NodeError};
use crate::config::NodeConfig;
use crate::io::{MemoryPermit, MemoryPool};
use async_trait::async_trait;
use futures_util::future::join_all;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_filters::chain::{Asked, BlockIdentity, NodeMode, PollResult};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often every URL is polled: a chain changes in place only on a development node.
const INTERVAL: Duration = Duration::from_secs(1);

/// Polls the chain and the head of every URL of the node.
pub struct ChainGuard {
    node: Arc<Node>,
    targets: Arc<[Target]>,
    memory: Arc<MemoryPool>,
    mode: NodeMode,
    max_lag: u64,
}

/// An ongoing poll of one URL over one connection.
struct Poll<'a> {
    target: &'a Target,
    connection: Box<Connection>,
    deadline: Instant,
    memory: MemoryPermit,
}

impl Poll<'_> {
    /// Returns the result or the error's code, or why there is no answer.
    async fn ask(
        &mut self,
        method: &str,
        params: &str,
    ) -> Result<Result<Value, i64>, FailedAttempt> {
        let Self {
            target,
            connection,
            deadline,
            memory,
        } = self;
        target
            .ask_over(connection, method, params, *deadline, memory)
            .await
    }

    /// Polls the URL's head and, for replicas, its version and history.
    async fn head(
        &mut self,
        mode: NodeMode,
        max_lag: u64,
    ) -> Result<Option<PollResult>, FailedAttempt> {
        let head = self.ask("starknet_blockNumber", "[]").await?;
        if let Err(code) = head
            && let Some(failed) = FailedAttempt::in_answer(code)
        {
            return Err(failed);
        }
        let Some(head) = head.ok().as_ref().and_then(Value::as_u64) else {
            return Ok(None);
        };
        let mut result = PollResult {
            head,
            version: None,
            keeps_history: false,
            block: None,
        };
        if mode == NodeMode::Replicas {
            let version = self.ask("starknet_specVersion", "[]").await?.ok();
            result.version = version.as_ref().and_then(Value::as_str).map(minor_version);
            result.keeps_history = head > 0 && self.keeps_history(head, max_lag).await?;
        }
        Ok(Some(result))
    }

    /// Whether the URL has the state at an older block; "no such contract" proves that, too.
    async fn keeps_history(&mut self, head: u64, max_lag: u64) -> Result<bool, FailedAttempt> {
        let number = head.saturating_sub(max_lag);
        let params =
            format!(r#"{{"block_id":{{"block_number":{number}}},"contract_address":"0x1"}}"#);
        let answer = self.ask("starknet_getClassHashAt", &params).await?;
        // any other error, whatever its class, says that the state is pruned
        Ok(matches!(answer, Ok(_) | Err(code::CONTRACT_NOT_FOUND)))
    }

    /// The block at this height, if there is one.
    async fn block(&mut self, number: u64) -> Result<Option<BlockIdentity>, FailedAttempt> {
        let params = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let block = self.ask("starknet_getBlockWithTxHashes", &params).await?;
        Ok(block.ok().and_then(|block| BlockIdentity::read(&block)))
    }
}

/// Shortens `0.10.2` to `0.10`.
fn minor_version(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

impl ChainGuard {
    /// Creates the guard; `None` if no URL could be of another chain.
    pub fn new(config: &NodeConfig, node: &Arc<Node>) -> Option<Self> {
        let targets = Target::all(node, config);
        node.chain.is_checked().then(|| Self {
            node: Arc::clone(node),
            memory: MemoryPool::new(targets.len() * MAX_ANSWER),
            targets,
            mode: config.mode,
            max_lag: config.max_lag,
        })
    }

    /// Whether the URL at `index` has the served chain.
    ///
    /// # Errors
    /// Returns in words why not; an unreachable URL is one of the reasons.
    pub async fn check(&self, index: usize, limit: Duration) -> Result<(), String> {
        let Some(target) = self.targets.get(index) else {
            return Ok(());
        };
        let sent = Instant::now();
        let checked = self.begin(target, sent + limit).await;
        note(target, sent, checked).map(drop)
    }

    /// Compares the heads of all URLs that have the served chain. Returns each URL's head, or how
    /// it differs, `None` without an answer; empty with a single URL.
    pub async fn compare(&self, limit: Duration) -> Vec<Option<Result<u64, String>>> {
        let group = &self.node.group;
        if !group.has_several() {
            return Vec::new();
        }
        self.round(group, limit).await;
        let state = group.state();
        let found = state.members.iter().enumerate().map(|(index, url)| {
            let head = url.head?;
            Some(if url.left_out.is_some() {
                Err(state.cause(index, |_| true).unwrap_or_default())
            } else {
                Ok(head)
            })
        });
        found.collect()
    }

    /// Connects to the URL, and verifies that it has the served chain.
    async fn begin<'a>(&self, target: &'a Target, deadline: Instant) -> Result<Poll<'a>, Stopped> {
        let mut memory = MemoryPermit::of(&self.memory);
        let begun = async {
            let mut connection = target.dial().await.map_err(FailedAttempt::connect)?;
            target
                .verify_chain(&mut connection, deadline, &mut memory)
                .await?
                .map_err(Stopped::Excluded)?;
            Ok(connection)
        };
        let begun = timeout_at(deadline, begun).await;
        let connection =
            begun.unwrap_or_else(|_| Err(Stopped::Failed(NodeError::Timeout.into())))?;
        Ok(Poll {
            target,
            connection,
            deadline,
            memory,
        })
    }

    /// Polls the chain of a URL, and its head if that chain is the served one.
    async fn poll<'a>(
        &self,
        target: &'a Target,
        limit: Duration,
    ) -> Option<(Poll<'a>, PollResult)> {
        let sent = Instant::now();
        let polled = self.begin_and_poll(target, sent + limit).await;
        // an excluded URL was logged already
        let (poll, result) = note(target, sent, polled).ok()?;
        Some((poll, result?))
    }

    async fn begin_and_poll<'a>(
        &self,
        target: &'a Target,
        deadline: Instant,
    ) -> Result<(Poll<'a>, Option<PollResult>), Stopped> {
        let mut poll = self.begin(target, deadline).await?;
        let head = timeout_at(deadline, poll.head(self.mode, self.max_lag)).await;
        let result = head.unwrap_or_else(|_| Err(NodeError::Timeout.into()))?;
        Ok((poll, result))
    }

    async fn round(&self, group: &Group, limit: Duration) {
        group.begin_round();
        let polls = self.targets.iter().map(|target| self.poll(target, limit));
        let mut seen = if self.node.chain.is_pinned() {
            join_all(polls).await
        } else {
            // the first URL that answers decides which chain is served
            let mut seen = Vec::new();
            for poll in polls {
                seen.push(poll.await);
            }
            seen
        };
        let mut results: Vec<_> = seen
            .iter()
            .map(|seen| seen.as_ref().map(|(_, result)| result.clone()))
            .collect();
        if let Some(number) = group.read(|state| state.common_height(&results)) {
            let blocks = seen.iter_mut().map(|seen| async move {
                let (poll, _) = seen.as_mut()?;
                poll.deadline = Instant::now() + limit;
                timeout_at(poll.deadline, poll.block(number))
                    .await
                    .ok()?
                    .ok()
            });
            for (result, block) in results.iter_mut().zip(join_all(blocks).await) {
                // without an answer, nothing is known about the URL
                *result = result
                    .take()
                    .zip(block)
                    .map(|(result, block)| PollResult { block, ..result });
            }
        }
        group.end_round(&results);
    }
}

/// Why a poll ended early.
enum Stopped {
    /// The URL has another chain: how it differs.
    Excluded(String),
    Failed(FailedAttempt),
}

/// Records how a poll, which began at `sent`, ended. Returns in words why it has no result.
fn note<T>(target: &Target, sent: Instant, polled: Result<T, Stopped>) -> Result<T, String> {
    let record = &target.record;
    match polled {
        Ok(polled) => {
            record.note_valid(Asked::Poll, sent);
            Ok(polled)
        }
        Err(Stopped::Excluded(why)) => Err(why),
        Err(Stopped::Failed(failed)) => {
            record.note_failure(Asked::Poll, failed.class(), sent);
            let error = match failed.failure {
                failure @ (CallFailure::After(_) | CallFailure::Busy) => failure.error(),
                _ => NodeError::Unreachable,
            };
            let why = format!("{}: {}", error.name(), failed.cause);
            let mut failures = record.failures();
            failures.note(failed.failure.error(), failed.cause, Instant::now());
            Err(why)
        }
    }
}

impl From<FailedAttempt> for Stopped {
    fn from(failed: FailedAttempt) -> Self {
        Self::Failed(failed)
    }
}

#[async_trait]
impl BackgroundService for ChainGuard {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = ticks.tick() => {}
            }
            if self.node.group.has_several() {
                self.round(&self.node.group, INTERVAL).await;
            } else {
                // the result is logged already
                drop(self.check(0, INTERVAL).await);
            }
        }
    }
}
