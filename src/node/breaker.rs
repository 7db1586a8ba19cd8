//! Fails fast while a URL is down: after a few failures in a row it is left alone for a second,
//! then one call tries it, and only that one. A call that takes too long while others are answered
//! is a slow call: the URL is not down.

use super::NodeError;
use super::target::CallFailure;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Failures in a row that open the breaker: one or two may be a restart's.
const FAILURES: u32 = 3;
/// How long an open breaker refuses: a node is back within seconds of its restart.
const PAUSE: Duration = Duration::from_secs(1);

/// The breaker of one URL.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// How many calls were answered.
    answers: u64,
    /// Set while open: when the next probe may go, if none is under way.
    probe_at: Option<Instant>,
    probing: bool,
}

/// A call that the breaker let through. Dropped without a word (its client is gone, say), it counts
/// for nothing.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
    /// How many were answered when it began.
    answers: u64,
}

impl Breaker {
    /// Lets a call through, or `None` while the URL is left alone.
    pub(super) fn enter(&self, now: impl FnOnce() -> Instant) -> Option<Attempt<'_>> {
        let mut state = self.lock();
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

    /// Whether the URL is left alone.
    pub(super) fn is_open(&self) -> bool {
        self.lock().probe_at.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// Tells the breaker what came of the call at `now`.
    pub(super) fn record(self, failure: Option<CallFailure>, now: impl FnOnce() -> Instant) {
        let mut state = self.breaker.lock();
        match failure {
            Some(CallFailure::After(NodeError::Timeout)) if state.answers != self.answers => {}
            Some(
                CallFailure::Connect
                | CallFailure::Gone
                | CallFailure::After(NodeError::Cut | NodeError::Timeout),
            ) => {
                state.failures = state.failures.saturating_add(1);
                if self.is_probe || state.failures >= FAILURES {
                    state.probe_at = Some(now() + PAUSE);
                }
            }
            // our own bound says nothing about the node
            Some(CallFailure::After(NodeError::Overloaded)) => {}
            // a bad answer is an answer: the node is there
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
            self.breaker.lock().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: Option<CallFailure> = Some(CallFailure::Connect);

    #[test]
    fn three_failures_in_a_row_open_it_and_one_probe_closes_it() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for failure in [DOWN, DOWN, None, DOWN, DOWN, DOWN] {
            let attempt = breaker.enter(|| start).expect("closed until three failures in a row");
            attempt.record(failure, || start);
        }
        assert!(breaker.enter(|| start).is_none(), "open");
        let later = start + PAUSE;
        let probe = breaker.enter(|| later).expect("one probe after the pause");
        assert!(breaker.enter(|| later).is_none(), "only one at a time");
        probe.record(DOWN, || later);
        assert!(breaker.enter(|| later).is_none(), "a failed probe keeps it open");
        let later = later + PAUSE;
        breaker.enter(|| later).expect("the next probe").record(None, || later);
        assert!(
            breaker.enter(|| later).is_some() && breaker.enter(|| later).is_some(),
            "closed again"
        );
    }

    #[test]
    fn slow_calls_open_it_only_when_nothing_else_was_answered() {
        const SLOW: Option<CallFailure> = Some(CallFailure::After(NodeError::Timeout));
        let breaker = Breaker::default();
        let start = Instant::now();
        let enter = || breaker.enter(|| start);
        let slow = [enter(), enter(), enter()];
        enter().expect("closed").record(None, || start);
        slow.into_iter().flatten().for_each(|attempt| attempt.record(SLOW, || start));
        assert!(enter().is_some(), "the node answers others");
        for _ in 0..3 {
            enter().expect("closed until the third").record(SLOW, || start);
        }
        assert!(enter().is_none(), "the node answers nobody");
    }

    #[test]
    fn a_probe_that_is_given_up_makes_room_for_the_next() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..3 {
            breaker.enter(|| start).expect("closed").record(DOWN, || start);
        }
        drop(breaker.enter(|| start + PAUSE).expect("a probe"));
        assert!(breaker.enter(|| start + PAUSE).is_some(), "the next probe");
    }
}
