//! `POST /recovery-propose`: proposes another account for an identity, and starts the delay.

use crate::relay::outcome::{Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::RecoveryPropose;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    propose: &RecoveryPropose,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let RecoveryPropose { identity, new_account, .. } = *propose;
    if let Some(pending) = state.recovery_of(identity).await? {
        let details = pending.details();
        if pending.new_account == new_account {
            return Ok(Decision::Already(details));
        }
        let message = "another recovery of the identity is pending";
        return Err(Outcome { details, ..Outcome::refused(Reason::RecoveryPending, message) });
    }
    if state.account_of(identity).await? == Felt::ZERO {
        return refuse(Reason::NotRegistered, "the identity is bound to no account");
    }
    if state.identity_of(new_account).await? != Felt::ZERO {
        return refuse(Reason::AccountTaken, "the new account is bound to an identity");
    }
    state.check_account(new_account).await?;
    let registry = state.pins.config.registry.address;
    Ok(Decision::call(registry, "recovery_propose", vec![identity, new_account]))
}
