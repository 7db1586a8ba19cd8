//! Age verification: sessions that users open, and the events that the verifier sends about them.
//!
//! An event is stored with its outcome, in the transaction that updates its session and its user,
//! so a repeated event finds its first outcome. All writes about one user, and all events of one
//! id, are serialized, across processes too; [`portcullis_filters::webhook`] decides.

use super::db::Db;
use super::row::Row;
use super::tx::Tx;
use super::{StoreError, sql};
use hex::FromHex as _;
use portcullis_filters::webhook::{
    AgeClock, AgeRecord, AgeReport, AgeSession, AgeStatus, AgeUser, EventFacts, EventOutcome,
    Opening, Recording, SignedEvent, StoredEvent, Verdict, record,
};
use portcullis_filters::window::ahead_after_us;

/// Reads and writes age sessions, events and the status of users.
#[derive(Debug, Clone, Copy)]
pub struct Ages<'a> {
    pub(super) db: &'a Db,
}

impl Ages<'_> {
    /// Opens a session for a user, unless there are too many.
    pub async fn open_session(
        &self,
        user_id: &str,
        subject_ref: &str,
        now_us: i64,
        expires_us: i64,
    ) -> Result<Opening, StoreError> {
        let mut tx = self.db.begin().await?;
        tx.lock(user_id).await?;
        let dated = date_anew(&mut tx, user_id, now_us).await?;
        let minute = Opening::minute(now_us);
        let args = [
            user_id.into(),
            minute.after_us().into(),
            minute.until_us().into(),
            now_us.into(),
        ];
        let rows = tx.rows(sql::AGE_SESSIONS, &args).await?;
        let sessions = rows.iter().map(session).collect::<Result<Vec<_>, _>>()?;
        let opening = Opening::decide(&sessions, now_us, expires_us);
        if opening == Opening::Opened {
            let args = [
                subject_ref.into(),
                user_id.into(),
                now_us.into(),
                expires_us.into(),
            ];
            tx.run(sql::AGE_SESSION_ADD, &args).await?;
        }
        if opening == Opening::Opened || dated > 0 {
            tx.commit().await?;
        }
        Ok(opening)
    }

    /// The age status of a user: pending while only an open session is known, `None` without one.
    pub async fn user(
        &self,
        user_id: &str,
        clock: AgeClock,
    ) -> Result<Option<AgeUser>, StoreError> {
        let args = [user_id.into(), clock.now_us.into()];
        let rows = self.db.rows(sql::AGE_REPORTS, &args).await?;
        let mut reports = Vec::new();
        let mut sessions = Vec::new();
        for row in &rows {
            match report(row)? {
                Some(report) => reports.push(report),
                None => sessions.push(session(row)?),
            }
        }
        Ok(AgeUser::shown(&reports, &sessions, clock))
    }

    /// Stores an event once and applies it; durable on return, and safe to repeat after an error.
    pub async fn record_event(
        &self,
        event: &SignedEvent,
        clock: AgeClock,
    ) -> Result<EventOutcome, StoreError> {
        let mut tx = self.db.begin().await?;
        // serializes the events of one id, even if they are about two users
        tx.lock(&format!("age event {}", event.event_id())).await?;
        let user_id = tx
            .row(sql::AGE_SUBJECT, &[event.subject_ref().into()])
            .await?;
        let user_id: Option<String> = user_id.map(|row| row.get("user_id")).transpose()?;
        if let Some(user_id) = &user_id {
            tx.lock(user_id).await?;
        }
        let facts = facts(&mut tx, event, user_id.as_deref()).await?;
        let recording = record(event, &facts, clock);
        let outcome = recording.outcome();
        let Recording::Store {
            verdict,
            status_after,
            user,
        } = recording
        else {
            return Ok(outcome);
        };
        insert(&mut tx, event, clock.now_us, verdict, status_after).await?;
        if verdict == Verdict::Applied && !move_subject(&mut tx, event).await? {
            // pruning takes no lock, and deleted the session meanwhile
            return Ok(EventOutcome::UnknownSubject);
        }
        if let (Some(report), Some(user_id)) = (&user, &user_id) {
            move_user(&mut tx, report, user_id).await?;
        }
        tx.commit().await?;
        Ok(outcome)
    }
}

/// Dates the sessions of a user anew that a clock which was ahead has dated; returns their number.
async fn date_anew(tx: &mut Tx, user_id: &str, now_us: i64) -> Result<u64, StoreError> {
    let Some(after_us) = ahead_after_us(now_us) else {
        return Ok(0);
    };
    let args = [user_id.into(), now_us.into(), after_us.into()];
    tx.run(sql::AGE_SESSIONS_DATE, &args).await
}

fn session(row: &Row) -> Result<AgeSession, StoreError> {
    Ok(from_row!(AgeSession, row; get: created_us expires_us last_occurred_us;))
}

/// Reads the report of a row of [`sql::AGE_REPORTS`]; `None` if the session waits.
fn report(row: &Row) -> Result<Option<AgeReport>, StoreError> {
    let Some(occurred_us) = row.get("last_occurred_us")? else {
        return Ok(None);
    };
    let status = row.parsed("status", AgeStatus::parse)?;
    let expires_us = row.get("verified_until_us")?;
    Ok(Some(from_row!(AgeReport, row; get: age_band verified_us;
        { status, occurred_us, expires_us })))
}

/// Parses a text column that may be NULL.
fn parsed<T>(
    row: &Row,
    column: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let text: Option<String> = row.get(column)?;
    text.map(|_| row.parsed(column, parse)).transpose()
}

/// Reads the stored facts that an event may conflict with. Its id and its user must be locked.
async fn facts(
    tx: &mut Tx,
    event: &SignedEvent,
    user_id: Option<&str>,
) -> Result<EventFacts, StoreError> {
    let args = [
        event.event_id().into(),
        event.subject_ref().into(),
        user_id.into(),
    ];
    let row = tx.row(sql::AGE_EVENT_FACTS, &args).await?;
    let row = row.ok_or(StoreError::Corrupt("facts"))?;
    let digest = parsed(&row, "digest", |text| <[u8; 32]>::from_hex(text).ok())?;
    let stored = |digest| {
        let outcome = row.parsed("outcome", Verdict::parse)?;
        let status_after = row.parsed("status_after", AgeStatus::parse)?;
        Ok::<_, StoreError>(StoredEvent {
            digest,
            outcome,
            status_after,
        })
    };
    Ok(EventFacts {
        stored: digest.map(stored).transpose()?,
        subject: subject(&row)?,
        others: match user_id {
            Some(user_id) => others(tx, event, user_id).await?,
            None => Vec::new(),
        },
    })
}

fn subject(row: &Row) -> Result<Option<AgeRecord>, StoreError> {
    let Some(status) = parsed(row, "subject_status", AgeStatus::parse)? else {
        return Ok(None);
    };
    Ok(Some(AgeRecord {
        status,
        last_occurred_us: row.get("subject_us")?,
    }))
}

/// The reports on the user's other subjects.
async fn others(
    tx: &mut Tx,
    event: &SignedEvent,
    user_id: &str,
) -> Result<Vec<AgeReport>, StoreError> {
    // no session waits at the end of time
    let args = [user_id.into(), i64::MAX.into()];
    let mut others = Vec::new();
    for row in tx.rows(sql::AGE_REPORTS, &args).await? {
        if row.get::<String>("subject_ref")? != event.subject_ref() {
            others.extend(report(&row)?);
        }
    }
    Ok(others)
}

/// Stores an event.
async fn insert(
    tx: &mut Tx,
    event: &SignedEvent,
    received_us: i64,
    outcome: Verdict,
    after: AgeStatus,
) -> Result<(), StoreError> {
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
    tx.run(sql::AGE_EVENT_ADD, &args)
        .await
        .map(drop)
        .map_err(StoreError::of_decided)
}

/// Updates the session; false if it was deleted.
async fn move_subject(tx: &mut Tx, event: &SignedEvent) -> Result<bool, StoreError> {
    let args = [
        event.subject_ref().into(),
        event.status().name().into(),
        event.occurred_us().into(),
        event.age_band().into(),
        event.verified_us().into(),
        event.expires_us().into(),
    ];
    Ok(tx.run(sql::AGE_SESSION_MOVE, &args).await? == 1)
}

/// Updates the age status of the user.
async fn move_user(tx: &mut Tx, report: &AgeReport, user_id: &str) -> Result<(), StoreError> {
    let args = [
        user_id.into(),
        report.status.name().into(),
        report.age_band.as_deref().into(),
        report.verified_us.into(),
        report.expires_us.into(),
        report.occurred_us.into(),
    ];
    tx.run(sql::AGE_USER_MOVE, &args).await.map(drop)
}
