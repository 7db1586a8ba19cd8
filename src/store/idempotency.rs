//! Idempotency keys: a key identifies one request and its first response, across restarts, in one
//! epoch of the chain.
//!
//! A key is claimed before the work, linked to the intent by [`Intents::intend`], and answered
//! after it. A claim with neither link nor answer is in progress, or its process died: the caller
//! decides from which age on it counts as abandoned.

use super::db::{Db, Row};
use super::error::Cause;
use super::intent::{Intent, IntentId, Intents};
use super::{StoreError, sql};

/// The outcome of claiming a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller holds the key: do the work, then answer or release it.
    New,
    /// The request was answered before: repeat the response.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
        /// The intent that it reports, if any.
        intent: Option<Box<Intent>>,
    },
    /// The key is claimed and not answered yet.
    Open {
        /// The intent that is linked to it, if any.
        intent: Option<Box<Intent>>,
        /// When it was claimed.
        since_us: i64,
    },
    /// The key belongs to another request.
    Conflict,
}

/// Reads and writes idempotency keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    pub(super) db: &'a Db,
    pub(super) epoch: &'a str,
}

impl Keys<'_> {
    /// Claims a key for a request. A claim of an equal request before `abandoned_before_us` without
    /// link or answer is replaced.
    pub async fn claim(
        &self,
        key: &str,
        operation: &str,
        digest: &[u8; 32],
        now_us: i64,
        abandoned_before_us: i64,
    ) -> Result<Claim, StoreError> {
        let args = [
            self.epoch.into(),
            key.into(),
            operation.into(),
            digest.into(),
            now_us.into(),
            abandoned_before_us.into(),
        ];
        // repeats only if the key is released between the two statements
        for _ in 0..3 {
            if self.db.run(sql::KEY_CLAIM, &args).await? == 1 {
                return Ok(Claim::New);
            }
            if let Some(row) = self.db.row(sql::KEY, &[self.epoch.into(), key.into()]).await? {
                return self.claimed(&row, operation, &hex::encode(digest)).await;
            }
        }
        Err(StoreError::Unavailable(Cause::Timeout))
    }

    async fn claimed(&self, row: &Row, operation: &str, digest: &str) -> Result<Claim, StoreError> {
        let is_other =
            row.get::<String>("operation")? != operation || row.get::<String>("digest")? != digest;
        if is_other {
            return Ok(Claim::Conflict);
        }
        let intent = match row.get::<Option<i64>>("intent_id")? {
            Some(id) => Intents { db: self.db }.get(IntentId(id)).await?.map(Box::new),
            None => None,
        };
        let answer = row.get::<Option<i64>>("status")?.zip(row.get::<Option<String>>("body")?);
        if let Some((status, body)) = answer {
            let status = u16::try_from(status).map_err(|_| StoreError::Corrupt("status"))?;
            return Ok(Claim::Answered { status, body, intent });
        }
        Ok(Claim::Open { intent, since_us: row.get("created_us")? })
    }

    /// Stores the response of a key; `false` if it has one already, or is unknown.
    pub async fn answer(&self, key: &str, status: u16, body: &str) -> Result<bool, StoreError> {
        let args = [self.epoch.into(), key.into(), i64::from(status).into(), body.into()];
        Ok(self.db.run(sql::KEY_ANSWER, &args).await? == 1)
    }

    /// Releases a key that was claimed at `claimed_us`; `false` if it is linked to an intent,
    /// answered, or claimed again.
    pub async fn release(&self, key: &str, claimed_us: i64) -> Result<bool, StoreError> {
        let args = [self.epoch.into(), key.into(), claimed_us.into()];
        Ok(self.db.run(sql::KEY_RELEASE, &args).await? == 1)
    }
}
