//! The changes that the stages record in the journal.

use super::io::{Io, Note, Stored};
use super::node::Receipt;
use crate::ledger::{Change, Intent, IntentId, Returning};

/// Records that a transaction is in doubt, which is gone from the block that had it. `false` if the
/// journal has newer evidence by now.
pub(super) async fn displace(io: &impl Io, intent: &Intent, why: &str) -> Stored<bool> {
    let from = intent.included;
    debug_assert!(from.is_some(), "the block is known that it is gone from");
    let is_new = io
        .apply(intent.id, &Change::Displaced { from, why })
        .await?;
    if is_new {
        io.note(Note::Displaced(intent, why));
    }
    Ok(is_new)
}

/// Records that another transaction has the nonce of this one for good.
pub(super) async fn lose(io: &impl Io, intent: &Intent, why: &str) -> Stored<()> {
    if io.apply(intent.id, &Change::Lost(why)).await? {
        io.note(Note::Lost(intent, why));
    }
    Ok(())
}

/// Records an accepted receipt; `false` if the journal has it already.
pub(super) async fn include(io: &impl Io, id: IntentId, receipt: &Receipt) -> Stored<bool> {
    debug_assert!(receipt.accepted, "a pending receipt proves no inclusion");
    let outcome = match &receipt.outcome {
        Ok(()) => Ok(()),
        Err(reason) => Err(reason.as_deref()),
    };
    let included = Change::Included {
        outcome,
        fee: receipt.fee,
        block: receipt.inclusion(),
    };
    io.apply(id, &included).await
}

/// Reports a drip that is paid after all, if its recipient was paid meanwhile. `before` is the
/// intent as it was before that. An unavailable journal only hides the double.
pub(super) async fn report_double(io: &impl Io, before: &Intent) {
    let Some(returning) = Returning::of(before) else {
        return;
    };
    let window = returning.window(io.settings().faucet_cooldown);
    let newest = io.last_of(
        &before.operation,
        returning.recipient,
        &before.epoch,
        window,
    );
    let newest = newest.await.ok().flatten();
    if let Some(other) = returning.paid_too(newest.as_ref()) {
        io.note(Note::PaidTwice(before, other));
    }
}
