//! The flows of the write path, one by one: what is done after each answer of node and journal.
//! The simulation explores their interleavings.

mod claim;
mod doubt;
mod pins;
mod reconcile;
mod rollbacks;
mod round;
pub(in crate::txm) mod script;
mod store_intent;
mod submit;

use self::script::Script;
use super::io::{Called, JournalIo as _};
use super::node::{CallError, ErrorObject, Receipt};
use super::rollbacks::PATIENCE;
use super::submit::Submitted;
use crate::felt::Felt;
use crate::ledger::{Budgets, Inclusion, Intent, IntentId, IntentState, NewIntent};
use crate::operations::tests::chain::Chain;
use crate::verdict::{Reason, Refusal};
use futures_util::FutureExt as _;

pub(in crate::txm) const EPOCH: &str = "epoch";
/// The time at which a test begins.
pub(in crate::txm) const START_US: i64 = 1_000_000_000;

/// Runs a flow to its end: nothing here waits.
pub(in crate::txm) fn run<T>(flow: impl Future<Output = T>) -> T {
    flow.now_or_never().expect("nothing waits")
}

/// An intent of the owner's account with this nonce. Its id is its hash.
pub(in crate::txm) fn intent(id: i64, nonce: u64, state: IntentState) -> Intent {
    let hash = hash(id);
    let number = 10;
    let included = matches!(
        state,
        IntentState::Succeeded | IntentState::Reverted | IntentState::Displaced | IntentState::Lost
    );
    Intent {
        id: IntentId(id),
        epoch: EPOCH.into(),
        operation: "register".into(),
        born: Some(5),
        signer: Chain::new().pins.accounts.owner,
        nonce,
        transaction_hash: hash,
        transaction: hash.to_string(),
        state,
        included: included.then_some(Inclusion {
            number,
            fingerprint: hash.to_bytes_be(),
        }),
        created_us: START_US,
        updated_us: START_US,
        ..Intent::empty()
    }
}

/// The hash of the transaction of an intent.
pub(in crate::txm) fn hash(id: i64) -> Felt {
    Felt::from(id.unsigned_abs())
}

/// The receipt of a transaction that succeeded.
pub(in crate::txm) fn receipt() -> Receipt {
    let block = Some((10, Felt::from(10_u64)));
    Receipt {
        accepted: true,
        outcome: Ok(()),
        fee: None,
        block,
    }
}

pub(in crate::txm) fn returned<T>(code: i64) -> Called<T> {
    Err(CallError::Returned(ErrorObject {
        code,
        short_reason: None,
    }))
}

pub(in crate::txm) fn no_answer<T>(is_unsent: bool) -> Called<T> {
    let refusal = Refusal::new(Reason::UpstreamTimeout, "");
    Err(CallError::NoAnswer {
        cause: "timeout",
        is_unsent,
        refusal,
    })
}

/// Submits a stored intent for the first time.
pub(in crate::txm) async fn submit(script: &Script, id: i64) -> Submitted {
    let stored = run(script.intent(IntentId(id)))
        .expect("it answers")
        .expect("it is stored");
    crate::txm::submit::submit(script, stored.id, &new(&stored), Some(&()), PATIENCE).await
}

/// An intent as it is before it is stored.
pub(in crate::txm) fn new(stored: &Intent) -> NewIntent<'_> {
    NewIntent {
        operation: &stored.operation,
        digest: stored.digest,
        subject: None,
        identity: None,
        request: "",
        epoch: &stored.epoch,
        born: 20,
        signer: stored.signer,
        nonce: stored.nonce,
        transaction_hash: stored.transaction_hash,
        transaction: &stored.transaction,
        idempotency_key: None,
        replaces: None,
        max_fee: 0,
        budgets: Budgets::default(),
        cooldown: None,
    }
}
