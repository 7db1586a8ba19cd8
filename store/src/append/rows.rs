//! The rows that a group writes: the arguments of its statements, and its events.

use crate::entry::Event;
use crate::error::StoreError;
use crate::row::Arg;
use crate::state::EntryKind;
use crate::{IntentId, IntentState, journal};
use portcullis_filters::ledger::{ChangedIntent, NewIntent, gfri};

/// The arguments of a statement.
pub(super) type Args<'a> = Vec<Arg<'a>>;

/// Converts a number to the type that both databases store.
pub(crate) fn stored(of: &'static str, number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|_| StoreError::TooLarge(of))
}

/// A new intent, for [`INTENT_ADD`](crate::sql::INTENT_ADD).
pub(super) fn intent<'n>(
    new: &NewIntent<'n>,
    id: IntentId,
    now_us: i64,
) -> Result<Args<'n>, StoreError> {
    Ok(vec![
        id.0.into(),
        new.epoch.into(),
        new.operation.into(),
        (&new.digest).into(),
        new.subject.into(),
        new.request.into(),
        new.signer.into(),
        stored("nonce", new.nonce)?.into(),
        new.transaction_hash.into(),
        new.transaction.into(),
        gfri(new.max_fee).into(),
        now_us.into(),
        new.identity.into(),
        stored("born", new.born)?.into(),
    ])
}

/// The link of a new intent's key, if it has one, for
/// [`KEY_LINK`](crate::sql::KEY_LINK).
pub(super) fn link<'n>(new: &NewIntent<'n>, id: IntentId, now_us: i64) -> Option<Args<'n>> {
    let key = new.idempotency_key?;
    Some(vec![
        new.epoch.into(),
        key.into(),
        new.operation.into(),
        (&new.digest).into(),
        now_us.into(),
        id.0.into(),
    ])
}

/// A changed intent, for [`INTENT_MOVE`](crate::sql::INTENT_MOVE).
pub(super) fn moved(step: &ChangedIntent) -> Result<Args<'_>, StoreError> {
    let intent = &step.intent;
    let included = intent
        .included
        .map(|block| stored("included_number", block.number));
    let fingerprint = intent.included.map(|block| hex::encode(block.fingerprint));
    Ok(vec![
        intent.id.0.into(),
        intent.state.name().into(),
        intent.detail.as_deref().into(),
        intent.updated_us.into(),
        intent.fee_gfri.into(),
        included.transpose()?.into(),
        Arg::Text(fingerprint.map(Into::into)),
    ])
}

/// The entries of a new intent.
pub(super) fn intended<'n>(new: &NewIntent<'n>, id: IntentId) -> [Event<'n>; 2] {
    let event = |state, detail| Event {
        kind: EntryKind::Moved(state),
        intent: Some(id),
        operation: new.operation,
        detail,
    };
    [
        event(IntentState::Intended, intended_detail(new)),
        event(IntentState::Sent, journal::object(&[])),
    ]
}

/// The detail of a new intent; the transaction hash covers the transaction.
fn intended_detail(new: &NewIntent<'_>) -> String {
    journal::object(&[
        ("digest", Some(&hex::encode(new.digest))),
        ("epoch", Some(new.epoch)),
        ("nonce", Some(&new.nonce.to_string())),
        ("signer", Some(&new.signer.to_string())),
        (
            "subject",
            new.subject.map(|felt| felt.to_string()).as_deref(),
        ),
        ("transaction_hash", Some(&new.transaction_hash.to_string())),
    ])
}

/// The entry of a changed intent.
pub(super) fn event(step: &ChangedIntent) -> Event<'_> {
    let intent = &step.intent;
    let block = intent.included.filter(|_| intent.state.is_included());
    let block = block.map(|block| block.number.to_string());
    let detail = [
        ("block", block.as_deref()),
        ("detail", intent.detail.as_deref()),
    ];
    Event {
        kind: EntryKind::Moved(intent.state),
        intent: Some(intent.id),
        operation: &intent.operation,
        detail: journal::object(&detail),
    }
}
