//! Whether an order is due for one certificate: a round from a look at the stored state to a rest.
//!
//! In: events. Out: actions. A round looks, exchanges the certificate with the fleet, asks for the
//! authority's renewal times, and takes the right to order before it decides again and hands over
//! to `attempt`. A crash between any two actions loses the round alone.

use super::attempt::{Attempt, Next, Subject};
use super::failure::Failure;
use super::message::{Action, Certificate, Ended, Event, Lock, Report, Rest, Seen};
use super::progress::Progress;
use super::schedule::{self, Facts, Step, Window};
use super::window::Known;
use crate::certificate::{self, Exchange, Own, Unfit};
use crate::chance::Chance;
use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// Seconds to the next round without the right to order or the stored state.
const INTERVAL: u64 = 30;
/// Seconds to wait while another process orders.
const OTHER_PROCESS: u64 = 5;
/// Why a certificate that arrived in time is no success.
pub(super) const DUE_AGAIN: &str = "the certificate is due for renewal although it is new: the \
                                    authority's clock or this one is wrong, or its renewal \
                                    information";

/// The renewal of one certificate.
#[derive(Debug)]
pub struct Renewal {
    subject: Subject,
    phase: Phase,
    known: Known,
    /// The last failure, in memory in case nothing can be stored.
    last: LastFailure,
    /// Whether the operator has asked for an attempt at once.
    is_hurried: bool,
}

#[derive(Debug, Default)]
struct LastFailure {
    /// Earliest next attempt.
    retry_at: Option<u64>,
    cause: String,
    failed: u32,
}

/// The step whose result a round waits for.
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Looking(Right),
    Taking(Right, Box<Seen>),
    Sharing(Right, Box<Seen>),
    Asking(Right, Box<Seen>),
    /// Until then, nothing else is due without the right.
    Locking(Box<Seen>, Purpose),
    Clearing(u64),
    Attempting(Box<Attempt>),
}

/// Whether the round has the right to order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    None,
    Held,
}

/// The purpose of the right to order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Order,
    /// Removes the progress of an earlier renewal; nothing is due until then.
    Clear(u64),
}

impl Renewal {
    /// The renewal of the certificate for these domains, by `tls-alpn-01` alone.
    #[must_use]
    pub fn new(domains: Vec<String>) -> Self {
        Self {
            subject: Subject {
                domains,
                has_http: false,
            },
            phase: Phase::Idle,
            known: Known::default(),
            last: LastFailure::default(),
            is_hurried: false,
        }
    }

    /// Uses both challenges in turn.
    #[must_use]
    pub fn with_http(mut self) -> Self {
        self.subject.has_http = true;
        self
    }

    /// Permits an attempt at once: the operator may have fixed the cause. A good certificate that
    /// is due again and again is not ordered at once for that.
    pub fn hurry(&mut self) {
        self.is_hurried = true;
        self.last.retry_at = None;
    }

    /// Takes the result of the last action, and returns the next one.
    pub fn step(&mut self, event: Event, now: u64, chance: Chance) -> Action {
        match (mem::take(&mut self.phase), event) {
            (_, Event::Begin) => self.look(Right::None),
            (Phase::Looking(right), Event::Seen(seen)) => self.exchange(right, seen, now),
            (Phase::Taking(right, _), Event::Done) => self.look(right),
            (Phase::Taking(right, seen) | Phase::Sharing(right, seen), _) => {
                self.ask(right, seen, now)
            }
            (Phase::Asking(right, seen), event) => {
                let answer = match event {
                    Event::Window(answer) => answer,
                    _ => None,
                };
                if let Some(id) = seen
                    .good(&self.subject.domains, now)
                    .and_then(|held| held.id.as_ref())
                {
                    self.known.learn(id, answer, now);
                }
                self.decide(right, seen, now)
            }
            (Phase::Locking(seen, purpose), event) => {
                self.locked(seen, purpose, event, now, chance)
            }
            (Phase::Clearing(until), _) => self.fine(until),
            (Phase::Attempting(attempt), event) => self.attempt(attempt, event, now, chance),
            (Phase::Idle | Phase::Looking(_), event) => {
                let failure = match event {
                    Event::Failed(failure) => failure,
                    _ => Failure::new("the stored state cannot be read"),
                };
                self.not_attempted(None, failure, now, chance)
            }
        }
    }

    fn look(&mut self, right: Right) -> Action {
        self.phase = Phase::Looking(right);
        Action::Look
    }

    /// Exchanges the certificate with the fleet.
    fn exchange(&mut self, right: Right, seen: Box<Seen>, now: u64) -> Action {
        let ours = seen.good(&self.subject.domains, now).map(|held| Own {
            validity: held.validity,
            is_due: schedule::due(&facts(held, self.window_of(held))) <= now,
        });
        let theirs = seen.theirs.as_ref();
        let judged = theirs.map(|theirs| theirs.judge(&self.subject.domains, now));
        // with a clock that is behind, the fleet's is the better one
        if !seen.differs || judged == Some(Err(Unfit::NotYetValid)) {
            return self.ask(right, seen, now);
        }
        let theirs = match (theirs, judged) {
            (Some(theirs), Some(Ok(()))) => Some(theirs.validity),
            _ => None,
        };
        match certificate::exchange(ours, theirs) {
            Exchange::Nothing => self.ask(right, seen, now),
            Exchange::Take => {
                self.phase = Phase::Taking(right, seen);
                Action::Take
            }
            Exchange::Share => {
                self.phase = Phase::Sharing(right, seen);
                Action::Share
            }
        }
    }

    fn window_of(&self, held: &Certificate) -> Option<Window> {
        self.known.of(held.id.as_ref()?)
    }

    /// Asks the authority for its renewal times, unless they are known.
    fn ask(&mut self, right: Right, seen: Box<Seen>, now: u64) -> Action {
        let held = seen.good(&self.subject.domains, now);
        let id = held.and_then(|held| held.id.as_ref());
        match id {
            Some(id) if self.known.fresh(id, now).is_none() => {
                // the first order creates the account
                if seen.has_account {
                    self.phase = Phase::Asking(right, seen);
                    return Action::AskWindow;
                }
                self.known.learn(id, None, now);
            }
            _ => {}
        }
        self.decide(right, seen, now)
    }

    fn decide(&mut self, right: Right, seen: Box<Seen>, now: u64) -> Action {
        match self.next(&seen, now) {
            Step::Keep(until) => self.keep(right, seen, until),
            Step::Retry(at) => self.wait(&seen, at, ""),
            Step::Rest(at) => self.wait(&seen, at, DUE_AGAIN),
            Step::Order if right == Right::None => {
                self.phase = Phase::Locking(seen, Purpose::Order);
                Action::Lock
            }
            Step::Order => {
                self.is_hurried = false;
                let held = seen.good(&self.subject.domains, now);
                let window = held.and_then(|held| self.window_of(held));
                let (attempt, action) = Attempt::begin(self.subject.clone(), *seen, window);
                self.phase = Phase::Attempting(attempt);
                action
            }
        }
    }

    fn next(&self, seen: &Seen, now: u64) -> Step {
        // an unfit one is due, whatever its authority says
        let held = seen.good(&self.subject.domains, now);
        let progress = seen.progress();
        let last = match (&seen.receipt, &progress.order) {
            _ if self.is_hurried && held.is_none() => None,
            (Some(receipt), None) => Some(receipt.last),
            _ => None,
        };
        let retry_at = if self.is_hurried {
            None
        } else {
            // an instance that holds another certificate waits, too: the domains are the same
            let stored = schedule::credible(seen.progress.retry_at, now);
            stored.max(schedule::credible(self.last.retry_at, now))
        };
        let of_held = held.map(|held| facts(held, self.window_of(held)));
        schedule::next(
            &Facts {
                retry_at,
                last,
                ..of_held.unwrap_or(NOTHING)
            },
            now,
        )
    }

    /// Nothing is due.
    fn keep(&mut self, right: Right, seen: Box<Seen>, until: u64) -> Action {
        self.is_hurried = false;
        // otherwise an instance with an earlier window may be renewing this certificate
        let is_over = seen.progress.is_over(seen.digest());
        match right {
            Right::None if is_over => {
                self.phase = Phase::Locking(seen, Purpose::Clear(until));
                Action::Lock
            }
            Right::Held if is_over => {
                self.phase = Phase::Clearing(until);
                Action::Store(Progress::default())
            }
            _ => self.fine(until),
        }
    }

    fn fine(&mut self, until: u64) -> Action {
        self.last = LastFailure::default();
        rest(until, Some(Report::Fine), 0)
    }

    /// An attempt is due, but not yet permitted. `or_else` is the cause where none is stored.
    fn wait(&mut self, seen: &Seen, at: u64, or_else: &str) -> Action {
        let progress = &seen.progress;
        let mut causes = [&*progress.cause, &*self.last.cause, or_else];
        // what could not be stored is newer
        if self.last.retry_at > progress.retry_at {
            causes.swap(0, 1);
        }
        let cause = causes.into_iter().find(|cause| !cause.is_empty());
        let failed = progress.failed.max(self.last.failed).max(1);
        let report = cause.map(|cause| Report::Failing {
            cause: cause.to_owned(),
            attempt: failed.saturating_add(1),
            at,
        });
        rest(at, report, failed)
    }

    fn locked(
        &mut self,
        seen: Box<Seen>,
        purpose: Purpose,
        event: Event,
        now: u64,
        chance: Chance,
    ) -> Action {
        match (event, purpose) {
            // another process may have renewed before this one had the right
            (Event::Lock(Lock::Held), _) => self.look(Right::Held),
            (_, Purpose::Clear(until)) => self.fine(until),
            (Event::Failed(failure), Purpose::Order) => {
                self.not_attempted(Some(&seen), failure, now, chance)
            }
            (_, Purpose::Order) => {
                let failed = seen.progress().failed;
                rest(now.saturating_add(OTHER_PROCESS), None, failed)
            }
        }
    }

    /// Reports a failure that is not stored: without the right to order, the stored progress may be
    /// that of another process.
    fn not_attempted(
        &mut self,
        seen: Option<&Seen>,
        failure: Failure,
        now: u64,
        chance: Chance,
    ) -> Action {
        let mut progress = seen.map(Seen::progress).unwrap_or_default();
        progress.failed = progress.failed.max(self.last.failed);
        let mut rest = failed(&mut progress, failure, now, chance);
        self.remember(&progress);
        rest.until = rest.until.min(now.saturating_add(INTERVAL));
        Action::Rest(rest)
    }

    fn attempt(
        &mut self,
        mut attempt: Box<Attempt>,
        event: Event,
        now: u64,
        chance: Chance,
    ) -> Action {
        match attempt.step(event, &mut self.known, now, chance) {
            Next::Act(action) => {
                self.phase = Phase::Attempting(attempt);
                action
            }
            Next::Ended(rest) => {
                match rest.ended {
                    Some(Ended::Failed { .. }) => self.remember(attempt.progress()),
                    _ => self.last = LastFailure::default(),
                }
                Action::Rest(rest)
            }
        }
    }

    fn remember(&mut self, progress: &Progress) {
        self.last = LastFailure {
            retry_at: progress.retry_at,
            cause: progress.cause.clone(),
            failed: progress.failed,
        };
    }
}

impl Seen {
    /// The certificate in the file, if it is good by itself.
    pub(super) fn good(&self, domains: &[String], now: u64) -> Option<&Certificate> {
        let ours = self.ours.as_ref();
        ours.filter(|held| held.judge(domains, now).is_ok())
    }

    /// The digest of the certificate in the file; empty without one.
    fn digest(&self) -> &str {
        self.ours.as_ref().map_or("", |held| &held.digest)
    }

    /// The progress of the renewal that is due next.
    pub(super) fn progress(&self) -> Progress {
        self.progress.of(self.digest().to_owned())
    }
}

/// The facts without a certificate.
const NOTHING: Facts = Facts {
    held: None,
    window: None,
    retry_at: None,
    last: None,
    chance: Chance(0),
};

pub(super) fn facts(held: &Certificate, window: Option<Window>) -> Facts {
    Facts {
        held: Some(held.validity),
        window,
        chance: held.chance,
        ..NOTHING
    }
}

fn rest(until: u64, report: Option<Report>, failed: u32) -> Action {
    Action::Rest(Box::new(Rest {
        until,
        report,
        ended: None,
        failed,
    }))
}

/// Counts a failed attempt in `progress`, and sets the time of the next one.
pub(super) fn failed(
    progress: &mut Progress,
    failure: Failure,
    now: u64,
    chance: Chance,
) -> Box<Rest> {
    let Failure {
        class,
        cause,
        retry_after,
        ..
    } = failure;
    progress.failed = progress.failed.saturating_add(1);
    let at = schedule::retry_at(now, progress.failed, class, retry_after, chance);
    progress.retry_at = Some(at);
    progress.cause = cause;
    Box::new(Rest {
        until: at,
        report: Some(Report::Failing {
            cause: progress.cause.clone(),
            attempt: progress.failed.saturating_add(1),
            at,
        }),
        ended: Some(Ended::Failed {
            class,
            is_abandoned: false,
        }),
        failed: progress.failed,
    })
}
