//! `POST /verification-revoke`: revokes what is attested of an account.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::VerificationRevoke;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    revoke: &VerificationRevoke,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let account = revoke.account;
    // id (zero for one of V1), account, type, level, issued at, expires at, revoked
    let [_, attested, _, _, _, _, revoked] = state.registry("attestation_of", &[account]).await?;
    if attested == Felt::ZERO {
        return refuse(Reason::NotAttested, "nothing is attested of the account");
    }
    if revoked != Felt::ZERO {
        return Ok(Decision::Already(Details::None));
    }
    let args = vec![account, revoke.reason.felt()];
    Ok(Decision::call(state.pins.config.registry.address, "revoke", args))
}
