//! `POST /submit-usership`.

use super::body::required_members;
use super::canonical::Value;
use super::policy::OperationPolicy;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::{Felt, U256};
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;

/// `POST /submit-usership`: submits an account's result of an epoch, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmitUsership {
    /// The account.
    pub account: Felt,
    /// The epoch.
    pub epoch: u64,
    /// The result; not zero.
    pub units: u128,
    /// The evidence of the result.
    pub evidence: Felt,
}

impl Definition for SubmitUsership {
    const ROLE: Role = Role::Verifier;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [account, epoch, units, evidence] =
            required_members(body, ["account", "epoch", "units", "evidence"])?;
        Ok(Self {
            account: account.address()?,
            epoch: epoch.integer()?,
            units: units.positive()?,
            evidence: evidence.felt()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![
            ("account", Value::Felt(&self.account)),
            ("epoch", Value::Integer(self.epoch)),
            ("units", Value::Number(U256::from(self.units))),
            ("evidence", Value::Felt(&self.evidence)),
        ]
    }

    fn admits(&self, policy: &OperationPolicy<'_>, _now: u64) -> Result<(), Refusal> {
        if policy.usership_epochs.contains(&self.epoch) {
            return Ok(());
        }
        let message = "epoch is outside of the configured range";
        Err(Refusal::new(Reason::EpochOutOfRange, message))
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let usership = state.io.pins().contracts.usership;
        let of = [self.account, Felt::from(self.epoch)];
        let result = [Felt::from(self.units), self.evidence];
        let found: [Felt; 2] = state.view(usership, "usership_of", &of).await?;
        if found == result {
            return Ok(Decision::Already(Details::None));
        }
        if found != [Felt::ZERO; 2] {
            return refuse(
                Reason::UsershipConflict,
                "another result was submitted for the epoch",
            );
        }
        if state.identity_of(self.account).await? == Felt::ZERO {
            return refuse(Reason::NotRegistered, "the account is bound to no identity");
        }
        Ok(Decision::call(
            usership,
            "submit_usership",
            [of, result].concat(),
        ))
    }
}
