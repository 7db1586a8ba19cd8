//! Which URLs of the node serve, and why the others do not, for metrics, the page and health
//! checks.

use super::cause::UrlFailure;
use super::target::Target;
use super::{Node, NodeError};
use portcullis_filters::chain::{HeadTime, LeftOut};
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
    /// Why it gets no calls: an open breaker, or [`NodeError::Starting`]; `None` if it gets calls.
    pub failure: Option<NodeError>,
    /// Why it gets no calls, in words; else why its most recent failed attempt failed, if one did.
    pub cause: Option<String>,
    /// Attempts of all clients of the node that were answered.
    pub answers: u64,
    /// Whether no other URL has answered a call since this one did.
    pub is_latest: bool,
    /// The newest block that it is known to have; always `None` with a single URL.
    pub head: Option<u64>,
    /// The newest block that it has shown, with its time.
    pub head_time: Option<HeadTime>,
    /// Why the URL is excluded although it answers, if it is.
    pub left_out: Option<LeftOut>,
    /// Why it is left out, in words.
    pub left_out_cause: Option<String>,
    /// Why its answers are not valid, if it fails; also of a single URL, which is never left out.
    pub fault: Option<UrlFault>,
}

/// A URL that gives no valid answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlFault {
    /// Its last failure, in words.
    pub cause: String,
    /// Whether it has given no valid answer at all since it failed first.
    pub is_total: bool,
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
        let answers =
            |url: &UrlStats| url.failure.is_none() && url.left_out.is_none() && url.fault.is_none();
        let urls = self.urls().into_iter().filter(answers);
        let stalled = urls.filter_map(|url| {
            let stalled = url.head_time?.stalled(now, max_age)?;
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
        let group = node.group.has_several().then(|| node.group.state());
        let closed = |target: &Target| target.breaker.failure().is_none();
        let answers = |url: usize| targets.get(url).is_some_and(closed);
        let start = node.start.load_full();
        let starting = start.as_ref().map(|_| NodeError::Starting);
        let stats = |target: &Target| {
            let (index, open) = (target.record.index, target.breaker.failure());
            let member = group.as_ref().and_then(|group| group.members.get(index));
            let fault = target.record.fault().map(|fault| {
                let newest = target.record.failures().newest();
                UrlFault {
                    cause: newest.unwrap_or_else(|| fault.class.name().to_owned()),
                    is_total: fault.is_total,
                }
            });
            let failing = member.and(fault.as_ref());
            UrlStats {
                url: target.record.url.clone(),
                idle: target.idle(),
                busy: target.busy(),
                failure: starting.or(open),
                cause: start.as_deref().cloned().or_else(|| {
                    let failures = target.record.failures();
                    open.and_then(|error| failures.cause_of(error))
                        .or_else(|| failures.newest())
                }),
                answers: target.record.answers(),
                is_latest: target.record.is_latest(),
                head: member.and_then(|member| member.head),
                head_time: target.record.head_time(),
                left_out: member
                    .and_then(|member| member.left_out)
                    .or_else(|| failing.map(|_| LeftOut::Failing)),
                left_out_cause: failing
                    .map(|fault| fault.cause.clone())
                    .or_else(|| group.as_ref().and_then(|group| group.cause(index, answers))),
                fault,
            }
        };
        targets.iter().map(stats).collect()
    }
}
