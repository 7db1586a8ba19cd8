//! Idempotency keys, in one epoch of the chain, across restarts.
//!
//! A key is claimed before the work, linked to the intent by [`super::Intents::intend`] or
//! [`Keys::link`], and answered after it: [`portcullis_filters::ledger`] has the rules.

use super::db::Db;
use super::error::Cause;
use super::row::{FromRow, Row};
use super::tx::Tx;
use super::{Claim, ClaimToken, Intent, IntentId, StoreError, journal, sql};
use hex::FromHex as _;
use portcullis_filters::ledger::Key;

/// Reads and writes idempotency keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a> {
    pub(super) db: &'a Db,
    pub(super) epoch: &'a str,
}

impl FromRow for Key {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let token: Option<String> = row.get("claim_token")?;
        let token = token
            .map(|text| <[u8; 16]>::from_hex(text).map(ClaimToken))
            .transpose();
        let answer = row
            .get::<Option<i64>>("status")?
            .zip(row.get::<Option<String>>("body")?);
        let answer = answer
            .map(|(status, body)| Ok((u16::try_from(status)?, body)))
            .transpose();
        let answer =
            answer.map_err(|_: std::num::TryFromIntError| StoreError::Corrupt("status"))?;
        Ok(from_row!(row; get: epoch operation; {
            digest: row.parsed("digest", |text| <[u8; 32]>::from_hex(text).ok())?,
            token: token.map_err(|_| StoreError::Corrupt("claim_token"))?,
            intent: row.get::<Option<i64>>("intent_id")?.map(IntentId),
            answer,
        }))
    }
}

impl Keys<'_> {
    /// Claims a key for a request. Repeating a claim with its token is safe.
    pub async fn claim(
        &self,
        key: &str,
        operation: &str,
        digest: &[u8; 32],
        token: &ClaimToken,
        now_us: i64,
    ) -> Result<Claim, StoreError> {
        let args = [
            self.epoch.into(),
            key.into(),
            operation.into(),
            digest.into(),
            now_us.into(),
            hex::encode(token.0).into(),
        ];
        // repeats only if the key is released between the two statements
        for _ in 0..3 {
            if self.db.run(sql::KEY_CLAIM, &args).await? == 1 {
                return Ok(Claim::New);
            }
            let row = [self.epoch.into(), key.into()];
            let Some(stored) = self.db.one::<Key>(sql::KEY, &row).await? else {
                continue;
            };
            let linked = match stored.intent {
                Some(id) => journal::intent(self.db, id).await?,
                None => None,
            };
            return Ok(stored.claimed(operation, digest, *token, linked));
        }
        Err(StoreError::Unavailable(Cause::Timeout))
    }

    /// Links a key to the intent that its request joined. Returns `false` if the key belongs to
    /// another request or is gone, if the intent is of another request or epoch, or if its present
    /// intent has not ended. A key that is released meanwhile is claimed anew at `now_us`.
    pub async fn link(
        &self,
        key: &str,
        operation: &str,
        digest: &[u8; 32],
        intent: IntentId,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let (mut tx, _) = journal::begin(self.db).await?;
        let row = tx.row(sql::KEY, &[self.epoch.into(), key.into()]).await?;
        let Some(stored) = row.as_ref().map(Key::read).transpose()? else {
            return Ok(false);
        };
        if !stored.is_of(operation, digest) {
            return Ok(false);
        }
        let former = match stored.intent {
            Some(id) => intent_of(&mut tx, id).await?,
            None => None,
        };
        let next = intent_of(&mut tx, intent)
            .await?
            .ok_or(StoreError::UnknownIntent(intent))?;
        if stored.intent == Some(intent) {
            return Ok(stored.is_for(&next));
        }
        if !stored.may_name(former.as_ref(), &next) {
            return Ok(false);
        }
        // false if it was released and claimed for another request since it was read
        let is_linked = link(&mut tx, self.epoch, key, operation, digest, intent, now_us).await?;
        tx.commit().await?;
        Ok(is_linked)
    }

    /// Stores the response of a key that names this intent; `false` if it has one already, names
    /// another, or belongs to another request.
    pub async fn answer(
        &self,
        key: &str,
        operation: &str,
        digest: &[u8; 32],
        intent: IntentId,
        status: u16,
        body: &str,
    ) -> Result<bool, StoreError> {
        let args = [
            self.epoch.into(),
            key.into(),
            operation.into(),
            digest.into(),
            intent.0.into(),
            i64::from(status).into(),
            body.into(),
        ];
        Ok(self.db.run(sql::KEY_ANSWER, &args).await? == 1)
    }

    /// Releases a claim of this owner; `false` if the claim is another's, names an intent, or is
    /// answered.
    pub async fn release(&self, key: &str, token: &ClaimToken) -> Result<bool, StoreError> {
        let args = [self.epoch.into(), key.into(), hex::encode(token.0).into()];
        Ok(self.db.run(sql::KEY_RELEASE, &args).await? == 1)
    }
}

async fn intent_of(tx: &mut Tx, id: IntentId) -> Result<Option<Intent>, StoreError> {
    tx.row(sql::INTENT, &[id.0.into()])
        .await?
        .as_ref()
        .map(Intent::read)
        .transpose()
}

/// Links the key of a request to an intent; claims the key if it is gone. Returns `false` if it was
/// claimed for another request meanwhile.
pub(super) async fn link(
    tx: &mut Tx,
    epoch: &str,
    key: &str,
    operation: &str,
    digest: &[u8; 32],
    intent: IntentId,
    now_us: i64,
) -> Result<bool, StoreError> {
    let args = [
        epoch.into(),
        key.into(),
        operation.into(),
        digest.into(),
        now_us.into(),
        intent.0.into(),
    ];
    Ok(tx.run(sql::KEY_LINK, &args).await? == 1)
}

/// The key of a row of [`sql::INTEND_FACTS`], if there is one.
pub(super) fn key_of_facts(row: &Row) -> Result<Option<Key>, StoreError> {
    let Some(epoch) = row.get::<Option<String>>("key_epoch")? else {
        return Ok(None);
    };
    let digest = row.parsed("key_digest", |text| <[u8; 32]>::from_hex(text).ok())?;
    let intent = row.get::<Option<i64>>("key_intent")?.map(IntentId);
    Ok(Some(Key {
        epoch,
        operation: row.get("key_operation")?,
        digest,
        token: None,
        intent,
        answer: None,
    }))
}
