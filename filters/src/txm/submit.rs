//! Submits journaled intents to the node and records what is known then.
//!
//! `sent` is durable before the first byte leaves, in one commit with the intent. Something between
//! here and the node may deliver one request twice, so a refusal of what was sent is doubt and no
//! proof, whatever its code. An answer that cannot be trusted leaves the intent `sent`, and so does
//! a crash before the send; `reconcile` resolves it later.

use super::fate::{Fate, fate};
use super::io::{Io, Stored};
use super::node::{CallError, ErrorObject, Receipt, code};
use super::not_sent::NotSent;
use super::outcome::Unknown;
use super::pins;
use super::record;
use crate::felt::Felt;
use crate::ledger::{Change, Intent, IntentId, IntentState, NewIntent};
use alloc::format;
use core::time::Duration;

/// Intervals between polls for a receipt: a test network has it at once, a public one in seconds.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(250);
/// The time between two polls for the fate of a refused transaction.
const POLL: Duration = Duration::from_millis(500);

/// How far a submission got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Submitted {
    /// The node has the transaction: it accepted it, or shows it.
    Taken,
    /// This attempt was not sent, for this reason.
    NotSent(NotSent),
    /// The first attempt was not sent, for this reason: the journal has the intent as rejected.
    Rejected(NotSent),
    /// The node refused it, no URL shows it, and its nonce is free. The intent keeps what it holds.
    Refused(ErrorObject),
    /// Another transaction has its nonce for good.
    Lost,
    /// The node answered with an error that decides nothing.
    Undecided,
    /// It was sent again, and there is no answer that can be read. The node may say so for ever.
    Unanswered,
    /// It was sent, and for this reason it is unknown whether the chain has it.
    Unknown(Unknown),
}

/// Sends the transaction of a durable intent for the first time. After a refusal, waits up to
/// `patience` for evidence of what became of it. [`accepted`] journals that it was taken.
pub(super) async fn submit<I: Io>(
    io: &I,
    id: IntentId,
    intent: &NewIntent<'_>,
    trace: Option<&I::Trace>,
    patience: Duration,
) -> Submitted {
    let hash = intent.transaction_hash;
    match io.add(intent.operation, intent.transaction, trace).await {
        Ok(added) if added == hash => Submitted::Taken,
        // an earlier attempt was accepted
        Err(CallError::Returned(error)) if error.code == code::DUPLICATE => Submitted::Taken,
        Err(CallError::Returned(error)) if error.is_definite() => {
            refused(io, id, error, patience).await
        }
        Err(CallError::NoAnswer {
            cause,
            is_unsent: true,
            refusal,
        }) => {
            let why = format!("not sent: {cause}");
            match not_sent(io, id, &why).await {
                Unsent::Recorded => Submitted::Rejected(refusal.into()),
                Unsent::SentAgain | Unsent::Unconfirmed => Submitted::Unknown(Unknown::NoAnswer),
            }
        }
        Err(CallError::Returned(_)) => undecided(io),
        Ok(_) | Err(_) => unknown(io, Unknown::NoAnswer),
    }
}

/// Records a refusal, and finds out what became of the transaction (rule 4).
async fn refused(io: &impl Io, id: IntentId, error: ErrorObject, patience: Duration) -> Submitted {
    let why = format!("refused: code {}", error.code);
    if io.apply(id, &Change::Doubted(&why)).await.is_err() {
        return unknown(io, Unknown::Refused);
    }
    let Ok(Some(intent)) = io.intent(id).await else {
        return unknown(io, Unknown::Refused);
    };
    let end = io.now().saturating_add(patience);
    loop {
        let so_far = match fate(io, &intent).await {
            Fate::Shown => return Submitted::Taken,
            Fate::Free => return Submitted::Refused(error),
            Fate::Lost => return Submitted::Lost,
            Fate::Used => Unknown::NonceUsed,
            Fate::Unavailable(_) => Unknown::Refused,
        };
        if io.now().saturating_add(POLL) >= end {
            return unknown(io, so_far);
        }
        io.sleep(POLL).await;
    }
}

/// Records that the node has a transaction.
pub(super) async fn accepted(io: &impl Io, id: IntentId) -> Stored<()> {
    let recorded = io.apply(id, &Change::Accepted).await;
    if recorded.is_err() {
        io.wake();
    }
    recorded.map(|_| ())
}

/// Leaves an intent to the reconciliation, whose transaction the node neither took nor refused.
fn undecided(io: &impl Io) -> Submitted {
    io.wake();
    Submitted::Undecided
}

/// Leaves an intent to the reconciliation.
fn unknown(io: &impl Io, why: Unknown) -> Submitted {
    io.wake();
    Submitted::Unknown(why)
}

/// A stored intent whose transaction did not leave here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The journal recorded it as rejected.
    Recorded,
    /// Another relay, which held the account meanwhile, has sent it.
    SentAgain,
    /// The change may not be stored, so that the reconciliation may send it.
    Unconfirmed,
}

/// Records that a transaction was not sent.
pub(super) async fn not_sent(io: &impl Io, id: IntentId, why: &str) -> Unsent {
    match io.apply(id, &Change::Rejected(why)).await {
        Ok(true) => Unsent::Recorded,
        Ok(false) => {
            io.wake();
            Unsent::SentAgain
        }
        Err(_unrecorded) => {
            io.wake();
            Unsent::Unconfirmed
        }
    }
}

/// Sends a transaction again, as it was signed. After a refusal, waits up to `patience` for
/// evidence of what became of it. Its first sender may have lost the lock of the account without
/// knowing; from then on that sender cannot record it as not sent.
pub(super) async fn repeat(io: &impl Io, intent: &Intent, patience: Duration) -> Submitted {
    if intent.state == IntentState::Sent && !intent.is_sent_again() {
        match io.apply(intent.id, &Change::SentAgain).await {
            Ok(true) => {}
            // the first sender has recorded that it was not sent
            Ok(false) => return Submitted::NotSent(NotSent::InProgress),
            Err(_) => return unknown(io, Unknown::NoAnswer),
        }
    }
    if let Err(unconfirmed) = pins::check_epoch(io, &intent.epoch).await {
        return Submitted::NotSent(unconfirmed.into());
    }
    match io.add(&intent.operation, &intent.transaction, None).await {
        Ok(added) if added == intent.transaction_hash => repeated(io, intent).await,
        Err(CallError::Returned(error)) if error.code == code::DUPLICATE => {
            repeated(io, intent).await
        }
        Err(CallError::Returned(error)) if error.is_definite() => {
            refused(io, intent.id, error, patience).await
        }
        Err(CallError::NoAnswer {
            is_unsent: true,
            refusal,
            ..
        }) => Submitted::NotSent(refusal.into()),
        Err(CallError::Returned(_)) => undecided(io),
        Ok(_) | Err(_) => {
            io.wake();
            Submitted::Unanswered
        }
    }
}

async fn repeated(io: &impl Io, intent: &Intent) -> Submitted {
    record::report_double(io, intent).await;
    match accepted(io, intent.id).await {
        Ok(()) => Submitted::Taken,
        Err(_unrecorded) => Submitted::Unknown(Unknown::NoAnswer),
    }
}

/// Waits for the receipt of an accepted transaction and records it; `None` on timeout.
pub(super) async fn receipt(io: &impl Io, id: IntentId, hash: Felt) -> Stored<Option<Receipt>> {
    let end = io.now().saturating_add(io.settings().receipt_timeout);
    let mut interval = FIRST_POLL;
    loop {
        // an error is retried: the node may be back in time
        if let Ok(Some(receipt)) = io.receipt(hash).await
            && receipt.accepted
        {
            record::include(io, id, &receipt).await?;
            return Ok(Some(receipt));
        }
        if io.now().saturating_add(interval) >= end {
            io.wake();
            return Ok(None);
        }
        io.sleep(interval).await;
        interval = interval.saturating_mul(2).min(LAST_POLL);
    }
}

/// Records the receipt of an open intent if it has one, then reads the intent again.
pub(super) async fn refreshed(io: &impl Io, intent: &Intent) -> Stored<Option<Intent>> {
    if let Ok(Some(receipt)) = io.receipt(intent.transaction_hash).await
        && receipt.accepted
    {
        record::include(io, intent.id, &receipt).await?;
    }
    io.intent(intent.id).await
}
