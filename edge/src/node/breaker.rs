//! The circuit breaker of one URL.
//!
//! A few consecutive failures open it; a foreign chain opens it at once. After a second, one call
//! probes the URL. A call that times out, or that a busy node refuses, is no failure if the node
//! has answered others meanwhile. It only spares a URL that accepts no connections or gives no
//! answers; whether the answers are valid is judged by the URL's health.

use super::NodeError;
use parking_lot::Mutex;
use portcullis_filters::chain::End;
use std::time::Duration;
use tokio::time::Instant;

/// Consecutive failures that open the breaker: a restart may cause one or two.
const FAILURES: u32 = 3;
/// How long an open breaker rejects calls: a node restarts within seconds.
pub const BREAKER_PAUSE: Duration = Duration::from_secs(1);

/// Why a call failed, and whether the node may have received the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// No connection: nothing was sent.
    Connect,
    /// A pooled connection died during the request and no new one was possible: the request may
    /// have been received.
    Gone,
    /// The URL's chain is not the served one: nothing was sent.
    Foreign,
    /// The node refused the call as too many (429, 503): it is up, but busy.
    Busy,
    /// The URL failed while the connection was being checked: the request was not sent.
    Unsent(NodeError),
    /// Any other failure: the request may have reached the node.
    After(NodeError),
}

impl CallFailure {
    /// How the attempt ended, for the routing of its call.
    pub(super) fn end(self) -> End {
        match self {
            Self::Connect => End::Unreachable,
            Self::Foreign => End::Foreign,
            // another URL may have room
            Self::Unsent(NodeError::Crowded) => End::Unsent,
            Self::Unsent(error) | Self::After(error) if error.is_ours() => End::Final,
            Self::After(NodeError::Oversized) => End::Final,
            Self::Unsent(_) => End::Unsent,
            Self::Gone | Self::Busy | Self::After(_) => End::Failed,
        }
    }

    /// The error that the caller gets if no other URL answers.
    pub(super) const fn error(self) -> NodeError {
        match self {
            Self::Connect => NodeError::Unreachable,
            Self::Gone => NodeError::Cut,
            Self::Foreign => NodeError::WrongChain,
            Self::Busy => NodeError::Status,
            Self::Unsent(error) | Self::After(error) => error,
        }
    }
}

/// The breaker of one URL.
#[derive(Debug, Default)]
pub struct Breaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    failures: u32,
    /// Calls with a valid answer.
    answers: u64,
    /// Set while open: when the next probe may start, if none is under way.
    probe_at: Option<Instant>,
    /// The most recent failure.
    failure: Option<CallFailure>,
    probing: bool,
}

/// A call that the breaker admitted. If it is dropped without a result, for example because its
/// client is gone, it does not count.
#[derive(Debug)]
pub struct Attempt<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
    /// [`BreakerState::answers`] when the call began.
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
        Some(Attempt {
            breaker: self,
            is_probe,
            answers: state.answers,
        })
    }

    /// Calls with a valid answer so far.
    pub(super) fn answers(&self) -> u64 {
        self.0.lock().answers
    }

    /// Why calls are rejected, except for a probe; `None` while closed.
    pub fn failure(&self) -> Option<NodeError> {
        let state = self.0.lock();
        state.probe_at.and(state.failure).map(CallFailure::error)
    }
}

impl Attempt<'_> {
    /// Records the result of the call.
    pub fn record(self, failure: Option<CallFailure>, now: impl FnOnce() -> Instant) {
        let mut state = self.breaker.0.lock();
        match failure {
            Some(
                CallFailure::After(NodeError::Timeout)
                | CallFailure::Unsent(NodeError::Timeout)
                | CallFailure::Busy,
            ) if state.answers != self.answers => {}
            Some(
                CallFailure::Connect
                | CallFailure::Gone
                | CallFailure::Foreign
                | CallFailure::Busy
                | CallFailure::Unsent(NodeError::Cut | NodeError::Timeout)
                | CallFailure::After(NodeError::Cut | NodeError::Timeout),
            ) => {
                state.failures = state.failures.saturating_add(1);
                state.failure = failure;
                let is_foreign = failure == Some(CallFailure::Foreign);
                if self.is_probe || is_foreign || state.failures >= FAILURES {
                    state.probe_at = Some(now() + BREAKER_PAUSE);
                }
            }
            // our own bound was reached, which says nothing about the node
            Some(CallFailure::Unsent(error) | CallFailure::After(error)) if error.is_ours() => {}
            failure => {
                // an invalid answer shows that calls reach the node, but it is no answer
                state.answers += u64::from(failure.is_none());
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
