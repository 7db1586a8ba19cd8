//! Records an event: facts in, changes and a reply out.
//!
//! The store locks the event's id and its user, reads the facts, decides here, and writes. An event
//! is stored with its outcome, so that a repeated one finds it. It is applied if it changes the
//! report of its subject, which is a fold over all stored events: a late event counts as if it had
//! arrived in time.

use super::event::SignedEvent;
use super::state::{AgeRecord, AgeStatus, Verdict, decide};
use super::user::{AgeClock, AgeReport};
use alloc::vec::Vec;

/// The outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOutcome {
    /// The subject has this status now.
    Applied(AgeStatus),
    /// A newer event decides the subject's status: stored, nothing else changed.
    Stale,
    /// The subject's status does not allow this event: stored, nothing else changed.
    Invalid,
    /// This event arrived before.
    Duplicate {
        /// The outcome of its first arrival.
        outcome: Verdict,
        /// The subject's status after it.
        state: AgeStatus,
    },
    /// An event with this id and another content arrived before.
    Conflict,
    /// No session has this subject; the event is not stored.
    UnknownSubject,
}

/// An event as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredEvent {
    /// The identity of its content.
    pub digest: [u8; 32],
    /// Its outcome.
    pub outcome: Verdict,
    /// The subject's status after it.
    pub status_after: AgeStatus,
}

/// A subject of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgeSubject {
    /// The report behind its status; `None` before the first event.
    pub report: Option<AgeReport>,
    /// The stored events about it, in any order. The oldest ones may be missing, since no event may
    /// arrive that is older than those.
    pub events: Vec<AgeReport>,
}

impl AgeSubject {
    /// The subject's status and the time of the event behind it.
    pub fn record(&self) -> AgeRecord {
        AgeRecord::of(self.report.as_ref())
    }
}

/// The rows that an event may conflict with, or that decide with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFacts {
    /// The stored event with its id.
    pub stored: Option<StoredEvent>,
    /// Its subject; `None` without a session.
    pub subject: Option<AgeSubject>,
    /// The reports on the other subjects of its user.
    pub others: Vec<AgeReport>,
}

/// The changes that an event makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recording {
    /// Nothing changes; this is the reply.
    Refuse(EventOutcome),
    /// The event is stored.
    Store {
        /// Its outcome.
        verdict: Verdict,
        /// The subject's status after it.
        status_after: AgeStatus,
        /// The changes, if the event is applied.
        changed: Option<Changed>,
    },
}

/// The changes of an applied event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The subject's new report: the event's, or that of a later event that it makes possible.
    pub subject: AgeReport,
    /// The report that the user has from now on.
    pub user: AgeReport,
}

impl Recording {
    /// The reply to the sender.
    pub fn outcome(&self) -> EventOutcome {
        match *self {
            Self::Refuse(outcome) => outcome,
            Self::Store {
                verdict: Verdict::Applied,
                status_after,
                ..
            } => EventOutcome::Applied(status_after),
            Self::Store {
                verdict: Verdict::Stale,
                ..
            } => EventOutcome::Stale,
            Self::Store {
                verdict: Verdict::Invalid,
                ..
            } => EventOutcome::Invalid,
        }
    }
}

/// Decides what an event changes.
pub fn record(event: &SignedEvent, facts: &EventFacts, clock: AgeClock) -> Recording {
    if let Some(stored) = facts.stored {
        let StoredEvent {
            digest,
            outcome,
            status_after: state,
        } = stored;
        let is_same = digest == event.digest();
        let duplicate = EventOutcome::Duplicate { outcome, state };
        return Recording::Refuse(if is_same {
            duplicate
        } else {
            EventOutcome::Conflict
        });
    }
    let Some(subject) = &facts.subject else {
        return Recording::Refuse(EventOutcome::UnknownSubject);
    };
    let own = AgeReport::of(event);
    let events = subject.events.iter().chain(&subject.report).chain([&own]);
    let report = AgeReport::of_subject(events);
    if report == subject.report.as_ref() {
        let record = subject.record();
        let is_later = decide(record, own.status, own.occurred_us) == Verdict::Invalid;
        return Recording::Store {
            verdict: if is_later {
                Verdict::Invalid
            } else {
                Verdict::Stale
            },
            status_after: record.status,
            changed: None,
        };
    }
    let report = report.unwrap_or(&own);
    let user = AgeReport::of_user(facts.others.iter().chain([report]), clock);
    Recording::Store {
        verdict: Verdict::Applied,
        status_after: report.status,
        changed: Some(Changed {
            subject: report.clone(),
            user: user.unwrap_or(report).clone(),
        }),
    }
}
