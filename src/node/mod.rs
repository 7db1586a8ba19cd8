//! The Starknet node as a client of it: one verified answer per permitted read, or a [`NodeError`].
//!
//! One deadline covers everything from the first connect to the last byte. An answer of at most
//! 4 MiB is read whole and verified before it is passed on. The request is built from scratch: the
//! only header of a client that reaches the node is a well-formed `traceparent`.
//! Next: `target` (one URL: its connections and its breaker), `served_chain` (one chain for all
//! URLs), `http1` (one exchange), `io` (the bound over all answers), `chain` (typed calls).

mod cause;
pub mod chain;
mod http1;
mod served_chain;
mod target;

pub use served_chain::ChainGuard;
pub use target::{BREAKER_PAUSE, Breaker, CallFailure};

use crate::config::NodeConfig;
use crate::io::{Exhausted, MemoryPermit, MemoryPool};
use crate::telemetry::Metrics;
use bytes::Bytes;
use cause::{Cause, FailedAttempt};
use http1::Connection;
use portcullis_filters::named;
use portcullis_filters::rpc::response::Outcome;
use served_chain::ServedChain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use target::Target;
use tokio::time::Instant;

/// 4 MiB: the bound on the body of a node's answer.
pub const MAX_ANSWER: usize = 4 << 20;

named! {
    /// Why there is no answer to pass on.
    pub enum NodeError {
        /// The deadline passed.
        Timeout = "timeout",
        /// No connection: the request was not sent.
        Unreachable = "unreachable",
        /// Every URL that accepts connections is of another chain: the request was not sent.
        WrongChain = "wrong_chain",
        /// The connection ended before the answer began: the request may have been received.
        Cut = "cut",
        /// A status of 3xx.
        Redirect = "redirect",
        /// Any other status than 200.
        Status = "status",
        /// More than 4 MiB.
        Oversized = "oversized",
        /// Not one complete JSON-RPC 2.0 response to our request.
        Invalid = "invalid",
        /// Our own bound on memory or connections is reached.
        Overloaded = "overloaded",
    }
}

impl From<Exhausted> for NodeError {
    fn from(Exhausted: Exhausted) -> Self {
        Self::Overloaded
    }
}

impl NodeError {
    /// Whether it is certain that the node did not receive the request.
    pub const fn is_unsent(self) -> bool {
        matches!(self, Self::Unreachable | Self::WrongChain)
    }
}

/// Which connection a request is sent over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionChoice {
    /// A pooled one. If it ends before an answer begins, the request is sent once more.
    Pooled,
    /// A new one; nothing is sent twice.
    New,
}

/// The payload of a verified answer, and its share of the memory for answers. Clones share both.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The name of the payload's member: `result` or `error`.
    pub member: &'static str,
    /// The payload's JSON text, as the node wrote it.
    pub payload: Bytes,
    /// Released when the answer has been sent to every client that waits for it.
    pub memory: Arc<MemoryPermit>,
}

impl Answer {
    /// Whether it is a result, not the node's error.
    pub fn is_result(&self) -> bool {
        self.member == RESULT
    }
}

const RESULT: &str = "result";

/// One call, in one place to keep the future that waits for its answer small.
struct NodeCall<'a, W> {
    id: u64,
    /// Writes the request's body under an id.
    write: W,
    connection: ConnectionChoice,
    traceparent: Option<&'a [u8]>,
    start: Instant,
    deadline: Instant,
}

/// The node, under one or more URLs.
pub struct Node {
    targets: Vec<Target>,
    timeout: Duration,
    memory: Arc<MemoryPool>,
    metrics: Arc<Metrics>,
    next_id: AtomicU64,
    chain: Arc<ServedChain>,
}

/// The state of one URL, for metrics.
#[derive(Clone, Debug)]
pub struct UrlStats {
    /// The URL as configured.
    pub url: String,
    /// Idle connections.
    pub idle: usize,
    /// Connections with a call in flight.
    pub busy: usize,
    /// Why its breaker is open, as the name of a [`NodeError`]; `None` while it is closed.
    pub failure: Option<&'static str>,
    /// Why its most recent failed attempt failed, in words; `None` if none failed.
    pub cause: Option<String>,
}

impl Node {
    /// A node as configured. Opens no connection yet.
    pub fn new(config: &NodeConfig, memory: Arc<MemoryPool>, metrics: Arc<Metrics>) -> Self {
        Self::of_chain(Arc::new(ServedChain::new(config)), config, memory, metrics)
    }

    /// The same node with connections and memory of its own: the chain is one for both.
    #[must_use]
    pub fn apart(&self, config: &NodeConfig, memory: Arc<MemoryPool>) -> Self {
        Self::of_chain(Arc::clone(&self.chain), config, memory, Arc::clone(&self.metrics))
    }

    fn of_chain(
        chain: Arc<ServedChain>,
        config: &NodeConfig,
        memory: Arc<MemoryPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let target = |(index, url)| Target::new((index, url), config, &chain);
        Self {
            targets: config.url.iter().enumerate().map(target).collect(),
            timeout: config.timeout,
            memory,
            metrics,
            next_id: AtomicU64::new(1),
            chain,
        }
    }

    /// What keeps the URLs to one chain; `None` if none could be of another.
    pub fn chain_guard(&self, config: &NodeConfig) -> Option<ChainGuard> {
        let memory = MemoryPool::new(MAX_ANSWER);
        self.chain.is_checked().then(|| ChainGuard(self.apart(config, memory)))
    }

    /// The number of the block that identifies the chain.
    pub fn anchor(&self) -> u64 {
        self.chain.anchor
    }

    /// The time limit of one call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends the request that `write` writes under the id it receives. `traceparent` must be
    /// well-formed.
    ///
    /// # Errors
    /// Why there is no complete and verified answer by `deadline`.
    pub fn fetch<'a>(
        &'a self,
        write: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'a,
        connection: ConnectionChoice,
        traceparent: Option<&'a [u8]>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Answer, NodeError>> + Send + 'a {
        let start = Instant::now();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let call = NodeCall { id, write, connection, traceparent, start, deadline };
        async move {
            let mut permit = MemoryPermit::of(&self.memory);
            let exchanged = self.exchange(&call, &mut permit).await;
            let now = Instant::now();
            let verified = exchanged.and_then(|(target, connection, body)| {
                let payload = verify(&body, call.id).inspect_err(|error| {
                    target.note(Cause::Error(*error));
                })?;
                // only now: after a wrong answer the right one may still arrive
                target.put_idle(connection, now);
                Ok(payload)
            });
            self.metrics
                .node_call(verified.as_ref().err().map(|fault| fault.name()), now - call.start);
            let (member, payload) = verified?;
            Ok(Answer { member, payload, memory: Arc::new(permit) })
        }
    }

    /// Tries the URLs in order until one accepts a connection. Returns that URL's target, the
    /// connection and the answer's body.
    async fn exchange<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &NodeCall<'_, W>,
        permit: &mut MemoryPermit,
    ) -> Result<(&Target, Box<Connection>, Bytes), NodeError> {
        let mut error = NodeError::Unreachable;
        for target in &self.targets {
            let Some(attempt) = target.breaker.enter(Instant::now) else { continue };
            let result = target.exchange(call, permit, &self.metrics).await;
            attempt.record(result.as_ref().err().map(|failed| failed.failure), Instant::now);
            let FailedAttempt { failure, cause } = match result {
                Ok((connection, body)) => return Ok((target, connection, body)),
                Err(failed) => failed,
            };
            target.note(cause);
            match failure {
                CallFailure::After(error) => return Err(error),
                // try the next URL
                CallFailure::Connect => {}
                CallFailure::Foreign if error != NodeError::Cut => {
                    error = NodeError::WrongChain;
                }
                CallFailure::Foreign => {}
                CallFailure::Gone => error = NodeError::Cut,
            }
        }
        Err(error)
    }

    /// Probes each URL whose breaker is open, so that it closes before a client's request needs it.
    pub async fn probe(&self) {
        for target in self.targets.iter().filter(|target| target.breaker.failure().is_some()) {
            let Some(attempt) = target.breaker.enter(Instant::now) else { continue };
            let failed = self.send_probe(target, self.timeout).await.err();
            attempt.record(failed.as_ref().map(|failed| failed.failure), Instant::now);
            if let Some(failed) = failed {
                target.note(failed.cause);
            }
        }
    }

    /// The URLs that answer neither a probe within `limit` nor any request meanwhile, each with the
    /// cause. Calls go on: a node that is slow only with probes is better than none.
    pub async fn silent_urls(&self, limit: Duration) -> Vec<(String, String)> {
        let mut silent = Vec::new();
        for target in &self.targets {
            let answers = target.breaker.answers();
            let Err(failed) = self.send_probe(target, limit).await else { continue };
            let is_ours = failed.failure == CallFailure::After(NodeError::Overloaded);
            if !is_ours && target.breaker.answers() == answers {
                silent.push((target.url.clone(), failed.cause.to_string()));
            }
        }
        silent
    }

    async fn send_probe(&self, target: &Target, limit: Duration) -> Result<(), FailedAttempt> {
        let write = |id: u64, out: &mut Vec<u8>| {
            chain::write_request(id, "starknet_specVersion", "[]", out);
        };
        let start = Instant::now();
        let deadline = start + limit;
        let (connection, traceparent) = (ConnectionChoice::New, None);
        let call = NodeCall { id: 1, write, connection, traceparent, start, deadline };
        let mut permit = MemoryPermit::of(&self.memory);
        target.exchange(&call, &mut permit, &self.metrics).await.map(drop)
    }

    /// Why the most recent failed attempt at the URL at `index` failed, in words for the operator:
    /// `connection refused`, `405 Method Not Allowed`. `None` if none failed.
    pub fn failure_cause(&self, index: usize) -> Option<String> {
        self.targets.get(index)?.cause()
    }

    /// The state of each URL, in order of preference.
    pub fn urls(&self) -> impl Iterator<Item = UrlStats> {
        self.targets.iter().map(|target| UrlStats {
            url: target.url.clone(),
            idle: target.idle(),
            busy: target.busy(),
            failure: target.breaker.failure(),
            cause: target.cause(),
        })
    }
}

fn verify(body: &Bytes, id: u64) -> Result<(&'static str, Bytes), NodeError> {
    let (member, payload) = match Outcome::verify(body, id).ok_or(NodeError::Invalid)? {
        Outcome::Result(text) => (RESULT, text),
        Outcome::Error(text) => ("error", text),
    };
    Ok((member, body.slice_ref(payload)))
}
