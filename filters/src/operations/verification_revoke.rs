//! `POST /verification-revoke`.

use super::body::required_members;
use super::canonical::Value;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::{Felt, ShortString};
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;

/// `POST /verification-revoke`: revokes the attestation of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationRevoke {
    /// The account.
    pub account: Felt,
    /// The reason.
    pub reason: ShortString,
}

impl Definition for VerificationRevoke {
    const ROLE: Role = Role::Verifier;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [account, reason] = required_members(body, ["account", "reason"])?;
        Ok(Self {
            account: account.address()?,
            reason: reason.short_string()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![
            ("account", Value::Felt(&self.account)),
            ("reason", Value::Text(self.reason.as_str())),
        ]
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let account = self.account;
        // id (zero for a V1 attestation), account, type, level, issued at, expires at, revoked
        let [_, attested, _, _, _, _, revoked] =
            state.registry("attestation_of", &[account]).await?;
        if attested == Felt::ZERO {
            return refuse(Reason::NotAttested, "nothing is attested of the account");
        }
        if revoked != Felt::ZERO {
            return Ok(Decision::Already(Details::None));
        }
        let args = vec![account, self.reason.felt()];
        Ok(Decision::call(
            state.io.pins().contracts.registry,
            "revoke",
            args,
        ))
    }
}
