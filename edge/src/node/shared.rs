//! The state of the node that all of its clients share, whichever connections each of them has.
//!
//! [`NodeState`] concludes; [`Node`] holds it, logs each [`Change`], and wakes the calls that wait
//! for one. A call locks it for a few comparisons; the newest block that clients have seen and the
//! number of the current chain check are read without the lock.

use super::answer::{Payload, error_code, failure_class};
use super::poller::head_time;
use super::record::UrlRecord;
use super::{Credentials, CredentialsError};
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use portcullis_base::config::NodeConfig;
use portcullis_base::io::monotonic;
use portcullis_base::telemetry::Metrics;
use portcullis_filters::chain::{
    Asked, BlockIdentity, ChainChange, ChainIdentity, Change, FailureClass, GroupState, LeftOut,
    NodeState, Observation, PollResult, Request, ServedChain,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The node, under one or more URLs.
pub struct Node {
    pub(super) records: Vec<Arc<UrlRecord>>,
    state: Mutex<NodeState>,
    /// One more than [`GroupState::floor`], or 0 without a floor.
    floor: AtomicU64,
    /// The current [`ServedChain::check`], to be read without the lock.
    check: AtomicU64,
    /// The rounds of polls that have ended.
    rounds: watch::Sender<u64>,
    /// The number of the block that identifies the chain.
    anchor: u64,
    /// Whether a URL could be of another chain.
    pub(super) is_checked: bool,
    /// The credentials in force, or every reason why they are unusable.
    pub(super) credentials: ArcSwap<Result<Credentials, Vec<CredentialsError>>>,
    /// The progress of its start, as text for the operator; `None` once it runs.
    pub(super) start: ArcSwapOption<String>,
    pub(super) metrics: Arc<Metrics>,
    /// A URL whose newest block is older counts as stalled.
    pub(super) max_block_age: Option<Duration>,
}

impl Node {
    /// Creates the node as configured. With unusable credentials, each call fails and says why.
    pub fn new(
        config: &NodeConfig,
        credentials: Result<Credentials, Vec<CredentialsError>>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let urls = config.url.len();
        let served = ServedChain::new(urls, config.chain_id, config.anchor);
        let is_checked = served.is_checked();
        let group = GroupState::new(urls, config.mode, config.max_lag);
        Arc::new(Self {
            records: UrlRecord::all(config, &metrics),
            state: Mutex::new(NodeState::new(served, group)),
            floor: AtomicU64::new(0),
            check: AtomicU64::new(0),
            rounds: watch::Sender::new(0),
            anchor: config.anchor,
            is_checked,
            credentials: ArcSwap::from_pointee(credentials),
            start: ArcSwapOption::empty(),
            metrics,
            max_block_age: config.max_block_age,
        })
    }

    /// Applies other credentials to later requests and connections.
    pub fn change(&self, credentials: Credentials) {
        self.credentials.store(Arc::new(Ok(credentials)));
    }

    /// Fails every call with [`super::NodeError::Starting`] while `progress` is set; it is shown to
    /// the operator as the cause.
    pub fn set_start(&self, progress: Option<String>) {
        self.start.store(progress.map(Arc::new));
    }

    /// The seconds after which the first of the URLs that refused calls as too many may take calls
    /// again; `None` if no URL named a time.
    pub fn retry_after(&self, now: Instant) -> Option<u32> {
        let waits = self.records.iter();
        waits
            .filter_map(|record| record.failures().retry_after(now))
            .min()
    }

    /// The number of the block that identifies the chain.
    pub fn anchor(&self) -> u64 {
        self.anchor
    }

    /// Whether several URLs may serve concurrently.
    pub fn is_group(&self) -> bool {
        self.read(|state| state.group.has_replicas())
    }

    /// The indices of the URLs whose blocks are evidence.
    pub fn witnesses(&self) -> Vec<usize> {
        self.read(NodeState::witnesses)
    }

    /// The block to which reads at `latest` are pinned; `None` if each node has its own.
    pub fn pinned_head(&self) -> Option<u64> {
        if !self.has_several() {
            return None;
        }
        self.read(|state| state.group.pinned())
    }

    /// Records that clients have seen a block of this number: no older answer is passed on, until
    /// all URLs have lost the block.
    pub fn note_shown(&self, number: u64) {
        self.observe(Observation::Shown(number));
    }

    /// Records the newest block of the URL that returned it.
    pub(super) fn note_head(&self, url: Option<usize>, block: &Value) {
        if let Some(url) = url
            && let Some(head) = head_time(block)
        {
            self.observe(Observation::Head(url, head));
        }
    }

    /// Records an answer that was verified at `at`.
    pub(super) fn note_answer(&self, request: Request, payload: &Payload, at: Instant) {
        let class = failure_class(payload);
        // the watch reads more of the chain than some nodes have
        if class.is_some() && request.asked == Asked::Poll {
            return;
        }
        if class.is_some()
            && let Some(record) = self.records.get(request.url)
        {
            let code = error_code(payload);
            record.failures().note_error(code, at);
        }
        self.note_end(request, class, at);
    }

    /// Records the end of a request at `at`: valid, or this failure.
    pub(super) fn note_end(&self, request: Request, failure: Option<FailureClass>, at: Instant) {
        let observation = match failure {
            None => Observation::Answered(request),
            Some(class) => Observation::Failed(request, class),
        };
        self.observe_at(monotonic::of(at), observation);
    }

    /// Whether there are several URLs.
    pub(super) fn has_several(&self) -> bool {
        self.records.len() > 1
    }

    /// The newest block that clients have seen.
    pub(super) fn floor(&self) -> Option<u64> {
        self.floor.load(Ordering::Acquire).checked_sub(1)
    }

    /// The number of the current check; a connection of an earlier one has to be checked again.
    pub(super) fn check(&self) -> u64 {
        self.check.load(Ordering::Acquire)
    }

    /// Reads the state; `read` must be quick.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&NodeState) -> T) -> T {
        read(&self.state.lock())
    }

    /// Changes the state at the current time; `change` must be quick.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut NodeState, Duration) -> T) -> T {
        self.update_at(monotonic::now(), change)
    }

    fn update_at<T>(&self, now: Duration, change: impl FnOnce(&mut NodeState, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state, now);
        let floor = state.group.floor();
        let floor = floor.map_or(0, |floor| floor.saturating_add(1));
        self.floor.store(floor, Ordering::Release);
        self.check.store(state.served.check(), Ordering::Release);
        result
    }

    /// Concludes from an observation, and logs the change that it makes.
    pub(crate) fn observe(&self, observation: Observation<'_>) -> Change {
        self.observe_at(monotonic::now(), observation)
    }

    fn observe_at(&self, now: Duration, observation: Observation<'_>) -> Change {
        let change = self.update_at(now, |state, now| state.observe(observation, now));
        self.log(&change);
        change
    }

    /// Compares the chain of a connection to the URL with the served one; `head` is the newest
    /// block there, if it was polled.
    ///
    /// # Errors Returns how the chains differ, for people.
    pub(super) fn judge_chain(
        &self,
        url: usize,
        found: ChainIdentity,
        head: Option<BlockIdentity>,
    ) -> Result<(), String> {
        let (change, foreign) = self.update(|state, now| {
            let change = state.observe(Observation::Chain(url, found, head), now);
            (change, state.served.foreign(url).map(str::to_owned))
        });
        self.log(&change);
        foreign.map_or(Ok(()), Err)
    }

    /// Processes the results of a round of polls, and wakes the calls that wait for them. Returns
    /// whether the chain went back.
    pub(super) fn end_round(&self, results: &[Option<PollResult>]) -> bool {
        let before = self.read(|state| state.group.left_out());
        let change = self.observe(Observation::Round(results));
        let after = self.read(|state| state.group.left_out());
        for (node, (before, after)) in before.into_iter().zip(after).enumerate() {
            if before != after {
                let head = results
                    .get(node)
                    .and_then(|result| Some(result.as_ref()?.head));
                let reason = after.map_or("none", LeftOut::name);
                log::debug!(node, head:?, reason; "node URL left out or back");
            }
        }
        self.rounds.send_modify(|rounds| *rounds += 1);
        matches!(change, Change::WentBack(_))
    }

    /// Waits for the next round of polls. Returns false if no URL is catching up, or if no round
    /// ends by `until`.
    pub(super) async fn may_change(&self, until: Instant) -> bool {
        let mut rounds = self.rounds.subscribe();
        // subscribed before: a round that ends now is not missed
        self.read(|state| state.group.is_catching_up())
            && matches!(timeout_at(until, rounds.changed()).await, Ok(Ok(())))
    }

    fn log(&self, change: &Change) {
        match change {
            Change::None | Change::Behind => {}
            Change::Chain(url, change) => {
                let url = self.records.get(*url).map_or("", |record| &record.url);
                match change {
                    ChainChange::Returned => log::info!(url; "node URL is used again"),
                    ChainChange::Excluded(why) => {
                        log::error!(url; "node URL is excluded: {why}");
                    }
                    ChainChange::None | ChainChange::Restarted => {}
                }
            }
            Change::WentBack(epoch) => {
                log::warn!(epoch; "the node went back to an earlier block");
            }
            Change::Displaced(block) => {
                log::warn!(block; "a transaction is gone from the block that it was in");
            }
        }
    }
}
