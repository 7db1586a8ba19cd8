//! `POST /verification-attest`: attests an assurance of an account. An id serves once.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::VerificationAttest;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    attest: &VerificationAttest,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let id = attest.attestation_id;
    let content = [
        attest.account,
        attest.assurance_type.felt(),
        Felt::from(u64::from(attest.assurance_level)),
        Felt::from(attest.expires_at),
    ];
    // account, type, level, issued at, expires at, revoked
    let [account, kind, level, _, expires_at, revoked] =
        state.registry("attestation", &[id]).await?;
    if account != Felt::ZERO {
        let same = content == [account, kind, level, expires_at] && revoked == Felt::ZERO;
        if same {
            return Ok(Decision::Already(Details::None));
        }
        let message = "the attestation id was used with other content, or was revoked";
        return refuse(Reason::AttestationReplayed, message);
    }
    if state.identity_of(attest.account).await? == Felt::ZERO {
        return refuse(Reason::NotRegistered, "the account is bound to no identity");
    }
    let [account, kind, level, expires_at] = content;
    let args = vec![account, id, kind, level, expires_at];
    Ok(Decision::call(state.pins.config.registry.address, "attest_v2", args))
}
