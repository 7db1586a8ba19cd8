//! The state of the node that all of its clients share, whichever connections each of them has.

use super::group::Group;
use super::poller::head_time;
use super::record::UrlRecord;
use super::served_chain::CheckedChain;
use super::{Credentials, CredentialsError};
use crate::config::NodeConfig;
use crate::telemetry::Metrics;
use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use portcullis_filters::chain::{GroupState, HedgeBudget};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The node, under one or more URLs.
pub struct Node {
    pub(super) records: Vec<Arc<UrlRecord>>,
    pub(super) chain: CheckedChain,
    pub(super) group: Group,
    /// The calls that may be sent to a second URL because the first is slow.
    pub(super) hedges: Mutex<HedgeBudget>,
    /// The credentials in force, or every reason why they are unusable.
    pub(super) credentials: ArcSwap<Result<Credentials, Vec<CredentialsError>>>,
    /// The progress of its start, as text for the operator; `None` once it runs.
    pub(super) start: ArcSwapOption<String>,
    pub(super) metrics: Arc<Metrics>,
    /// A URL whose newest block is older stands still.
    pub(super) max_block_age: Option<Duration>,
}

impl Node {
    /// Creates the node as configured. With unusable credentials, each call fails and says why.
    pub fn new(
        config: &NodeConfig,
        credentials: Result<Credentials, Vec<CredentialsError>>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            records: UrlRecord::all(config, &metrics),
            chain: CheckedChain::new(config),
            group: Group::new(config),
            hedges: Mutex::default(),
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

    /// Records the newest block of the URL that returned it.
    pub(super) fn note_head(&self, url: Option<usize>, block: &Value) {
        if let Some(record) = url.and_then(|url| self.records.get(url))
            && let Some(head) = head_time(block)
        {
            record.note_head_time(head);
        }
    }

    /// The number of the block that identifies the chain.
    pub fn anchor(&self) -> u64 {
        self.chain.anchor()
    }

    /// Whether several URLs may serve concurrently.
    pub fn is_group(&self) -> bool {
        self.group.has_several() && self.group.read(GroupState::has_replicas)
    }

    /// The indices of the URLs that may serve: all that are not left out.
    pub fn serving_urls(&self) -> Vec<usize> {
        self.group.read(|state| {
            (0..self.records.len())
                .filter(|url| state.may_serve(*url))
                .collect()
        })
    }

    /// The block to which reads at `latest` are pinned; `None` if each node has its own.
    pub fn pinned_head(&self) -> Option<u64> {
        self.group
            .has_several()
            .then(|| self.group.read(GroupState::pinned))
            .flatten()
    }

    /// Records that clients have seen a block of this number: no older answer is passed on, until
    /// all URLs have lost the block.
    pub fn note_shown(&self, number: u64) {
        self.group.change(|state| state.note_shown(number));
    }
}
