//! The fate of a transaction that was sent and is in no block that is known.
//!
//! Only what a URL shows is evidence: its hash in a block, or another transaction of its nonce in a
//! settled one. A free nonce says that nothing is decided yet.

use super::io::Io;
use super::node::{CallError, ErrorObject, code};
use super::not_sent::NotSent;
use super::record;
use super::rollbacks::{Confirmed, look_for};
use super::sightings::{self, NonceUse};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentState};
use alloc::format;

/// The fate of a transaction, as far as the node shows it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A URL shows it: in an accepted block, which the journal has then, or in the one being built.
    Shown,
    /// No URL shows it, and its nonce is free.
    Free,
    /// No URL shows it, and its nonce is used; it is not settled by which transaction.
    Used,
    /// Another transaction has its nonce for good, and the journal says so.
    Lost,
    /// The node or the store is unavailable.
    Unavailable(NotSent),
}

/// Finds out what became of a transaction. Polls every URL for it, reads the nonce of its account,
/// and if that is used, continues the search for the transaction that used it.
pub(super) async fn fate(io: &impl Io, intent: &Intent) -> Fate {
    match look_for(io, intent).await {
        Ok(Confirmed::Shown | Confirmed::Pending) => return Fate::Shown,
        Ok(_) => {}
        Err(unavailable) => return Fate::Unavailable(unavailable),
    }
    match next_nonce(io, intent).await {
        Ok(next) if next <= intent.nonce => Fate::Free,
        Ok(_) => who_used(io, intent).await,
        Err(unavailable) => Fate::Unavailable(unavailable),
    }
}

async fn who_used(io: &impl Io, intent: &Intent) -> Fate {
    let now = match lose_if_settled(io, intent).await {
        Ok(()) => io.intent(intent.id).await.map_err(NotSent::from),
        Err(unavailable) => Err(unavailable),
    };
    match now {
        Ok(Some(now)) if now.state == IntentState::Lost => Fate::Lost,
        Ok(_) => Fate::Used,
        Err(unavailable) => Fate::Unavailable(unavailable),
    }
}

/// The next nonce of the account of an intent.
pub(super) async fn next_nonce(io: &impl Io, intent: &Intent) -> Result<u64, NotSent> {
    Ok(of_undeployed(io.nonce(intent.signer).await)?)
}

/// Reads an account that is not deployed yet as one whose next nonce is 0.
pub(super) fn of_undeployed(nonce: Result<u64, CallError>) -> Result<u64, CallError> {
    match nonce {
        Err(CallError::Returned(ErrorObject {
            code: code::CONTRACT_NOT_FOUND,
            ..
        })) => Ok(0),
        other => other,
    }
}

/// Records an intent as lost if another transaction has its nonce, which its account has used, in a
/// settled block (rule 3).
pub(super) async fn lose_if_settled(io: &impl Io, intent: &Intent) -> Result<(), NotSent> {
    let ours = included_with_nonce(io, intent).await?;
    match sightings::nonce_use(io, intent, ours).await {
        NonceUse::Open => {}
        NonceUse::Settled {
            transaction,
            number,
        } => {
            let why = format!("block {number} has {transaction} with its nonce");
            record::lose(io, intent, &why).await?;
        }
    }
    Ok(())
}

/// The transaction and the block of another included intent that has the nonce of this one.
async fn included_with_nonce(
    io: &impl Io,
    intent: &Intent,
) -> Result<Option<(Felt, u64)>, NotSent> {
    let slot = io
        .of_slot(&intent.epoch, intent.signer, intent.nonce)
        .await?;
    for other in &slot {
        if other.id == intent.id || !other.state.is_included() {
            continue;
        }
        // a rollback may have moved it to another block, or out of the chain
        look_for(io, other).await?;
        if let Some(now) = io.intent(other.id).await?
            && now.state.is_included()
            && let Some(included) = now.included
        {
            return Ok(Some((now.transaction_hash, included.number)));
        }
    }
    Ok(None)
}
