//! Submits journaled intents to the node and records the result.
//!
//! `sent` is durable before the first byte leaves, in one commit with the intent. An answer that
//! cannot be trusted leaves the intent `sent`, and so does a crash before the send; `reconcile`
//! settles it later.

use super::io::{Io, Stored};
use super::journal;
use super::node::{CallError, ErrorObject, Receipt, code};
use super::outcome::Outcome;
use super::pins;
use crate::felt::Felt;
use crate::ledger::{Change, Intent, IntentId, IntentState, NewIntent};
use alloc::format;
use core::time::Duration;

/// Intervals between polls for a receipt: a test network has it at once, a public one in seconds.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(250);

/// Sends the transaction of a durable intent. `Ok` if the node accepted it, which [`accepted`]
/// journals.
pub(super) async fn submit<I: Io>(
    io: &I,
    id: IntentId,
    intent: &NewIntent<'_>,
    trace: &I::Trace,
) -> Result<(), Outcome> {
    let hash = intent.transaction_hash;
    match io
        .add(intent.operation, intent.transaction, Some(trace))
        .await
    {
        Ok(added) if added == hash => Ok(()),
        // an earlier attempt was accepted
        Err(CallError::Returned(ErrorObject {
            code: code::DUPLICATE,
            ..
        })) => Ok(()),
        Err(CallError::Returned(error)) if error.is_definite() => {
            rejected(io, id, hash, &format!("code {}", error.code)).await?;
            Err(Outcome::rejected(&error))
        }
        Err(CallError::NoAnswer {
            cause,
            is_unsent: true,
            refusal,
        }) => {
            rejected(io, id, hash, &format!("not sent: {cause}")).await?;
            Err(refusal.into())
        }
        Ok(_) | Err(_) => Err(unknown(io, id, hash)),
    }
}

/// Records that the node accepted a transaction.
pub(super) async fn accepted(io: &impl Io, id: IntentId, hash: Felt) -> Result<(), Outcome> {
    match io.apply(id, &Change::Accepted).await {
        Ok(_) => Ok(()),
        Err(_) => Err(unknown(io, id, hash)),
    }
}

/// Leaves an intent to the reconciliation.
fn unknown(io: &impl Io, id: IntentId, hash: Felt) -> Outcome {
    io.wake();
    Outcome::unknown(hash).of_intent(id)
}

/// Records that a transaction was not sent, or that the node refused it.
///
/// # Errors
/// Returns an error if the change is not recorded, so that the reconciliation will send the
/// transaction, or if another relay, which held the account meanwhile, has sent it.
pub(super) async fn rejected(
    io: &impl Io,
    id: IntentId,
    hash: Felt,
    why: &str,
) -> Result<(), Outcome> {
    match io.apply(id, &Change::Rejected(why)).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(unknown(io, id, hash)),
        Err(_) => Err(unconfirmed(io, hash)),
    }
}

/// Leaves a transaction that may be stored as sent to the reconciliation.
pub(super) fn unconfirmed(io: &impl Io, hash: Felt) -> Outcome {
    io.wake();
    Outcome::unconfirmed(hash)
}

/// Sends a transaction again, as it was signed; `false` if the node refused it, which puts it in
/// doubt: an earlier attempt may have arrived. Its first sender may have lost the lock of the
/// account without knowing; from then on that sender cannot record it as rejected.
///
/// # Errors
/// Returns an error if the chain is another one or unavailable, the first sender has rejected the
/// transaction, the node says that its nonce is used, it is unknown whether the node has it, or the
/// journal did not record it.
pub(super) async fn repeat(io: &impl Io, intent: &Intent) -> Result<bool, Outcome> {
    // the transaction was sent before: an unavailable journal does not mean otherwise
    let unrecorded = |_| unknown(io, intent.id, intent.transaction_hash);
    if intent.state == IntentState::Sent && !intent.is_sent_again() {
        let is_recorded = io
            .apply(intent.id, &Change::SentAgain)
            .await
            .map_err(unrecorded)?;
        if !is_recorded {
            return Err(Outcome::unsettled());
        }
    }
    pins::check_epoch(io, &intent.epoch).await?;
    match io.add(&intent.operation, &intent.transaction, None).await {
        Ok(_)
        | Err(CallError::Returned(ErrorObject {
            code: code::DUPLICATE,
            ..
        })) => {
            io.apply(intent.id, &Change::Accepted)
                .await
                .map_err(unrecorded)?;
            Ok(true)
        }
        Err(CallError::Returned(error)) if error.is_definite() => {
            let why = format!("a repeat was refused: code {}", error.code);
            io.apply(intent.id, &Change::Displaced(&why))
                .await
                .map_err(unrecorded)?;
            if error.code == code::INVALID_NONCE {
                // this transaction or another one used the nonce: signing again would not help
                return Err(Outcome::unsettled());
            }
            Ok(false)
        }
        Err(CallError::NoAnswer {
            is_unsent: true,
            refusal,
            ..
        }) => Err(refusal.into()),
        Err(_) => Err(unknown(io, intent.id, intent.transaction_hash)),
    }
}

/// Repeats an open intent like [`repeat`]. Returns whether its outcome is known then.
pub(super) async fn resend(io: &impl Io, intent: &Intent) -> Result<bool, Outcome> {
    if repeat(io, intent).await? {
        return Ok(receipt(io, intent.id, intent.transaction_hash)
            .await?
            .is_some());
    }
    Ok(true)
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
            journal::include(io, id, &receipt).await?;
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

/// Reads an open intent again; records its receipt first, if there is one by now.
pub(super) async fn refreshed(io: &impl Io, intent: &Intent) -> Stored<Option<Intent>> {
    if let Ok(Some(receipt)) = io.receipt(intent.transaction_hash).await
        && receipt.accepted
    {
        journal::include(io, intent.id, &receipt).await?;
    }
    io.intent(intent.id).await
}
