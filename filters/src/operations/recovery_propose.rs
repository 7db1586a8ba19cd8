//! `POST /recovery-propose`.

use super::body::required_members;
use super::canonical::Value;
use super::policy::OperationPolicy;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::Felt;
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::join3;

/// `POST /recovery-propose`: proposes another account for an identity, and starts the delay. The
/// account may be deployed until the recovery is executed: its address follows from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPropose {
    /// The opaque identity; not zero.
    pub identity: Felt,
    /// The proposed account.
    pub new_account: Felt,
    /// The key that the new account's address follows from.
    pub new_public_key: Felt,
}

impl Definition for RecoveryPropose {
    const ROLE: Role = Role::Owner;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [identity, new_account, new_public_key] =
            required_members(body, ["identity", "new_account", "new_public_key"])?;
        Ok(Self {
            identity: identity.not_zero()?,
            new_account: new_account.address()?,
            new_public_key: new_public_key.public_key()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![
            ("identity", Value::Felt(&self.identity)),
            ("new_account", Value::Felt(&self.new_account)),
            ("new_public_key", Value::Felt(&self.new_public_key)),
        ]
    }

    fn admits(&self, policy: &OperationPolicy<'_>, _now: u64) -> Result<(), Refusal> {
        policy.belongs("new_account", self.new_account, self.new_public_key)
    }

    /// The identity: a drip looks for the accounts that were proposed for it.
    fn subject(&self) -> Option<Felt> {
        Some(self.identity)
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let Self {
            identity,
            new_account,
            ..
        } = *self;
        if let Some(pending) = state.recovery_of(identity).await? {
            let details = pending.details();
            if pending.new_account == new_account {
                return Ok(Decision::Already(details));
            }
            let message = "another recovery of the identity is pending";
            return Err(NotSent::Denied {
                reason: Reason::RecoveryPending,
                message,
                details,
            });
        }
        let (account, elsewhere, checked) = join3(
            state.account_of(identity),
            state.identity_of(new_account),
            state.check_class(new_account),
        )
        .await;
        if account? == Felt::ZERO {
            return refuse(Reason::NotRegistered, "the identity is bound to no account");
        }
        if elsewhere? != Felt::ZERO {
            return refuse(
                Reason::AccountTaken,
                "the new account is bound to an identity",
            );
        }
        checked?;
        let registry = state.io.pins().contracts.registry;
        Ok(Decision::call(
            registry,
            "recovery_propose",
            vec![identity, new_account],
        ))
    }
}
