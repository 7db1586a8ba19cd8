//! The circuit breaker of one URL. A few failures in a row open it; after a second, one call probes
//! the URL. A call that times out while others are answered is slow and counts as no failure.

use super::NodeError;
use super::target::CallFailure;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Consecutive failures that open the breaker: a restart may cause one or two.
const FAILURES: u32 = 3;
/// How long an open breaker rejects calls: a node restarts within seconds.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Calls that were answered.
    answers: u64,
    /// Set while open: when the next probe may start, if none is under way.
    probe_at: Option<Instant>,
    probing: bool,
}

/// A call that the breaker admitted. Dropped without a result (its client is gone, say), it does
/// not count.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
    /// [`State::answers`] when it began.
    answers: u64,
}

impl Breaker {
    /// Admits a call; `None` while the breaker is open.
    pub(super) fn enter(&self, now: impl FnOnce() -> Instant) -> Option<Attempt<'_>> {
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

    pub(super) fn is_open(&self) -> bool {
        self.0.lock().probe_at.is_some()
    }
}

impl Attempt<'_> {
    /// Records the result of the call.
    pub(super) fn record(self, failure: Option<CallFailure>, now: impl FnOnce() -> Instant) {
        let mut state = self.breaker.0.lock();
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

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: Option<CallFailure> = Some(CallFailure::Connect);

    #[test]
    fn three_failures_open_it_and_one_probe_closes_it() {
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
    fn slow_calls_open_it_only_without_other_answers() {
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
    fn an_abandoned_probe_makes_room_for_the_next() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..3 {
            breaker.enter(|| start).expect("closed").record(DOWN, || start);
        }
        drop(breaker.enter(|| start + PAUSE).expect("a probe"));
        assert!(breaker.enter(|| start + PAUSE).is_some(), "the next probe");
    }
}
