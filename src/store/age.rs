//! Age verification: sessions that users open, and the events that the verifier sends about them.
//!
//! An event is stored with its outcome, in the transaction that updates its session and its user,
//! so a repeated event finds its first outcome. All writes about one user are serialized, across
//! processes too.

use super::db::{Db, Row};
use super::tx::Tx;
use super::{StoreError, sql};
use portcullis_filters::webhook::{AgeRecord, AgeStatus, SignedEvent, Verdict, decide, moves_user};
use portcullis_filters::window::Window;

/// Sessions that a user may open within [`MINUTE_US`].
const MAX_PER_MINUTE: i64 = 5;
const MINUTE_US: i64 = 60_000_000;
/// Sessions of a user that may wait for an event.
const MAX_OPEN: i64 = 10;

/// The outcome of opening a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The session waits for the verifier.
    Opened,
    /// The user opened too many.
    TooMany {
        /// When the user may open the next one.
        retry_at_us: i64,
    },
}

/// The age status of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeUser {
    /// The status; a verification past its end is `Expired`.
    pub status: AgeStatus,
    /// The age band, if the verifier reported one.
    pub age_band: Option<String>,
    /// When the age was verified.
    pub verified_us: Option<i64>,
    /// When the verification ends, if the verifier set an end.
    pub expires_us: Option<i64>,
}

/// The outcome of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOutcome {
    /// The subject has this status now.
    Applied(AgeStatus),
    /// A newer event arrived before: stored, nothing else changed.
    Stale,
    /// The subject's status does not allow this event: stored, nothing else changed.
    Invalid,
    /// The same event arrived before.
    Duplicate {
        /// Its outcome then.
        outcome: Verdict,
        /// The subject's status after it.
        state: AgeStatus,
    },
    /// An event with this id and another content arrived before.
    Conflict,
    /// No session has this subject; the event is not stored.
    UnknownSubject,
}

/// Reads and writes age sessions, events and the status of users.
#[derive(Debug, Clone, Copy)]
pub struct Ages<'a> {
    pub(super) db: &'a Db,
}

impl Ages<'_> {
    /// Opens a session of a user, unless there are too many.
    pub async fn open_session(
        &self,
        user_id: &str,
        subject_ref: &str,
        now_us: i64,
        expires_us: i64,
    ) -> Result<Opening, StoreError> {
        let mut tx = self.db.begin().await?;
        tx.lock(user_id).await?;
        let minute = Window::new(now_us, MINUTE_US);
        let args = [user_id.into(), minute.after_us().into(), minute.until_us().into()];
        let opened = tx.row(sql::AGE_OPENED, &args).await?;
        let room_at = full(opened, "since_us", MAX_PER_MINUTE)?.map(|first| minute.end_us(first));
        let open = tx.row(sql::AGE_OPEN, &[user_id.into(), now_us.into()]).await?;
        // one that was dated ahead waits no longer than a new one would
        let ends_at = full(open, "until_us", MAX_OPEN)?.map(|first| first.min(expires_us));
        if let Some(retry_at_us) = room_at.max(ends_at) {
            return Ok(Opening::TooMany { retry_at_us });
        }
        let args = [subject_ref.into(), user_id.into(), now_us.into(), expires_us.into()];
        tx.run(sql::AGE_SESSION_ADD, &args).await?;
        tx.commit().await?;
        Ok(Opening::Opened)
    }

    /// The age status of a user: pending while only an open session is known, `None` without one.
    pub async fn user(&self, user_id: &str, now_us: i64) -> Result<Option<AgeUser>, StoreError> {
        let user = [user_id.into()];
        let mut known = self.db.row(sql::AGE_USER, &user).await?;
        if known.is_none() {
            let open = self.db.row(sql::AGE_OPEN, &[user_id.into(), now_us.into()]).await?;
            if full(open, "until_us", 1)?.is_some() {
                return Ok(Some(AgeUser {
                    status: AgeStatus::Pending,
                    age_band: None,
                    verified_us: None,
                    expires_us: None,
                }));
            }
            // the first event may have arrived between the two queries
            known = self.db.row(sql::AGE_USER, &user).await?;
        }
        let Some(row) = known else { return Ok(None) };
        let expires_us: Option<i64> = row.get("expires_us")?;
        let status = match row.parsed("status", AgeStatus::parse)? {
            AgeStatus::Verified if expires_us.is_some_and(|end| end <= now_us) => {
                AgeStatus::Expired
            }
            status => status,
        };
        let user = from_row!(AgeUser, row; get: age_band verified_us; { status, expires_us });
        Ok(Some(user))
    }

    /// Stores an event once and applies it; durable on return, and safe to repeat after an error.
    pub async fn record_event(
        &self,
        event: &SignedEvent,
        received_us: i64,
    ) -> Result<EventOutcome, StoreError> {
        let mut tx = self.db.begin().await?;
        if let Some(outcome) = known(&mut tx, event).await? {
            return Ok(outcome);
        }
        let subject = [event.subject_ref().into()];
        let Some(row) = tx.row(sql::AGE_SUBJECT, &subject).await? else {
            return Ok(EventOutcome::UnknownSubject);
        };
        let user_id: String = row.get("user_id")?;
        tx.lock(&user_id).await?;
        let Some(row) = tx.row(sql::AGE_SESSION, &subject).await? else {
            return Ok(EventOutcome::UnknownSubject);
        };
        let before = standing(&row)?;
        let verdict = decide(before, event.status(), event.occurred_us());
        let after = if verdict == Verdict::Applied { event.status() } else { before.status };
        if !insert(&mut tx, event, received_us, verdict, after).await? {
            // the same event arrived at the same time and is stored by now
            return known(&mut tx, event).await?.ok_or(StoreError::Corrupt("age_event"));
        }
        if verdict == Verdict::Applied && !apply(&mut tx, event, &user_id).await? {
            return Ok(EventOutcome::UnknownSubject);
        }
        tx.commit().await?;
        Ok(match verdict {
            Verdict::Applied => EventOutcome::Applied(after),
            Verdict::Stale => EventOutcome::Stale,
            Verdict::Invalid => EventOutcome::Invalid,
        })
    }
}

/// The instant in `column`, if the row counts at least `limit` sessions.
fn full(row: Option<Row>, column: &'static str, limit: i64) -> Result<Option<i64>, StoreError> {
    match row {
        Some(row) if row.get::<i64>("sessions")? >= limit => row.get(column),
        _ => Ok(None),
    }
}

fn standing(row: &Row) -> Result<AgeRecord, StoreError> {
    let last_occurred_us = row.get("last_occurred_us")?;
    Ok(AgeRecord { status: row.parsed("status", AgeStatus::parse)?, last_occurred_us })
}

/// The outcome of an event that is stored already.
async fn known(tx: &mut Tx, event: &SignedEvent) -> Result<Option<EventOutcome>, StoreError> {
    let Some(row) = tx.row(sql::AGE_EVENT, &[event.event_id().into()]).await? else {
        return Ok(None);
    };
    if row.get::<String>("digest")? != hex::encode(event.digest()) {
        return Ok(Some(EventOutcome::Conflict));
    }
    Ok(Some(EventOutcome::Duplicate {
        outcome: row.parsed("outcome", Verdict::parse)?,
        state: row.parsed("status_after", AgeStatus::parse)?,
    }))
}

/// Stores an event; false if one with its id is stored.
async fn insert(
    tx: &mut Tx,
    event: &SignedEvent,
    received_us: i64,
    outcome: Verdict,
    after: AgeStatus,
) -> Result<bool, StoreError> {
    let args = [
        event.event_id().into(),
        (&event.digest()).into(),
        event.subject_ref().into(),
        event.status().name().into(),
        event.age_band().into(),
        event.verified_us().into(),
        event.expires_us().into(),
        event.occurred_us().into(),
        received_us.into(),
        outcome.name().into(),
        after.name().into(),
    ];
    Ok(tx.run(sql::AGE_EVENT_ADD, &args).await? == 1)
}

/// Updates the subject, and the user unless another of the user's subjects changed later; false if
/// the subject was pruned meanwhile.
async fn apply(tx: &mut Tx, event: &SignedEvent, user_id: &str) -> Result<bool, StoreError> {
    let (status, occurred_us) = (event.status(), event.occurred_us());
    let args = [event.subject_ref().into(), status.name().into(), occurred_us.into()];
    if tx.run(sql::AGE_SESSION_MOVE, &args).await? == 0 {
        return Ok(false);
    }
    let row = tx.row(sql::AGE_USER, &[user_id.into()]).await?;
    let user = row.as_ref().map(standing).transpose()?;
    if moves_user(user, status, occurred_us) {
        let args = [
            user_id.into(),
            status.name().into(),
            event.age_band().into(),
            event.verified_us().into(),
            event.expires_us().into(),
            occurred_us.into(),
        ];
        tx.run(sql::AGE_USER_MOVE, &args).await?;
    }
    Ok(true)
}
