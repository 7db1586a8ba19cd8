//! Records an event: facts in, changes and a reply out.
//!
//! The store locks the event's id and its user, reads the facts, decides here, and writes. An event
//! is stored with its outcome, so that a repeated one finds it.

use super::event::SignedEvent;
use super::state::{AgeRecord, AgeStatus, Verdict, decide};
use super::user::{AgeClock, AgeReport};
use crate::named::named;
use alloc::vec::Vec;

/// The outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOutcome {
    /// The subject has this status now.
    Applied(AgeStatus),
    /// A newer event arrived before: stored, nothing else changed.
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

named! {
    /// The `outcome` label in metrics: an [`EventOutcome`] without its values.
    pub enum EventOutcomeKind {
        /// [`EventOutcome::Applied`].
        Applied = "applied",
        /// [`EventOutcome::Duplicate`].
        Duplicate = "duplicate",
        /// [`EventOutcome::Stale`].
        Stale = "stale",
        /// [`EventOutcome::Invalid`].
        Invalid = "invalid",
        /// [`EventOutcome::Conflict`].
        Conflict = "conflict",
        /// [`EventOutcome::UnknownSubject`].
        Unknown = "unknown",
    }
}

impl EventOutcome {
    /// Its outcome in the metrics.
    #[must_use]
    pub const fn kind(&self) -> EventOutcomeKind {
        match self {
            Self::Applied(_) => EventOutcomeKind::Applied,
            Self::Stale => EventOutcomeKind::Stale,
            Self::Invalid => EventOutcomeKind::Invalid,
            Self::Duplicate { .. } => EventOutcomeKind::Duplicate,
            Self::Conflict => EventOutcomeKind::Conflict,
            Self::UnknownSubject => EventOutcomeKind::Unknown,
        }
    }
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

/// The stored rows that recording an event depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFacts {
    /// The stored event with its id.
    pub stored: Option<StoredEvent>,
    /// Its subject; `None` without a session.
    pub subject: Option<AgeRecord>,
    /// The reports on the other subjects of its user.
    pub others: Vec<AgeReport>,
}

/// The changes that an event makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recording {
    /// Nothing changes; this is the reply.
    Refuse(EventOutcome),
    /// The event is stored. If it is applied, the subject changes to its status.
    Store {
        /// Its outcome.
        verdict: Verdict,
        /// The subject's status after it.
        status_after: AgeStatus,
        /// The report that the user has from now on, if the event is applied.
        user: Option<AgeReport>,
    },
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
    let Some(subject) = facts.subject else {
        return Recording::Refuse(EventOutcome::UnknownSubject);
    };
    let (status, occurred_us) = (event.status(), event.occurred_us());
    let verdict = decide(subject, status, occurred_us);
    if verdict != Verdict::Applied {
        return Recording::Store {
            verdict,
            status_after: subject.status,
            user: None,
        };
    }
    let own = AgeReport::of(event);
    let references = facts.others.iter().chain([&own]);
    Recording::Store {
        verdict,
        status_after: status,
        user: AgeReport::of_user(references, clock).cloned(),
    }
}
