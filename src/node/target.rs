//! One URL of the node: its connection pool, its circuit breaker, its chain, and one call.
//!
//! A few failures in a row open the breaker, another chain does at once; after a second, one call
//! probes the URL. A call that times out while others are answered is slow and counts as no
//! failure.

use super::cause::{Cause, FailedAttempt};
use super::http1::{Connection, ExchangeError};
use super::served_chain::{ChainIdentity, ServedChain};
use super::{ConnectionChoice, NodeCall, NodeError, chain};
use crate::config::{NodeConfig, NodeUrl};
use crate::io::{DescriptorUse, MemoryPermit};
use crate::telemetry::Metrics;
use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_filters::rpc::response::Outcome;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Consecutive failures that open the breaker: a restart may cause one or two.
const FAILURES: u32 = 3;
/// How long an open breaker rejects calls: a node restarts within seconds.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(1);
/// Room for the digits of a length, right-aligned behind optional white space (RFC 9110, section
/// 5.5), so that head and body are built in one buffer and sent in one write.
const LENGTH: usize = 8;

/// One URL of the node.
pub(super) struct Target {
    /// Its place in the configuration.
    index: usize,
    /// As configured, for metrics and the operator's page.
    pub(super) url: String,
    host: String,
    port: u16,
    /// The request head up to the length's digits.
    head: Vec<u8>,
    pub(super) breaker: Breaker,
    /// Why the most recent failed attempt failed.
    cause: Mutex<Option<Cause>>,
    chain: Arc<ServedChain>,
    idle: Mutex<VecDeque<Idle>>,
    /// One permit for each further call.
    free: Semaphore,
    connect_timeout: Duration,
    idle_timeout: Duration,
    max_idle: usize,
    max_connections: usize,
}

struct Idle {
    connection: Box<Connection>,
    since: Instant,
}

impl Target {
    pub(super) fn new(
        (index, url): (usize, &NodeUrl),
        config: &NodeConfig,
        chain: &Arc<ServedChain>,
    ) -> Self {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json\r\nAccept-Encoding: identity\r\n",
            url.path, url.authority
        );
        Self {
            index,
            url: url.to_string(),
            host: url.host.clone(),
            port: url.port,
            head: head.into_bytes(),
            breaker: Breaker::default(),
            cause: Mutex::default(),
            chain: Arc::clone(chain),
            idle: Mutex::default(),
            free: Semaphore::new(config.max_connections),
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            max_idle: config.max_idle,
            max_connections: config.max_connections,
        }
    }

    fn request(&self, call: &NodeCall<'_, impl Fn(u64, &mut Vec<u8>)>) -> Vec<u8> {
        let mut request = Vec::with_capacity(self.head.len() + 768);
        request.extend_from_slice(&self.head);
        if let Some(traceparent) = call.traceparent {
            request.extend_from_slice(b"traceparent: ");
            request.extend_from_slice(traceparent);
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"Content-Length:");
        let length_ends = request.len() + LENGTH;
        request.extend_from_slice(&[b' '; LENGTH]);
        request.extend_from_slice(b"\r\n\r\n");
        let body_starts = request.len();
        (call.write)(call.id, &mut request);
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(request.len() - body_starts);
        let digits_start = length_ends - digits.len();
        request[digits_start..length_ends].copy_from_slice(digits.as_bytes());
        request
    }

    /// Sends a request and reads the whole answer. Sends it once more only if a pooled connection
    /// ended before the first byte of an answer. The caller returns the connection with
    /// [`Self::put_idle`] once the answer is verified.
    pub(super) async fn exchange<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &NodeCall<'_, W>,
        permit: &mut MemoryPermit,
        metrics: &Metrics,
    ) -> Result<(Box<Connection>, Bytes), FailedAttempt> {
        let _permit = self.free.try_acquire().map_err(|_| NodeError::Overloaded)?;
        let mut may_be_received = false;
        if call.connection == ConnectionChoice::Pooled
            && let Some(mut connection) = self.take_idle(call.start)
        {
            match connection.exchange(self.request(call), call.deadline, permit).await {
                Ok(body) => return Ok((connection, body)),
                Err(ExchangeError::BeforeAnswer) => metrics.node_retries.inc(),
                Err(error) => return Err(error.into()),
            }
            may_be_received = true;
        }
        // boxed: most calls need no connect, and would be larger by it
        let connect = Box::pin(self.connect(call.deadline, permit));
        let connect = tokio::time::timeout_at(call.deadline, connect).await;
        let connection = connect.map_err(|_| NodeError::Timeout)?;
        let mut connection = connection.map_err(|mut failed| {
            if may_be_received
                && matches!(failed.failure, CallFailure::Connect | CallFailure::Foreign)
            {
                failed.failure = CallFailure::Gone;
            }
            failed
        })?;
        let body = connection.exchange(self.request(call), call.deadline, permit).await?;
        Ok((connection, body))
    }

    /// Remembers why an attempt failed.
    pub(super) fn note(&self, cause: Cause) {
        *self.cause.lock() = Some(cause);
    }

    /// Why the most recent failed attempt failed, in words; `None` if none failed.
    pub(super) fn cause(&self) -> Option<String> {
        self.cause.lock().as_ref().map(ToString::to_string)
    }

    /// A new connection to the served chain.
    async fn connect(
        &self,
        deadline: Instant,
        permit: &mut MemoryPermit,
    ) -> Result<Box<Connection>, FailedAttempt> {
        let epoch = self.chain.epoch();
        let mut connection = self.dial().await.map_err(FailedAttempt::connect)?;
        if self.chain.is_checked() {
            let verdict = self.verify_chain(&mut connection, deadline, permit).await?;
            verdict.map_err(|why| FailedAttempt {
                failure: CallFailure::Foreign,
                cause: Cause::Chain(why),
            })?;
        }
        connection.chain_epoch = epoch;
        Ok(connection)
    }

    /// Asks for the chain and compares it with the served one: an error in words if it is another.
    /// The connection is replaced if the node closes it.
    pub(super) async fn verify_chain(
        &self,
        connection: &mut Box<Connection>,
        deadline: Instant,
        permit: &mut MemoryPermit,
    ) -> Result<Result<(), String>, FailedAttempt> {
        let anchor = format!(r#"{{"block_id":{{"block_number":{}}}}}"#, self.chain.anchor);
        let calls = [("starknet_chainId", "[]"), ("starknet_getBlockWithTxHashes", &*anchor)];
        let mut results = [None, None];
        for ((method, params), result) in calls.into_iter().zip(&mut results) {
            let write = |id, out: &mut Vec<u8>| chain::write_request(id, method, params, out);
            let (start, traceparent) = (deadline, None);
            let call = NodeCall {
                id: 1,
                write,
                connection: ConnectionChoice::New,
                traceparent,
                start,
                deadline,
            };
            let answer = connection.exchange(self.request(&call), deadline, permit).await;
            let body = answer.map_err(|error| match error {
                ExchangeError::BeforeAnswer => FailedAttempt::connect(Cause::Error(NodeError::Cut)),
                error => error.into(),
            })?;
            if let Some(Outcome::Result(text)) = Outcome::verify(&body, call.id) {
                *result = serde_json::from_slice(text).ok();
            }
            if !connection.is_reusable() {
                *connection = self.dial().await.map_err(FailedAttempt::connect)?;
            }
        }
        let [id, anchor] = results;
        let found = ChainIdentity::read(id.as_ref(), anchor.as_ref());
        Ok(self.chain.judge((self.index, &self.url), found))
    }

    pub(super) async fn dial(&self) -> Result<Box<Connection>, Cause> {
        let connect = async {
            let found = lookup_host((self.host.as_str(), self.port)).await;
            let addresses: Vec<_> = found.map_err(Cause::Resolve)?.collect();
            TcpStream::connect(&*addresses).await.map_err(Cause::Connect)
        };
        let connected = tokio::time::timeout(self.connect_timeout, connect).await;
        let stream = connected.map_err(|_| Cause::ConnectTimeout)??;
        if DescriptorUse::Node.is_reserved(stream.as_raw_fd()) {
            return Err(Cause::NoDescriptor);
        }
        // otherwise a small request may wait for an acknowledgement
        stream.set_nodelay(true).map_err(Cause::Connect)?;
        Ok(Box::new(Connection::new(stream)))
    }

    /// The connection that was used last, unless it expired, the node closed it, or it has to state
    /// its chain again.
    fn take_idle(&self, now: Instant) -> Option<Box<Connection>> {
        let mut idle = self.idle.lock();
        while let Some(Idle { connection, since }) = idle.pop_back() {
            let is_known = connection.chain_epoch == self.chain.epoch();
            if now.duration_since(since) < self.idle_timeout && is_known && connection.is_quiet() {
                return Some(connection);
            }
        }
        None
    }

    /// Returns a connection to the pool, if its last exchange left it reusable.
    pub(super) fn put_idle(&self, connection: Box<Connection>, since: Instant) {
        if connection.is_reusable() {
            let mut idle = self.idle.lock();
            while idle.len() >= self.max_idle
                || idle
                    .front()
                    .is_some_and(|oldest| since.duration_since(oldest.since) >= self.idle_timeout)
            {
                idle.pop_front();
            }
            idle.push_back(Idle { connection, since });
        }
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.lock().len()
    }

    pub(super) fn busy(&self) -> usize {
        self.max_connections - self.free.available_permits()
    }
}

/// Why a call failed, and whether the node may have received the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// No connection: nothing was sent.
    Connect,
    /// A pooled connection died during the request and no new one was possible: maybe received.
    Gone,
    /// Its chain is not the served one: nothing was sent.
    Foreign,
    /// The request may have reached the node.
    After(NodeError),
}

/// The breaker of one URL.
#[derive(Debug, Default)]
pub struct Breaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    failures: u32,
    /// Calls that were answered.
    answers: u64,
    /// Set while open: when the next probe may start, if none is under way.
    probe_at: Option<Instant>,
    /// The most recent failure.
    failure: Option<CallFailure>,
    probing: bool,
}

/// A call that the breaker admitted. Dropped without a result (its client is gone, say), it does
/// not count.
#[derive(Debug)]
pub struct Attempt<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
    /// [`BreakerState::answers`] when it began.
    answers: u64,
}

impl Breaker {
    /// Admits a call; `None` while the breaker is open.
    pub fn enter(&self, now: impl FnOnce() -> Instant) -> Option<Attempt<'_>> {
        let mut state = self.0.lock();
        let is_probe = match state.probe_at {
            None => false,
            Some(at) if !state.probing && now() >= at => {
                state.probing = true;
                true
            }
            Some(_) => return None,
        };
        Some(Attempt { breaker: self, is_probe, answers: state.answers })
    }

    /// Calls that were answered so far.
    pub(super) fn answers(&self) -> u64 {
        self.0.lock().answers
    }

    /// Why calls are rejected, except for a probe, as the name of a [`NodeError`]; `None` while
    /// closed.
    pub fn failure(&self) -> Option<&'static str> {
        let state = self.0.lock();
        state.probe_at.and(state.failure).map(|failure| match failure {
            CallFailure::Connect => NodeError::Unreachable.name(),
            CallFailure::Gone => NodeError::Cut.name(),
            CallFailure::Foreign => NodeError::WrongChain.name(),
            CallFailure::After(error) => error.name(),
        })
    }
}

impl Attempt<'_> {
    /// Records the result of the call.
    pub fn record(self, failure: Option<CallFailure>, now: impl FnOnce() -> Instant) {
        let mut state = self.breaker.0.lock();
        match failure {
            Some(CallFailure::After(NodeError::Timeout)) if state.answers != self.answers => {}
            Some(
                CallFailure::Connect
                | CallFailure::Gone
                | CallFailure::Foreign
                | CallFailure::After(NodeError::Cut | NodeError::Timeout),
            ) => {
                state.failures = state.failures.saturating_add(1);
                state.failure = failure;
                let is_foreign = failure == Some(CallFailure::Foreign);
                if self.is_probe || is_foreign || state.failures >= FAILURES {
                    state.probe_at = Some(now() + BREAKER_PAUSE);
                }
            }
            // our own bound, not the node
            Some(CallFailure::After(NodeError::Overloaded)) => {}
            // an invalid answer is an answer
            _ => {
                state.answers += 1;
                state.failures = 0;
                state.probe_at = None;
            }
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.breaker.0.lock().probing = false;
        }
    }
}
