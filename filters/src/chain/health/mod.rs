//! The health of one URL, as its answers to calls and polls show it.
//!
//! A URL is left out while its polls or its calls fail, and returns after valid answers only. Polls
//! and calls are counted apart: a URL may answer the one and fail at the other. A call that fails
//! while the URL answers others counts only where the failure cannot be that of the request: a
//! single client must not be able to take a URL away from all others.

use super::failure::FailureClass;
use super::hedge::Latency;
use super::routing::{Repeat, Standing};
use core::time::Duration;

/// Consecutive calls without a valid answer after which a URL is left out: a restart may cause one
/// or two.
const CALLS: u8 = 3;
/// Polls likewise; there is one each second, and a busy machine may delay one or two.
const POLLS: u8 = 3;
/// How often a call is tried at a URL that answers polls but fails at calls.
const TRIAL: Duration = Duration::from_secs(1);
/// How long polls must be answered, without a failed call, before calls are trusted to work again.
const QUIET: Duration = Duration::from_secs(60);
/// Polls that failed longer ago than this no longer say anything, because there are none.
const RECENT: Duration = Duration::from_secs(5);

/// The purpose of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// A call that somebody waits for.
    #[default]
    Call,
    /// A poll of the chain, or a probe.
    Poll,
}

/// Consecutive failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Streak {
    failures: u8,
    class: Option<FailureClass>,
    first: Duration,
    last: Duration,
}

impl Streak {
    fn note(&mut self, class: FailureClass, now: Duration) {
        if self.failures == 0 {
            self.first = now;
        }
        self.failures = self.failures.saturating_add(1);
        self.class = Some(class);
        self.last = now;
    }
}

/// A URL that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How it failed last.
    pub class: FailureClass,
    /// Whether it has not returned a valid answer since its first failure.
    pub is_total: bool,
}

/// The health of one URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlHealth {
    calls: Streak,
    polls: Streak,
    /// When a call was answered last.
    answered: Option<Duration>,
    /// When anything was answered last.
    valid: Option<Duration>,
    /// When the next call may be tried while calls fail.
    trial: Duration,
    /// How long its answers to calls take.
    pub latency: Latency,
}

impl UrlHealth {
    /// Records a valid answer at `now` to a request that was sent at `sent`.
    pub fn answered(&mut self, asked: Asked, sent: Duration, now: Duration) {
        match asked {
            Asked::Call => {
                self.calls = Streak::default();
                self.answered = Some(now);
                self.latency.note(now.saturating_sub(sent));
                if now.saturating_sub(self.polls.last) >= RECENT {
                    self.polls = Streak::default();
                }
            }
            Asked::Poll => {
                if self.proves_calls(now) {
                    self.calls = Streak::default();
                }
                self.polls = Streak::default();
            }
        }
        self.valid = Some(now);
    }

    /// Whether an answered poll shows that calls are answered, too: they failed for the same reason
    /// as the polls, or nobody has called for long.
    fn proves_calls(&self, now: Duration) -> bool {
        let polls_failed = self.polls.failures >= POLLS && self.polls.last >= self.calls.first;
        polls_failed
            || self.calls.class == Some(FailureClass::Unreachable)
            || now.saturating_sub(self.calls.last) >= QUIET
    }

    /// Records that a request, which was sent at `sent`, had no valid answer by `now`.
    pub fn failed(&mut self, asked: Asked, class: FailureClass, sent: Duration, now: Duration) {
        if self.has_answered_since(sent) && is_of_request(asked, class) {
            return;
        }
        match asked {
            Asked::Call => self.calls.note(class, now),
            Asked::Poll => self.polls.note(class, now),
        }
    }

    /// Whether a call has been answered since then.
    pub fn has_answered_since(&self, since: Duration) -> bool {
        self.answered.is_some_and(|at| at >= since)
    }

    /// Why the URL is left out, if it is.
    pub fn fault(&self) -> Option<Fault> {
        let streak = if self.polls.failures >= POLLS {
            self.polls
        } else if self.calls.failures >= CALLS {
            self.calls
        } else {
            return None;
        };
        Some(Fault {
            class: streak.class?,
            is_total: self.valid.is_none_or(|at| at < streak.first),
        })
    }

    /// The place of the URL for a request at `now`. A client's read may be the trial of a URL that
    /// answers polls but failed at calls; a write or a poll never is.
    pub fn standing(&mut self, asked: Asked, repeat: Repeat, now: Duration) -> Standing {
        if self.fault().is_none() {
            return Standing::Serves;
        }
        let is_due = self.polls.failures < POLLS && now >= self.trial;
        if repeat == Repeat::Never || asked == Asked::Poll || !is_due {
            return Standing::LeftOut;
        }
        self.trial = now.saturating_add(TRIAL);
        Standing::Serves
    }
}

/// Whether the request itself may be the cause: it may be slow, one too many, or break the server.
fn is_of_request(asked: Asked, class: FailureClass) -> bool {
    match class {
        FailureClass::Timeout | FailureClass::Limited => true,
        FailureClass::Internal => asked == Asked::Call,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
