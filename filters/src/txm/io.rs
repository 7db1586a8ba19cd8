//! The interface of the write path to everything outside it: node, journal, accounts, time, chance.
//!
//! The flows of this module are `async` functions over one [`Io`], and nothing else in them waits.
//! The relay implements it with sockets, a database and keys; a simulation with maps and virtual
//! time, so that it explores the flows as they run. An implementation decides nothing.
//!
//! An error of the node proves nothing, except `is_unsent`: the node did not receive the request.
//! `None` says what this URL shows now, not what the chain has.

use super::memory::Memory;
use super::node::{Block, CallError, ListedBlock, Receipt, Sender};
use super::not_sent::NotSent;
use super::outcome::Outcome;
use super::settings::{Pins, Required, Role, Settings};
use crate::felt::Felt;
use crate::ledger::{
    Binding, Change, Claim, ClaimToken, Intended, Intent, IntentId, NewIntent, Requested,
};
use crate::tx::{Bounds, Invoke};
use crate::window::Window;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// The result of a call to the node.
pub type Called<T> = Result<T, CallError>;

/// Why a request to the journal failed. The cause is logged where it occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The journal is unavailable, or refused the request. Except by `intend`, something may be
    /// stored even so.
    Failed,
    /// A commit had no answer: what it wrote may be stored.
    Unconfirmed,
}

/// The result of a request to the journal.
pub type Stored<T> = Result<T, JournalError>;

/// Why an account is not locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockError {
    /// Too many writes wait for the account.
    QueueFull,
    /// The deadline is over.
    Deadline,
    /// Another process holds the account.
    HeldElsewhere,
    /// The store is unavailable.
    Store(JournalError),
}

/// A signed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedText {
    /// Its hash.
    pub hash: Felt,
    /// Its JSON: the parameters of the method that submits it, or the transaction to estimate.
    pub text: String,
}

/// The purpose of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// An estimate: a signature of the query version cannot be used to submit.
    Estimate,
    /// A write.
    Write,
}

/// An event for the operator's log and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// An intent is in doubt, for this reason.
    Displaced(&'a Intent, &'a str),
    /// Another transaction, which the text names, used the nonce of this intent for good.
    Lost(&'a Intent, &'a str),
    /// The chain shows the transaction of an intent again.
    Back(&'a Intent),
    /// The search for the transaction that used the nonce of this intent skipped a block that no
    /// URL returned.
    Unreadable(&'a Intent, u64),
    /// The first of two drips is paid after all, although the second was paid to its recipient
    /// within the cooldown.
    PaidTwice(&'a Intent, &'a Intent),
    /// The effect of an operation of this name was not read back.
    NotReadBack(&'static str),
    /// An account writes with this nonce.
    Nonce(Role, u64),
}

/// The node. State is read at the block being built, so that a write is visible at once.
pub trait NodeIo: Send + Sync {
    /// One URL of the node.
    type Url: Copy + Send + Sync;

    /// Calls a view, at the first URL in order that answers and is not behind what was shown. Error
    /// 20 if the contract does not exist.
    fn call(
        &self,
        to: Felt,
        selector: Felt,
        args: &[Felt],
    ) -> impl Future<Output = Called<Vec<Felt>>> + Send;
    /// The class of a contract, if there is one; from the URL that [`NodeIo::call`] would use.
    fn class_hash_at(&self, address: Felt) -> impl Future<Output = Called<Option<Felt>>> + Send;
    /// The next nonce of an account; from the URL that [`NodeIo::call`] would use. Error 20 for an
    /// account that is not deployed, never 0.
    fn nonce(&self, account: Felt) -> impl Future<Output = Called<u64>> + Send;
    /// The newest accepted block, never the one being built, and none older than what was shown.
    fn head(&self) -> impl Future<Output = Called<Block>> + Send;
    /// The epoch of the chain, by its first block: the same after blocks and rollbacks, another one
    /// once the chain starts over.
    fn anchor(&self) -> impl Future<Output = Called<String>> + Send;
    /// The resources that a transaction would use at the block being built, with their prices, or
    /// the node's refusal. Changes nothing.
    fn estimate(&self, transaction: &str) -> impl Future<Output = Called<Bounds>> + Send;
    /// The receipt of a transaction, from the URL that serves. `accepted` and `block` only once an
    /// accepted block lists it.
    fn receipt(&self, hash: Felt) -> impl Future<Output = Called<Option<Receipt>>> + Send;

    /// Every configured URL, except those more than `node.max_lag` blocks behind or on a fork. One
    /// that is down keeps its say: its silence is no evidence.
    fn urls(&self) -> Vec<Self::Url>;
    /// The number of the newest accepted block at a URL, whatever was shown.
    fn head_of(&self, url: Self::Url) -> impl Future<Output = Called<u64>> + Send;
    /// The accepted block with this number at a URL; `None` if the URL does not have it, or it is
    /// being built.
    fn block_of(
        &self,
        url: Self::Url,
        number: u64,
    ) -> impl Future<Output = Called<Option<ListedBlock>>> + Send;
    /// The transaction of an account with this nonce, in one accepted block at a URL; `None` if the
    /// URL lacks the block or the block lacks the transaction.
    fn transaction_of(
        &self,
        url: Self::Url,
        number: u64,
        account: Felt,
        nonce: u64,
    ) -> impl Future<Output = Called<Option<Felt>>> + Send;
    /// The next nonce of an account at one URL.
    fn nonce_of(&self, url: Self::Url, account: Felt) -> impl Future<Output = Called<u64>> + Send;
    /// The account and the nonce of a transaction; `None` unless this URL shows the transaction.
    fn sender_of(
        &self,
        url: Self::Url,
        hash: Felt,
    ) -> impl Future<Output = Called<Option<Sender>>> + Send;
    /// The receipt of a transaction, from one URL and whatever was shown.
    fn receipt_of(
        &self,
        url: Self::Url,
        hash: Felt,
    ) -> impl Future<Output = Called<Option<Receipt>>> + Send;
    /// Notes that a block with this number was acknowledged: no URL below it serves from now on,
    /// until every URL has been without the block for some seconds.
    fn note_shown(&self, number: u64);
}

/// The journal, and what is stored with it.
pub trait JournalIo: Send + Sync {
    /// Microseconds since 1970, by one clock for all processes of a store, within `clock_error_us`.
    /// It can be set: compare through [`Window`] only.
    fn clock_us(&self) -> i64;
    /// How far the clocks of two processes that share the store may be apart.
    fn clock_error_us(&self) -> i64;
    /// Whether no other process can open the store.
    fn is_exclusive(&self) -> bool;

    /// Stores an intent as sent, if the ledger permits it: durable and visible to every connection
    /// before it returns `New`. One slot has one intent, an equal request gets the known one,
    /// another epoch none. After `Unconfirmed` it may be stored; after `Failed` it is not.
    fn intend(
        &self,
        new: &NewIntent<'_>,
        now_us: i64,
    ) -> impl Future<Output = Stored<Intended>> + Send;
    /// Changes an intent; `false`, and no change, if its present state does not allow that. An
    /// unknown intent is an error.
    fn apply(&self, id: IntentId, change: &Change<'_>)
    -> impl Future<Output = Stored<bool>> + Send;
    /// Reads an intent: its newest state, as committed by any process.
    fn intent(&self, id: IntentId) -> impl Future<Output = Stored<Option<Intent>>> + Send;
    /// The intent that the key names, if the key is of this request and epoch, and the newest
    /// intent of this digest that is neither rejected nor lost.
    fn requested(
        &self,
        epoch: &str,
        digest: &[u8; 32],
        key: Option<&KeyOf<'_>>,
    ) -> impl Future<Output = Stored<Requested>> + Send;
    /// The unresolved intents of an epoch, or of one signer in it, oldest first.
    fn unresolved(
        &self,
        epoch: &str,
        signer: Option<Felt>,
    ) -> impl Future<Output = Stored<Vec<Intent>>> + Send;
    /// The displaced intents of an epoch below an id, newest first; at most `limit`.
    fn displaced(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> impl Future<Output = Stored<Vec<Intent>>> + Send;
    /// The intents of a slot, in any state, oldest first.
    fn of_slot(
        &self,
        epoch: &str,
        signer: Felt,
        nonce: u64,
    ) -> impl Future<Output = Stored<Vec<Intent>>> + Send;
    /// The included intents whose block is known, those in the newest blocks first; at most
    /// `limit`.
    fn included_newest(
        &self,
        epoch: &str,
        limit: u32,
    ) -> impl Future<Output = Stored<Vec<Intent>>> + Send;
    /// The included intents below an id whose block is not known, newest first; at most `limit`.
    fn included_anywhere(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> impl Future<Output = Stored<Vec<Intent>>> + Send;
    /// The highest block that is known to list an included intent. It falls when that one is
    /// displaced.
    fn floor(&self, epoch: &str) -> impl Future<Output = Stored<Option<u64>>> + Send;
    /// The newest intent that started a cooldown, of an operation and a subject, within a window.
    /// Rejected, lost and reverted ones do not count.
    fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> impl Future<Output = Stored<Option<Intent>>> + Send;
    /// Whether an identity and a recipient are bound to each other, by the intents in force of the
    /// epoch.
    fn binding(
        &self,
        epoch: &str,
        identity: Felt,
        recipient: Felt,
    ) -> impl Future<Output = Stored<Binding>> + Send;

    /// Claims an idempotency key for a request: `New` for one token only, and for it again while
    /// the claim is bare. A stored answer comes with its intent as it is now, and not once that is
    /// rejected or lost.
    fn claim(
        &self,
        key: &KeyOf<'_>,
        token: &ClaimToken,
    ) -> impl Future<Output = Stored<Claim>> + Send;
    /// Links a key to an intent of the key's own epoch, operation and digest; `false` unless the
    /// former one is rejected, lost or replaced.
    fn link(&self, key: &KeyOf<'_>, intent: IntentId) -> impl Future<Output = Stored<bool>> + Send;
    /// Stores the response, once, under a key that names this intent; `false` if nothing was
    /// stored.
    fn answer(
        &self,
        key: &KeyOf<'_>,
        intent: IntentId,
        outcome: &Outcome,
        request_id: &str,
    ) -> impl Future<Output = Stored<bool>> + Send;
    /// Releases a bare claim with this token, and returns whether there was one.
    fn release_claim(
        &self,
        key: &KeyOf<'_>,
        token: &ClaimToken,
    ) -> impl Future<Output = Stored<bool>> + Send;
}

/// A write in flight: equal requests join it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flight {
    /// The chain epoch that it writes in; `None` while none is known.
    pub epoch: Option<String>,
    /// The digest of an operation, or the hash of a transaction.
    pub digest: [u8; 32],
    /// The key of the requests that may join; `None` for any key.
    pub key: Option<String>,
}

/// An idempotency key, and the request that it is used with.
#[derive(Clone, Copy, Debug)]
pub struct KeyOf<'a> {
    /// The chain's epoch.
    pub epoch: &'a str,
    /// The key.
    pub key: &'a str,
    /// The operation's name.
    pub operation: &'a str,
    /// The digest of the request.
    pub digest: &'a [u8; 32],
}

/// Everything that the write path needs from outside.
pub trait Io: NodeIo + JournalIo + 'static {
    /// The trace of a request.
    type Trace: Send + Sync + 'static;
    /// The exclusive right to write with an account.
    type Guard: Send;

    /// The configured accounts and contracts, which are constant while the process runs.
    fn pins(&self) -> &Pins;
    /// The bounds in force now: a reload changes them between two calls.
    fn settings(&self) -> Settings;

    /// The time of a monotonic clock.
    fn now(&self) -> Duration;
    /// Waits at least this long by [`Io::now`].
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
    /// 128 random bits, which no process repeats; `None` if the system has none.
    fn random(&self) -> Option<[u8; 16]>;
    /// Calls `use_it` with the memory of this process: one value for as long as it runs.
    fn memory<T>(&self, use_it: impl FnOnce(&mut Memory) -> T) -> T;

    /// The epoch of the chain, if every required pin holds and the relays of the store write to it.
    /// The proof is at most some seconds old.
    fn require(&self, required: Required) -> impl Future<Output = Result<String, NotSent>> + Send;
    /// The epoch of the newest proof, agreed or not; the last known one while the node is
    /// unavailable. Never permission to write.
    fn epoch(&self) -> impl Future<Output = Result<String, NotSent>> + Send;
    /// Drops the proof, so that the next [`Io::require`] reads the chain: a write may have changed
    /// a pin, or the chain is another one.
    fn forget_proof(&self);
    /// The number of a head that the chain of this epoch had reached, never one above it: a
    /// transaction that is signed now can only be above. `None` if the newest proof is of another
    /// epoch.
    fn proven_head(&self, epoch: &str) -> Option<u64>;

    /// Locks an account, which has one holder among all processes of the store: waits in the queue
    /// of this process until the deadline, then against other processes.
    fn lock(
        &self,
        role: Role,
        deadline: Duration,
    ) -> impl Future<Output = Result<Self::Guard, LockError>> + Send;
    /// Checks that a lock is still held: `Ok` only if it was during the call. A lock that was found
    /// lost stays lost.
    fn check_lock(&self, guard: &mut Self::Guard) -> impl Future<Output = Stored<()>> + Send;
    /// Hands the account to the next write in the queue; other processes get their turn within
    /// seconds. Dropping the guard unlocks, too.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = ()> + Send;
    /// Signs with the key of a role; equal input has equal output. A hash of the query version is
    /// never that of a write.
    fn sign(&self, role: Role, invoke: Invoke, purpose: Purpose) -> SignedText;
    /// Submits a signed transaction of an operation, once. Returns the node's hash. Without an
    /// answer the node may have taken it, unless the error is `is_unsent`.
    fn add(
        &self,
        operation: &str,
        transaction: &str,
        trace: Option<&Self::Trace>,
    ) -> impl Future<Output = Called<Felt>> + Send;

    /// Carries a write out once for equal flights of one epoch, and returns its outcome to each. It
    /// goes on without its first request; a panic leaves `outcome_unknown`. An ended flight is not
    /// joined.
    fn join(
        &self,
        flight: Flight,
        write: impl Future<Output = Outcome> + Send + 'static,
    ) -> impl Future<Output = Outcome> + Send;
    /// Runs work in the background, after the response, until the process ends.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static);
    /// Runs work as a stage of a request, and returns its result.
    fn stage<T: Send>(
        &self,
        trace: &Self::Trace,
        name: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send;

    /// Wakes the reconciliation: an intent was left open. Not lost if nobody waits yet.
    fn wake(&self);
    /// Reports an event to the operator. Changes nothing else.
    fn note(&self, note: Note<'_>);
}

/// Runs work until a deadline; `None` if that passes first.
pub(super) async fn within<T>(
    io: &impl Io,
    deadline: Duration,
    work: impl Future<Output = T> + Send,
) -> Option<T> {
    use futures_util::future::{Either, select};
    let left = deadline.saturating_sub(io.now());
    let work = core::pin::pin!(work);
    let end = core::pin::pin!(io.sleep(left));
    match select(work, end).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}
