//! What is forgotten: only what nothing needs any more, in bounded steps, each durable by itself.
//!
//! The journal, intents, bindings, and the age of users are never forgotten.

use super::{Store, StoreError, sql};
use std::time::Duration;

/// 180 days: no webhook is repeated after that, and one that claims to be older is refused, so a
/// forgotten one can not come back.
pub const AGE_EVENTS_KEPT: Duration = Duration::from_secs(180 * 24 * 3_600);

/// Rows that one step deletes, or walks over.
const STEP: i64 = 2_000;

/// After every DID.
const END: &str = "~";

/// From before when on what is forgotten; microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Forget {
    /// Idempotency keys.
    pub keys_us: i64,
    /// Snapshots of suggestions, but for the newest of each viewer.
    pub suggestions_us: i64,
    /// Age sessions that were never used: when they expired.
    pub age_sessions_us: i64,
    /// Age events: when they were received.
    pub age_events_us: i64,
    /// Feed items with their labels, if at all.
    pub feed_items_us: Option<i64>,
}

/// How many rows were forgotten.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Idempotency keys.
    pub keys: u64,
    /// Suggestions, one for each account in a snapshot.
    pub suggestions: u64,
    /// Age sessions.
    pub age_sessions: u64,
    /// Age events.
    pub age_events: u64,
    /// Feed items.
    pub feed_items: u64,
}

impl Store {
    /// Forgets what is old. Whatever was done before an error stays done.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn forget(&self, before: &Forget) -> Result<Forgotten, StoreError> {
        Ok(Forgotten {
            keys: self.prune(before.keys_us).await?,
            suggestions: self.forget_suggestions(before.suggestions_us).await?,
            age_sessions: self.in_steps(sql::AGE_SESSIONS_FORGET, before.age_sessions_us).await?,
            age_events: self.in_steps(sql::AGE_EVENTS_FORGET, before.age_events_us).await?,
            feed_items: match before.feed_items_us {
                Some(before_us) => self.in_steps(sql::FEED_ITEMS_FORGET, before_us).await?,
                None => 0,
            },
        })
    }

    async fn in_steps(&self, sql: &'static str, before_us: i64) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            match self.db.run(sql, &[before_us.into(), STEP.into()]).await? {
                0 => return Ok(forgotten),
                rows => forgotten += rows,
            }
        }
    }

    /// From viewer to viewer: most of what is old is the newest of somebody, and would be looked
    /// at again at each step.
    async fn forget_suggestions(&self, before_us: i64) -> Result<u64, StoreError> {
        let (mut from, mut forgotten) = (String::new(), 0);
        while from != END {
            let row = self.db.row(sql::SUGGESTION_VIEWER, &[(&from).into(), STEP.into()]).await?;
            let to = row.map(|row| row.get("viewer_did")).transpose()?;
            let to = to.unwrap_or_else(|| END.to_owned());
            let args = [(&from).into(), (&to).into(), before_us.into()];
            forgotten += self.db.run(sql::SUGGESTIONS_FORGET, &args).await?;
            from = to;
        }
        Ok(forgotten)
    }
}
