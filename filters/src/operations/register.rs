//! `POST /register`.

use super::body::required_members;
use super::canonical::Value;
use super::policy::OperationPolicy;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::Felt;
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::join;

/// `POST /register`: binds an identity to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The opaque identity; not zero.
    pub identity: Felt,
    /// The account, deployed or not.
    pub account: Felt,
    /// The key that the account's address follows from.
    pub public_key: Felt,
}

impl Definition for Register {
    const ROLE: Role = Role::Owner;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [identity, account, public_key] =
            required_members(body, ["identity", "account", "public_key"])?;
        Ok(Self {
            identity: identity.not_zero()?,
            account: account.address()?,
            public_key: public_key.public_key()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![
            ("identity", Value::Felt(&self.identity)),
            ("account", Value::Felt(&self.account)),
            ("public_key", Value::Felt(&self.public_key)),
        ]
    }

    fn admits(&self, policy: &OperationPolicy<'_>, _now: u64) -> Result<(), Refusal> {
        policy.belongs("account", self.account, self.public_key)
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let Self {
            identity, account, ..
        } = *self;
        let bound = state.account_of(identity).await?;
        if bound == account {
            return Ok(Decision::Already(Details::None));
        }
        if bound != Felt::ZERO {
            return refuse(
                Reason::IdentityTaken,
                "the identity is bound to another account",
            );
        }
        let (elsewhere, checked) =
            join(state.identity_of(account), state.check_account(account)).await;
        let elsewhere = elsewhere?;
        if elsewhere == identity {
            // bound since the first of the two reads, or at another node
            return Ok(Decision::Already(Details::None));
        }
        if elsewhere != Felt::ZERO {
            return refuse(
                Reason::AccountTaken,
                "the account is bound to another identity",
            );
        }
        checked?;
        let registry = state.io.pins().contracts.registry;
        Ok(Decision::call(
            registry,
            "register_identity",
            vec![identity, account],
        ))
    }
}
