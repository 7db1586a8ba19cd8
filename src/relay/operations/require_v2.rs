//! `POST /require-v2`: activates permanent V2 verification, or confirms that it is active.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::RequireV2;
use portcullis_filters::verdict::Reason;

pub(in crate::relay) async fn is_active(state: &State<'_>) -> Result<bool, Outcome> {
    let [required] = state.registry("verification_v2_required", &[]).await?;
    Ok(required != Felt::ZERO)
}

pub(super) async fn decide(require: &RequireV2, state: &State<'_>) -> Result<Decision, Outcome> {
    if is_active(state).await? {
        return Ok(Decision::Already(Details::V2_ACTIVE));
    }
    if !require.confirmed {
        let message = "this cannot be undone: confirm with ACTIVATE PERMANENT V2 VERIFICATION";
        return refuse(Reason::ConfirmationRequired, message);
    }
    Ok(Decision::call(state.pins.config.registry.address, "require_v2", Vec::new()))
}
