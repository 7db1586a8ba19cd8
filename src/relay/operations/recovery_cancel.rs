//! `POST /recovery-cancel`: cancels a pending recovery, within the configured window.

use crate::node::chain::RpcError;
use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::operation::RecoveryCancel;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    cancel: &RecoveryCancel,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let identity = cancel.identity;
    let pending = state.pending_recovery(identity).await?;
    let [delay] = state.registry("recovery_delay", &[]).await?;
    let proposed_at =
        pending.ready_at.saturating_sub(delay.to_u64().ok_or(RpcError::MalformedAnswer)?);
    let window = state.rules.recovery_cancel_window.as_secs();
    if state.chain_time().await? > proposed_at.saturating_add(window) {
        return refuse(
            Reason::RecoveryNotCancellable,
            "the recovery was proposed too long ago to be cancelled",
        );
    }
    Ok(Decision::call(state.pins.config.registry.address, "recovery_cancel", vec![identity]))
}

pub(super) async fn read_back(
    cancel: &RecoveryCancel,
    state: &State<'_>,
) -> Result<Option<Details>, Outcome> {
    Ok(state.recovery_of(cancel.identity).await?.is_none().then_some(Details::None))
}
