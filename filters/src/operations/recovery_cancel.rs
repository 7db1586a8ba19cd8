//! `POST /recovery-cancel`.

use super::body::required_members;
use super::canonical::Value;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::Felt;
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::node::CallError;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::try_join;

/// `POST /recovery-cancel`: cancels a pending recovery, within the configured window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryCancel {
    /// The opaque identity; not zero.
    pub identity: Felt,
}

impl Definition for RecoveryCancel {
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
        let ([delay], now) =
            try_join(state.registry("recovery_delay", &[]), state.chain_time()).await?;
        let proposed_at = pending
            .ready_at
            .saturating_sub(delay.to_u64().ok_or(CallError::MalformedAnswer)?);
        let window = state.io.settings().recovery_cancel_window.as_secs();
        if now > proposed_at.saturating_add(window) {
            return refuse(
                Reason::RecoveryNotCancellable,
                "the recovery was proposed too long ago to be cancelled",
            );
        }
        let registry = state.io.pins().contracts.registry;
        Ok(Decision::call(registry, "recovery_cancel", vec![identity]))
    }

    /// Empty details; `None` until the recovery is gone.
    async fn read_back(&self, state: &State<'_, impl Io>) -> Result<Option<Details>, NotSent> {
        match state.recovery_of(self.identity).await? {
            Some(_pending) => Ok(None),
            None => Ok(Some(Details::None)),
        }
    }
}
