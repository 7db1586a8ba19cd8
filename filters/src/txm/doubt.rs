//! Sends a transaction in doubt again, for its own request.
//!
//! It is sent as it was signed, after those below it, in nonce order: with a lower nonce free it
//! could not be executed. A lower nonce that nothing in the journal can use is filled by a
//! transaction without calls. The request itself is never signed with another nonce, since both
//! could be executed.

use super::fate::{Fate, fate, next_nonce};
use super::io::Io;
use super::not_sent::NotSent;
use super::outcome::Unknown;
use super::rollbacks::{PATIENCE, look_for};
use super::settings::Role;
use super::sign::{Signing, sign};
use super::store_intent::{Storing, store_intent};
use super::submit::{self, Submitted, submit};
use crate::ledger::{FILL_NONCE, Intent, IntentState, NewIntent};
use alloc::vec::Vec;
use core::time::Duration;

/// Lower nonces that one repeat fills at most.
const GAP: usize = 16;

/// Sends the transaction of a displaced intent again, as it was signed, after the doubtful ones of
/// its account with lower nonces (rule 5). The caller holds the account, if it is ours.
pub(super) async fn send_again(io: &impl Io, intent: &Intent) -> Submitted {
    match fate(io, intent).await {
        Fate::Shown => return Submitted::Taken,
        Fate::Lost => return Submitted::Lost,
        Fate::Used => return Submitted::NotSent(NotSent::InProgress),
        Fate::Unavailable(why) => return Submitted::NotSent(why),
        Fate::Free => {}
    }
    match use_lower_nonces(io, intent).await {
        Ok(()) => submit::repeat(io, intent, PATIENCE).await,
        Err(why) => Submitted::NotSent(why),
    }
}

/// Sees to it that every lower nonce is used.
///
/// # Errors
/// Returns an error if another intent has the nonce of this one, if a lower nonce stays free, or if
/// the chain or the store is unavailable.
async fn use_lower_nonces(io: &impl Io, intent: &Intent) -> Result<(), NotSent> {
    let own = slot_of(io, intent, intent.nonce).await?;
    if own.is_occupied {
        if let Some(included) = &own.included {
            // its nonce is free, so the chain has lost it: the next repeat is sent
            look_for(io, included).await?;
        }
        return Err(NotSent::InProgress);
    }
    let next = next_nonce(io, intent).await?;
    for nonce in (next..intent.nonce).take(GAP) {
        let slot = slot_of(io, intent, nonce).await?;
        if slot.is_occupied {
            if let Some(included) = &slot.included {
                // the chain may have lost it below a newer one: the next repeat sends it again
                look_for(io, included).await?;
            }
            continue;
        }
        let newest = slot.displaced.iter().max_by_key(|below| below.id);
        let mut submitted = match newest {
            Some(below) => submit::repeat(io, below, Duration::ZERO).await,
            None => Submitted::Lost,
        };
        if matches!(submitted, Submitted::Refused(_) | Submitted::Lost) {
            let Some(role) = role_of(io, intent) else {
                // only its user can sign, and the node says whether it waits for that
                continue;
            };
            submitted = fill(io, intent, role, nonce, slot.displaced.len()).await;
        }
        match submitted {
            Submitted::Taken => {}
            Submitted::NotSent(why) => return Err(why),
            Submitted::Refused(_)
            | Submitted::Rejected(_)
            | Submitted::Lost
            | Submitted::Undecided
            | Submitted::Unanswered
            | Submitted::Unknown(_) => return Err(NotSent::InProgress),
        }
    }
    Ok(())
}

/// The intents of a slot that matter for its nonce.
struct Slot {
    is_occupied: bool,
    included: Option<Intent>,
    displaced: Vec<Intent>,
}

/// The slot of another nonce of an intent's account.
async fn slot_of(io: &impl Io, intent: &Intent, nonce: u64) -> Result<Slot, NotSent> {
    let mut intents = io.of_slot(&intent.epoch, intent.signer, nonce).await?;
    debug_assert!(
        intents
            .iter()
            .all(|it| it.slot() == (&intent.epoch, intent.signer, nonce)),
        "each intent is of the slot"
    );
    let is_occupied = intents.iter().any(|other| other.state.occupies());
    let included = intents.iter().find(|it| it.state.is_included()).cloned();
    intents.retain(|other| other.state == IntentState::Displaced);
    Ok(Slot {
        is_occupied,
        included,
        displaced: intents,
    })
}

/// Uses the free nonce of an intent in doubt, because another account now signs for its request.
/// The intent is lost once the chain has the transaction with its nonce (rule 3); then the request
/// is written anew.
///
/// Returns why the request waits.
pub(super) async fn use_nonce(io: &impl Io, intent: &Intent, role: Role) -> NotSent {
    let in_doubt = match slot_of(io, intent, intent.nonce).await {
        Ok(slot) => slot.displaced.len(),
        Err(why) => return why,
    };
    match fill(io, intent, role, intent.nonce, in_doubt).await {
        Submitted::NotSent(why) => why,
        _ => NotSent::InProgress,
    }
}

/// Uses a nonce of the intent's account with a transaction that makes no calls (rule 8).
async fn fill(io: &impl Io, intent: &Intent, role: Role, nonce: u64, in_doubt: usize) -> Submitted {
    let (signed, max_fee) = match sign(io, role, Vec::new(), nonce, in_doubt).await {
        Ok(Signing::Signed { signed, max_fee }) => (signed, max_fee),
        Ok(Signing::NonceMoved) => return Submitted::NotSent(NotSent::InProgress),
        Err(why) => return Submitted::NotSent(why),
    };
    let Some(born) = io.proven_head(&intent.epoch) else {
        return Submitted::NotSent(NotSent::Restarted);
    };
    let new = NewIntent {
        operation: FILL_NONCE,
        digest: signed.hash.to_bytes_be(),
        subject: None,
        identity: None,
        request: "",
        epoch: &intent.epoch,
        born,
        signer: intent.signer,
        nonce,
        transaction_hash: signed.hash,
        transaction: &signed.text,
        idempotency_key: None,
        replaces: None,
        max_fee,
        budgets: io.settings().budgets,
        cooldown: None,
    };
    match store_intent(io, &new).await {
        Ok(Storing::New(id)) => {
            let submitted = submit(io, id, &new, None, Duration::ZERO).await;
            if submitted == Submitted::Taken && submit::accepted(io, id).await.is_err() {
                return Submitted::Unknown(Unknown::NoAnswer);
            }
            submitted
        }
        Ok(_) => Submitted::NotSent(NotSent::InProgress),
        Err(why) => Submitted::NotSent(why),
    }
}

/// The role whose account sent an intent; `None` for a user's.
pub(super) fn role_of(io: &impl Io, intent: &Intent) -> Option<Role> {
    let accounts = &io.pins().accounts;
    accounts
        .roles()
        .find(|role| *accounts.of(*role) == intent.signer)
}
