//! Deletes old rows that nothing needs any more, in bounded steps, each durable by itself.
//!
//! The journal, intents, bindings and the age status of users are never deleted.

use super::{Store, StoreError, sql};
use portcullis_base::io::clock::micros;
use std::time::Duration;

/// 180 days: the webhook refuses events that claim to be older, so a pruned event cannot return.
pub const AGE_EVENTS_KEPT: Duration = Duration::from_secs(180 * 24 * 3_600);

/// Rows that one step deletes or scans.
const STEP: i64 = 2_000;

/// Sorts after every DID.
const END: &str = "~";

/// Prunes rows older than these instants, in microseconds since 1970 UTC.
#[derive(Debug, Clone, Copy)]
pub struct PruneBefore {
    /// Idempotency keys.
    pub keys_us: i64,
    /// Counts of refusals.
    pub refusals_us: i64,
    /// Snapshots of suggestions, except the newest of each viewer.
    pub suggestions_us: i64,
    /// Age sessions without an event, by their expiry.
    pub age_sessions_us: i64,
    /// Age events, by their receipt.
    pub age_events_us: i64,
    /// Feed items with their labels; `None` prunes none.
    pub feed_items_us: Option<i64>,
}

/// How long rows are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Idempotency keys.
    pub keys: Duration,
    /// Counts of refusals.
    pub refusals: Duration,
    /// Snapshots of suggestions, except the newest of each viewer.
    pub suggestions: Duration,
    /// Age sessions without an event, after their expiry.
    pub age_sessions: Duration,
    /// Age events, after their receipt.
    pub age_events: Duration,
    /// Feed items with their labels; `None` keeps them.
    pub feed_items: Option<Duration>,
}

impl Retention {
    /// The instants before which rows are no longer kept.
    fn before(&self, now_us: i64) -> PruneBefore {
        // nothing is older than 1970
        let before = |age| now_us.saturating_sub(micros(age)).max(0);
        PruneBefore {
            keys_us: before(self.keys),
            refusals_us: before(self.refusals),
            suggestions_us: before(self.suggestions),
            age_sessions_us: before(self.age_sessions),
            age_events_us: before(self.age_events),
            feed_items_us: self.feed_items.map(before),
        }
    }
}

/// How many rows were deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Idempotency keys.
    pub keys: u64,
    /// Counts of refusals, a row for equal ones of a minute.
    pub refusals: u64,
    /// Suggestions, one per account in a snapshot.
    pub suggestions: u64,
    /// Age sessions.
    pub age_sessions: u64,
    /// Age events.
    pub age_events: u64,
    /// Feed items.
    pub feed_items: u64,
}

impl Store {
    /// Deletes rows that are no longer kept, by the clock that dates them: the store's, not this
    /// machine's.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn prune_by(&self, retention: &Retention) -> Result<Pruned, StoreError> {
        self.read_clock().await?;
        self.prune(&retention.before(self.now_us())).await
    }

    /// Deletes old rows, and stores the time at the end. Steps before an error are not undone.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn prune(&self, before: &PruneBefore) -> Result<Pruned, StoreError> {
        let pruned = Pruned {
            keys: self.prune_keys(before.keys_us).await?,
            refusals: self
                .in_steps(sql::REFUSALS_PRUNE, before.refusals_us)
                .await?,
            suggestions: self.prune_suggestions(before.suggestions_us).await?,
            age_sessions: self
                .in_steps(sql::AGE_SESSIONS_PRUNE, before.age_sessions_us)
                .await?,
            age_events: self
                .in_steps(sql::AGE_EVENTS_PRUNE, before.age_events_us)
                .await?,
            feed_items: match before.feed_items_us {
                Some(before_us) => self.in_steps(sql::FEED_ITEMS_PRUNE, before_us).await?,
                None => 0,
            },
        };
        self.read_clock().await?;
        self.db
            .run(sql::PRUNED_SET, &[self.now_us().into()])
            .await?;
        Ok(pruned)
    }

    /// When [`Store::prune`] last ended, in microseconds since 1970 UTC. For a store that was never
    /// pruned: when its tables were migrated to record this.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn pruned_us(&self) -> Result<i64, StoreError> {
        let row = self.db.row(sql::PRUNED, &[]).await?;
        row.map_or(Ok(0), |row| row.get("pruned_us"))
    }

    /// Deletes the idempotency keys from before an instant that are answered or have no intent, and
    /// returns their number.
    pub async fn prune_keys(&self, before_us: i64) -> Result<u64, StoreError> {
        self.db.run(sql::KEY_PRUNE, &[before_us.into()]).await
    }

    async fn in_steps(&self, sql: &'static str, before_us: i64) -> Result<u64, StoreError> {
        let mut deleted = 0;
        loop {
            let rows = self.db.run(sql, &[before_us.into(), STEP.into()]).await?;
            debug_assert!(
                rows <= STEP.unsigned_abs(),
                "a step deletes a bounded number"
            );
            if rows == 0 {
                return Ok(deleted);
            }
            deleted += rows;
        }
    }

    /// Deletes by ranges of viewers: most old snapshots are the newest of their viewer and stay,
    /// and each step over all snapshots would scan them again.
    async fn prune_suggestions(&self, before_us: i64) -> Result<u64, StoreError> {
        let (mut from, mut deleted) = (String::new(), 0);
        while from != END {
            let row = self
                .db
                .row(sql::SUGGESTION_VIEWER, &[(&from).into(), STEP.into()])
                .await?;
            let to = row.map(|row| row.get("viewer_did")).transpose()?;
            let to = to.unwrap_or_else(|| END.to_owned());
            let args = [(&from).into(), (&to).into(), before_us.into()];
            deleted += self.db.run(sql::SUGGESTIONS_PRUNE, &args).await?;
            from = to;
        }
        Ok(deleted)
    }
}
