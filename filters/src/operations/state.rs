//! The chain's state as the operations read it, and their decision on it.

use crate::felt::Felt;
use crate::timestamp::rfc3339;
use crate::tx::{Call, selector};
use crate::txm::io::{Called, Io};
use crate::txm::node::CallError;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::Reason;
use alloc::vec;
use alloc::vec::Vec;

/// The state that an operation reads.
pub(crate) struct State<'a, I> {
    pub(crate) io: &'a I,
    /// Whether the journal has a transaction with the nonce that the chain says is free. Its
    /// binding and cooldown do not bind the transaction that takes its nonce.
    pub(crate) is_in_doubt: bool,
    /// The chain's epoch.
    pub(crate) epoch: &'a str,
    /// Microseconds since 1970.
    pub(crate) now_us: i64,
}

/// The decision on an operation in the present state.
#[cfg_attr(test, derive(Debug, PartialEq, Eq))]
pub(crate) enum Decision {
    /// The chain is already in the requested state.
    Already(Details),
    /// These calls make the change.
    Write(Vec<Call>),
    /// These calls make the change, once the store has bound the operation's subject to this
    /// identity.
    Bind(Felt, Vec<Call>),
}

impl Decision {
    /// A write of one call.
    pub(super) fn call(to: Felt, entrypoint: &str, args: Vec<Felt>) -> Self {
        Self::Write(vec![Call {
            to,
            selector: selector(entrypoint),
            args,
        }])
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
        Details::Recovery {
            ready_at: rfc3339(self.ready_at),
        }
    }
}

impl<'a, I: Io> State<'a, I> {
    /// The state now, with no transaction in doubt.
    pub(crate) fn of(io: &'a I, epoch: &'a str) -> Self {
        Self {
            io,
            is_in_doubt: false,
            epoch,
            now_us: io.clock_us(),
        }
    }

    /// Calls a view that returns exactly `N` felts.
    pub(super) async fn view<const N: usize>(
        &self,
        to: Felt,
        view: &str,
        args: &[Felt],
    ) -> Called<[Felt; N]> {
        let result = self.io.call(to, selector(view), args).await?;
        result.try_into().map_err(|_| CallError::MalformedAnswer)
    }

    /// Calls a view of the registry.
    pub(super) async fn registry<const N: usize>(
        &self,
        view: &str,
        args: &[Felt],
    ) -> Called<[Felt; N]> {
        self.view(self.io.pins().contracts.registry, view, args)
            .await
    }

    /// The identity that an account is bound to; zero for none.
    pub(super) async fn identity_of(&self, account: Felt) -> Called<Felt> {
        self.registry("identity_of", &[account])
            .await
            .map(|[identity]| identity)
    }

    /// The account that an identity is bound to; zero for none.
    pub(super) async fn account_of(&self, identity: Felt) -> Called<Felt> {
        self.registry("account_of", &[identity])
            .await
            .map(|[account]| account)
    }

    /// The recovery that an identity has pending.
    pub(super) async fn recovery_of(&self, identity: Felt) -> Called<Option<Recovery>> {
        let [new_account, ready_at] = self.registry("recovery_of", &[identity]).await?;
        let ready_at = ready_at.to_u64().ok_or(CallError::MalformedAnswer)?;
        Ok((new_account != Felt::ZERO).then_some(Recovery {
            new_account,
            ready_at,
        }))
    }

    /// The pending recovery of an identity, which must have one.
    pub(super) async fn pending_recovery(&self, identity: Felt) -> Result<Recovery, NotSent> {
        let pending = self.recovery_of(identity).await?;
        pending.ok_or(NotSent::RecoveryNotPending)
    }

    /// Whether V2 verification is permanent.
    pub(crate) async fn is_v2_active(&self) -> Called<bool> {
        let [required] = self.registry("verification_v2_required", &[]).await?;
        Ok(required != Felt::ZERO)
    }

    /// Checks that an account can be bound: it must be deployed, with the pinned class.
    pub(super) async fn check_account(&self, account: Felt) -> Result<(), NotSent> {
        if !self.check_class(account).await? {
            return refuse(Reason::AccountNotDeployed, "the account is not deployed");
        }
        Ok(())
    }

    /// Checks that an account, if it is deployed, is of the pinned class. Returns whether it is
    /// deployed.
    pub(super) async fn check_class(&self, account: Felt) -> Result<bool, NotSent> {
        match self.io.class_hash_at(account).await? {
            None => Ok(false),
            Some(class) if class != self.io.pins().account_class => refuse(
                Reason::ClassNotApproved,
                "the account is not of the approved class",
            ),
            Some(_) => Ok(true),
        }
    }

    /// The timestamp of the next block, in seconds since 1970: a test network's clock may be ahead
    /// of ours.
    pub(super) async fn chain_time(&self) -> Called<u64> {
        let head = self.io.head().await?;
        let ours = u64::try_from(self.now_us / 1_000_000).unwrap_or_default();
        Ok(head.timestamp.max(ours))
    }
}
