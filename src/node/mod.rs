//! The Starknet node as a client of it: one verified answer per permitted read, or a [`NodeError`].
//!
//! One deadline covers everything from the first connect to the last byte. An answer of at most
//! 4 MiB is read whole and verified before it is passed on. The request is built from scratch: the
//! only header of a client that reaches the node is a well-formed `traceparent`.
//! Next: `target` (one URL: its connections and attempts), `breaker`, `served_chain` (one chain for
//! all URLs), `group` (which URLs may serve, and which answers are older than what clients have
//! seen), `guard` (polls them), `behind` (waits for them), `http1` (one exchange), `chain`
//! (typed calls).

mod behind;
mod breaker;
mod cause;
pub mod chain;
mod credentials;
mod group;
mod guard;
mod http1;
mod route;
mod served_chain;
mod serving;
mod stats;
mod target;

pub use breaker::{BREAKER_PAUSE, Breaker, CallFailure};
pub use cause::UrlFailure;
pub use credentials::{Credentials, CredentialsError};
pub use group::LeftOut;
pub use guard::ChainGuard;
pub use route::Route;
pub use serving::{Serving, Switch};
pub use stats::UrlStats;

/// The pure parts, for the simulation.
#[cfg(test)]
pub(crate) mod simulated {
    pub(crate) use super::group::{Evidence, GroupState, PollResult, Shows, Source};
}

use crate::config::NodeConfig;
use crate::io::gzip::GzipForm;
use crate::io::{ClientShare, Exhausted, MemoryPermit, MemoryPool};
use crate::telemetry::Metrics;
use arc_swap::ArcSwapOption;
use behind::CATCH_UP;
use bytes::Bytes;
use credentials::SharedCredentials;
use futures_util::future::join_all;
use group::{Group, GroupState};
use portcullis_filters::named;
use portcullis_filters::rpc::response::Outcome;
use route::Choice;
use served_chain::ServedChain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use target::{Target, UrlRecord};
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
        /// Every URL that could answer is behind what clients have seen.
        Lagging = "lagging",
        /// It is being built or started: the request was not sent.
        Starting = "starting",
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
        /// The client holds its share of the memory for answers.
        OverShare = "over_share",
    }
}

impl From<Exhausted> for NodeError {
    fn from(exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::Pool => Self::Overloaded,
            Exhausted::Share => Self::OverShare,
        }
    }
}

impl NodeError {
    /// Whether a bound of ours was reached: it says nothing of the node.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Overloaded | Self::OverShare)
    }

    /// Whether it is certain that the node did not receive the request.
    pub const fn is_unsent(self) -> bool {
        matches!(self, Self::Unreachable | Self::WrongChain | Self::Lagging | Self::Starting)
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
    /// The gzip form of the payload, made for the first client that accepts it.
    pub gzip: GzipForm,
    /// The place of the URL that gave it, in the configuration; `None` if no call was needed.
    pub node: Option<usize>,
}

impl Answer {
    /// Whether it is a result, not the node's error.
    pub fn is_result(&self) -> bool {
        self.member == RESULT
    }
}

const RESULT: &str = "result";

/// The name and the text of a verified payload's member.
type Payload = (&'static str, Bytes);

/// No URL has given an answer that may be passed on.
#[derive(Clone, Copy, Debug)]
struct Unanswered {
    error: NodeError,
    /// Whether one has given an answer from before what clients have seen.
    is_behind: bool,
}

/// One call, in one place to keep the future that waits for its answer small.
struct NodeCall<'a, W> {
    id: u64,
    route: Route,
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
    group: Arc<Group>,
    /// How long a call waits for a URL that is behind what clients have seen.
    patience: Duration,
    credentials: Arc<SharedCredentials>,
    start: Arc<StartProgress>,
}

/// The progress of a node's start, as text for the operator; `None` once it runs.
type StartProgress = ArcSwapOption<String>;

/// The state that clients of one node share.
struct Shared {
    records: Vec<Arc<UrlRecord>>,
    chain: Arc<ServedChain>,
    group: Arc<Group>,
    credentials: Arc<SharedCredentials>,
    start: Arc<StartProgress>,
    metrics: Arc<Metrics>,
}

impl Node {
    /// A node as configured. Opens no connection yet. With unusable credentials it fails each call,
    /// and says why: [`Credentials::load`] finds out before.
    pub fn new(config: &NodeConfig, memory: Arc<MemoryPool>, metrics: Arc<Metrics>) -> Self {
        Self::with_credentials(config, Credentials::load(config), memory, metrics)
    }

    /// Builds a node with credentials that are loaded already.
    pub fn with_credentials(
        config: &NodeConfig,
        credentials: Result<Credentials, Vec<CredentialsError>>,
        memory: Arc<MemoryPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let shared = Shared {
            records: UrlRecord::all(config, &metrics),
            chain: Arc::new(ServedChain::new(config)),
            group: Arc::new(Group::new(config)),
            credentials: Arc::new(SharedCredentials::from_pointee(credentials)),
            start: Arc::default(),
            metrics,
        };
        Self::with(shared, config, memory)
    }

    /// This node with connections and memory of its own. Both share the state of the chain.
    #[must_use]
    pub fn apart(&self, config: &NodeConfig, memory: Arc<MemoryPool>) -> Self {
        let shared = Shared {
            records: self.targets.iter().map(|target| Arc::clone(&target.record)).collect(),
            chain: Arc::clone(&self.chain),
            group: Arc::clone(&self.group),
            credentials: Arc::clone(&self.credentials),
            start: Arc::clone(&self.start),
            metrics: Arc::clone(&self.metrics),
        };
        Self::with(shared, config, memory)
    }

    fn with(shared: Shared, config: &NodeConfig, memory: Arc<MemoryPool>) -> Self {
        let Shared { records, chain, group, credentials, start, metrics } = shared;
        let targets = records.into_iter().zip(config.url.iter());
        let targets =
            targets.map(|(record, url)| Target::new(record, url, config, &chain, &credentials));
        Self {
            targets: targets.collect(),
            timeout: config.timeout,
            memory,
            metrics,
            next_id: AtomicU64::new(1),
            chain,
            group,
            patience: CATCH_UP,
            credentials,
            start,
        }
    }

    /// This node for a caller that prefers an error to a longer wait for a URL that is behind.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Clients have seen a block of this number: no answer from before it is passed on, until all
    /// URLs have lost it.
    pub fn note_shown(&self, number: u64) {
        self.group.change(|state| state.note_shown(number));
    }

    /// Fails every call with [`NodeError::Starting`] while `progress` is set; it is shown to the
    /// operator as the cause.
    pub fn set_start(&self, progress: Option<String>) {
        self.start.store(progress.map(Arc::new));
    }

    /// Sends other credentials with later requests, and verifies later connections by them.
    pub fn change(&self, credentials: Credentials) {
        self.credentials.store(Arc::new(Ok(credentials)));
    }

    /// The guard that keeps the URLs to one chain; `None` if no URL could be of another.
    pub fn chain_guard(&self, config: &NodeConfig) -> Option<ChainGuard> {
        let memory = MemoryPool::new(self.targets.len() * MAX_ANSWER);
        let (mode, max_lag) = (config.mode, config.max_lag);
        let guard = || ChainGuard { node: self.apart(config, memory), mode, max_lag };
        self.chain.is_checked().then(guard)
    }

    /// The number of the block that identifies the chain.
    pub fn anchor(&self) -> u64 {
        self.chain.anchor
    }

    /// The time limit of one call.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether several URLs may serve at a time.
    pub fn is_group(&self) -> bool {
        self.group.has_several() && self.group.read(GroupState::has_replicas)
    }

    /// The places of the URLs that may serve: all that are not left out.
    pub fn serving_urls(&self) -> Vec<usize> {
        self.group
            .read(|state| (0..self.targets.len()).filter(|url| state.may_serve(*url)).collect())
    }

    /// The block to which reads at `latest` are pinned; `None` if each node has its own.
    pub fn pinned_head(&self) -> Option<u64> {
        self.group.has_several().then(|| self.group.read(GroupState::pinned)).flatten()
    }

    /// An answer that needs no call.
    pub fn answer_with(&self, result: String) -> Answer {
        let memory = Arc::new(MemoryPermit::of(&self.memory));
        Answer {
            member: RESULT,
            payload: result.into(),
            memory,
            gzip: GzipForm::default(),
            node: None,
        }
    }

    /// Sends to the primary the request that `write` writes under the id it receives. `traceparent`
    /// must be well-formed. A large answer counts as that of the client with this `share`.
    ///
    /// # Errors
    /// Returns why there is no complete and verified answer by `deadline`.
    pub fn fetch<'a>(
        &'a self,
        write: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'a,
        connection: ConnectionChoice,
        traceparent: Option<&'a [u8]>,
        deadline: Instant,
        share: Option<ClientShare>,
    ) -> impl Future<Output = Result<Answer, NodeError>> + Send + 'a {
        self.fetch_by(write, Route::Primary, connection, traceparent, deadline, share)
    }

    /// Sends a call to a URL that the route allows.
    pub fn fetch_by<'a>(
        &'a self,
        write: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'a,
        route: Route,
        connection: ConnectionChoice,
        traceparent: Option<&'a [u8]>,
        deadline: Instant,
        share: Option<ClientShare>,
    ) -> impl Future<Output = Result<Answer, NodeError>> + Send + 'a {
        let start = Instant::now();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let call = NodeCall { id, route, write, connection, traceparent, start, deadline };
        async move {
            if self.start.load().is_some() {
                return Err(NodeError::Starting);
            }
            let mut permit = MemoryPermit::for_client(&self.memory, share);
            let mut wait = behind::FIRST_WAIT;
            let answered = loop {
                let answered = self.attempt(&call, &mut permit).await;
                if let Err(failed @ Unanswered { error: NodeError::Lagging, .. }) = answered {
                    let until = deadline.min(start + self.patience);
                    // boxed: hardly a call waits
                    if Box::pin(self.catch_up(route, failed, &mut wait, until)).await {
                        continue;
                    }
                }
                break answered.map_err(|failed| failed.error);
            };
            let error = answered.as_ref().err().map(|error| error.name());
            self.metrics.node_call(error, call.start.elapsed());
            let ((member, payload), node) = answered?;
            let (memory, gzip) = (Arc::new(permit), GzipForm::of(payload.len()));
            Ok(Answer { member, payload, memory, gzip, node: Some(node) })
        }
    }

    /// Tries the URLs that may serve, in order, until one accepts a connection. Returns the answer,
    /// and that URL's place.
    async fn attempt<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &NodeCall<'_, W>,
        permit: &mut MemoryPermit,
    ) -> Result<(Payload, usize), Unanswered> {
        let mut error = NodeError::Unreachable;
        let mut is_behind = false;
        let choice = self.choose(call);
        for index in choice.order(self.targets.len()) {
            let Some(target) = self.targets.get(index) else { continue };
            if !choice.admits(index) {
                continue;
            }
            let Some(result) = target.attempt(call, permit, &self.metrics).await else { continue };
            match result {
                Ok(payload) if choice.passes_on(index, call.route, &payload) => {
                    if choice.is_of_primary() {
                        target.record.serves();
                    }
                    return Ok((payload, index));
                }
                // try the next URL: this answer is from before what clients have seen
                Ok(_) => is_behind = true,
                Err(failure @ (CallFailure::After(_) | CallFailure::Busy)) => {
                    return Err(Unanswered { error: failure.error(), is_behind: false });
                }
                // try the next URL
                Err(CallFailure::Connect) => {}
                Err(CallFailure::Foreign) if error != NodeError::Cut => {
                    error = NodeError::WrongChain;
                }
                Err(CallFailure::Foreign) => {}
                Err(CallFailure::Gone) => error = NodeError::Cut,
            }
        }
        let is_lagging = is_behind || choice.holds_back();
        Err(Unanswered { error: if is_lagging { NodeError::Lagging } else { error }, is_behind })
    }

    fn choose<W>(&self, call: &NodeCall<'_, W>) -> Choice<'_> {
        let busy = |index: usize| {
            let target = self.targets.get(index)?;
            target.breaker.failure().is_none().then(|| target.busy())
        };
        Choice::new(&self.group, call.route, call.id, busy)
    }

    /// Probes each URL whose breaker is open at every `interval`, so that it closes before a
    /// client's request needs it. A URL that hangs delays no other.
    pub async fn probe(&self, interval: Duration) {
        let probing = self.targets.iter().map(|target| async move {
            loop {
                tokio::time::sleep(interval).await;
                if target.breaker.failure().is_some() {
                    self.probe_one(target).await;
                }
            }
        });
        let _endless: Vec<()> = join_all(probing).await;
    }

    async fn probe_one(&self, target: &Target) {
        if let Some(admitted) = target.breaker.enter(Instant::now) {
            let failure = self.send_probe(target, self.timeout).await.err();
            admitted.record(failure, Instant::now);
        }
    }

    /// The URLs that answer neither a probe within `limit` nor any request meanwhile, each with the
    /// cause. Calls go on: a node that is slow only with probes is better than none.
    pub async fn silent_urls(&self, limit: Duration) -> Vec<(String, String)> {
        let probing = self.targets.iter().map(|target| async move {
            let answers = target.breaker.answers();
            let failure = self.send_probe(target, limit).await.err()?;
            let is_ours = matches!(failure, CallFailure::After(error) if error.is_ours());
            let is_silent = !is_ours && target.breaker.answers() == answers;
            is_silent.then(|| {
                let cause = target.record.failures().cause_of(failure.error());
                (target.record.url.clone(), cause.unwrap_or_default())
            })
        });
        join_all(probing).await.into_iter().flatten().collect()
    }

    async fn send_probe(&self, target: &Target, limit: Duration) -> Result<(), CallFailure> {
        let write = |id: u64, out: &mut Vec<u8>| {
            chain::write_request(id, "starknet_specVersion", "[]", out);
        };
        let start = Instant::now();
        let deadline = start + limit;
        let (connection, traceparent) = (ConnectionChoice::New, None);
        let route = Route::Primary;
        let call = NodeCall { id: 1, route, write, connection, traceparent, start, deadline };
        let mut permit = MemoryPermit::of(&self.memory);
        target.ask(&call, &mut permit, &self.metrics).await.map(drop)
    }
}

fn verify(body: &Bytes, id: u64) -> Result<Payload, NodeError> {
    let (member, payload) = match Outcome::verify(body, id).ok_or(NodeError::Invalid)? {
        Outcome::Result(text) => (RESULT, text),
        Outcome::Error(text) => ("error", text),
    };
    Ok((member, body.slice_ref(payload)))
}
