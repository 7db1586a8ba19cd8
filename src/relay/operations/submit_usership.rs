//! `POST /submit-usership`: submits an account's result of an epoch, once.

use crate::relay::outcome::{Details, Outcome, refuse};
use crate::relay::state::{Decision, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operation::SubmitUsership;
use portcullis_filters::verdict::Reason;

pub(super) async fn decide(
    submit: &SubmitUsership,
    state: &State<'_>,
) -> Result<Decision, Outcome> {
    let usership = state.pins.config.usership.address;
    let of = [submit.account, Felt::from(submit.epoch)];
    let result = [Felt::from(submit.units), submit.evidence];
    let found: [Felt; 2] = state.view(usership, "usership_of", &of).await?;
    if found == result {
        return Ok(Decision::Already(Details::None));
    }
    if found != [Felt::ZERO; 2] {
        return refuse(Reason::UsershipConflict, "another result was submitted for the epoch");
    }
    if state.identity_of(submit.account).await? == Felt::ZERO {
        return refuse(Reason::NotRegistered, "the account is bound to no identity");
    }
    Ok(Decision::call(usership, "submit_usership", [of, result].concat()))
}
