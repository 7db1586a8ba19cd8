//! The chain's state as the operations read it, and their decision on it.

use super::outcome::{Details, Outcome, refuse};
use super::settings::{Pins, Settings};
use crate::io::clock;
use crate::node::chain::{Chain, RpcError};
use crate::store::Store;
use portcullis_filters::felt::Felt;
use portcullis_filters::tx::{Call, selector};
use portcullis_filters::verdict::Reason;
use std::sync::Arc;

/// What an operation reads.
pub(super) struct State<'a> {
    pub(super) chain: &'a Chain,
    pub(super) pins: &'a Pins,
    /// The settings in force.
    pub(super) settings: Arc<Settings>,
    pub(super) store: &'a Store,
    /// Whether the journal has a transaction with the nonce that the chain says is free. What it
    /// holds does not bind the one that takes its nonce.
    pub(super) is_in_doubt: bool,
    /// The chain's epoch.
    pub(super) epoch: &'a str,
    /// Microseconds since 1970.
    pub(super) now_us: i64,
}

/// What an operation does in the present state.
pub(super) enum Decision {
    /// Already in the requested state.
    Already(Details),
    /// These calls do it.
    Write(Vec<Call>),
    /// The same, once the store has bound the operation's subject to this identity.
    Bind(Felt, Vec<Call>),
}

impl Decision {
    /// One call does it.
    pub(super) fn call(to: Felt, entrypoint: &str, args: Vec<Felt>) -> Self {
        Self::Write(vec![Call { to, selector: selector(entrypoint), args }])
    }
}

/// A pending recovery.
pub(super) struct Recovery {
    pub(super) new_account: Felt,
    /// Seconds since 1970.
    pub(super) ready_at: u64,
}

impl Recovery {
    /// When it can be executed, in RFC 3339.
    pub(super) fn details(&self) -> Details {
        let seconds = i64::try_from(self.ready_at).unwrap_or(i64::MAX);
        Details::Recovery { ready_at: clock::rfc3339_of(seconds) }
    }
}

impl State<'_> {
    /// Calls a view that returns exactly `N` felts.
    pub(super) async fn view<const N: usize>(
        &self,
        to: Felt,
        view: &str,
        args: &[Felt],
    ) -> Result<[Felt; N], RpcError> {
        let result = self.chain.call(to, selector(view), args).await?;
        result.try_into().map_err(|_| RpcError::MalformedAnswer)
    }

    /// Calls a view of the registry.
    pub(super) async fn registry<const N: usize>(
        &self,
        view: &str,
        args: &[Felt],
    ) -> Result<[Felt; N], RpcError> {
        self.view(self.pins.config.registry.address, view, args).await
    }

    /// The identity that an account is bound to; zero for none.
    pub(super) async fn identity_of(&self, account: Felt) -> Result<Felt, RpcError> {
        self.registry("identity_of", &[account]).await.map(|[identity]| identity)
    }

    /// The account that an identity is bound to; zero for none.
    pub(super) async fn account_of(&self, identity: Felt) -> Result<Felt, RpcError> {
        self.registry("account_of", &[identity]).await.map(|[account]| account)
    }

    /// The recovery that an identity has pending.
    pub(super) async fn recovery_of(&self, identity: Felt) -> Result<Option<Recovery>, RpcError> {
        let [new_account, ready_at] = self.registry("recovery_of", &[identity]).await?;
        let ready_at = ready_at.to_u64().ok_or(RpcError::MalformedAnswer)?;
        Ok((new_account != Felt::ZERO).then_some(Recovery { new_account, ready_at }))
    }

    /// The pending recovery of an identity, which must have one.
    pub(super) async fn pending_recovery(&self, identity: Felt) -> Result<Recovery, Outcome> {
        match self.recovery_of(identity).await? {
            Some(pending) => Ok(pending),
            None => refuse(Reason::RecoveryNotPending, "no recovery of the identity is pending"),
        }
    }

    /// Checks that an account can be bound: it must be deployed, with the pinned class.
    pub(super) async fn check_account(&self, account: Felt) -> Result<(), Outcome> {
        match self.chain.class_hash_at(account).await? {
            None => refuse(Reason::AccountNotDeployed, "the account is not deployed"),
            Some(class) if class != self.pins.config.account_class => {
                refuse(Reason::ClassNotApproved, "the account is not of the approved class")
            }
            Some(_) => Ok(()),
        }
    }

    /// The timestamp of the next block, in seconds since 1970: a test network's clock may be ahead
    /// of ours.
    pub(super) async fn chain_time(&self) -> Result<u64, RpcError> {
        let head = self.chain.head().await?;
        let ours = u64::try_from(self.now_us / 1_000_000).unwrap_or_default();
        Ok(head.timestamp.max(ours))
    }
}
