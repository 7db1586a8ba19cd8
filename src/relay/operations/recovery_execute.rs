//! `POST /recovery-execute`: completes a recovery after its delay.

use crate::relay::outcome::{Details, Outcome};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::RecoveryExecute;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    execute: &RecoveryExecute,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let identity = execute.identity;
    let Some(pending) = state.recovery_of(identity).await? else {
        return Ok(Decision::no_recovery());
    };
    if state.chain_time().await? < pending.ready_at {
        let refused =
            Outcome::refused(Reason::RecoveryNotReady, "the recovery's delay is not over");
        return Ok(Decision::No(Outcome { details: pending.details(), ..refused }));
    }
    if state.identity_of(pending.new_account).await? != Felt::ZERO {
        let message = "the new account was bound to an identity in the meantime";
        return Ok(Decision::no(Reason::AccountTaken, message));
    }
    Ok(Decision::call(state.pins.config.registry.address, "recovery_execute", vec![identity]))
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
