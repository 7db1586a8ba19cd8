//! Follows transactions after their receipts. One is in doubt when its block is gone, included
//! again when a URL shows it again, and lost when another transaction has its nonce for good.
//!
//! `sightings` gathers what the URLs show; the ledger decides what follows for other intents of the
//! same nonce. This module decides when to poll, and how a waiting request is answered.

use super::io::{Io, Note};
use super::journal;
use super::outcome::Outcome;
use super::settings::Required;
use super::sightings::{self, NonceUse, Sighting};
use super::{pins, reconcile, submit};
use crate::felt::Felt;
use crate::ledger::{Intent, IntentId, IntentState};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

/// How long a request waits for proof that a transaction is still there, or in doubt.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two polls for a waiting request.
const POLL: Duration = Duration::from_millis(500);
/// Displaced intents that the background task checks in a round, and its most batches of included
/// ones.
const ROUND: usize = 64;
/// Included intents in a batch; another batch follows only if all of them are gone.
const NEWEST: u32 = 16;

/// Whether the chain still has a transaction that was included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// A URL shows it; the journal has what its receipt says.
    Shown,
    /// No URL answers: the journal's state applies.
    Unavailable,
    /// The transaction is in doubt, and the journal says so.
    Displaced,
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
}

/// The result of sending a displaced transaction again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// The node accepted it.
    Accepted,
    /// The transaction is no longer in doubt: a URL shows it.
    Shown,
    /// The node refused it. Its request may be signed anew, with the same nonce.
    Refused,
}

/// Checks whether the chain still has an included transaction, and waits some seconds for proof
/// either way.
///
/// # Errors
/// Returns an error if the transaction seems to be gone but the chain is not the proven one, or if
/// the store is unavailable.
pub(super) async fn confirm(io: &impl Io, intent: &Intent) -> Result<Confirmed, Outcome> {
    let end = io.now().saturating_add(PATIENCE);
    loop {
        let found = look_for(io, intent).await?;
        if found != Confirmed::Unknown || io.now().saturating_add(POLL) >= end {
            return Ok(found);
        }
        io.sleep(POLL).await;
    }
}

/// The present state of an included intent, if the chain still has it according to the node; `None`
/// if it is in doubt.
///
/// # Errors
/// Returns an error where [`confirm`] does, and if no URL shows it, nor that it is gone.
pub(super) async fn still_included(
    io: &impl Io,
    intent: &Intent,
) -> Result<Option<Intent>, Outcome> {
    match confirm(io, intent).await? {
        Confirmed::Unavailable => Ok(Some(intent.clone())),
        Confirmed::Displaced => Ok(None),
        Confirmed::Unknown => Err(Outcome::unseen(intent)),
        Confirmed::Shown => Ok(io.intent(intent.id).await?),
    }
}

/// Polls the URLs for an intent once, and records what is new.
async fn look_for(io: &impl Io, intent: &Intent) -> Result<Confirmed, Outcome> {
    match sightings::look_for(io, intent).await {
        Sighting::Unavailable => Ok(Confirmed::Unavailable),
        Sighting::Unknown => Ok(Confirmed::Unknown),
        Sighting::Shown(receipt) => {
            let was_gone = matches!(intent.state, IntentState::Displaced | IntentState::Lost);
            if journal::include(io, intent.id, &receipt).await? && was_gone {
                io.note(Note::Back(intent));
            }
            Ok(Confirmed::Shown)
        }
        Sighting::Displaced(doubt) => {
            // nothing new for an intent that is in doubt or lost already
            if matches!(intent.state, IntentState::Displaced | IntentState::Lost) {
                return Ok(Confirmed::Displaced);
            }
            let epoch = io.require(Required::AllButV2).await?;
            pins::check_epoch(io, &epoch).await?;
            if epoch != intent.epoch {
                return Err(Outcome::restarted());
            }
            journal::displace(io, intent, doubt.text()).await?;
            Ok(Confirmed::Displaced)
        }
    }
}

/// Checks the newest included intents, those in doubt, those that were lost to a transaction that
/// is itself in doubt, and those that are open for longer than `grace` although their nonce is
/// used.
pub(super) async fn follow(io: &impl Io, epoch: &str, grace: Duration) -> Result<(), Outcome> {
    // a chain loses its newest blocks: if it has one, it has all blocks below
    for _ in 0..ROUND {
        let newest = io.included_newest(epoch, NEWEST).await?;
        let mut are_gone = !newest.is_empty();
        for intent in &newest {
            let is_gone = look_for(io, intent).await? == Confirmed::Displaced;
            are_gone &= is_gone;
            if !is_gone && intent.included.is_some() {
                break;
            }
        }
        if !are_gone {
            break;
        }
    }
    let displaced = io.displaced(epoch, None).await?;
    let open = io.unresolved(epoch, None).await?;
    let watched: Vec<IntentId> = displaced.iter().chain(&open).map(|open| open.id).collect();
    sightings::retain(io, &watched);
    for intent in next_round(io, &displaced) {
        settle_displaced(io, intent).await?;
    }
    for intent in open.iter().filter(|open| reconcile::age(io, open) >= grace) {
        if reconcile::next_nonce(io, intent).await? > intent.nonce {
            lose_if_settled(io, intent).await?;
        }
    }
    Ok(())
}

/// The next [`ROUND`] intents of `all`, in turn.
fn next_round<'a>(io: &impl Io, all: &'a [Intent]) -> Vec<&'a Intent> {
    let begin = io.memory(|memory| {
        let begin = memory.followed;
        memory.followed = begin.wrapping_add(ROUND);
        begin
    });
    let begin = begin.checked_rem(all.len()).unwrap_or(0);
    all.iter()
        .cycle()
        .skip(begin)
        .take(ROUND.min(all.len()))
        .collect()
}

async fn settle_displaced(io: &impl Io, intent: &Intent) -> Result<(), Outcome> {
    for other in io
        .of_slot(&intent.epoch, intent.signer, intent.nonce)
        .await?
    {
        let is_gone = matches!(other.state, IntentState::Displaced | IntentState::Lost);
        if is_gone && look_for(io, &other).await? == Confirmed::Shown {
            return Ok(());
        }
    }
    if reconcile::next_nonce(io, intent).await? > intent.nonce {
        lose_if_settled(io, intent).await?;
    }
    Ok(())
}

/// Records an intent as lost if another transaction has its nonce, which its account has used, in a
/// settled block.
async fn lose_if_settled(io: &impl Io, intent: &Intent) -> Result<(), Outcome> {
    let ours = included_with_nonce(io, intent).await?;
    match sightings::nonce_use(io, intent, ours).await? {
        NonceUse::Open => {}
        NonceUse::Settled {
            transaction,
            number,
        } => {
            let why = format!("block {number} has {transaction} with its nonce");
            journal::lose(io, intent, &why).await?;
        }
    }
    Ok(())
}

/// The transaction and the block of another included intent that has the nonce of this one.
async fn included_with_nonce(
    io: &impl Io,
    intent: &Intent,
) -> Result<Option<(Felt, u64)>, Outcome> {
    let slot = io
        .of_slot(&intent.epoch, intent.signer, intent.nonce)
        .await?;
    for other in slot
        .iter()
        .filter(|other| other.id != intent.id && other.state.is_included())
    {
        // a rollback may have moved it to another block, or out of the chain
        look_for(io, other).await?;
        let now = io
            .intent(other.id)
            .await?
            .filter(|other| other.state.is_included());
        if let Some(included) = now.and_then(|other| other.included) {
            return Ok(Some((other.transaction_hash, included.number)));
        }
    }
    Ok(None)
}

/// Sends the transaction of a displaced intent again, as it was signed, after the doubtful ones of
/// its account with lower nonces. The caller holds the account, if it is ours.
///
/// # Errors
/// Returns an error if another transaction has its nonce and is not settled yet, if it is unknown
/// whether the node has it, or if the chain or the store is unavailable.
pub(super) async fn send_again(io: &impl Io, intent: &Intent) -> Result<Repeated, Outcome> {
    if look_for(io, intent).await? == Confirmed::Shown {
        return Ok(Repeated::Shown);
    }
    let next = reconcile::next_nonce(io, intent).await?;
    if next > intent.nonce || is_nonce_taken(io, intent).await? {
        return Err(Outcome::unsettled());
    }
    let displaced = io.displaced(&intent.epoch, Some(intent.signer)).await?;
    for nonce in next..intent.nonce {
        let newest = displaced
            .iter()
            .filter(|below| below.nonce == nonce)
            .max_by_key(|i| i.id);
        if let Some(below) = newest
            && !is_nonce_taken(io, below).await?
        {
            submit::repeat(io, below)
                .await
                .map_err(Outcome::not_of_this_request)?;
        }
    }
    if submit::repeat(io, intent).await? {
        return Ok(Repeated::Accepted);
    }
    if next < intent.nonce {
        // a lower nonce is free: signed again with another nonce, it could be executed twice
        return Err(Outcome::unsettled());
    }
    Ok(Repeated::Refused)
}

/// Whether another intent has the nonce of one that is in doubt.
async fn is_nonce_taken(io: &impl Io, intent: &Intent) -> Result<bool, Outcome> {
    let slot = io
        .of_slot(&intent.epoch, intent.signer, intent.nonce)
        .await?;
    Ok(slot.iter().any(|other| other.state.occupies()))
}
