//! Records an event: facts in, changes and a reply out.
//!
//! The store locks the event's id and its user, reads the facts, decides here, and writes. An event
//! is stored with its outcome, so that a repeated one finds it.

use super::event::SignedEvent;
use super::state::{AgeRecord, AgeStatus, Verdict, decide, moves_user};

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

/// The rows that an event may conflict with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventFacts {
    /// The stored event with its id.
    pub stored: Option<StoredEvent>,
    /// Its subject; `None` without a session.
    pub subject: Option<AgeRecord>,
    /// The subject's user; `None` before the first event.
    pub user: Option<AgeRecord>,
}

/// The changes that an event makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// Nothing changes; this is the reply.
    Refuse(EventOutcome),
    /// The event is stored. If it is applied, the subject changes to its status.
    Store {
        /// Its outcome.
        verdict: Verdict,
        /// The subject's status after it.
        status_after: AgeStatus,
        /// Whether the user changes to the event's status, too.
        moves_user: bool,
    },
}

impl Recording {
    /// The reply to the sender.
    pub fn outcome(self) -> EventOutcome {
        match self {
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
pub fn record(event: &SignedEvent, facts: &EventFacts) -> Recording {
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
    let is_applied = verdict == Verdict::Applied;
    Recording::Store {
        verdict,
        status_after: if is_applied { status } else { subject.status },
        moves_user: is_applied && moves_user(facts.user, status, occurred_us),
    }
}
