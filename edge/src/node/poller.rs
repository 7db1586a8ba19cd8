//! The one poller of the URLs of the node, over connections of its own, each new.
//!
//! Where a URL could be of another chain, the newest block of every URL is polled once a second. It
//! shows which URLs may serve, and which stand still; unless it is the same as before, the identity
//! of the chain is polled with it. The block of a single URL whose chain cannot be another is
//! polled only for `node.max_block_age`, and only while nothing else reads it.

use super::cause::FailedAttempt;
use super::chain::code;
use super::http1::Connection;
use super::target::Target;
use super::{CallFailure, MAX_ANSWER, Node, NodeError};
use async_trait::async_trait;
use futures_util::future::join_all;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::config::NodeConfig;
use portcullis_base::io::{MemoryPermit, MemoryPool, monotonic};
use portcullis_filters::chain::{
    Asked, BlockIdentity, ConnectionId, HeadTime, NodeMode, NodeState, Observation, PollResult,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How often every URL is polled: a chain changes in place only on a development node.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the newest block of a single URL is read: a third of the shortest
/// `node.max_block_age`.
const HEAD_INTERVAL: Duration = Duration::from_secs(10);

/// The most requests of one poll at a time: four blocks, and the head of L1.
const CONCURRENT: usize = 5;

/// Polls the chain and the newest block of every URL of the node.
pub struct Poller {
    pub(super) node: Arc<Node>,
    pub(super) targets: Arc<[Target]>,
    pub(super) memory: Arc<MemoryPool>,
    mode: NodeMode,
    max_lag: u64,
    /// The time limit of a call.
    timeout: Duration,
}

/// An ongoing poll of one URL over one connection.
struct Poll<'a> {
    target: &'a Target,
    /// Opened for the first request.
    connection: Option<Box<Connection>>,
    deadline: Instant,
    memory: MemoryPermit,
    /// The newest block, once it was polled.
    head: Option<BlockIdentity>,
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
            ..
        } = self;
        let connection = open(target, connection).await?;
        target
            .ask_over(connection, method, params, *deadline, memory)
            .await
    }

    /// The URL's newest block with the connection that showed it, which is polled unless the watch
    /// has read it just now; and the identity of its chain, unless that block proves it.
    ///
    /// `None` without an accepted block, which is also no result for the group: a node that has no
    /// such block, but answers `starknet_blockNumber`, would fail the reads of clients. Its number
    /// alone proves nothing, neither a chain nor a time.
    async fn newest(&mut self) -> Result<Option<(BlockIdentity, ConnectionId)>, Stopped> {
        let node = &self.target.node;
        let url = self.target.record.index;
        let watched = node.update(|state, now| state.take_watched(url, INTERVAL, now));
        let mut newest = None;
        if watched.is_none() {
            let params = r#"{"block_id":"latest"}"#;
            let block = self.ask("starknet_getBlockWithTxHashes", params).await?;
            if let Err(code) = block
                && let Some(failed) = FailedAttempt::in_answer(code)
            {
                return Err(failed.into());
            }
            newest = block.ok().filter(|block| head_time(block).is_some());
        }
        let polled = newest.as_ref().and_then(BlockIdentity::read);
        self.head = watched.map(|(head, _)| head).or(polled);
        let is_proved = self
            .head
            .is_some_and(|head| node.read(|state| state.served.is_proved_by(url, head)));
        if node.is_checked && !is_proved {
            self.chain().await?;
        }
        if let Some(block) = newest {
            node.note_head(Some(url), &block);
        }
        let connection = self.connection.as_ref().map(|connection| connection.id);
        let polled = polled.zip(connection);
        Ok(watched.or(polled))
    }

    /// Polls the identity of the URL's chain, and compares it with the served one.
    async fn chain(&mut self) -> Result<(), Stopped> {
        let Self {
            target,
            connection,
            deadline,
            memory,
            head,
        } = self;
        let connection = open(target, connection).await?;
        let verdict = target.verify_chain(connection, *head, *deadline, memory);
        verdict.await?.map_err(Stopped::Excluded)
    }

    /// Polls the URL's newest block and, for replicas, its version and history.
    async fn member(
        &mut self,
        mode: NodeMode,
        max_lag: u64,
    ) -> Result<Option<PollResult>, Stopped> {
        let Some((BlockIdentity { number: head, .. }, connection)) = self.newest().await? else {
            return Ok(None);
        };
        let mut result = PollResult::of_head(head, connection);
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
        if let Some(head) = self.head
            && head.number == number
        {
            return Ok(Some(head));
        }
        let params = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let block = self.ask("starknet_getBlockWithTxHashes", &params).await?;
        Ok(block.ok().and_then(|block| BlockIdentity::read(&block)))
    }
}

/// The connection of a poll, which is opened if it has none.
async fn open<'a>(
    target: &Target,
    connection: &'a mut Option<Box<Connection>>,
) -> Result<&'a mut Box<Connection>, FailedAttempt> {
    if let Some(connection) = connection {
        return Ok(connection);
    }
    let opened = target.dial().await.map_err(FailedAttempt::connect)?;
    Ok(connection.insert(opened))
}

/// Shortens `0.10.2` to `0.10`.
fn minor_version(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

impl Poller {
    /// Creates the poller.
    pub fn new(config: &NodeConfig, node: &Arc<Node>) -> Self {
        let config = NodeConfig {
            max_idle: config.max_idle.max(CONCURRENT),
            max_connections: config.max_connections.max(CONCURRENT),
            ..config.clone()
        };
        let targets = Target::all(node, &config);
        Self {
            node: Arc::clone(node),
            memory: MemoryPool::new(targets.len().max(CONCURRENT) * MAX_ANSWER),
            targets,
            mode: config.mode,
            max_lag: config.max_lag,
            timeout: config.timeout,
        }
    }

    /// Whether there is something to poll without the watch: a URL could be of another chain, or
    /// the newest block could be too old.
    pub fn is_needed(&self) -> bool {
        self.node.is_checked || self.node.max_block_age.is_some()
    }

    /// Whether the URL at `index` has the served chain.
    ///
    /// # Errors Returns the reason, for people, if it does not or is unreachable.
    pub async fn check(&self, index: usize, limit: Duration) -> Result<(), String> {
        let Some(target) = self.targets.get(index) else {
            return Ok(());
        };
        let sent = Instant::now();
        let deadline = sent + limit;
        let checked = within(deadline, async {
            self.begin(target, deadline).chain().await
        });
        note(target, sent, checked.await)
    }

    /// Compares the heads of all URLs that have the served chain. Returns each URL's head, or how
    /// it differs, `None` without an answer; empty with a single URL.
    pub async fn compare(&self, limit: Duration) -> Vec<Option<Result<u64, String>>> {
        if !self.node.has_several() {
            return Vec::new();
        }
        self.round(limit).await;
        let state = self.node.read(NodeState::clone);
        let group = state.group;
        let found = group.members.iter().enumerate().map(|(index, url)| {
            let head = url.head?;
            Some(if url.left_out.is_some() {
                Err(group.cause(index, |_| true).unwrap_or_default())
            } else {
                Ok(head)
            })
        });
        found.collect()
    }

    fn begin<'a>(&self, target: &'a Target, deadline: Instant) -> Poll<'a> {
        Poll {
            target,
            connection: None,
            deadline,
            memory: MemoryPermit::of(&self.memory),
            head: None,
        }
    }

    /// Polls the chain of a URL, and its head if that chain is the served one.
    async fn poll<'a>(
        &self,
        target: &'a Target,
        limit: Duration,
    ) -> Option<(Poll<'a>, PollResult)> {
        let sent = Instant::now();
        let deadline = sent + limit;
        let polled = within(deadline, async {
            let mut poll = self.begin(target, deadline);
            let result = poll.member(self.mode, self.max_lag).await?;
            Ok((poll, result))
        });
        // an excluded URL was logged already
        let (poll, result) = note(target, sent, polled.await).ok()?;
        Some((poll, result?))
    }

    /// How often there is something to poll.
    fn interval(&self) -> Duration {
        if self.node.is_checked {
            INTERVAL
        } else {
            HEAD_INTERVAL
        }
    }

    /// Polls the only URL, if its chain could be another one, or if its newest block may be too old
    /// and was not read lately.
    async fn poll_only(&self) {
        let Some(target) = self.targets.first() else {
            return;
        };
        let mut limit = INTERVAL;
        if !self.node.is_checked {
            // half an interval, because no tick is on time to the millisecond
            let lately = HEAD_INTERVAL / 2;
            let now = monotonic::now();
            if self
                .node
                .read(|state| state.has_shown_head_within(0, lately, now))
            {
                return;
            }
            limit = self.timeout;
        }
        let sent = Instant::now();
        let deadline = sent + limit;
        let polled = within(deadline, async {
            self.begin(target, deadline).newest().await
        });
        // the end is logged already
        drop(note(target, sent, polled.await));
    }

    async fn round(&self, limit: Duration) {
        self.node.observe(Observation::RoundBegun);
        let polls = self.targets.iter().map(|target| self.poll(target, limit));
        let mut seen = if self.node.read(|state| state.served.is_pinned()) {
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
        let number = self.node.read(|state| state.group.common_height(&results));
        if let Some(number) = number {
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
        self.node.end_round(&results);
    }
}

/// Why a poll ended early.
enum Stopped {
    /// The URL has another chain: how it differs.
    Excluded(String),
    Failed(FailedAttempt),
}

/// The end of a poll, which fails if it takes longer.
async fn within<T>(
    deadline: Instant,
    poll: impl Future<Output = Result<T, Stopped>>,
) -> Result<T, Stopped> {
    let ended = timeout_at(deadline, poll).await;
    ended.unwrap_or_else(|_| Err(Stopped::Failed(NodeError::Timeout.into())))
}

/// Records how a poll, which began at `sent`, ended. If it has no result, returns the reason for
/// people.
fn note<T>(target: &Target, sent: Instant, polled: Result<T, Stopped>) -> Result<T, String> {
    let record = &target.record;
    match polled {
        Ok(polled) => {
            let request = target.request_of(Asked::Poll, sent);
            target.node.note_end(request, None, Instant::now());
            Ok(polled)
        }
        Err(Stopped::Excluded(why)) => Err(why),
        Err(Stopped::Failed(failed)) => {
            target.note_failure(Asked::Poll, failed.class(), sent);
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

/// The number and the time of a block; `None` for an error.
pub(super) fn head_time(block: &Value) -> Option<HeadTime> {
    Some(HeadTime {
        number: block["block_number"].as_u64()?,
        timestamp: block["timestamp"].as_u64()?,
    })
}

#[async_trait]
impl BackgroundService for Poller {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut ticks = tokio::time::interval(self.interval());
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = ticks.tick() => {}
            }
            if self.node.has_several() {
                self.round(INTERVAL).await;
            } else {
                self.poll_only().await;
            }
        }
    }
}
