//! The events that the backend is sent: which entries of the journal were read, and which events
//! wait. [`portcullis_filters::events`] decides.

use super::db::Db;
use super::row::{FromRow, Row};
use super::state::EntryKind;
use super::{IntentId, IntentState, Store, StoreError, sql};
use portcullis_filters::events::{
    Attempts, BATCH, Backlog, DueTimes, Entry, Event, Moved, NewEvent, PAGE, Settled, Settlement,
    Waiting,
};
use serde::Deserialize;

/// Reads and writes the events that wait.
#[derive(Debug, Clone, Copy)]
pub struct Events<'a> {
    db: &'a Db,
}

/// The members of an entry's detail that an event shows. One that was tampered with shows none: it
/// must not stop the events of others.
#[derive(Default, Deserialize)]
struct Detail {
    block: Option<String>,
    detail: Option<String>,
}

impl Store {
    /// The events that the backend is sent.
    pub fn events(&self) -> Events<'_> {
        Events { db: &self.db }
    }
}

impl FromRow for Entry {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let write: Option<i64> = row.get("intent_id")?;
        let moved = match (row.parsed("kind", EntryKind::parse)?, write) {
            (EntryKind::Moved(state), Some(write)) => Some(Moved {
                write: IntentId(write),
                state,
                previous: previous(row)?,
            }),
            _ => None,
        };
        Ok(from_row!(row; get: seq; { moved }))
    }
}

impl FromRow for Waiting<Event> {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let event = Event::read(row)?;
        let failed: i64 = row.get("failed")?;
        let attempts = Attempts {
            failed: u32::try_from(failed).map_err(|_| StoreError::Corrupt("failed"))?,
            first_us: row.get("first_us")?,
        };
        Ok(from_row!(row; get: seq; { write: event.write, attempts, event }))
    }
}

impl FromRow for Event {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let detail: String = row.get("detail")?;
        let detail: Detail = serde_json::from_str(&detail).unwrap_or_default();
        let subject: Option<String> = row.get("subject")?;
        let nonce: i64 = row.get("nonce")?;
        Ok(
            from_row!(row; get: hash at_us operation; felt: signer transaction_hash; {
                write: IntentId(row.get("intent_id")?),
                state: row.parsed("kind", IntentState::parse)?,
                previous: previous(row)?,
                block: detail.block.and_then(|number| number.parse().ok()),
                detail: detail.detail,
                subject: subject.map(|_| row.felt("subject")).transpose()?,
                nonce: u64::try_from(nonce).map_err(|_| StoreError::Corrupt("nonce"))?,
            }),
        )
    }
}

fn previous(row: &Row) -> Result<Option<IntentState>, StoreError> {
    let name: Option<String> = row.get("previous")?;
    name.map(|_| row.parsed("previous", IntentState::parse))
        .transpose()
}

impl Events<'_> {
    /// The last entry that was read; the end of the journal, when nothing was read before.
    pub async fn cursor(&self) -> Result<i64, StoreError> {
        if let Some(row) = self.db.row(sql::EVENT_CURSOR, &[]).await? {
            return row.get("seq");
        }
        self.db.run(sql::EVENT_CURSOR_BEGIN, &[]).await?;
        let row = self.db.row(sql::EVENT_CURSOR, &[]).await?;
        row.ok_or(StoreError::Corrupt("event_cursor"))?.get("seq")
    }

    /// The entries after this one, in their order.
    pub async fn entries(&self, after: i64) -> Result<Vec<Entry>, StoreError> {
        let args = [after.into(), (PAGE as i64).into()];
        self.db.all(sql::EVENT_ENTRIES, &args).await
    }

    /// Keeps these events, due now, and moves the cursor, both or neither; `false`, and neither, if
    /// the cursor is not at `from`.
    pub async fn keep(
        &self,
        events: &[NewEvent],
        from: i64,
        to: i64,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.db.begin().await?;
        let args = [from.into(), to.into()];
        if tx.run(sql::EVENT_CURSOR_MOVE, &args).await? == 0 {
            return Ok(false);
        }
        for event in events {
            let args = [event.seq.into(), event.write.0.into(), now_us.into()];
            tx.run(sql::EVENT_ADD, &args).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// The events that are due, without those that wait for an earlier one of their write.
    pub async fn due(&self, times: DueTimes) -> Result<Vec<Waiting<Event>>, StoreError> {
        let args = [
            times.until_us.into(),
            times.after_us.into(),
            (BATCH as i64).into(),
        ];
        self.db.all(sql::EVENTS_DUE, &args).await
    }

    /// Records what follows from the answers, all or nothing. First, every event that is due after
    /// `due_us` is due then.
    pub async fn settle(
        &self,
        settlements: &[Settlement<Event>],
        due_us: Option<i64>,
    ) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        if let Some(due_us) = due_us {
            tx.run(sql::EVENTS_HASTEN, &[due_us.into()]).await?;
        }
        for one in settlements {
            let seq = one.sent.seq;
            match one.settled {
                Settled::Delivered | Settled::GivenUp => {
                    tx.run(sql::EVENT_END, &[seq.into()]).await?;
                }
                Settled::Later { attempts, due_us } => {
                    let args = [
                        seq.into(),
                        i64::from(attempts.failed).into(),
                        attempts.first_us.into(),
                        due_us.into(),
                    ];
                    tx.run(sql::EVENT_LATER, &args).await?;
                }
            }
        }
        tx.commit().await
    }

    /// The events that wait.
    pub async fn backlog(&self) -> Result<Backlog, StoreError> {
        let row = self.db.row(sql::EVENT_BACKLOG, &[]).await?;
        let row = row.ok_or(StoreError::Corrupt("event_waiting"))?;
        let waiting: i64 = row.get("waiting")?;
        let waiting_us: Option<i64> = row.get("waiting_us")?;
        let unread_us: Option<i64> = row.get("unread_us")?;
        Ok(Backlog {
            waiting: waiting.unsigned_abs(),
            oldest_us: waiting_us.into_iter().chain(unread_us).min(),
        })
    }
}
