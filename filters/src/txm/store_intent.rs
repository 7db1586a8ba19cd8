//! Stores an intent, or finds the intent that prevents it.

use super::io::{Io, JournalError};
use super::not_sent::NotSent;
use super::outcome::Known;
use super::rollbacks::{self, Confirmed};
use super::submit::{self, Unsent};
use super::{pins, reconcile};
use crate::ledger::{Intended, Intent, IntentId, IntentState, NewIntent};
use crate::operations::check_binding;
use alloc::boxed::Box;

/// The result of [`store_intent`], unless it was refused.
pub(super) enum Storing {
    /// The intent is durable as sent.
    New(IntentId),
    /// An equal intent answers the request.
    Known(Known),
    /// Another transaction of the account has its nonce.
    NonceTaken,
    /// An equal intent is in doubt, and is sent again instead.
    Displaced(Box<Intent>),
    /// The intent was stored but not sent, for this reason, and is rejected.
    Rejected(IntentId, NotSent),
    /// The intent was stored, and another relay has sent it.
    SentElsewhere(IntentId),
    /// The store did not confirm the intent: it may be stored, and be sent later.
    Unconfirmed,
}

/// Makes an intent durable as sent, unless an earlier one prevents it. If it is new, the chain is
/// still the one that it was signed for.
///
/// # Errors
/// Returns an error if a budget is exceeded, a cooldown is not over, or the chain or the store is
/// unavailable. Nothing is stored then.
pub(super) async fn store_intent(io: &impl Io, new: &NewIntent<'_>) -> Result<Storing, NotSent> {
    let (same_epoch, stored) = pins::check_epoch_during(io, new.epoch, attempt(io, new)).await;
    let Err(unconfirmed) = same_epoch else {
        return stored;
    };
    match stored {
        Ok(Storing::New(id)) => {
            let why = "not sent: the chain was not confirmed";
            Ok(match submit::not_sent(io, id, why).await {
                Unsent::Recorded => Storing::Rejected(id, unconfirmed.into()),
                Unsent::SentAgain => Storing::SentElsewhere(id),
                Unsent::Unconfirmed => Storing::Unconfirmed,
            })
        }
        Ok(Storing::Unconfirmed) => Ok(Storing::Unconfirmed),
        _ => Err(unconfirmed.into()),
    }
}

async fn attempt(io: &impl Io, new: &NewIntent<'_>) -> Result<Storing, NotSent> {
    loop {
        let now_us = io.clock_us();
        let intended = match io.intend(new, now_us).await {
            Err(JournalError::Unconfirmed) => {
                io.wake();
                return Ok(Storing::Unconfirmed);
            }
            intended => intended?,
        };
        match intended {
            Intended::New(id) => return Ok(Storing::New(id)),
            Intended::Known(intent) if intent.state == IntentState::Displaced => {
                return Ok(Storing::Displaced(intent));
            }
            Intended::Known(intent) => {
                if let Some(known) = reconcile::known(io, &intent).await? {
                    return Ok(Storing::Known(known));
                }
            }
            // the chain says that the nonce is free: the intent's block may have been rolled back
            Intended::NonceTaken(intent) if intent.state.is_included() => {
                match rollbacks::confirm(io, &intent).await? {
                    Confirmed::Displaced => {}
                    Confirmed::Unknown if reconcile::give_up(io, &intent).await? => {}
                    Confirmed::Unknown | Confirmed::Pending => return Err(NotSent::InProgress),
                    Confirmed::Shown | Confirmed::Unavailable => {
                        return Ok(Storing::NonceTaken);
                    }
                }
            }
            // no node has shown the intent for long, and its nonce is free
            Intended::NonceTaken(intent) if reconcile::give_up(io, &intent).await? => {}
            Intended::NonceTaken(_) => return Ok(Storing::NonceTaken),
            Intended::Elsewhere(binding) => check_binding(binding)?,
            Intended::OtherChain => return Err(NotSent::Restarted),
            Intended::OverBudget(over) => return Err(NotSent::OverBudget { over, now_us }),
            Intended::KeyConflict => return Err(NotSent::KeyConflict),
            Intended::TooSoon { last, until_us } => {
                return Err(NotSent::TooSoon {
                    last,
                    until_us,
                    now_us,
                });
            }
        }
    }
}
