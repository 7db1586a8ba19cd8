//! Writes the operations that we sign: decides by the chain's state, makes an intent durable as
//! sent, sends the transaction, and reads its effect back.
//!
//! An idempotency key stores the first final response; without one, an operation that is in flight
//! or whose end is unknown is not started a second time.

mod repeat;
mod write;

use super::claim::{Claimed, Claiming, claim, end_claim};
use super::io::{Flight, Io, KeyOf, Note};
use super::node::CallError;
use super::not_sent::NotSent;
use super::outcome::Outcome;
use super::rollbacks::{self, Confirmed};
use super::settings::{Required, Role};
use super::{pins, request, submit};
use crate::felt::Felt;
use crate::ledger::IntentId;
use crate::operations::{Operation, State};
use crate::policy::OperationPermit;
use crate::verdict::Refusal;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use write::{Step, write};

/// The most claims of one key: it may turn out to name another intent.
const CLAIMS: usize = 3;
/// The remedy that the client reads with a refusal by the node.
const REMEDY: &str = "remove the cause and repeat the request, it is not carried out twice";

/// The result of a request.
#[derive(Debug)]
pub enum Answer {
    /// An outcome.
    Outcome(Outcome),
    /// The first final response under the idempotency key: status and body.
    First(u16, String),
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
    // before its key is claimed: that may take long, and what is written meanwhile answers it
    let since_us = request::since_us(io.clock_us(), io.clock_error_us());
    let Some(key) = task.key.as_deref() else {
        return Answer::Outcome(once(io, task, None, since_us).await);
    };
    for at in 0..CLAIMS {
        let is_first = at == 0;
        let claimed = match claim(&**io, key, task).await {
            Ok(Claiming::Claimed(claimed)) => claimed,
            Ok(Claiming::First(status, body)) => return Answer::First(status, body),
            // the key names a write: a refusal must not say that nothing was sent
            Ok(Claiming::Unseen(_)) | Err(_) if !is_first => break,
            Ok(Claiming::Unseen(known)) => return Answer::Outcome(known.into()),
            Err(why) => return Answer::Outcome(why.into()),
        };
        let outcome = once(io, task, Some(&claimed), since_us).await;
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
    Answer::Outcome(Outcome::in_progress())
}

/// Carries an operation out once for all equal requests at the same time, in one epoch of the
/// chain. The request arrived at `since_us`. The request that it joined may have another key: a
/// refusal of that request, or an intent other than the one that this key names, is no answer to
/// this request.
async fn once<I: Io>(
    io: &Arc<I>,
    task: &Arc<Task<I::Trace>>,
    claimed: Option<&Claimed>,
    since_us: i64,
) -> Outcome {
    // a key that another request claimed may have its answer; any other request must be admitted
    if claimed.is_none_or(Claimed::is_new)
        && let Err(why) = task.admit()
    {
        return why.into();
    }
    let epoch = match claimed {
        Some(claimed) => Some(claimed.epoch.clone()),
        None => io.epoch().await.ok(),
    };
    let flight = Flight {
        epoch,
        digest: task.digest,
        key: None,
    };
    let (outcome, by) = join_write(io, task, flight.clone(), since_us).await;
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
        key: task.key.clone(),
        ..flight
    };
    join_write(io, task, flight, since_us).await.0
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
    flight: Flight,
    since_us: i64,
) -> (Outcome, By) {
    let epoch = flight.epoch.clone();
    let (writer, work) = (Arc::clone(io), Arc::clone(task));
    let is_ours = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&is_ours);
    // boxed: it is passed through several futures, each of which would contain it
    let write = Box::pin(async move {
        begun.store(true, Ordering::Relaxed);
        carry_out(&*writer, &work, epoch, since_us).await
    });
    let outcome = io.join(flight, write).await;
    let by = if is_ours.load(Ordering::Relaxed) {
        By::This
    } else {
        By::Other
    };
    (outcome, by)
}

/// Carries an operation out, in the epoch of its flight. Its request arrived at `since_us`.
async fn carry_out<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    begun: Option<String>,
    since_us: i64,
) -> Outcome {
    match write(io, task, begun, since_us).await {
        Ok(Step::Already(details)) => Outcome::already(details),
        Ok(Step::Known(known)) => known.into(),
        Ok(Step::Sent(id, hash)) => Box::pin(await_effect(io, task, id, hash)).await,
        Ok(Step::Refused(id, error)) => Outcome::rejected(&error, REMEDY).of_intent(id),
        Ok(Step::Rejected(id, why)) => Outcome::from(why).of_intent(id),
        Ok(Step::Unknown(id, hash, why)) => Outcome::unknown(hash, why).of_intent(id),
        Ok(Step::Unconfirmed(hash)) => Outcome::unconfirmed(hash),
        Ok(Step::Earlier(_) | Step::Again | Step::InDoubt(_)) => Outcome::in_progress(),
        Err(NotSent::Node(refused @ CallError::Returned(_))) => {
            pins::explain(io, task.required(), refused).await.into()
        }
        Err(why) => why.into(),
    }
}

/// Waits for the receipt and reads the effect back.
async fn await_effect<I: Io>(io: &I, task: &Task<I::Trace>, id: IntentId, hash: Felt) -> Outcome {
    let receipt = io
        .stage(&task.trace, "receipt", submit::receipt(io, id, hash))
        .await;
    // after an error the journal has it as accepted: the reconciliation resolves it
    let Some(receipt) = receipt.unwrap_or(None) else {
        return Outcome::pending(hash).of_intent(id);
    };
    if let Err(reason) = receipt.outcome {
        return Outcome::reverted(hash, reason.as_deref()).of_intent(id);
    }
    if task.required() == Required::AllButV2 {
        io.forget_proof();
    }
    let read_back = task.operation.read_back(&State::of(io, "")).await;
    let details = read_back.ok().flatten();
    if details.is_none() {
        if is_gone(io, id).await {
            return Outcome::in_progress();
        }
        // undone in the meantime, or the node is unavailable
        io.note(Note::NotReadBack(task.name()));
    }
    Outcome::written(hash, details.unwrap_or_default()).of_intent(id)
}

/// Whether no URL shows an included intent any more. It was sent: a journal or a node that is
/// unavailable does not change that. Pins that do not hold are no reason to report what seems to be
/// gone as written.
async fn is_gone(io: &impl Io, id: IntentId) -> bool {
    let Ok(Some(intent)) = io.intent(id).await else {
        return false;
    };
    match rollbacks::confirm(io, &intent).await {
        Ok(Confirmed::Shown | Confirmed::Unavailable) | Err(NotSent::Store) => false,
        Ok(Confirmed::Displaced | Confirmed::Unknown | Confirmed::Pending) | Err(_) => true,
    }
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
    fn admit(&self) -> Result<(), NotSent> {
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
        self.operation.kind().role()
    }

    fn required(&self) -> Required {
        self.operation.kind().required()
    }
}

#[cfg(test)]
pub(super) mod tests;
