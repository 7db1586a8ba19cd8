//! Attestations of accounts, and the switch to permanent V2.

use super::state::{Decision, State};
use crate::felt::Felt;
use crate::operation::{RequireV2, VerificationAttest, VerificationRevoke};
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::Reason;
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::try_join;

/// `POST /verification-attest`: attests an assurance of an account. An id is valid once, and an
/// attestation is answered as done only while it is the one in force.
pub(super) async fn attest(
    attest: &VerificationAttest,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
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
            return in_force(attest, state).await;
        }
        let message = "the attestation id was used with other content, or was revoked";
        return refuse(Reason::AttestationReplayed, message);
    }
    if state.identity_of(attest.account).await? == Felt::ZERO {
        return refuse(Reason::NotRegistered, "the account is bound to no identity");
    }
    let [account, kind, level, expires_at] = content;
    let args = vec![account, id, kind, level, expires_at];
    Ok(Decision::call(
        state.io.pins().contracts.registry,
        "attest_v2",
        args,
    ))
}

/// Answers that an attestation which the registry has is done, if it is the account's current one
/// and has not expired by the chain's clock.
async fn in_force(
    attest: &VerificationAttest,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    // the id, and six members of the attestation
    let account = [attest.account];
    let current = state.registry::<7>("attestation_of", &account);
    let ([id, ..], now) = try_join(current, state.chain_time()).await?;
    if id != attest.attestation_id {
        let message = "another attestation of the account has replaced this one: attest with a \
                       new id";
        return refuse(Reason::AttestationNotInForce, message);
    }
    if attest.expires_at <= now {
        let message = "the attestation has expired by the chain's clock: attest with a new id";
        return refuse(Reason::AttestationNotInForce, message);
    }
    Ok(Decision::Already(Details::None))
}

/// `POST /verification-revoke`: revokes the attestation of an account.
pub(super) async fn revoke(
    revoke: &VerificationRevoke,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    let account = revoke.account;
    // id (zero for a V1 attestation), account, type, level, issued at, expires at, revoked
    let [_, attested, _, _, _, _, revoked] = state.registry("attestation_of", &[account]).await?;
    if attested == Felt::ZERO {
        return refuse(Reason::NotAttested, "nothing is attested of the account");
    }
    if revoked != Felt::ZERO {
        return Ok(Decision::Already(Details::None));
    }
    let args = vec![account, revoke.reason.felt()];
    Ok(Decision::call(
        state.io.pins().contracts.registry,
        "revoke",
        args,
    ))
}

/// Whether V2 verification is permanent.
pub(in crate::txm) async fn is_v2_active(state: &State<'_, impl Io>) -> Result<bool, NotSent> {
    let [required] = state.registry("verification_v2_required", &[]).await?;
    Ok(required != Felt::ZERO)
}

/// `POST /require-v2`: activates permanent V2 verification, or confirms that it is active.
pub(super) async fn require_v2(
    require: &RequireV2,
    state: &State<'_, impl Io>,
) -> Result<Decision, NotSent> {
    if is_v2_active(state).await? {
        return Ok(Decision::Already(Details::V2_ACTIVE));
    }
    if !require.confirmed {
        let message = "this cannot be undone: confirm with ACTIVATE PERMANENT V2 VERIFICATION";
        return refuse(Reason::ConfirmationRequired, message);
    }
    Ok(Decision::call(
        state.io.pins().contracts.registry,
        "require_v2",
        Vec::new(),
    ))
}
