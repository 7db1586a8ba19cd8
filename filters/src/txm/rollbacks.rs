//! Whether the chain still has a transaction that it had in a block. It is in doubt when its block
//! is gone, and included again when a URL shows it again.
//!
//! `sightings` gathers what the URLs show. This module records it, and decides how long a waiting
//! request is kept. `fate` has what follows where no block is known.

use super::io::{Io, Note};
use super::not_sent::NotSent;
use super::settings::Required;
use super::sightings::{self, Sighting};
use super::{pins, record};
use crate::ledger::{Intent, IntentState};
use alloc::boxed::Box;
use core::time::Duration;

/// How long a request waits for evidence of what became of a transaction.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two polls for a waiting request.
const POLL: Duration = Duration::from_millis(500);

/// Whether the chain still has a transaction that was included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// A URL shows it; the journal has what its receipt says.
    Shown,
    /// A URL shows it in the block that is being built, and no URL in an accepted one.
    Pending,
    /// No URL answers: the journal's state applies.
    Unavailable,
    /// The transaction is in doubt, and the journal says so.
    Displaced,
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
}

/// Checks whether the chain still has an included transaction, and waits some seconds for proof
/// either way.
///
/// # Errors
/// Returns an error if the transaction seems to be gone but the chain is not the proven one, or if
/// the store is unavailable.
pub(super) async fn confirm(io: &impl Io, intent: &Intent) -> Result<Confirmed, NotSent> {
    let end = io.now().saturating_add(PATIENCE);
    loop {
        let found = look_for(io, intent).await?;
        let is_open = matches!(found, Confirmed::Unknown | Confirmed::Pending);
        if !is_open || io.now().saturating_add(POLL) >= end {
            return Ok(found);
        }
        io.sleep(POLL).await;
    }
}

/// An intent that was included, after a look at the chain.
pub(super) enum Still {
    /// The node shows it in an accepted block; this is the intent as recorded now.
    Included(Box<Intent>),
    /// It is in doubt.
    Displaced,
    /// No URL shows it, nor that it is gone.
    Unseen,
}

/// Checks whether the chain still has an included intent, as [`confirm`] does, and reads it again.
///
/// # Errors
/// Returns an error where [`confirm`] does.
pub(super) async fn still_included(io: &impl Io, intent: &Intent) -> Result<Still, NotSent> {
    match confirm(io, intent).await? {
        Confirmed::Unavailable => Ok(Still::Included(Box::new(intent.clone()))),
        Confirmed::Displaced => Ok(Still::Displaced),
        Confirmed::Unknown | Confirmed::Pending => Ok(Still::Unseen),
        Confirmed::Shown => match io.intent(intent.id).await? {
            Some(now) => Ok(Still::Included(Box::new(now))),
            None => Ok(Still::Displaced),
        },
    }
}

/// Polls the URLs for an intent once, and records what is new (rules 1 and 2).
///
/// # Errors
/// Returns an error where [`confirm`] does.
pub(super) async fn look_for(io: &impl Io, intent: &Intent) -> Result<Confirmed, NotSent> {
    match sightings::sighting_of(io, intent).await {
        Sighting::Unavailable => Ok(Confirmed::Unavailable),
        Sighting::Unknown => Ok(Confirmed::Unknown),
        Sighting::Pending => Ok(Confirmed::Pending),
        Sighting::Shown(receipt) => {
            let was_gone = matches!(intent.state, IntentState::Displaced | IntentState::Lost);
            let is_new = record::include(io, intent.id, &receipt).await?;
            if is_new && was_gone {
                io.note(Note::Back(intent));
            }
            if is_new && receipt.outcome.is_ok() {
                record::report_double(io, intent).await;
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
                return Err(NotSent::Restarted);
            }
            if record::displace(io, intent, doubt.text()).await? {
                return Ok(Confirmed::Displaced);
            }
            let newer = io.intent(intent.id).await?;
            Ok(match newer.map(|newer| newer.state) {
                Some(IntentState::Displaced | IntentState::Lost) => Confirmed::Displaced,
                Some(state) if state.is_included() => Confirmed::Shown,
                _ => Confirmed::Unknown,
            })
        }
    }
}
