//! Which URLs of the node serve, and why the others do not, for metrics, the page and health
//! checks.

use super::cause::UrlFailure;
use super::target::Target;
use super::{Node, NodeError};
use portcullis_filters::chain::{NodeState, UrlView};
use portcullis_filters::concurrency::ReadStats;
use std::sync::Arc;

/// The state of one URL, for metrics.
#[derive(Clone, Debug)]
pub struct UrlStats {
    /// The URL as configured.
    pub url: String,
    /// Idle connections.
    pub idle: usize,
    /// Connections with a call in flight.
    pub busy: usize,
    /// The concurrent calls of clients' reads, by class.
    pub reads: ReadStats,
    /// Why it gets no calls: an open breaker, or [`NodeError::Starting`]; `None` if it gets calls.
    pub failure: Option<NodeError>,
    /// Why it gets no calls, in words; else why its most recent failed attempt failed, if one did.
    pub cause: Option<String>,
    /// Attempts of all clients of the node that were answered.
    pub answers: u64,
    /// Whether no other URL has answered a call since this one did.
    pub is_latest: bool,
    /// What its answers and its polls say.
    pub known: UrlView,
}

/// The status of the node, as one of its clients sees it.
#[derive(Clone)]
pub struct NodeStatus {
    pub(super) node: Arc<Node>,
    pub(super) targets: Arc<[Target]>,
}

impl NodeStatus {
    /// Why the most recent failed attempt at the URL at `index` failed, in words for the operator:
    /// `connection refused`, `405 Method Not Allowed`. `None` if none failed.
    pub fn failure_cause(&self, index: usize) -> Option<String> {
        self.targets.get(index)?.record.failures().newest()
    }

    /// The URLs that answer, but have had no new block for too long at `now`, in seconds since
    /// 1970; each with the cause in words.
    pub fn stalled_urls(&self, now: u64) -> Vec<(String, String)> {
        let Some(max_age) = self.node.max_block_age else {
            return Vec::new();
        };
        let urls = self.urls().into_iter();
        let answers = urls.filter(|url| url.failure.is_none());
        let stalled = answers.filter_map(|url| {
            let stalled = url.known.stalled(now, max_age)?;
            Some((url.url, stalled.to_string()))
        });
        stalled.collect()
    }

    /// The most recent failure of each kind at each URL.
    pub fn failures(&self) -> Vec<UrlFailure> {
        let all = |target: &Target| target.record.failures().all(target.breaker.failure());
        self.targets.iter().flat_map(all).collect()
    }

    /// The state of each URL, in order of preference.
    pub fn urls(&self) -> Vec<UrlStats> {
        let Self { node, targets } = self;
        let state = node.read(NodeState::clone);
        let closed = |target: &Target| target.breaker.failure().is_none();
        let answers = |url: usize| targets.get(url).is_some_and(closed);
        let start = node.start.load_full();
        let starting = start.as_ref().map(|_| NodeError::Starting);
        let stats = targets.iter().map(|target| {
            let record = &target.record;
            let open = target.breaker.failure();
            UrlStats {
                url: record.url.clone(),
                idle: target.idle(),
                busy: target.busy(),
                reads: target.slots.stats(),
                failure: starting.or(open),
                cause: start.as_deref().cloned().or_else(|| {
                    let failures = record.failures();
                    open.and_then(|error| failures.cause_of(error))
                        .or_else(|| failures.newest())
                }),
                answers: record.answers(),
                is_latest: record.is_latest(),
                known: state.view(record.index, record.failures().newest(), answers),
            }
        });
        stats.collect()
    }
}
