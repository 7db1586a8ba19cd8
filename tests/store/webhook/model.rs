//! The tables of proofs of age, in maps. Commands select facts and write changes, as the store
//! does; what they decide is the code of the store.

use crate::age::clock;
use portcullis_filters::webhook::{
    AgeRecord, AgeReport, AgeSession, AgeStatus, EventFacts, Recording, SignedEvent, StoredEvent,
    Verdict, record,
};
use portcullis_filters::window::ahead_after_us;
use portcullis_store::{AgeUser, EventOutcome, Opening};
use std::collections::BTreeMap;

/// A command of the store.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Open {
        user: String,
        subject: String,
        now_us: i64,
        expires_us: i64,
    },
    Record {
        event: SignedEvent,
        received_us: i64,
    },
    Show {
        user: String,
        now_us: i64,
    },
    PruneSessions {
        before_us: i64,
    },
    PruneEvents {
        before_us: i64,
    },
    Forget {
        user: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Opened(Opening),
    Recorded(EventOutcome),
    Shown(Option<AgeUser>),
    Pruned(u64),
    /// Events, sessions and statuses.
    Forgotten([u64; 3]),
}

/// A mistake that a test plants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A repeated event is decided again.
    RepeatDecidedAgain,
    /// The content of an event is not compared.
    ContentIgnored,
    /// An event that is not applied is not stored.
    OnlyAppliedStored,
    /// The user has the status of the event that was applied last.
    LastArrivalWins,
    /// The user keeps the status of the first event.
    UserNeverMoves,
    /// The user has the status of the newest event, whatever was verified before.
    NewestEventWins,
    /// Sessions are pruned by their end alone.
    LiveSessionPruned,
    /// A session that waits is forgotten, one with an event is not.
    SessionNotForgotten,
    /// The events of a forgotten user stay.
    EventsNotForgotten,
    /// Sessions that were opened within the minute are not counted.
    MinuteNotCounted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) user: String,
    pub(crate) report: Option<AgeReport>,
    pub(crate) times: AgeSession,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) event: SignedEvent,
    pub(crate) received_us: i64,
    pub(crate) outcome: Verdict,
    pub(crate) status_after: AgeStatus,
}

/// The rows of the tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) bug: Option<Bug>,
    pub(crate) sessions: BTreeMap<String, Session>,
    pub(crate) events: BTreeMap<String, Event>,
    /// The report that each user has the status of.
    pub(crate) users: BTreeMap<String, AgeReport>,
}

impl Model {
    pub(crate) fn apply(&mut self, command: &Command) -> Reply {
        match command {
            Command::Open {
                user,
                subject,
                now_us,
                expires_us,
            } => Reply::Opened(self.open(user, subject, *now_us, *expires_us)),
            Command::Record { event, received_us } => {
                Reply::Recorded(self.record(event, *received_us))
            }
            Command::Show { user, now_us } => Reply::Shown(self.shown(user, *now_us)),
            Command::PruneSessions { before_us } => {
                let bug = self.bug == Some(Bug::LiveSessionPruned);
                let is_bare = |it: &AgeSession| bug || it.last_occurred_us.is_none();
                let kept = |it: &AgeSession| !(is_bare(it) && it.expires_us < *before_us);
                let before = self.sessions.len();
                self.sessions.retain(|_, session| kept(&session.times));
                Reply::Pruned((before - self.sessions.len()) as u64)
            }
            Command::PruneEvents { before_us } => {
                let before = self.events.len();
                self.events
                    .retain(|_, event| event.received_us >= *before_us);
                Reply::Pruned((before - self.events.len()) as u64)
            }
            Command::Forget { user } => Reply::Forgotten(self.forget(user)),
        }
    }

    fn sessions_of(&self, user: &str) -> Vec<AgeSession> {
        let of = self
            .sessions
            .values()
            .filter(|session| session.user == user);
        of.map(|session| session.times).collect()
    }

    fn date_anew(&mut self, user: &str, now_us: i64) {
        let after_us = ahead_after_us(now_us).expect("the clock is plausible");
        let of_user = self.sessions.values_mut().filter(|it| it.user == user);
        for AgeSession {
            created_us,
            expires_us,
            ..
        } in of_user.map(|it| &mut it.times)
        {
            if *created_us > after_us {
                *expires_us -= *created_us - now_us;
                *created_us = now_us;
            }
        }
    }

    fn open(&mut self, user: &str, subject: &str, now_us: i64, expires_us: i64) -> Opening {
        self.date_anew(user, now_us);
        let mut sessions = self.sessions_of(user);
        if self.bug == Some(Bug::MinuteNotCounted) {
            sessions.retain(|it| !Opening::minute(now_us).counts(it.created_us));
        }
        let opening = Opening::decide(&sessions, now_us, expires_us);
        if opening == Opening::Opened {
            let times = AgeSession {
                created_us: now_us,
                expires_us,
                last_occurred_us: None,
            };
            let session = Session {
                user: user.to_owned(),
                report: None,
                times,
            };
            self.sessions.insert(subject.to_owned(), session);
        }
        opening
    }

    /// The reports on a user's sessions.
    fn reports<'a>(&'a self, user: &str) -> impl Iterator<Item = (&'a String, &'a AgeReport)> {
        let of = self.sessions.iter().filter(move |(_, it)| it.user == user);
        of.filter_map(|(subject, session)| Some((subject, session.report.as_ref()?)))
    }

    fn shown(&self, user: &str, now_us: i64) -> Option<AgeUser> {
        let reports: Vec<_> = self.reports(user).map(|(_, it)| it.clone()).collect();
        AgeUser::shown(&reports, &self.sessions_of(user), clock(now_us))
    }

    fn facts(&self, event: &SignedEvent) -> EventFacts {
        let known = self.events.get(event.event_id());
        let known = known.filter(|_| self.bug != Some(Bug::RepeatDecidedAgain));
        let ignores = self.bug == Some(Bug::ContentIgnored);
        let stored = known.map(|it| StoredEvent {
            digest: if ignores {
                event.digest()
            } else {
                it.event.digest()
            },
            outcome: it.outcome,
            status_after: it.status_after,
        });
        let session = self.sessions.get(event.subject_ref());
        let subject = session.map(|session| AgeRecord {
            status: session
                .report
                .as_ref()
                .map_or(AgeStatus::Pending, |report| report.status),
            last_occurred_us: session.times.last_occurred_us,
        });
        let others = session.into_iter().flat_map(|it| self.reports(&it.user));
        let others = others.filter(|(subject, _)| **subject != event.subject_ref());
        EventFacts {
            stored,
            subject,
            others: others.map(|(_, report)| report.clone()).collect(),
        }
    }

    fn record(&mut self, event: &SignedEvent, received_us: i64) -> EventOutcome {
        let facts = self.facts(event);
        let recording = record(event, &facts, clock(received_us));
        let outcome = recording.outcome();
        let Recording::Store {
            verdict,
            status_after,
            user,
        } = recording
        else {
            return outcome;
        };
        let is_applied = verdict == Verdict::Applied;
        let stored = Event {
            event: event.clone(),
            received_us,
            outcome: verdict,
            status_after,
        };
        if is_applied || self.bug != Some(Bug::OnlyAppliedStored) {
            self.events.insert(event.event_id().to_owned(), stored);
        }
        let Some(session) = self.sessions.get_mut(event.subject_ref()) else {
            return outcome;
        };
        if is_applied {
            session.report = Some(AgeReport::of(event));
            session.times.last_occurred_us = Some(event.occurred_us());
        }
        let own = || AgeReport::of(event);
        let user = match self.bug {
            Some(Bug::LastArrivalWins) if is_applied => Some(own()),
            Some(Bug::UserNeverMoves) if self.users.contains_key(&session.user) => None,
            Some(Bug::NewestEventWins) if is_applied => {
                let all = facts.others.iter().cloned().chain([own()]);
                all.max_by_key(|report| (report.occurred_us, report.status))
            }
            _ => user,
        };
        if let Some(user) = user {
            self.users.insert(session.user.clone(), user);
        }
        outcome
    }

    fn forget(&mut self, user: &str) -> [u64; 3] {
        let before = [self.events.len(), self.sessions.len(), self.users.len()];
        if self.bug != Some(Bug::EventsNotForgotten) {
            let sessions = &self.sessions;
            let is_of = |it: &Event| {
                sessions
                    .get(it.event.subject_ref())
                    .is_some_and(|session| session.user == user)
            };
            self.events.retain(|_, event| !is_of(event));
        }
        let is_kept = |it: &Session| {
            self.bug == Some(Bug::SessionNotForgotten) && it.times.last_occurred_us.is_some()
        };
        self.sessions
            .retain(|_, session| session.user != user || is_kept(session));
        self.users.remove(user);
        let after = [self.events.len(), self.sessions.len(), self.users.len()];
        std::array::from_fn(|at| (before[at] - after[at]) as u64)
    }

    /// The rows that [`ROWS`] finds, sorted.
    pub(crate) fn rows(&self) -> Vec<String> {
        let number = |at: Option<i64>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        let session = |(subject, it): (&String, &Session)| {
            let AgeSession {
                created_us,
                expires_us,
                last_occurred_us,
            } = it.times;
            let report = it.report.as_ref();
            let status = report.map_or("pending", |report| report.status.name());
            let band = report.and_then(|report| report.age_band.as_deref());
            let verified = number(report.and_then(|report| report.verified_us));
            let until = number(report.and_then(|report| report.expires_us));
            let (band, last) = (band.unwrap_or("-"), number(last_occurred_us));
            format!(
                "session {subject} {} {status} {band} {verified} {until} {last} {created_us} \
                 {expires_us}",
                it.user
            )
        };
        let content = |it: &AgeReport| {
            let band = it.age_band.as_deref().unwrap_or("-");
            let [verified, expires] = [it.verified_us, it.expires_us].map(number);
            format!(
                "{} {band} {verified} {expires} {}",
                it.status.name(),
                it.occurred_us
            )
        };
        let event = |(id, it): (&String, &Event)| {
            let digest: String = it
                .event
                .digest()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let (outcome, after) = (it.outcome.name(), it.status_after.name());
            let (subject, received) = (it.event.subject_ref(), it.received_us);
            let content = content(&AgeReport::of(&it.event));
            format!("event {id} {digest} {subject} {content} {received} {outcome} {after}")
        };
        let user = |(user, it): (&String, &AgeReport)| format!("user {user} {}", content(it));
        let sessions = self.sessions.iter().map(session);
        let events = self.events.iter().map(event);
        let mut rows: Vec<_> = sessions
            .chain(events)
            .chain(self.users.iter().map(user))
            .collect();
        rows.sort();
        rows
    }
}

/// All rows, as the model shows them.
pub(crate) const ROWS: &str = "SELECT 'session ' || subject_ref || ' ' || user_id || ' ' || status \
    || ' ' || coalesce(age_band, '-') || ' ' || coalesce(CAST(verified_us AS TEXT), '-') \
    || ' ' || coalesce(CAST(verified_until_us AS TEXT), '-') \
    || ' ' || coalesce(CAST(last_occurred_us AS TEXT), '-') || ' ' || CAST(created_us AS TEXT) \
    || ' ' || CAST(expires_us AS TEXT) FROM age_session UNION ALL \
    SELECT 'event ' || event_id || ' ' || digest || ' ' || subject_ref || ' ' || status \
    || ' ' || coalesce(age_band, '-') || ' ' || coalesce(CAST(verified_us AS TEXT), '-') \
    || ' ' || coalesce(CAST(expires_us AS TEXT), '-') || ' ' || CAST(occurred_us AS TEXT) \
    || ' ' || CAST(received_us AS TEXT) || ' ' || outcome || ' ' || status_after \
    FROM age_event UNION ALL \
    SELECT 'user ' || user_id || ' ' || status || ' ' || coalesce(age_band, '-') \
    || ' ' || coalesce(CAST(verified_us AS TEXT), '-') \
    || ' ' || coalesce(CAST(expires_us AS TEXT), '-') || ' ' || CAST(last_occurred_us AS TEXT) \
    FROM age_user";
