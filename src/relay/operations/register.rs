//! `POST /register`: binds an identity to an account.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::Register;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(register: &Register, state: &State<'_>) -> Result<Decision, Outcome> {
    let Register { identity, account, .. } = *register;
    let bound = state.account_of(identity).await?;
    if bound == account {
        return Ok(Decision::Already(Details::None));
    }
    if bound != Felt::ZERO {
        return refuse(Reason::IdentityTaken, "the identity is bound to another account");
    }
    if state.identity_of(account).await? != Felt::ZERO {
        return refuse(Reason::AccountTaken, "the account is bound to another identity");
    }
    state.check_account(account).await?;
    let registry = state.pins.config.registry.address;
    Ok(Decision::call(registry, "register_identity", vec![identity, account]))
}
