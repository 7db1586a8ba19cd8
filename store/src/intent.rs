//! Intents: transactions, stored before they are sent, and their later states.
//!
//! [`Intents::intend`] stores a signed transaction as sent, with its first journal entries: one
//! commit precedes its first byte. [`Intents::apply`] records its later states. Both wait for the
//! lock on the journal's end with other commands ([`Appender`]), so that each call sees the changes
//! of all earlier ones, across processes too; [`portcullis_filters::ledger`] decides.

use super::append::{Appender, ChangeOf, stored};
use super::db::Db;
use super::row::{FromRow, Row};
use super::{
    Change, Inclusion, Intended, Intent, IntentId, IntentState, NewIntent, Requested, StoreError,
    journal, sql,
};
use hex::FromHex as _;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::Refusal;
use portcullis_filters::window::Window;

impl FromRow for Intent {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let felt = |column| {
            let text: Option<String> = row.get(column)?;
            text.map(|_| row.felt(column)).transpose()
        };
        let born: Option<i64> = row.get("born")?;
        Ok(from_row!(row;
            get: epoch operation request detail created_us updated_us fee_gfri;
            felt: signer transaction_hash; {
            id: IntentId(row.get("id")?),
            digest: row.parsed("digest", |text| <[u8; 32]>::from_hex(text).ok())?,
            subject: felt("subject")?,
            identity: felt("identity")?,
            born: born.map(|born| number("born", born)).transpose()?,
            nonce: number("nonce", row.get("nonce")?)?,
            transaction: row.get("transaction_json")?,
            state: row.parsed("state", IntentState::parse)?,
            included: included(row)?,
        }))
    }
}

fn number(column: &'static str, stored: i64) -> Result<u64, StoreError> {
    u64::try_from(stored).map_err(|_| StoreError::Corrupt(column))
}

fn included(row: &Row) -> Result<Option<Inclusion>, StoreError> {
    let column = "included_number";
    let Some(stored) = row.get::<Option<i64>>(column)? else {
        return Ok(None);
    };
    let fingerprint = row.parsed("included_fingerprint", |text| {
        <[u8; 32]>::from_hex(text).ok()
    })?;
    Ok(Some(Inclusion {
        number: number(column, stored)?,
        fingerprint,
    }))
}

/// Reads and writes intents, each write with its journal entry.
#[derive(Debug, Clone, Copy)]
pub struct Intents<'a> {
    pub(super) db: &'a Db,
    pub(super) appender: &'a Appender,
}

impl Intents<'_> {
    /// Stores an intent as sent, its journal entries `intended` and `sent`, its binding and the
    /// link from its idempotency key, all or nothing. A known intent is linked too. After an error
    /// nothing may be sent; repeating the call is safe. After [`StoreError::Unconfirmed`] the
    /// intent may be stored as sent.
    pub async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Result<Intended, StoreError> {
        self.appender.intend(new.into(), now_us).await
    }

    /// Records a change of an intent, and its consequences for others of its slot, each with a
    /// journal entry. Returns `false`, and writes nothing, if the present state does not allow the
    /// change. An intent that is rejected or lost releases everything it held.
    pub async fn apply(
        &self,
        id: IntentId,
        change: &Change<'_>,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let change = change.into();
        self.appender.change(ChangeOf { id, change }, now_us).await
    }

    /// Records that an authenticated request was refused; equal refusals within a minute are one
    /// row.
    pub async fn record_refusal(&self, refusal: Refusal, now_us: i64) -> Result<(), StoreError> {
        self.appender.record(refusal, now_us).await
    }

    /// The intent of this id.
    pub async fn get(&self, id: IntentId) -> Result<Option<Intent>, StoreError> {
        journal::intent(self.db, id).await
    }

    /// The intent of this transaction, unless rejected or lost.
    pub async fn by_hash(&self, epoch: &str, hash: Felt) -> Result<Option<Intent>, StoreError> {
        self.db
            .one(sql::INTENT_BY_HASH, &[epoch.into(), hash.into()])
            .await
    }

    /// The intents that a request of this digest, key and operation may be about.
    pub async fn requested(
        &self,
        epoch: &str,
        digest: &[u8; 32],
        key: Option<(&str, &str)>,
    ) -> Result<Requested, StoreError> {
        let (key, operation) = key.unzip();
        let args = [epoch.into(), digest.into(), key.into(), operation.into()];
        let mut found = Requested::default();
        for row in self.db.rows(sql::REQUESTED, &args).await? {
            let intent = Intent::read(&row)?;
            debug_assert_eq!(intent.epoch, epoch, "a request is about its own chain");
            if row.get::<Option<i64>>("key_intent")? == Some(intent.id.0) {
                debug_assert_eq!(intent.digest, *digest, "a key names its own request");
                found.linked = Some(intent.clone());
            }
            if intent.digest == *digest && intent.state.holds() {
                found.newest = Some(intent);
            }
        }
        Ok(found)
    }

    /// All unresolved intents of an epoch, or of one signer in it, oldest first.
    pub async fn unresolved(
        &self,
        epoch: &str,
        signer: Option<Felt>,
    ) -> Result<Vec<Intent>, StoreError> {
        let open: Vec<Intent> = match signer {
            None => self.db.all(sql::UNRESOLVED, &[epoch.into()]).await?,
            Some(signer) => {
                self.db
                    .all(sql::UNRESOLVED_OF_SIGNER, &[epoch.into(), signer.into()])
                    .await?
            }
        };
        debug_assert!(open.is_sorted_by_key(|intent| intent.id), "oldest first");
        debug_assert!(
            open.iter().all(|intent| intent.state.is_unresolved()),
            "each intent is open"
        );
        Ok(open)
    }

    /// The displaced intents of an epoch below an id, newest first; at most `limit`.
    pub async fn displaced(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Result<Vec<Intent>, StoreError> {
        self.below(sql::DISPLACED, epoch, below, limit).await
    }

    /// All intents of a slot, in any state, oldest first.
    pub async fn of_slot(
        &self,
        epoch: &str,
        signer: Felt,
        nonce: u64,
    ) -> Result<Vec<Intent>, StoreError> {
        let nonce = stored("nonce", nonce)?;
        let slot: Vec<Intent> = self
            .db
            .all(
                sql::INTENTS_OF_SLOT,
                &[epoch.into(), signer.into(), nonce.into()],
            )
            .await?;
        debug_assert!(
            slot.iter().filter(|intent| intent.state.occupies()).count() <= 1,
            "a chain has one transaction of a slot"
        );
        Ok(slot)
    }

    /// At most `limit` intents that succeeded or reverted in a known block, by its number and id,
    /// highest first.
    pub async fn included_newest(
        &self,
        epoch: &str,
        limit: u32,
    ) -> Result<Vec<Intent>, StoreError> {
        self.db
            .all(sql::INCLUDED, &[epoch.into(), i64::from(limit).into()])
            .await
    }

    /// At most `limit` intents below `below` that succeeded or reverted in an unknown block, as an
    /// earlier version stored them, newest first.
    pub async fn included_anywhere(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Result<Vec<Intent>, StoreError> {
        self.below(sql::INCLUDED_ANYWHERE, epoch, below, limit)
            .await
    }

    async fn below(
        &self,
        sql: &'static str,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Result<Vec<Intent>, StoreError> {
        let below = below.map_or(i64::MAX, |below| below.0);
        let args = [epoch.into(), below.into(), i64::from(limit).into()];
        let found: Vec<Intent> = self.db.all(sql, &args).await?;
        debug_assert!(
            found.is_sorted_by(|newer, older| newer.id > older.id),
            "newest first"
        );
        Ok(found)
    }

    /// The highest block that is known to list an intent that succeeded or reverted.
    pub async fn floor(&self, epoch: &str) -> Result<Option<u64>, StoreError> {
        let Some(row) = self.db.row(sql::FLOOR, &[epoch.into()]).await? else {
            return Ok(None);
        };
        number("included_number", row.get("included_number")?).map(Some)
    }

    /// The intent that starts a cooldown: the newest in this window, of an operation for a subject,
    /// that is not rejected, lost or reverted.
    pub async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> Result<Option<Intent>, StoreError> {
        let args = [
            epoch.into(),
            operation.into(),
            subject.into(),
            cooldown.after_us().into(),
            cooldown.until_us().into(),
        ];
        self.db.one(sql::LAST_OF, &args).await
    }

    /// The number of intents per state, without empty states.
    pub async fn counts_by_state(&self) -> Result<Vec<(IntentState, i64)>, StoreError> {
        self.counts(sql::COUNT_BY_STATE).await
    }

    /// The number of intents in doubt or lost that were never in a block: the node refused them.
    pub async fn unplaced_by_state(&self) -> Result<Vec<(IntentState, i64)>, StoreError> {
        self.counts(sql::COUNT_UNPLACED).await
    }

    async fn counts(&self, sql: &'static str) -> Result<Vec<(IntentState, i64)>, StoreError> {
        let mut counts = Vec::new();
        for row in self.db.rows(sql, &[]).await? {
            let state = row.parsed("state", IntentState::parse)?;
            counts.push((state, row.get("intents")?));
        }
        counts.sort();
        Ok(counts)
    }
}
