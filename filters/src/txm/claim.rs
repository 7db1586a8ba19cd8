//! Idempotency keys of operations: claimed before the work, linked to the intent that their request
//! wrote or joined, answered while the chain has its transaction.

use super::io::{Io, Stored};
use super::not_sent::NotSent;
use super::operation::Task;
use super::outcome::{Known, Outcome, Status};
use super::pins;
use super::rollbacks::{self, Still};
use crate::ledger::{Claim, ClaimToken, Intent, IntentId, IntentState};
use alloc::string::String;

/// Attempts to claim a key, if the chain changes meanwhile.
const ATTEMPTS: usize = 3;

/// A claimed idempotency key.
pub(super) struct Claimed {
    /// The chain's epoch.
    pub(super) epoch: String,
    /// The intent that the key names.
    pub(super) named: Option<IntentId>,
    /// The token that releases it; `None` if another request claimed it.
    token: Option<ClaimToken>,
}

impl Claimed {
    /// Whether this request claimed the key first: nothing can have been written for it.
    pub(super) fn is_new(&self) -> bool {
        self.token.is_some()
    }
}

/// The result of [`claim`].
pub(super) enum Claiming {
    /// The request has the key, or joins the request that has it.
    Claimed(Claimed),
    /// The stored response, status and body: the chain has its transaction.
    First(u16, String),
    /// A response is stored, and no URL shows its transaction, nor that it is gone.
    Unseen(Known),
}

/// Claims a key in the chain's epoch.
///
/// # Errors
/// Returns an error if the key belongs to another request, or if the chain or the store is
/// unavailable.
pub(super) async fn claim<I: Io>(
    io: &I,
    key: &str,
    task: &Task<I::Trace>,
) -> Result<Claiming, NotSent> {
    // without random bytes no key is claimed
    let token = ClaimToken(io.random().ok_or(NotSent::Overdue)?);
    for _ in 0..ATTEMPTS {
        let epoch = io.epoch().await?;
        let claim = io.claim(&task.key_of(key, &epoch), &token).await?;
        let stored = match claim {
            Claim::New => {
                return Ok(Claiming::Claimed(Claimed {
                    epoch,
                    named: None,
                    token: Some(token),
                }));
            }
            // a request joins an open claim, so that claims need no timeout
            Claim::Open { intent } => {
                let named = intent.map(|intent| intent.id);
                return Ok(Claiming::Claimed(Claimed {
                    epoch,
                    named,
                    token: None,
                }));
            }
            Claim::Answered {
                status,
                body,
                intent,
            } => match recheck(io, status, intent.as_deref()).await? {
                Recheck::True => Some(Claiming::First(status, body)),
                Recheck::Untrue => {
                    let named = intent.map(|intent| intent.id);
                    return Ok(Claiming::Claimed(Claimed {
                        epoch,
                        named,
                        token: None,
                    }));
                }
                Recheck::Unseen(known) => return Ok(Claiming::Unseen(known)),
            },
            Claim::Conflict => None,
        };
        if !pins::has_restarted(io, &epoch).await {
            return stored.ok_or(NotSent::KeyConflict);
        }
    }
    Err(NotSent::Restarted)
}

/// Whether a stored response still holds.
enum Recheck {
    /// According to the node, the chain has the transaction, with the outcome that the response
    /// reports.
    True,
    /// The chain does not have it, or the response reports no intent.
    Untrue,
    /// No URL shows the transaction, nor that it is gone.
    Unseen(Known),
}

/// Checks a stored response with this status.
async fn recheck(io: &impl Io, status: u16, intent: Option<&Intent>) -> Result<Recheck, NotSent> {
    let end = if status < 300 {
        IntentState::Succeeded
    } else {
        IntentState::Reverted
    };
    let Some(intent) = intent.filter(|intent| intent.state == end) else {
        return Ok(Recheck::Untrue);
    };
    Ok(match rollbacks::still_included(io, intent).await? {
        Still::Included(now) if now.state == end => Recheck::True,
        Still::Included(_) | Still::Displaced => Recheck::Untrue,
        Still::Unseen => Recheck::Unseen(Known::unseen(intent)),
    })
}

/// Links a key to the intent that its request wrote or joined, and stores a final response.
/// Releases the key if nothing was written. Returns `false` if the key names another intent or
/// belongs to another request: then this outcome is not its answer.
pub(super) async fn end_claim<I: Io>(
    io: &I,
    key: &str,
    claimed: &Claimed,
    outcome: &Outcome,
    task: &Task<I::Trace>,
) -> Stored<bool> {
    let key = &task.key_of(key, &claimed.epoch);
    match (outcome.intent, &claimed.token) {
        (Some(intent), _) if outcome.is_final() => {
            let answer = || io.answer(key, intent, outcome, &task.request_id);
            if answer().await? {
                return Ok(true);
            }
            let names_it = io.link(key, intent).await?;
            if names_it {
                // stores nothing if a response is stored already
                answer().await?;
            }
            Ok(names_it)
        }
        (Some(intent), _) => io.link(key, intent).await,
        // the key stays with the request, which is decided again each time
        (None, _) if outcome.status == Status::Already => Ok(true),
        (None, Some(token)) => io.release_claim(key, token).await,
        // another relay may have written for this request since
        (None, None) => {
            let found = io.requested(key.epoch, key.digest, Some(key)).await?;
            Ok(found.linked.map(|intent| intent.id) == claimed.named)
        }
    }
}
