//! Intents: what is to be written to the chain, kept before it is sent, and what became of it.
//!
//! [`intend`](Store::intend) makes a signed transaction durable together with its first entry in
//! the journal; [`advance`](Store::advance) moves it on. Both run after the chain's lock, so of two
//! equal requests, or two uses of one nonce, exactly one is new, whichever process they are in.

use super::db::{Row, Tx, felt_text};
use super::entry::What;
use super::state::{Kind, State};
use super::{Store, StoreError, hex, journal, sql};
use portcullis_filters::felt::Felt;
use std::fmt;

/// The number of an intent: that of its first entry in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentId(pub i64);

impl fmt::Display for IntentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is to be written to the chain.
#[derive(Debug, Clone, Copy)]
pub struct NewIntent<'a> {
    /// The operation's name.
    pub operation: &'a str,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// Whom it is about: what a cooldown counts by.
    pub subject: Option<Felt>,
    /// The request's body in canonical form.
    pub request: &'a str,
    /// The life of the chain: a chain that began anew has another.
    pub epoch: &'a str,
    /// The sending account.
    pub signer: Felt,
    /// Its nonce.
    pub nonce: u64,
    /// The transaction's hash.
    pub transaction_hash: Felt,
    /// The signed transaction as it will be sent, in JSON.
    pub transaction: &'a str,
    /// The key that the client gave, claimed before.
    pub idempotency_key: Option<&'a str>,
}

/// What came of an intent to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intended {
    /// It is durable: now it may be sent.
    New(IntentId),
    /// This transaction was intended before, or an equal request is unresolved: send nothing.
    Known(Box<Intent>),
    /// Another transaction of the signer has the nonce: read it again, sign again.
    NonceTaken,
}

/// What was to be written to the chain, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Its number.
    pub id: IntentId,
    /// The life of the chain.
    pub epoch: String,
    /// The operation's name.
    pub operation: String,
    /// The digest of the request.
    pub digest: [u8; 32],
    /// Whom it is about.
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
    /// How far it is.
    pub state: State,
    /// What was said when it came there.
    pub detail: Option<String>,
    /// When it was intended, in microseconds since 1970 UTC.
    pub created_us: i64,
    /// When its state last changed.
    pub updated_us: i64,
}

impl Intent {
    pub(super) fn read(row: &Row) -> Result<Self, StoreError> {
        let digest = hex::read(&row.get::<String>("digest")?);
        let subject: Option<String> = row.get("subject")?;
        let nonce: i64 = row.get("nonce")?;
        Ok(Self {
            id: IntentId(row.get("id")?),
            epoch: row.get("epoch")?,
            operation: row.get("operation")?,
            digest: digest.ok_or(StoreError::Corrupt("digest"))?,
            subject: subject.map(|_| row.felt("subject")).transpose()?,
            request: row.get("request")?,
            signer: row.felt("signer")?,
            nonce: u64::try_from(nonce).map_err(|_| StoreError::Corrupt("nonce"))?,
            transaction_hash: row.felt("transaction_hash")?,
            transaction: row.get("transaction_json")?,
            state: state(row)?,
            detail: row.get("detail")?,
            created_us: row.get("created_us")?,
            updated_us: row.get("updated_us")?,
        })
    }
}

fn state(row: &Row) -> Result<State, StoreError> {
    State::parse(&row.get::<String>("state")?).ok_or(StoreError::Corrupt("state"))
}

impl Store {
    /// Makes an intent durable, with its entry in the journal and the link from its idempotency
    /// key, all or nothing. A known intent is linked, too.
    ///
    /// # Errors
    /// The database is unavailable: it may be durable nevertheless, so nothing may be sent and the
    /// same intent asked for again. [`StoreError::UnknownKey`]: the key was not claimed.
    pub async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Result<Intended, StoreError> {
        let nonce = i64::try_from(new.nonce).map_err(|_| StoreError::TooLarge("nonce"))?;
        let mut tx = self.db.begin().await?;
        let end = journal::lock(&mut tx).await?;
        let id = IntentId(end.next());
        if !add(&mut tx, id, new, nonce, now_us).await? {
            let Some(known) = known(&mut tx, new).await? else {
                return nonce_taken(&mut tx, new, nonce).await;
            };
            link(&mut tx, new, known.id).await?;
            tx.commit().await?;
            return Ok(Intended::Known(Box::new(known)));
        }
        let what = What {
            kind: Kind::Came(State::Intended),
            intent: Some(id),
            operation: new.operation,
            detail: intended_detail(new),
        };
        journal::append(&mut tx, end, what, now_us).await?;
        link(&mut tx, new, id).await?;
        tx.commit().await?;
        Ok(Intended::New(id))
    }

    /// Moves an intent on, with an entry in the journal; `false`, and nothing is written, when its
    /// state can not become that one ([`State::may_become`]).
    ///
    /// # Errors
    /// The database is unavailable: it may be moved nevertheless. There is no such intent.
    pub async fn advance(
        &self,
        id: IntentId,
        next: State,
        detail: Option<&str>,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        self.step(id, |state| state.may_become(next), next, detail, now_us).await
    }

    /// Takes an intent that is only [`State::Intended`] for lost; `false`, and nothing is written,
    /// when it is further by now: whoever sends says so first.
    ///
    /// # Errors
    /// As [`Self::advance`].
    pub async fn lose_unsent(
        &self,
        id: IntentId,
        detail: &str,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let unsent = |state| state == State::Intended;
        self.step(id, unsent, State::Lost, Some(detail), now_us).await
    }

    async fn step(
        &self,
        id: IntentId,
        may: impl Fn(State) -> bool,
        next: State,
        detail: Option<&str>,
        now_us: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.db.begin().await?;
        let end = journal::lock(&mut tx).await?;
        let row = tx.row(sql::INTENT_STATE, &[id.0.into()]).await?;
        let row = row.ok_or(StoreError::UnknownIntent(id))?;
        if !may(state(&row)?) {
            return Ok(false);
        }
        let args = [id.0.into(), next.name().into(), detail.into(), now_us.into()];
        tx.run(sql::INTENT_MOVE, &args).await?;
        let operation: String = row.get("operation")?;
        let what = What {
            kind: Kind::Came(next),
            intent: Some(id),
            operation: &operation,
            detail: journal::object(&[("detail", detail)]),
        };
        journal::append(&mut tx, end, what, now_us).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// The intent of this id.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn intent(&self, id: IntentId) -> Result<Option<Intent>, StoreError> {
        self.one(sql::INTENT, &[id.0.into()]).await
    }

    /// The intent of this transaction, unless it was refused or lost.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn intent_by_hash(
        &self,
        epoch: &str,
        hash: Felt,
    ) -> Result<Option<Intent>, StoreError> {
        self.one(sql::INTENT_BY_HASH, &[epoch.into(), (&felt_text(hash)).into()]).await
    }

    /// The unresolved intent of an equal request.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn unresolved_by_digest(
        &self,
        epoch: &str,
        digest: &[u8; 32],
    ) -> Result<Option<Intent>, StoreError> {
        self.one(sql::INTENT_BY_DIGEST, &[epoch.into(), (&hex::write(digest)).into()]).await
    }

    /// All unresolved intents of an epoch, or of one signer in it, oldest first.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn unresolved(
        &self,
        epoch: &str,
        signer: Option<Felt>,
    ) -> Result<Vec<Intent>, StoreError> {
        let rows = match signer.map(felt_text) {
            None => self.db.rows(sql::UNRESOLVED, &[epoch.into()]).await?,
            Some(signer) => {
                let args = [epoch.into(), (&signer).into()];
                self.db.rows(sql::UNRESOLVED_OF_SIGNER, &args).await?
            }
        };
        rows.iter().map(Intent::read).collect()
    }

    /// All unresolved intents of other epochs than this, oldest first: the chain that they were
    /// meant for is gone.
    ///
    /// # Errors
    /// The database is unavailable, or a row is damaged.
    pub async fn unresolved_of_other_epochs(&self, epoch: &str) -> Result<Vec<Intent>, StoreError> {
        let rows = self.db.rows(sql::UNRESOLVED_ELSEWHERE, &[epoch.into()]).await?;
        rows.iter().map(Intent::read).collect()
    }

    /// When an operation was last intended for a subject, unless that came to nothing (rejected,
    /// lost or reverted): what a cooldown counts from.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
    ) -> Result<Option<i64>, StoreError> {
        let subject = felt_text(subject);
        let args = [epoch.into(), operation.into(), (&subject).into()];
        let row = self.db.row(sql::LAST_OF, &args).await?;
        row.map(|row| row.get("created_us")).transpose()
    }

    /// How many intents are in each state, states without one left out.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn counts_by_state(&self) -> Result<Vec<(State, i64)>, StoreError> {
        let rows = self.db.rows(sql::COUNT_BY_STATE, &[]).await?;
        let counts = rows.iter().map(|row| Ok((state(row)?, row.get("intents")?)));
        let mut counts = counts.collect::<Result<Vec<_>, StoreError>>()?;
        counts.sort();
        Ok(counts)
    }

    async fn one(
        &self,
        sql: &'static str,
        args: &[super::db::Arg<'_>],
    ) -> Result<Option<Intent>, StoreError> {
        self.db.row(sql, args).await?.as_ref().map(Intent::read).transpose()
    }
}

/// Adds the row; `false` when a unique rule forbids it.
async fn add(
    tx: &mut Tx,
    id: IntentId,
    new: &NewIntent<'_>,
    nonce: i64,
    now_us: i64,
) -> Result<bool, StoreError> {
    let digest = hex::write(&new.digest);
    let subject = new.subject.map(felt_text);
    let signer = felt_text(new.signer);
    let hash = felt_text(new.transaction_hash);
    let args = [
        id.0.into(),
        new.epoch.into(),
        new.operation.into(),
        (&digest).into(),
        subject.as_deref().into(),
        new.request.into(),
        (&signer).into(),
        nonce.into(),
        (&hash).into(),
        new.transaction.into(),
        now_us.into(),
    ];
    Ok(tx.run(sql::INTENT_ADD, &args).await? == 1)
}

/// Which intent stands in the way: of the same transaction, else of an equal request.
async fn known(tx: &mut Tx, new: &NewIntent<'_>) -> Result<Option<Intent>, StoreError> {
    let hash = felt_text(new.transaction_hash);
    let mut row = tx.row(sql::INTENT_BY_HASH, &[new.epoch.into(), (&hash).into()]).await?;
    if row.is_none() {
        let digest = hex::write(&new.digest);
        row = tx.row(sql::INTENT_BY_DIGEST, &[new.epoch.into(), (&digest).into()]).await?;
    }
    row.as_ref().map(Intent::read).transpose()
}

async fn nonce_taken(tx: &mut Tx, new: &NewIntent<'_>, nonce: i64) -> Result<Intended, StoreError> {
    let signer = felt_text(new.signer);
    let args = [new.epoch.into(), (&signer).into(), nonce.into()];
    let taken = tx.row(sql::INTENT_BY_NONCE, &args).await?;
    // else the number itself is taken: the head is behind the rows
    taken.map(|_| Intended::NonceTaken).ok_or(StoreError::Corrupt("chain_head"))
}

async fn link(tx: &mut Tx, new: &NewIntent<'_>, id: IntentId) -> Result<(), StoreError> {
    let Some(key) = new.idempotency_key else { return Ok(()) };
    match tx.run(sql::KEY_LINK, &[key.into(), id.0.into()]).await? {
        1 => Ok(()),
        _ => Err(StoreError::UnknownKey),
    }
}

/// What the journal says of a new intent; the transaction's hash covers the transaction.
fn intended_detail(new: &NewIntent<'_>) -> String {
    journal::object(&[
        ("digest", Some(&hex::write(&new.digest))),
        ("epoch", Some(new.epoch)),
        ("nonce", Some(&new.nonce.to_string())),
        ("signer", Some(&felt_text(new.signer))),
        ("subject", new.subject.map(felt_text).as_deref()),
        ("transaction_hash", Some(&felt_text(new.transaction_hash))),
    ])
}
