//! `POST /recovery-cancel`: cancels a pending recovery, within the configured window.

use crate::node::chain::RpcError;
use crate::relay::outcome::{Details, Outcome};
use crate::relay::state::{Decision, State};
use portcullis_filters::operation::RecoveryCancel;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    cancel: &RecoveryCancel,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let identity = cancel.identity;
    let Some(pending) = state.recovery_of(identity).await? else {
        return Ok(Decision::no_recovery());
    };
    let [delay] = state.registry("recovery_delay", &[]).await?;
    let proposed_at =
        pending.ready_at.saturating_sub(delay.to_u64().ok_or(RpcError::MalformedAnswer)?);
    let window = state.rules.recovery_cancel_window.as_secs();
    if state.chain_time().await? > proposed_at.saturating_add(window) {
        let message = "the recovery was proposed too long ago to be cancelled";
        return Ok(Decision::no(Reason::RecoveryNotCancellable, message));
    }
    Ok(Decision::call(state.pins.config.registry.address, "recovery_cancel", vec![identity]))
}

pub(super) async fn read_back(
    cancel: &RecoveryCancel,
    state: &State<'_>,
) -> Result<Option<Details>, Outcome> {
    Ok(state.recovery_of(cancel.identity).await?.is_none().then_some(Details::None))
}
