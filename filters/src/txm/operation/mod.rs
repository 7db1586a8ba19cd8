//! Writes the operations that we sign: decides by the chain's state, makes an intent durable as
//! sent, sends the transaction, and reads its effect back.
//!
//! An idempotency key stores the first final response; without one, an operation that is in flight
//! or whose end is unknown is not started a second time.

use super::claim::{Claimed, claim, end_claim};
use super::intend::{Intending, intend};
use super::io::{Flight, Io, KeyOf, Note, Purpose, SignedText, within};
use super::node::CallError;
use super::operations::{self, Decision, State, subject, verification};
use super::outcome::{Details, Outcome, Status};
use super::rollbacks::{Confirmed, Repeated, confirm as confirm_included, send_again};
use super::settings::{Required, Role, Settings};
use super::{DEADLINE, bounds, pins, reconcile, request, submit};
use crate::felt::Felt;
use crate::ledger::{Budgets, Intent, IntentId, IntentState, NewIntent};
use crate::operation::{Operation, OperationKind};
use crate::policy::OperationPermit;
use crate::tx::{Bounds, Call, Invoke};
use crate::verdict::{Reason, Refusal};
use crate::window::Window;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use core::time::Duration;
use futures_util::future::join;

/// The most turns of one operation: its nonce may be used elsewhere, its key may name another
/// intent, and an intent in the journal may turn out to be in doubt.
const TURNS: usize = 3;

/// The result of a request.
#[derive(Debug)]
pub enum Answer {
    /// An outcome.
    Outcome(Outcome),
    /// The first final response under the idempotency key: status and body.
    First(u16, String),
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

/// A signed operation, ready to be stored and sent.
struct Prepared {
    signed: SignedText,
    nonce: u64,
    /// The highest fee by its bounds, in fri.
    max_fee: u128,
    /// The identity to which the store has to bind the subject.
    identity: Option<Felt>,
    /// The intent of the same request whose nonce it takes.
    replaces: Option<IntentId>,
}

/// The result of one turn of an operation while its account is locked.
enum Turn {
    /// The node has accepted the transaction, which is not journaled yet.
    Sent(IntentId, Felt),
    /// Another relay has written the operation.
    Written(Box<Intent>),
    /// The intent in the journal turned out to be in doubt, or no longer is: another turn is
    /// needed.
    Again,
}

/// An operation to be carried out, detached from its request.
#[derive(Debug)]
pub struct Task<T> {
    operation: Operation,
    digest: [u8; 32],
    request: String,
    pub(super) request_id: String,
    key: Option<String>,
    /// The refusal by the policy, unless an earlier write answers the request.
    refused: Option<Refusal>,
    trace: Arc<T>,
    /// The newest intent that was stored for this request, with its key; 0 without one.
    stored: AtomicI64,
}

/// Carries an operation out, or finds the first response under its idempotency key.
pub async fn operate<I: Io>(io: &Arc<I>, task: &Arc<Task<I::Trace>>) -> Answer {
    let Some(key) = task.key.as_deref() else {
        return Answer::Outcome(once(io, task, None).await);
    };
    for turn in 0..TURNS {
        let is_first = turn == 0;
        let claimed = match claim(&**io, key, task).await {
            Ok(claimed) => claimed,
            // the key names a write: a refusal must not say that nothing was sent
            Err(Answer::Outcome(_)) if !is_first => break,
            Err(answer) => return answer,
        };
        let outcome = once(io, task, Some(&claimed)).await;
        match end_claim(&**io, key, &claimed, &outcome, task).await {
            Ok(true) => return Answer::Outcome(outcome),
            // an open outcome says itself that a repeat gets another answer
            Ok(false) if outcome.is_open() => return Answer::Outcome(outcome),
            // another relay has written something else for this key: that is its answer
            Ok(false) => {}
            // an error was logged: a repeat is answered from the intent, which has the key, or is
            // decided again
            Err(_) if is_first && (!outcome.is_final() || task.is_key_of(&claimed, &outcome)) => {
                return Answer::Outcome(outcome);
            }
            Err(_) => break,
        }
    }
    Answer::Outcome(Outcome::unsettled())
}

/// Carries an operation out once for all equal requests at the same time. The request that it
/// joined may have another key: a refusal of that request, or an intent other than the one that
/// this key names, is no answer to this request.
async fn once<I: Io>(
    io: &Arc<I>,
    task: &Arc<Task<I::Trace>>,
    claimed: Option<&Claimed>,
) -> Outcome {
    // a key that another request claimed may have its answer; any other request must be admitted
    if claimed.is_none_or(Claimed::is_new)
        && let Err(refused) = task.admit()
    {
        return refused;
    }
    let epoch = claimed.map(|claimed| claimed.epoch.clone());
    let flight = Flight {
        digest: task.digest,
        key: None,
    };
    let (outcome, by) = join_write(io, task, epoch.clone(), flight).await;
    let Some(claimed) = claimed.filter(|_| by == By::Other) else {
        return outcome;
    };
    let is_own = outcome.intent.is_some()
        && claimed
            .named
            .is_none_or(|named| outcome.intent == Some(named));
    if is_own {
        return outcome;
    }
    let flight = Flight {
        digest: task.digest,
        key: task.key.clone(),
    };
    join_write(io, task, epoch, flight).await.0
}

/// Whose request a write was carried out for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    This,
    Other,
}

async fn join_write<I: Io>(
    io: &Arc<I>,
    task: &Arc<Task<I::Trace>>,
    epoch: Option<String>,
    flight: Flight,
) -> (Outcome, By) {
    let (writer, work) = (Arc::clone(io), Arc::clone(task));
    let is_ours = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&is_ours);
    // boxed: it is passed through several futures, each of which would contain it
    let write = Box::pin(async move {
        begun.store(true, Ordering::Relaxed);
        Outcome::merge(carry_out(&*writer, &work, epoch).await)
    });
    let outcome = io.join(flight, write).await;
    let by = if is_ours.load(Ordering::Relaxed) {
        By::This
    } else {
        By::Other
    };
    (outcome, by)
}

/// Carries an operation out, in the epoch in which its key was `claimed`.
async fn carry_out<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    claimed: Option<String>,
) -> Result<Outcome, Outcome> {
    match try_carry_out(io, task, claimed).await {
        Err(refused) if refused.reason() == Some(Reason::RefusedByChain) => {
            Err(pins::explain(io, task.required(), refused).await)
        }
        outcome => outcome,
    }
}

async fn try_carry_out<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    claimed: Option<String>,
) -> Result<Outcome, Outcome> {
    let required = task.required();
    let deadline = io.now().saturating_add(DEADLINE);
    let since_us = io.clock_us();
    if required == Required::AllButV2 && verification::is_v2_active(&State::of(io, "")).await? {
        // true with unproven pins, too
        return Ok(Outcome::already(Details::V2_ACTIVE));
    }
    let proven = reconcile::permit(io, required, deadline);
    let epoch = io.stage(&task.trace, "pins", proven).await?;
    if claimed.is_some_and(|claimed| claimed != epoch) {
        return Err(Outcome::restarted());
    }
    let writing = Writing {
        io,
        task,
        epoch: &epoch,
        since_us,
        deadline,
    };
    // an unsent or doubtful intent is settled below, while the account is locked
    if let Some(earlier) = writing.earlier().await?
        && !matches!(
            earlier.state,
            IntentState::Intended | IntentState::Displaced
        )
        && let Some(outcome) = reconcile::known(io, &earlier).await?
    {
        return Ok(outcome);
    }
    let locked = io.lock(task.role(), deadline);
    let mut guard = io.stage(&task.trace, "queue", locked).await?;
    let turn = writing.turns(&mut guard).await;
    // the next operation starts meanwhile: it takes the node's nonce, which counts this one
    let accepted = async {
        if let Ok(Turn::Sent(id, hash)) = &turn {
            submit::accepted(io, *id, *hash).await?;
        }
        Ok::<_, Outcome>(())
    };
    let (accepted, ()) = join(accepted, io.unlock(guard)).await;
    accepted?;
    let turn = match turn {
        Err(refused) if task.key.is_none() => match writing.done_before(&refused).await? {
            Some(outcome) => return Ok(outcome),
            None => return Err(refused),
        },
        turn => turn?,
    };
    match turn {
        Turn::Sent(id, hash) => Box::pin(confirm(io, task, id, hash, &epoch)).await,
        Turn::Written(earlier) => reconcile::known(io, &earlier)
            .await?
            .ok_or_else(Outcome::unsettled),
        Turn::Again => Err(Outcome::unsettled()),
    }
}

/// The state that all turns of an operation share.
struct Writing<'a, I: Io> {
    io: &'a I,
    task: &'a Task<I::Trace>,
    /// The chain's epoch.
    epoch: &'a str,
    /// When the request came in, in microseconds since 1970.
    since_us: i64,
    /// When it is signed or refused at the latest.
    deadline: Duration,
}

impl<I: Io> Writing<'_, I> {
    /// Takes turns until the operation is written, or must not be.
    async fn turns(&self, guard: &mut I::Guard) -> Result<Turn, Outcome> {
        let mut nonce = None;
        let mut may_conflict = true;
        for _ in 0..TURNS {
            match Box::pin(self.turn(guard, &mut nonce)).await {
                Ok(Turn::Again) => {}
                // the account was used elsewhere: once more, with the node's next nonce
                Err(outcome) if may_conflict && outcome.reason() == Some(Reason::NonceConflict) => {
                    may_conflict = false;
                }
                turn => return turn,
            }
        }
        Err(Outcome::unsettled())
    }

    /// The intent that this request is about, if there is one.
    async fn earlier(&self) -> Result<Option<Intent>, Outcome> {
        let Self {
            io,
            task,
            epoch,
            since_us,
            ..
        } = *self;
        let key = task.key.as_deref().map(|key| task.key_of(key, epoch));
        let found = io.requested(epoch, &task.digest, key.as_ref()).await?;
        Ok(request::earlier(found, since_us))
    }

    /// The outcome of the newest equal request, if that has done what this one is `refused` for.
    async fn done_before(&self, refused: &Outcome) -> Result<Option<Outcome>, Outcome> {
        let Self {
            io, task, epoch, ..
        } = *self;
        if !matches!(
            refused.reason(),
            Some(Reason::FaucetCooldown | Reason::RecoveryNotPending)
        ) {
            return Ok(None);
        }
        let newest = io.requested(epoch, &task.digest, None).await?.newest;
        let proposed = match operations::recovered(&task.operation) {
            Some(identity) => {
                let propose = OperationKind::RecoveryPropose.name();
                let ever = Window::new(io.clock_us(), i64::MAX);
                io.last_of(propose, identity, epoch, ever).await?
            }
            None => None,
        };
        let Some(newest) =
            newest.filter(|newest| request::is_done(refused, newest, proposed.as_ref()))
        else {
            return Ok(None);
        };
        let known = reconcile::known(io, &newest).await?;
        let Some(outcome) = known.filter(|known| known.status == Status::Written) else {
            return Ok(None);
        };
        let read_back = operations::read_back(&task.operation, &State::of(io, epoch)).await;
        Ok(Some(Outcome {
            details: read_back.ok().flatten().unwrap_or_default(),
            ..outcome
        }))
    }

    /// Writes while the account is locked, but not with `nonce`, that of the turn before. Reads
    /// again what other relays have written meanwhile, and sends again what is in doubt.
    ///
    /// # Errors
    /// Returns an outcome if nothing was written: it is not possible, or not necessary.
    async fn turn(&self, guard: &mut I::Guard, nonce: &mut Option<u64>) -> Result<Turn, Outcome> {
        let Self { io, task, .. } = *self;
        let mut replaces = None;
        if let Some(earlier) = self.earlier().await? {
            match earlier.state {
                IntentState::Intended => {}
                IntentState::Displaced => {
                    io.check_lock(guard).await?;
                    io.require(task.required()).await?;
                    match send_again(io, &earlier).await? {
                        Repeated::Accepted => {
                            return Ok(Turn::Sent(earlier.id, earlier.transaction_hash));
                        }
                        Repeated::Shown => return Ok(Turn::Again),
                        Repeated::Refused => replaces = Some(earlier),
                    }
                }
                _ => return Ok(Turn::Written(Box::new(earlier))),
            }
        }
        let signed = within(io, self.deadline, self.prepare(replaces.as_ref()));
        let signed = io.stage(&task.trace, "sign", signed).await;
        let prepared = signed.unwrap_or_else(|| Err(Outcome::overloaded()))?;
        let next = prepared.nonce;
        if nonce.replace(next) == Some(next) {
            return Err(Outcome::nonce_conflict());
        }
        io.check_lock(guard).await?;
        self.send(&prepared).await
    }

    /// Decides and signs. Nothing is stored or sent yet, so that it can be cancelled.
    async fn prepare(&self, replaces: Option<&Intent>) -> Result<Prepared, Outcome> {
        let Self {
            io, task, epoch, ..
        } = *self;
        task.admit()?;
        // again: the wait for the account may have outlasted the proof
        io.require(task.required()).await?;
        let nonce = match self.free_nonce().await? {
            Some(nonce) => nonce,
            None => {
                reconcile::settle_signer(io, epoch, task.role(), Duration::ZERO).await?;
                io.nonce(self.account()).await?
            }
        };
        if replaces.is_some_and(|replaced| replaced.nonce != nonce) {
            return Err(Outcome::unsettled());
        }
        // the state is read after the nonce: it shows all transactions that the nonce counts
        let slot = io.of_slot(epoch, self.account(), nonce).await?;
        let is_in_doubt = slot.iter().any(|other| other.state.holds());
        let state = State {
            is_in_doubt,
            ..State::of(io, epoch)
        };
        let decision = Box::pin(operations::decide(&task.operation, &state)).await?;
        let (calls, identity) = match decision {
            Decision::Already(details) => return Err(Outcome::already(details)),
            Decision::Write(calls) => (calls, None),
            Decision::Bind(identity, calls) => (calls, Some(identity)),
        };
        let displaced = slot
            .iter()
            .filter(|other| other.state == IntentState::Displaced);
        let (signed, max_fee) = self.sign(&calls, nonce, displaced.count()).await?;
        let replaces = replaces.map(|replaced| replaced.id);
        Ok(Prepared {
            signed,
            nonce,
            max_fee,
            identity,
            replaces,
        })
    }

    /// The account's next nonce, if no pending intent can use it: the node counts the nonces of
    /// all, even of those that the journal does not have as accepted yet. Their receipts are read
    /// by the processes that wrote them, or in the background.
    async fn free_nonce(&self) -> Result<Option<u64>, Outcome> {
        let pending = self.io.unresolved(self.epoch, Some(self.account()));
        let (pending, next) = join(pending, self.io.nonce(self.account())).await;
        let next = next?;
        Ok(pending?
            .iter()
            .all(|intent| intent.nonce < next)
            .then_some(next))
    }

    /// Signs a transaction that makes `calls`, with bounds from an estimate. `in_doubt` is the
    /// number of doubtful transactions with the nonce, from which it must differ. Also returns its
    /// highest fee, in fri.
    async fn sign(
        &self,
        calls: &[Call],
        nonce: u64,
        in_doubt: usize,
    ) -> Result<(SignedText, u128), Outcome> {
        let (io, role) = (self.io, self.task.role());
        let invoke = |bounds| Invoke {
            sender: self.account(),
            calls: calls.to_vec(),
            nonce: Felt::from(nonce),
            bounds,
        };
        let query = io.sign(role, invoke(Bounds::ZERO), Purpose::Estimate);
        let estimate = io.estimate(&query.text).await;
        if let Err(CallError::Returned(_)) = &estimate
            && io.nonce(self.account()).await? != nonce
        {
            return Err(Outcome::nonce_conflict());
        }
        let (bounds, max_fee) = bounds::bounds(&estimate?, &io.settings(), in_doubt)?;
        Ok((io.sign(role, invoke(bounds), Purpose::Write), max_fee))
    }

    /// Journals and submits. Returns once the node has accepted it, before that is journaled.
    async fn send(&self, prepared: &Prepared) -> Result<Turn, Outcome> {
        let Self { io, task, .. } = *self;
        let new = self.intent(prepared, &io.settings());
        let id = match intend(io, &new).await? {
            Intending::New(id) => id,
            Intending::Displaced(_) => return Ok(Turn::Again),
            Intending::NonceTaken(_) => return Err(Outcome::unsettled()),
        };
        task.stored.store(id.0, Ordering::Relaxed);
        io.note(Note::Nonce(task.role(), new.nonce));
        submit::submit(io, id, &new, &task.trace).await?;
        Ok(Turn::Sent(id, new.transaction_hash))
    }

    /// The address of the account that signs.
    fn account(&self) -> Felt {
        *self.io.pins().accounts.of(self.task.role())
    }

    fn intent<'a>(&'a self, prepared: &'a Prepared, settings: &Settings) -> NewIntent<'a> {
        let Prepared {
            signed,
            nonce,
            max_fee,
            identity,
            replaces,
        } = prepared;
        let Task {
            operation,
            digest,
            request,
            key,
            ..
        } = self.task;
        let is_drip = matches!(operation, Operation::FaucetDrip(_));
        let budgets = settings.budgets;
        NewIntent {
            operation: self.task.name(),
            digest: *digest,
            subject: subject(operation),
            identity: *identity,
            request,
            epoch: self.epoch,
            signer: self.account(),
            nonce: *nonce,
            transaction_hash: signed.hash,
            transaction: &signed.text,
            idempotency_key: key.as_deref(),
            born: self.io.proven_head(),
            replaces: *replaces,
            max_fee: *max_fee,
            budgets: Budgets {
                drips: budgets.drips.filter(|_| is_drip),
                ..budgets
            },
            cooldown: is_drip.then_some(settings.faucet_cooldown),
        }
    }
}

/// Waits for the receipt and reads the effect back.
async fn confirm<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    id: IntentId,
    hash: Felt,
    epoch: &str,
) -> Result<Outcome, Outcome> {
    let receipt = io
        .stage(&task.trace, "receipt", submit::receipt(io, id, hash))
        .await;
    // after an error the journal has it as accepted: the reconciliation settles it
    let Some(receipt) = receipt.unwrap_or(None) else {
        return Ok(Outcome::pending(hash).of_intent(id));
    };
    if let Err(reason) = receipt.outcome {
        return Err(Outcome::reverted(hash, reason.as_deref()).of_intent(id));
    }
    if task.required() == Required::AllButV2 {
        io.forget_proof();
    }
    let read_back = operations::read_back(&task.operation, &State::of(io, epoch)).await;
    let details = read_back.ok().flatten();
    if details.is_none() {
        // the transaction was sent: an unavailable journal or node does not change that
        if !is_still_there(io, id).await.unwrap_or(true) {
            return Err(Outcome::unsettled());
        }
        // undone in the meantime, or the node is unavailable
        io.note(Note::NotReadBack(task.name()));
    }
    Ok(Outcome::written(hash, details.unwrap_or_default()).of_intent(id))
}

/// Whether the chain still has an included intent, according to the node.
async fn is_still_there(io: &impl Io, id: IntentId) -> Result<bool, Outcome> {
    let Some(intent) = io.intent(id).await? else {
        return Ok(true);
    };
    let found = confirm_included(io, &intent).await?;
    Ok(matches!(found, Confirmed::Shown | Confirmed::Unavailable))
}

impl<T> Task<T> {
    /// A permitted operation, with the key and the id of its request.
    #[must_use]
    pub fn new(
        permit: &OperationPermit,
        key: Option<&str>,
        trace: &Arc<T>,
        request_id: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            operation: permit.operation().clone(),
            digest: permit.digest(),
            request: permit.canonical(),
            request_id: request_id.to_owned(),
            key: key.map(ToOwned::to_owned),
            refused: permit.admission().err().cloned(),
            trace: Arc::clone(trace),
            stored: AtomicI64::new(0),
        })
    }

    /// Whether the key of this request names the intent of an outcome.
    fn is_key_of(&self, claimed: &Claimed, outcome: &Outcome) -> bool {
        let stored = IntentId(self.stored.load(Ordering::Relaxed));
        outcome.intent == claimed.named || outcome.intent == Some(stored)
    }

    /// Checks that the policy admits the operation, which may be written then.
    fn admit(&self) -> Result<(), Outcome> {
        match &self.refused {
            None => Ok(()),
            Some(refusal) => Err(refusal.clone().into()),
        }
    }

    /// The operation's name.
    pub(super) fn name(&self) -> &'static str {
        self.operation.kind().name()
    }

    /// An idempotency key of this request.
    pub(super) fn key_of<'a>(&'a self, key: &'a str, epoch: &'a str) -> KeyOf<'a> {
        KeyOf {
            epoch,
            key,
            operation: self.name(),
            digest: &self.digest,
        }
    }

    fn role(&self) -> Role {
        Role::of(self.operation.kind())
    }

    fn required(&self) -> Required {
        Required::of(&self.operation)
    }
}

#[cfg(test)]
pub(super) mod tests;
