//! `POST /recovery-execute`: completes a recovery after its delay.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::RecoveryExecute;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    execute: &RecoveryExecute,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let identity = execute.identity;
    let pending = state.pending_recovery(identity).await?;
    if state.chain_time().await? < pending.ready_at {
        let refused =
            Outcome::refused(Reason::RecoveryNotReady, "the recovery's delay is not over");
        return Err(Outcome { details: pending.details(), ..refused });
    }
    if state.identity_of(pending.new_account).await? != Felt::ZERO {
        return refuse(
            Reason::AccountTaken,
            "the new account was bound to an identity in the meantime",
        );
    }
    let registry = state.pins.config.registry.address;
    Ok(Decision::call(registry, "recovery_execute", vec![identity]))
}

pub(super) async fn read_back(
    execute: &RecoveryExecute,
    state: &State<'_>,
) -> Result<Option<Details>, Outcome> {
    if state.recovery_of(execute.identity).await?.is_some() {
        return Ok(None);
    }
    let account = state.account_of(execute.identity).await?.to_string();
    Ok(Some(Details::Binding { account }))
}
