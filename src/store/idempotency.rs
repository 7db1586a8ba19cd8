//! Idempotency keys: a key stands for one request and its first answer, also after a restart.
//!
//! A key is claimed before the work, linked to the intent by [`Store::intend`], and answered after
//! it. What was claimed and neither linked nor answered is a process's that died, or is at work:
//! the caller says from which age on it takes such a claim for abandoned.

use super::db::Row;
use super::error::Cause;
use super::intent::{Intent, IntentId};
use super::{Store, StoreError, hex, sql};

/// What came of claiming a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is the caller's, since the instant that was passed: do the work, then answer the key.
    New,
    /// The request was answered before: answer the same.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// It was claimed and not answered yet.
    Open {
        /// What was intended for it, if it came so far.
        intent: Option<Box<Intent>>,
        /// When it was claimed.
        since_us: i64,
    },
    /// It stands for another request.
    Conflict,
}

impl Store {
    /// Claims a key for a request. An equal claim from before `abandoned_before_us` that led to
    /// nothing is taken over.
    ///
    /// # Errors
    /// The database is unavailable: the key may be claimed nevertheless.
    pub async fn claim_key(
        &self,
        key: &str,
        operation: &str,
        digest: &[u8; 32],
        now_us: i64,
        abandoned_before_us: i64,
    ) -> Result<Claim, StoreError> {
        let digest = hex::write(digest);
        let args = [
            key.into(),
            operation.into(),
            (&digest).into(),
            now_us.into(),
            abandoned_before_us.into(),
        ];
        // more than once only when the key is released between the two statements
        for _ in 0..3 {
            if self.db.run(sql::KEY_CLAIM, &args).await? == 1 {
                return Ok(Claim::New);
            }
            if let Some(row) = self.db.row(sql::KEY, &[key.into()]).await? {
                return self.claimed(&row, operation, &digest).await;
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
        let answer = row.get::<Option<i64>>("status")?.zip(row.get::<Option<String>>("body")?);
        if let Some((status, body)) = answer {
            let status = u16::try_from(status).map_err(|_| StoreError::Corrupt("status"))?;
            return Ok(Claim::Answered { status, body });
        }
        let intent = match row.get::<Option<i64>>("intent_id")? {
            Some(id) => self.intent(IntentId(id)).await?.map(Box::new),
            None => None,
        };
        Ok(Claim::Open { intent, since_us: row.get("created_us")? })
    }

    /// Keeps the answer of a key; `false` when it has one, which stays, or is unknown.
    ///
    /// # Errors
    /// The database is unavailable: it may be kept nevertheless.
    pub async fn answer_key(&self, key: &str, status: u16, body: &str) -> Result<bool, StoreError> {
        let args = [key.into(), i64::from(status).into(), body.into()];
        Ok(self.db.run(sql::KEY_ANSWER, &args).await? == 1)
    }

    /// Gives back a key that was claimed at `claimed_us`; `false` when it is linked to an intent,
    /// answered, or another's by now.
    ///
    /// # Errors
    /// The database is unavailable: it may be given back nevertheless.
    pub async fn release_key(&self, key: &str, claimed_us: i64) -> Result<bool, StoreError> {
        Ok(self.db.run(sql::KEY_RELEASE, &[key.into(), claimed_us.into()]).await? == 1)
    }

    /// Forgets the keys from before an instant that are answered, or that led to nothing; how many.
    /// The journal and intents are never forgotten.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn prune(&self, before_us: i64) -> Result<u64, StoreError> {
        self.db.run(sql::KEY_PRUNE, &[before_us.into()]).await
    }
}
