//! The rules that hold after each command. They follow the contract, and are written apart from
//! the code that is tested. The oracle sees the commands in the order of their commits.

use super::model::{Command, Model, Reply};
use portcullis_filters::webhook::AgeStatus::{self, Expired, Pending, Rejected, Revoked, Verified};
use portcullis_filters::webhook::{SignedEvent, Verdict};
use portcullis_store::{EventOutcome, Opening};
use std::collections::BTreeMap;

const MINUTE_US: i64 = 60_000_000;
/// As long as a verification without an end is valid here.
const YEAR_US: i64 = 365 * 86_400_000_000;

/// A session, the time and status of the newest event that was applied to it, and until when that
/// verifies the user.
struct Session {
    user: String,
    created_us: i64,
    expires_us: i64,
    newest: Option<(i64, AgeStatus)>,
    until_us: i64,
}

struct Event {
    digest: [u8; 32],
    subject: String,
    received_us: i64,
    outcome: Verdict,
    status_after: AgeStatus,
}

#[derive(Default)]
pub(crate) struct Oracle {
    sessions: BTreeMap<String, Session>,
    events: BTreeMap<String, Event>,
    /// The event that each user had the status of when the last one was applied.
    users: BTreeMap<String, (i64, AgeStatus)>,
}

impl Oracle {
    /// Judges a command that was committed, and its reply.
    pub(crate) fn judge(&mut self, command: &Command, reply: &Reply) -> Result<(), String> {
        match (command, reply) {
            (
                Command::Open {
                    user,
                    subject,
                    now_us,
                    expires_us,
                },
                Reply::Opened(opening),
            ) => {
                self.date_anew(user, *now_us);
                self.opened(user, *now_us, *expires_us, *opening)?;
                if *opening == Opening::Opened {
                    let (created_us, expires_us) = (*now_us, *expires_us);
                    let session = Session {
                        user: user.clone(),
                        created_us,
                        expires_us,
                        newest: None,
                        until_us: 0,
                    };
                    self.sessions.insert(subject.clone(), session);
                }
            }
            (Command::Record { event, received_us }, Reply::Recorded(outcome)) => {
                self.recorded(event, *received_us, *outcome)?;
            }
            (Command::Show { user, now_us }, Reply::Shown(shown)) => {
                self.shown(user, *now_us, shown.as_ref().map(|user| user.status))?;
            }
            (Command::PruneSessions { before_us }, Reply::Pruned(_)) => {
                self.sessions
                    .retain(|_, it| it.newest.is_some() || it.expires_us >= *before_us);
            }
            (Command::PruneEvents { before_us }, Reply::Pruned(_)) => {
                self.events.retain(|_, it| it.received_us >= *before_us);
            }
            (Command::Forget { user }, Reply::Forgotten(_)) => {
                let sessions = &self.sessions;
                let is_of = |it: &Event| sessions.get(&it.subject).is_some_and(|s| s.user == *user);
                self.events.retain(|_, event| !is_of(event));
                self.sessions.retain(|_, session| session.user != *user);
                self.users.remove(user);
            }
            (command, reply) => return Err(format!("{command:?} has no reply {reply:?}")),
        }
        Ok(())
    }

    /// A session that a clock which was ahead has dated begins when it is first seen.
    fn date_anew(&mut self, user: &str, now_us: i64) {
        let of_user = self.sessions.values_mut().filter(|it| it.user == user);
        for session in of_user.filter(|it| it.created_us > now_us + 1_000_000) {
            session.expires_us -= session.created_us - now_us;
            session.created_us = now_us;
        }
    }

    fn opened(&self, user: &str, now: i64, expires: i64, opening: Opening) -> Result<(), String> {
        let of_user = || self.sessions.values().filter(|it| it.user == user);
        let opened = of_user().filter(|it| now - MINUTE_US < it.created_us && it.created_us <= now);
        let waiting = of_user().filter(|it| it.newest.is_none() && it.expires_us > now);
        let waiting = waiting.filter(|it| it.created_us <= now);
        match opening {
            Opening::Opened if opened.clone().count() >= 5 => Err("a sixth in a minute".to_owned()),
            Opening::Opened if waiting.clone().count() >= 10 => Err("an eleventh".to_owned()),
            Opening::TooMany { retry_at_us } if of_user().count() < 5 => Err(format!(
                "too many until {retry_at_us}: {} are open",
                of_user().count()
            )),
            Opening::TooMany { retry_at_us }
                if retry_at_us <= now || retry_at_us > expires.max(now + MINUTE_US) =>
            {
                Err(format!("retry at {retry_at_us}, now it is {now}"))
            }
            _ => Ok(()),
        }
    }

    fn recorded(
        &mut self,
        event: &SignedEvent,
        received_us: i64,
        outcome: EventOutcome,
    ) -> Result<(), String> {
        let expected = self.expected(event);
        if outcome != expected {
            return Err(format!("{outcome:?}, not {expected:?}: {event:?}"));
        }
        let Some(session) = self.sessions.get_mut(event.subject_ref()) else {
            return Ok(());
        };
        let (verdict, status_after) = match (outcome, session.newest) {
            (EventOutcome::Applied(status), _) => (Verdict::Applied, status),
            (EventOutcome::Stale, Some((_, status))) => (Verdict::Stale, status),
            (EventOutcome::Invalid, Some((_, status))) => (Verdict::Invalid, status),
            _ => return Ok(()),
        };
        let event_at = (event.occurred_us(), event.status());
        if verdict == Verdict::Applied {
            session.newest = Some(event_at);
            session.until_us = match (event.verified_us(), event.expires_us()) {
                (Some(_), Some(until_us)) => until_us,
                (Some(from_us), None) => from_us + YEAR_US,
                (None, _) => 0,
            };
            let user = session.user.clone();
            if let Some(at) = self.counts(&user, received_us) {
                self.users.insert(user, at);
            }
        }
        let (digest, subject) = (event.digest(), event.subject_ref().to_owned());
        let event_of = Event {
            digest,
            subject,
            received_us,
            outcome: verdict,
            status_after,
        };
        self.events.insert(event.event_id().to_owned(), event_of);
        Ok(())
    }

    /// The event that counts for a user: of the verifications that have not ended the one that ends
    /// last, otherwise the newest.
    fn counts(&self, user: &str, now_us: i64) -> Option<(i64, AgeStatus)> {
        let of_user = self.sessions.values().filter(|it| it.user == user);
        let ends = of_user.filter_map(|it| Some((it.until_us, it.newest?)));
        let ends: Vec<_> = ends.collect();
        let in_force = ends.iter().filter(|(until_us, _)| *until_us > now_us).max();
        let newest = || ends.iter().map(|(_, newest)| *newest).max();
        in_force.map(|(_, newest)| *newest).or_else(newest)
    }

    /// A repeat gets the first outcome; a newer event is applied, unless the table forbids it.
    fn expected(&self, event: &SignedEvent) -> EventOutcome {
        if let Some(first) = self.events.get(event.event_id()) {
            if first.digest != event.digest() {
                return EventOutcome::Conflict;
            }
            return EventOutcome::Duplicate {
                outcome: first.outcome,
                state: first.status_after,
            };
        }
        let Some(session) = self.sessions.get(event.subject_ref()) else {
            return EventOutcome::UnknownSubject;
        };
        let (at, status) = (event.occurred_us(), event.status());
        match session.newest {
            Some(newest) if (at, status) <= newest => EventOutcome::Stale,
            Some((last, from)) if last < at && never_follows(from, status) => EventOutcome::Invalid,
            _ => EventOutcome::Applied(status),
        }
    }

    fn shown(&self, user: &str, now: i64, shown: Option<AgeStatus>) -> Result<(), String> {
        let of_user = self.sessions.values().filter(|it| it.user == user);
        let waits = |it: &&Session| it.newest.is_none() && it.expires_us > now;
        let mut waiting = of_user.filter(waits);
        let verifies = |it: &&Session| it.user == user && it.until_us > now;
        let is_verified = self.sessions.values().any(|it| verifies(&it));
        let is_right = match (self.counts(user, now), shown) {
            (Some(_), shown) if is_verified => shown == Some(Verified),
            (Some((_, Verified)), shown) => shown == Some(Expired),
            (Some((_, status)), shown) => shown == Some(status),
            (None, Some(shown)) => shown == Pending && waiting.next().is_some(),
            // a session that is dated far ahead does not wait
            (None, None) => !waiting.any(|it| it.created_us <= now),
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("{user} is shown {shown:?}"))
        }
    }

    /// Compares what is stored with what must be: nothing acknowledged is lost, nothing erased
    /// stays, and each user has the event that counts.
    pub(crate) fn compare(&self, stored: &Model) -> Result<(), String> {
        let sessions: Vec<_> = stored.sessions.keys().collect();
        let expected: Vec<_> = self.sessions.keys().collect();
        if sessions != expected {
            return Err(format!("sessions {sessions:?}, not {expected:?}"));
        }
        let outcomes = stored
            .events
            .iter()
            .map(|(id, it)| (id, it.outcome, it.status_after));
        let expected = self
            .events
            .iter()
            .map(|(id, it)| (id, it.outcome, it.status_after));
        let (outcomes, expected): (Vec<_>, Vec<_>) = (outcomes.collect(), expected.collect());
        if outcomes != expected {
            return Err(format!("events {outcomes:?}, not {expected:?}"));
        }
        let users = stored
            .users
            .iter()
            .map(|(user, it)| (user, (it.occurred_us, it.status)));
        let expected = self.users.iter().map(|(user, newest)| (user, *newest));
        let (users, expected): (Vec<_>, Vec<_>) = (users.collect(), expected.collect());
        if users != expected {
            return Err(format!("users {users:?}, not {expected:?}"));
        }
        Ok(())
    }
}

/// The contract's table of what a later event cannot change.
fn never_follows(from: AgeStatus, to: AgeStatus) -> bool {
    match from {
        Revoked => to != Revoked,
        Verified => to == Pending,
        Rejected => to == Expired,
        Pending | Expired => false,
    }
}
