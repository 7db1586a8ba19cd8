//! Proofs of age: sessions that users open, and what the verifier reports of them.
//!
//! An event is kept with what came of it, in the transaction that moves its session and its user:
//! a repeated one, whenever it comes, finds its first outcome. Everything about one user runs one
//! after the other, whichever process it is in.

use super::db::{Row, Tx};
use super::{Store, StoreError, hex, sql};
use portcullis_filters::webhook::{AgeStatus, SignedEvent, Standing, Verdict, decide, moves_user};

/// Sessions that a user may open within [`MINUTE_US`].
const PER_MINUTE: i64 = 5;
const MINUTE_US: i64 = 60_000_000;
/// Sessions of a user that may wait for an event.
const OPEN: i64 = 10;

/// What came of opening a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It waits for the verifier.
    Opened,
    /// The user opened too many.
    TooMany {
        /// When there will be room for another.
        retry_at_us: i64,
    },
}

/// How a user stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeUser {
    /// The status, expired when its end has come.
    pub status: AgeStatus,
    /// Between which ages.
    pub age_band: Option<String>,
    /// When that was verified.
    pub verified_us: Option<i64>,
    /// Until when it holds, if the verifier said so.
    pub expires_us: Option<i64>,
}

/// What came of an event at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstOutcome {
    /// It moved its subject.
    Applied,
    /// A newer one had come before.
    Stale,
    /// It can not follow what was before.
    Invalid,
}

impl FirstOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Stale, Self::Invalid];

    /// As it is stored and answered.
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Stale => "stale",
            Self::Invalid => "invalid",
        }
    }

    /// The outcome of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }
}

impl From<Verdict> for FirstOutcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Applied => Self::Applied,
            Verdict::Stale => Self::Stale,
            Verdict::Invalid => Self::Invalid,
        }
    }
}

/// What came of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventOutcome {
    /// The subject stands so now.
    Applied(AgeStatus),
    /// A newer one came before: kept, and nothing was moved.
    Stale,
    /// It can not follow what was before: kept, and nothing was moved.
    Invalid,
    /// It came before.
    Duplicate {
        /// What came of it then.
        outcome: FirstOutcome,
        /// How the subject stood after it.
        state: AgeStatus,
    },
    /// Its id came before, with another content.
    Conflict,
    /// Nobody opened a session for its subject; it is not kept.
    UnknownSubject,
}

impl Store {
    /// Opens a session of a user, unless there are too many.
    ///
    /// # Errors
    /// The database is unavailable: it may be open nevertheless.
    pub async fn open_age_session(
        &self,
        user_id: &str,
        subject_ref: &str,
        now_us: i64,
        expires_us: i64,
    ) -> Result<Opening, StoreError> {
        let mut tx = self.db.begin().await?;
        tx.lock(user_id).await?;
        let minute_ago = now_us.saturating_sub(MINUTE_US);
        let opened = tx.row(sql::AGE_OPENED, &[user_id.into(), minute_ago.into()]).await?;
        let room_at =
            full(opened, "since_us", PER_MINUTE)?.map(|first| first.saturating_add(MINUTE_US));
        let open = tx.row(sql::AGE_OPEN, &[user_id.into(), now_us.into()]).await?;
        if let Some(retry_at_us) = room_at.max(full(open, "until_us", OPEN)?) {
            return Ok(Opening::TooMany { retry_at_us });
        }
        let args = [subject_ref.into(), user_id.into(), now_us.into(), expires_us.into()];
        tx.run(sql::AGE_SESSION_ADD, &args).await?;
        tx.commit().await?;
        Ok(Opening::Opened)
    }

    /// How a user stands; pending while nothing but an open session is known, and none when not
    /// even that is.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn age_user(
        &self,
        user_id: &str,
        now_us: i64,
    ) -> Result<Option<AgeUser>, StoreError> {
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
            // the first event may have come between the two
            known = self.db.row(sql::AGE_USER, &user).await?;
        }
        let Some(row) = known else { return Ok(None) };
        let expires_us: Option<i64> = row.get("expires_us")?;
        let has_ended = expires_us.is_some_and(|end| end <= now_us);
        Ok(Some(AgeUser {
            status: match status(&row, "status")? {
                AgeStatus::Verified if has_ended => AgeStatus::Expired,
                status => status,
            },
            age_band: row.get("age_band")?,
            verified_us: row.get("verified_us")?,
            expires_us,
        }))
    }

    /// Takes an event in, once: durable when it returns.
    ///
    /// # Errors
    /// The database is unavailable: it may be taken in nevertheless, and to send it again is right.
    pub async fn record_age_event(
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
        if !keep(&mut tx, event, received_us, verdict.into(), after).await? {
            // the same event came at the same time: it is there now
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

/// The instant of the column when there are so many sessions.
fn full(row: Option<Row>, column: &'static str, limit: i64) -> Result<Option<i64>, StoreError> {
    match row {
        Some(row) if row.get::<i64>("sessions")? >= limit => row.get(column),
        _ => Ok(None),
    }
}

fn status(row: &Row, column: &'static str) -> Result<AgeStatus, StoreError> {
    AgeStatus::parse(&row.get::<String>(column)?).ok_or(StoreError::Corrupt(column))
}

fn standing(row: &Row) -> Result<Standing, StoreError> {
    let last_occurred_us = row.get("last_occurred_us")?;
    Ok(Standing { status: status(row, "status")?, last_occurred_us })
}

/// What came of an event before.
async fn known(tx: &mut Tx, event: &SignedEvent) -> Result<Option<EventOutcome>, StoreError> {
    let Some(row) = tx.row(sql::AGE_EVENT, &[event.event_id().into()]).await? else {
        return Ok(None);
    };
    if row.get::<String>("digest")? != hex::write(&event.digest()) {
        return Ok(Some(EventOutcome::Conflict));
    }
    let outcome = FirstOutcome::parse(&row.get::<String>("outcome")?);
    let outcome = outcome.ok_or(StoreError::Corrupt("outcome"))?;
    Ok(Some(EventOutcome::Duplicate { outcome, state: status(&row, "status_after")? }))
}

/// Keeps an event, unless its id is there.
async fn keep(
    tx: &mut Tx,
    event: &SignedEvent,
    received_us: i64,
    outcome: FirstOutcome,
    after: AgeStatus,
) -> Result<bool, StoreError> {
    let digest = hex::write(&event.digest());
    let args = [
        event.event_id().into(),
        (&digest).into(),
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

/// Moves the subject, and the user unless another subject of theirs moved later; false when the
/// subject was just forgotten.
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
