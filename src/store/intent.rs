//! Intents: transactions, stored before they are sent, and their outcome.
//!
//! [`Intents::intend`] stores a signed transaction as sent, with its first journal entries: one
//! commit precedes its first byte. [`Intents::advance`] changes its state. Both hold the lock on
//! the journal's end, so of two equal requests, or two uses of one nonce, exactly one is new,
//! across processes too.

use super::budget::{self, Budgets, OverBudget};
use super::db::{Arg, Db, FromRow, Row};
use super::entry::Event;
use super::faucet::{self, Binding};
use super::state::{EntryKind, IntentState};
use super::tx::Tx;
use super::{StoreError, journal, sql};
use crate::io::clock::micros;
use hex::FromHex as _;
use portcullis_filters::felt::Felt;
use portcullis_filters::window::Window;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The id of an intent: the sequence number of its first journal entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct IntentId(pub i64);

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A signed transaction to store.
#[derive(Debug, Clone, Copy)]
pub struct NewIntent<'a> {
    /// The operation's name.
    pub operation: &'a str,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// The account that the operation is about; cooldowns count per subject.
    pub subject: Option<Felt>,
    /// The identity that the subject is bound to with the intent; `None` binds nothing.
    pub identity: Option<Felt>,
    /// The request's body in canonical form.
    pub request: &'a str,
    /// The chain epoch; a chain that starts over has another.
    pub epoch: &'a str,
    /// The sending account.
    pub signer: Felt,
    /// Its nonce.
    pub nonce: u64,
    /// The transaction's hash.
    pub transaction_hash: Felt,
    /// The signed transaction as it is sent, in JSON.
    pub transaction: &'a str,
    /// The client's idempotency key, claimed before.
    pub idempotency_key: Option<&'a str>,
    /// The highest fee that it may cost the relay, in fri; 0 if the user pays.
    pub max_fee: u128,
    /// The budgets that it must not exceed.
    pub budgets: Budgets,
    /// The time after an intent of its operation for its subject in which there is no other;
    /// `None` for no such time.
    pub cooldown: Option<Duration>,
}

/// The outcome of [`Intents::intend`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intended {
    /// Stored as sent: the transaction may be sent now. If it is not, the intent must be rejected.
    New(IntentId),
    /// The transaction is stored already, or an equal request is unresolved: send nothing.
    Known(Box<Intent>),
    /// This transaction of the signer has the nonce: read the nonce again and sign again.
    NonceTaken(Box<Intent>),
    /// The subject or its identity is bound elsewhere: send nothing.
    Elsewhere(Binding),
    /// The relays of the store write to another chain.
    OtherChain,
    /// Together with what was spent within 24 hours it is over a budget.
    OverBudget(OverBudget),
    /// The subject has had one, this intent, and may have the next at `until_us`.
    TooSoon {
        /// The intent that started the cooldown.
        last: Box<Intent>,
        /// When the cooldown is over, in microseconds since 1970.
        until_us: i64,
    },
}

/// A stored transaction and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Its id.
    pub id: IntentId,
    /// The chain epoch.
    pub epoch: String,
    /// The operation's name.
    pub operation: String,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// The account that the operation is about.
    pub subject: Option<Felt>,
    /// The request's body in canonical form.
    pub request: String,
    /// The sending account.
    pub signer: Felt,
    /// Its nonce.
    pub nonce: u64,
    /// The transaction's hash.
    pub transaction_hash: Felt,
    /// The signed transaction, in JSON.
    pub transaction: String,
    /// Its state.
    pub state: IntentState,
    /// The detail of the last state change.
    pub detail: Option<String>,
    /// When it was stored, in microseconds since 1970 UTC.
    pub created_us: i64,
    /// When its state last changed.
    pub updated_us: i64,
}

impl FromRow for Intent {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let subject: Option<String> = row.get("subject")?;
        let nonce: i64 = row.get("nonce")?;
        Ok(from_row!(row;
            get: epoch operation request detail created_us updated_us;
            felt: signer transaction_hash; {
            id: IntentId(row.get("id")?),
            digest: row.parsed("digest", |text| <[u8; 32]>::from_hex(text).ok())?,
            subject: subject.map(|_| row.felt("subject")).transpose()?,
            nonce: u64::try_from(nonce).map_err(|_| StoreError::Corrupt("nonce"))?,
            transaction: row.get("transaction_json")?,
            state: row.parsed("state", IntentState::parse)?,
        }))
    }
}

/// Reads and writes intents, each write with its journal entry.
#[derive(Debug, Clone, Copy)]
pub struct Intents<'a> {
    pub(super) db: &'a Db,
}

impl Intents<'_> {
    /// Stores an intent as sent, its journal entries `intended` and `sent`, its binding and the
    /// link from its idempotency key, all or nothing. A known intent is linked too. After an error
    /// nothing may be sent; repeating the call is safe. After [`StoreError::Unconfirmed`] it may be
    /// stored as sent.
    pub async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Result<Intended, StoreError> {
        let nonce = i64::try_from(new.nonce).map_err(|_| StoreError::TooLarge("nonce"))?;
        let mut tx = self.db.begin().await?;
        let end = journal::lock(&mut tx).await?;
        if let Some(row) = tx.row(sql::CHAIN_EPOCH, &[]).await?
            && row.get::<String>("epoch")? != new.epoch
        {
            return Ok(Intended::OtherChain);
        }
        let id = IntentId(end.next());
        if !add(&mut tx, id, new, nonce, now_us).await? {
            let Some(known) = known(&mut tx, new).await? else {
                return nonce_taken(&mut tx, new, nonce).await;
            };
            link(&mut tx, new, known.id).await?;
            tx.commit().await?;
            return Ok(Intended::Known(Box::new(known)));
        }
        if let Some((identity, subject)) = new.identity.zip(new.subject) {
            match faucet::bind(&mut tx, new.epoch, identity, subject, now_us).await? {
                Binding::Bound => {}
                elsewhere => return Ok(Intended::Elsewhere(elsewhere)),
            }
        }
        if let Some(too_soon) = too_soon(&mut tx, id, new, now_us).await? {
            return Ok(too_soon);
        }
        if let Some(over) = budget::over(&mut tx, new, now_us).await? {
            return Ok(Intended::OverBudget(over));
        }
        let event = |state, detail| Event {
            kind: EntryKind::Moved(state),
            intent: Some(id),
            operation: new.operation,
            detail,
        };
        let events = [
            event(IntentState::Intended, intended_detail(new)),
            event(IntentState::Sent, journal::object(&[])),
        ];
        journal::append(&mut tx, end, events, now_us).await?;
        link(&mut tx, new, id).await?;
        tx.commit().await.map_err(StoreError::of_commit)?;
        Ok(Intended::New(id))
    }

    /// Changes an intent's state, with a journal entry; `false`, and nothing is written, if its
    /// state does not allow that ([`IntentState::may_become`]). One that is rejected or lost
    /// releases what it held: nonce, digest, response under a key, binding.
    pub async fn advance(
        &self,
        id: IntentId,
        next: IntentState,
        detail: Option<&str>,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        self.settle(id, next, detail, None, now_us).await
    }

    /// [`Self::advance`] by a receipt: what the transaction cost, in fri, replaces its highest fee,
    /// if the receipt states it.
    pub async fn settle(
        &self,
        id: IntentId,
        next: IntentState,
        detail: Option<&str>,
        fee: Option<u128>,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.db.begin().await?;
        let moved = step(&mut tx, id, |state| state.may_become(next), next, detail, now_us).await?;
        if let Some(fee) = fee.filter(|_| moved) {
            tx.run(sql::INTENT_FEE, &[id.0.into(), budget::gfri(fee).into()]).await?;
        }
        tx.commit().await?;
        Ok(moved)
    }

    /// Changes an intent to lost, whatever its state; `false`, and nothing is written, if it has
    /// changed since it was read.
    pub async fn lose(
        &self,
        intent: &Intent,
        detail: &str,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let (id, lost) = (intent.id, IntentState::Lost);
        let is_unchanged = |state| state == intent.state && state != lost;
        let mut tx = self.db.begin().await?;
        let moved = step(&mut tx, id, is_unchanged, lost, Some(detail), now_us).await?;
        tx.commit().await?;
        Ok(moved)
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
        let mut tx = self.db.begin().await?;
        let end = journal::lock(&mut tx).await?;
        let digest = digest.map(hex::encode);
        let detail = journal::object(&[
            ("digest", digest.as_deref()),
            ("reason", Some(reason)),
            ("request_id", Some(request_id)),
        ]);
        let event = Event { kind: EntryKind::Refused, intent: None, operation, detail };
        journal::append(&mut tx, end, [event], now_us).await?;
        tx.commit().await
    }

    /// The intent of this id.
    pub async fn get(&self, id: IntentId) -> Result<Option<Intent>, StoreError> {
        self.db.one(sql::INTENT, &[id.0.into()]).await
    }

    /// The intent of this transaction, unless rejected or lost.
    pub async fn by_hash(&self, epoch: &str, hash: Felt) -> Result<Option<Intent>, StoreError> {
        self.db.one(sql::INTENT_BY_HASH, &[epoch.into(), hash.into()]).await
    }

    /// The unresolved intent of an equal request.
    pub async fn unresolved_by_digest(
        &self,
        epoch: &str,
        digest: &[u8; 32],
    ) -> Result<Option<Intent>, StoreError> {
        self.db.one(sql::INTENT_BY_DIGEST, &[epoch.into(), digest.into()]).await
    }

    /// All unresolved intents of an epoch, or of one signer in it, oldest first.
    pub async fn unresolved(
        &self,
        epoch: &str,
        signer: Option<Felt>,
    ) -> Result<Vec<Intent>, StoreError> {
        match signer {
            None => self.db.all(sql::UNRESOLVED, &[epoch.into()]).await,
            Some(signer) => {
                self.db.all(sql::UNRESOLVED_OF_SIGNER, &[epoch.into(), signer.into()]).await
            }
        }
    }

    /// All unresolved intents of other epochs, oldest first: their chain is gone.
    pub async fn unresolved_of_other_epochs(&self, epoch: &str) -> Result<Vec<Intent>, StoreError> {
        self.db.all(sql::UNRESOLVED_ELSEWHERE, &[epoch.into()]).await
    }

    /// The intent that starts a cooldown of this window: the newest of an operation for a subject
    /// in it that is not rejected, lost or reverted.
    pub async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> Result<Option<Intent>, StoreError> {
        let before = IntentId(i64::MAX);
        self.db.one(sql::LAST_OF, &last_of(operation, subject, epoch, cooldown, before)).await
    }

    /// The number of intents per state, without empty states.
    pub async fn counts_by_state(&self) -> Result<Vec<(IntentState, i64)>, StoreError> {
        let rows = self.db.rows(sql::COUNT_BY_STATE, &[]).await?;
        let count = |row: &Row| Ok((row.parsed("state", IntentState::parse)?, row.get("intents")?));
        let mut counts = rows.iter().map(count).collect::<Result<Vec<_>, StoreError>>()?;
        counts.sort();
        Ok(counts)
    }
}

/// The arguments that select the newest intent of a cooldown among those before another.
fn last_of<'a>(
    operation: &'a str,
    subject: Felt,
    epoch: &'a str,
    cooldown: Window,
    before: IntentId,
) -> [Arg<'a>; 6] {
    [
        epoch.into(),
        operation.into(),
        subject.into(),
        cooldown.after_us().into(),
        cooldown.until_us().into(),
        before.0.into(),
    ]
}

/// The cooldown that forbids an intent of this id, if one does. The journal's end must be locked.
async fn too_soon(
    tx: &mut Tx,
    id: IntentId,
    new: &NewIntent<'_>,
    now_us: i64,
) -> Result<Option<Intended>, StoreError> {
    let Some((cooldown, subject)) = new.cooldown.zip(new.subject) else { return Ok(None) };
    let cooldown = Window::new(now_us, micros(cooldown));
    let args = last_of(new.operation, subject, new.epoch, cooldown, id);
    let Some(row) = tx.row(sql::LAST_OF, &args).await? else { return Ok(None) };
    let last = Box::new(Intent::read(&row)?);
    let until_us = cooldown.forbids_until_us(last.created_us);
    Ok(until_us.map(|until_us| Intended::TooSoon { last, until_us }))
}

/// Inserts the row; `false` if a unique index forbids it.
async fn add(
    tx: &mut Tx,
    id: IntentId,
    new: &NewIntent<'_>,
    nonce: i64,
    now_us: i64,
) -> Result<bool, StoreError> {
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
        budget::gfri(new.max_fee).into(),
        now_us.into(),
    ];
    Ok(tx.run(sql::INTENT_ADD, &args).await? == 1)
}

/// The conflicting intent: of the same transaction, else of an equal request.
async fn known(tx: &mut Tx, new: &NewIntent<'_>) -> Result<Option<Intent>, StoreError> {
    let hash = [new.epoch.into(), new.transaction_hash.into()];
    let mut row = tx.row(sql::INTENT_BY_HASH, &hash).await?;
    if row.is_none() {
        let digest = [new.epoch.into(), (&new.digest).into()];
        row = tx.row(sql::INTENT_BY_DIGEST, &digest).await?;
    }
    row.as_ref().map(Intent::read).transpose()
}

async fn nonce_taken(tx: &mut Tx, new: &NewIntent<'_>, nonce: i64) -> Result<Intended, StoreError> {
    let args = [new.epoch.into(), new.signer.into(), nonce.into()];
    let taken = tx.row(sql::INTENT_BY_NONCE, &args).await?;
    // else the id itself is taken: the chain head is behind the rows
    let taken = taken.as_ref().ok_or(StoreError::Corrupt("chain_head"))?;
    Ok(Intended::NonceTaken(Box::new(Intent::read(taken)?)))
}

/// Changes the state if the present one permits it, with a journal entry.
async fn step(
    tx: &mut Tx,
    id: IntentId,
    may: impl Fn(IntentState) -> bool,
    next: IntentState,
    detail: Option<&str>,
    now_us: i64,
) -> Result<bool, StoreError> {
    let end = journal::lock(tx).await?;
    let row = tx.row(sql::INTENT_STATE, &[id.0.into()]).await?;
    let row = row.ok_or(StoreError::UnknownIntent(id))?;
    if !may(row.parsed("state", IntentState::parse)?) {
        return Ok(false);
    }
    tx.run(sql::INTENT_MOVE, &[id.0.into(), next.name().into(), detail.into(), now_us.into()])
        .await?;
    let operation: String = row.get("operation")?;
    let event = Event {
        kind: EntryKind::Moved(next),
        intent: Some(id),
        operation: &operation,
        detail: journal::object(&[("detail", detail)]),
    };
    journal::append(tx, end, [event], now_us).await?;
    if matches!(next, IntentState::Rejected | IntentState::Lost) {
        tx.run(sql::KEY_WITHDRAW, &[id.0.into()]).await?;
        let (epoch, subject): (String, Option<String>) = (row.get("epoch")?, row.get("subject")?);
        let args = [epoch.into(), operation.into(), subject.as_deref().into()];
        tx.run(sql::UNBIND, &args).await?;
    }
    Ok(true)
}

async fn link(tx: &mut Tx, new: &NewIntent<'_>, id: IntentId) -> Result<(), StoreError> {
    let Some(key) = new.idempotency_key else { return Ok(()) };
    match tx.run(sql::KEY_LINK, &[new.epoch.into(), key.into(), id.0.into()]).await? {
        1 => Ok(()),
        _ => Err(StoreError::UnknownKey),
    }
}

/// The journal detail of a new intent; the transaction hash covers the transaction.
fn intended_detail(new: &NewIntent<'_>) -> String {
    journal::object(&[
        ("digest", Some(&hex::encode(new.digest))),
        ("epoch", Some(new.epoch)),
        ("nonce", Some(&new.nonce.to_string())),
        ("signer", Some(&new.signer.to_string())),
        ("subject", new.subject.map(|felt| felt.to_string()).as_deref()),
        ("transaction_hash", Some(&new.transaction_hash.to_string())),
    ])
}
