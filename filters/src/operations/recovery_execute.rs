//! `POST /recovery-execute`.

use super::body::required_members;
use super::canonical::Value;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::Felt;
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::{join, try_join};

/// `POST /recovery-execute`: completes a recovery after its delay, to an account that is deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryExecute {
    /// The opaque identity; not zero.
    pub identity: Felt,
}

impl Definition for RecoveryExecute {
    const ROLE: Role = Role::Owner;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [identity] = required_members(body, ["identity"])?;
        Ok(Self {
            identity: identity.not_zero()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        vec![("identity", Value::Felt(&self.identity))]
    }

    fn recovered(&self) -> Option<Felt> {
        Some(self.identity)
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let identity = self.identity;
        let pending = state.pending_recovery(identity).await?;
        let (now, elsewhere) =
            join(state.chain_time(), state.identity_of(pending.new_account)).await;
        if now? < pending.ready_at {
            return Err(NotSent::Denied {
                reason: Reason::RecoveryNotReady,
                message: "the recovery's delay is not over",
                details: pending.details(),
            });
        }
        let elsewhere = elsewhere?;
        if elsewhere == identity {
            // completed since the first of the two reads, or at another node
            return Err(NotSent::RecoveryNotPending);
        }
        if elsewhere != Felt::ZERO {
            return refuse(
                Reason::AccountTaken,
                "the new account was bound to an identity in the meantime",
            );
        }
        state.check_account(pending.new_account).await?;
        let registry = state.io.pins().contracts.registry;
        Ok(Decision::call(registry, "recovery_execute", vec![identity]))
    }

    /// The account that the identity is bound to; `None` until the recovery is gone.
    async fn read_back(&self, state: &State<'_, impl Io>) -> Result<Option<Details>, NotSent> {
        let identity = self.identity;
        let (pending, account) =
            try_join(state.recovery_of(identity), state.account_of(identity)).await?;
        if pending.is_some() {
            return Ok(None);
        }
        Ok(Some(Details::Binding {
            account: account.to_string(),
        }))
    }
}
