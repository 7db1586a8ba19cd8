//! Intents: transactions, stored before they are sent, and their later states.
//!
//! [`Intents::intend`] stores a signed transaction as sent, with its first journal entries: one
//! commit precedes its first byte. [`Intents::apply`] records its later states. Both hold the lock
//! on the journal's end, so that each call sees the changes of all earlier ones, across processes
//! too; [`portcullis_filters::ledger`] decides.

use super::db::Db;
use super::entry::Event;
use super::journal::End;
use super::row::{Arg, FromRow, Row};
use super::state::EntryKind;
use super::tx::Tx;
use super::{
    Change, Inclusion, Intended, Intent, IntentId, IntentState, NewIntent, Requested, StoreError,
    budget, clock, faucet, idempotency, journal, sql,
};
use crate::io::clock::micros;
use hex::FromHex as _;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{self, ChangedIntent, DAY_US, Facts, Intention, Rebinding, gfri};
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

/// Converts a number to the type that both databases store.
fn stored(of: &'static str, number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::TooLarge(of))
}

/// Reads and writes intents, each write with its journal entry.
#[derive(Debug, Clone, Copy)]
pub struct Intents<'a> {
    pub(super) db: &'a Db,
}

impl Intents<'_> {
    /// Stores an intent as sent, its journal entries `intended` and `sent`, its binding and the
    /// link from its idempotency key, all or nothing. A known intent is linked too. After an error
    /// nothing may be sent; repeating the call is safe. After [`StoreError::Unconfirmed`] the
    /// intent may be stored as sent.
    pub async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Result<Intended, StoreError> {
        let nonce = stored("nonce", new.nonce)?;
        let (mut tx, end) = journal::begin(self.db).await?;
        let mut known = facts(&mut tx, new, nonce, now_us).await?;
        let ahead = ledger::ahead_after_us(known.newest_us, now_us);
        if let Some(after_us) = ahead {
            clock::date_anew(&mut tx, after_us, now_us).await?;
            known = facts(&mut tx, new, nonce, now_us).await?;
        }
        debug_assert!(known.are_of(new), "they are read for this intent");
        match ledger::intention(new, &known, now_us) {
            Intention::Refuse { reply, link: None } => {
                if ahead.is_some() {
                    tx.commit().await?;
                }
                Ok(reply)
            }
            Intention::Refuse {
                reply,
                link: Some(id),
            } => {
                if !link(&mut tx, new, id, now_us).await? {
                    return Ok(Intended::KeyConflict);
                }
                tx.commit().await?;
                Ok(reply)
            }
            Intention::Insert(bindings) => {
                let id = IntentId(end.next());
                insert(&mut tx, end, new, nonce, &bindings, now_us).await?;
                if !link(&mut tx, new, id, now_us).await? {
                    return Ok(Intended::KeyConflict);
                }
                tx.commit().await.map_err(StoreError::of_commit)?;
                Ok(Intended::New(id))
            }
        }
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
        let (mut tx, end) = journal::begin(self.db).await?;
        let rows = tx.rows(sql::CHANGE_INTENTS, &[id.0.into()]).await?;
        let intents = rows
            .iter()
            .map(Intent::read)
            .collect::<Result<Vec<_>, _>>()?;
        let intent = intents.iter().find(|intent| intent.id == id);
        let intent = intent.ok_or(StoreError::UnknownIntent(id))?;
        let Some(steps) = ledger::change(id, change, &intents, now_us) else {
            return Ok(false);
        };
        debug_assert!(
            steps.steps.iter().any(|step| step.intent.id == id),
            "a change that is allowed changes its intent"
        );
        for step in &steps.steps {
            write(&mut tx, step).await?;
        }
        let events = steps
            .steps
            .iter()
            .filter(|step| step.has_entry())
            .map(event)
            .collect();
        journal::append(&mut tx, end, events, now_us).await?;
        let of = steps.of_interest();
        if !of.is_empty() {
            let nonce = stored("nonce", intent.nonce)?;
            let bound = faucet::bound(&mut tx, &intent.epoch, &of, intent.signer, nonce).await?;
            faucet::rebind(&mut tx, &intent.epoch, &steps.rebind(&bound), now_us).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Records in the journal that an authenticated request was refused.
    pub async fn record_refusal(
        &self,
        operation: &str,
        reason: &str,
        digest: Option<[u8; 32]>,
        request_id: &str,
        now_us: i64,
    ) -> Result<(), StoreError> {
        let (mut tx, end) = journal::begin(self.db).await?;
        let digest = digest.map(hex::encode);
        let detail = journal::object(&[
            ("digest", digest.as_deref()),
            ("reason", Some(reason)),
            ("request_id", Some(request_id)),
        ]);
        let event = Event {
            kind: EntryKind::Refused,
            intent: None,
            operation,
            detail,
        };
        journal::append(&mut tx, end, vec![event], now_us).await?;
        tx.commit().await
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

/// Reads the journal's facts that a new intent may conflict with. The journal's end must be locked.
async fn facts(
    tx: &mut Tx,
    new: &NewIntent<'_>,
    nonce: i64,
    now_us: i64,
) -> Result<Facts, StoreError> {
    let none = || Arg::Text(None);
    let day = Window::new(now_us, DAY_US);
    let drips = new.budgets.drips.filter(|limit| *limit > 0);
    let [fees_epoch, first, last] = budget::fees_of(new.epoch, day);
    let cooldown = Window::new(now_us, new.cooldown.map_or(0, micros));
    let args = [
        new.epoch.into(),
        new.idempotency_key.into(),
        drips.map_or_else(none, |_| new.epoch.into()),
        day.after_us().into(),
        day.until_us().into(),
        drips.map_or(0, |limit| i64::from(limit) - 1).into(),
        new.signer.into(),
        nonce.into(),
        new.budgets.fees.map_or_else(none, |_| fees_epoch),
        first,
        last,
        new.cooldown.map_or_else(none, |_| new.epoch.into()),
        new.operation.into(),
        new.subject.into(),
        cooldown.after_us().into(),
        cooldown.until_us().into(),
    ];
    let row = tx.row(sql::INTEND_FACTS, &args).await?;
    let row = row.ok_or(StoreError::Corrupt("facts"))?;
    let last: Option<i64> = row.get("last_id")?;
    let key = idempotency::key_of_facts(&row)?;
    let linked = key.as_ref().and_then(|key| key.intent);
    let intents = related(tx, new, nonce, [linked.map(|id| id.0), last]).await?;
    let bound = match new.identity.zip(new.subject) {
        Some((identity, subject)) => {
            let of = [(Some(identity), subject)];
            faucet::bound(tx, new.epoch, &of, new.signer, nonce).await?
        }
        None => Vec::new(),
    };
    let mut facts = Facts {
        epoch: row.get("epoch")?,
        key,
        last: intents
            .iter()
            .find(|intent| Some(intent.id.0) == last)
            .cloned(),
        intents,
        bound,
        drip_us: row.get("drip_us")?,
        fees_gfri: row.get::<Option<i64>>("fees_gfri")?.unwrap_or(0),
        minutes: Vec::new(),
        newest_us: row.get("newest_us")?,
    };
    if facts.need_minutes(new, now_us) {
        let rows = tx
            .rows(sql::FEES_BY_MINUTE, &budget::fees_of(new.epoch, day))
            .await?;
        let minute = |row: &Row| Ok((row.get("minute")?, row.get("fee_gfri")?));
        facts.minutes = rows.iter().map(minute).collect::<Result<_, StoreError>>()?;
    }
    Ok(facts)
}

/// The intents that a new one may conflict with, and those of these ids.
async fn related(
    tx: &mut Tx,
    new: &NewIntent<'_>,
    nonce: i64,
    [linked, last]: [Option<i64>; 2],
) -> Result<Vec<Intent>, StoreError> {
    let args = [
        new.epoch.into(),
        new.transaction_hash.into(),
        new.signer.into(),
        nonce.into(),
        (&new.digest).into(),
        linked.into(),
        last.into(),
    ];
    let rows = tx.rows(sql::INTEND_INTENTS, &args).await?;
    rows.iter().map(Intent::read).collect()
}

/// Writes a new intent, its entries and its bindings.
async fn insert(
    tx: &mut Tx,
    end: End,
    new: &NewIntent<'_>,
    nonce: i64,
    bindings: &[Rebinding],
    now_us: i64,
) -> Result<(), StoreError> {
    let id = IntentId(end.next());
    let args = [
        id.0.into(),
        new.epoch.into(),
        new.operation.into(),
        (&new.digest).into(),
        new.subject.into(),
        new.request.into(),
        new.signer.into(),
        nonce.into(),
        new.transaction_hash.into(),
        new.transaction.into(),
        gfri(new.max_fee).into(),
        now_us.into(),
        new.identity.into(),
        stored("born", new.born)?.into(),
    ];
    tx.run(sql::INTENT_ADD, &args)
        .await
        .map_err(StoreError::of_decided)?;
    let event = |state, detail| Event {
        kind: EntryKind::Moved(state),
        intent: Some(id),
        operation: new.operation,
        detail,
    };
    let events = vec![
        event(IntentState::Intended, intended_detail(new)),
        event(IntentState::Sent, journal::object(&[])),
    ];
    journal::append(tx, end, events, now_us).await?;
    faucet::rebind(tx, new.epoch, bindings, now_us).await
}

/// Links the key of a new intent to it; `false` if the key belongs to another request by now.
async fn link(
    tx: &mut Tx,
    new: &NewIntent<'_>,
    id: IntentId,
    now_us: i64,
) -> Result<bool, StoreError> {
    let Some(key) = new.idempotency_key else {
        return Ok(true);
    };
    idempotency::link(tx, new.epoch, key, new.operation, &new.digest, id, now_us).await
}

/// Writes a changed intent.
async fn write(tx: &mut Tx, step: &ChangedIntent) -> Result<(), StoreError> {
    let ChangedIntent { intent, withdraws } = step;
    let included = intent
        .included
        .map(|block| stored("included_number", block.number));
    let fingerprint = intent.included.map(|block| hex::encode(block.fingerprint));
    let args = [
        intent.id.0.into(),
        intent.state.name().into(),
        intent.detail.as_deref().into(),
        intent.updated_us.into(),
        intent.fee_gfri.into(),
        included.transpose()?.into(),
        fingerprint.as_deref().into(),
    ];
    tx.run(sql::INTENT_MOVE, &args)
        .await
        .map_err(StoreError::of_decided)?;
    if *withdraws {
        tx.run(sql::KEY_WITHDRAW, &[intent.id.0.into()]).await?;
    }
    Ok(())
}

/// The journal entry of a changed intent.
fn event(step: &ChangedIntent) -> Event<'_> {
    let intent = &step.intent;
    let block = intent.included.filter(|_| intent.state.is_included());
    let block = block.map(|block| block.number.to_string());
    let detail = [
        ("block", block.as_deref()),
        ("detail", intent.detail.as_deref()),
    ];
    Event {
        kind: EntryKind::Moved(intent.state),
        intent: Some(intent.id),
        operation: &intent.operation,
        detail: journal::object(&detail),
    }
}

/// The journal detail of a new intent; the transaction hash covers the transaction.
fn intended_detail(new: &NewIntent<'_>) -> String {
    journal::object(&[
        ("digest", Some(&hex::encode(new.digest))),
        ("epoch", Some(new.epoch)),
        ("nonce", Some(&new.nonce.to_string())),
        ("signer", Some(&new.signer.to_string())),
        (
            "subject",
            new.subject.map(|felt| felt.to_string()).as_deref(),
        ),
        ("transaction_hash", Some(&new.transaction_hash.to_string())),
    ])
}
