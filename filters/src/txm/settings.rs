//! The configuration of the write path: the accounts that sign, the contracts, and the bounds.

use crate::felt::Felt;
use crate::ledger::Budgets;
use crate::named::named;
use crate::operation::{Operation, OperationKind};
use crate::tx::Contracts;
use core::time::Duration;

named! {
    /// One of our accounts that sign.
    pub enum Role {
        /// Owns the contracts.
        Owner = "owner",
        /// Attests and revokes.
        Verifier = "verifier",
        /// Pays drips.
        Faucet = "faucet",
    }
}

impl Role {
    /// The role that signs an operation.
    #[must_use]
    pub const fn of(kind: OperationKind) -> Self {
        match kind {
            OperationKind::VerificationAttest
            | OperationKind::VerificationRevoke
            | OperationKind::SubmitUsership => Self::Verifier,
            OperationKind::FaucetDrip => Self::Faucet,
            OperationKind::Register
            | OperationKind::MintCard
            | OperationKind::RecoveryPropose
            | OperationKind::RecoveryExecute
            | OperationKind::RecoveryCancel
            | OperationKind::RequireV2 => Self::Owner,
        }
    }
}

/// A value for each account that signs.
#[derive(Clone, Copy, Debug)]
pub struct Accounts<T> {
    /// Of the owner of the contracts.
    pub owner: T,
    /// Of the verifier.
    pub verifier: T,
    /// Of the account that pays drips, if it is not the owner.
    pub faucet: Option<T>,
}

impl<T> Accounts<T> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.owner, &self.verifier].into_iter().chain(&self.faucet)
    }

    /// The one that signs for a role.
    pub fn of(&self, role: Role) -> &T {
        match role {
            Role::Owner => &self.owner,
            Role::Verifier => &self.verifier,
            Role::Faucet => self.faucet.as_ref().unwrap_or(&self.owner),
        }
    }

    /// The roles that have an account of their own.
    pub(super) fn roles(&self) -> impl Iterator<Item = Role> + use<T> {
        let faucet = self.faucet.as_ref().map(|_| Role::Faucet);
        [Role::Owner, Role::Verifier].into_iter().chain(faucet)
    }
}

/// The part that does not change while the relay runs.
#[derive(Clone, Debug)]
pub struct Pins {
    /// The chain, as transactions name it.
    pub chain_id: Felt,
    /// The contracts.
    pub contracts: Contracts,
    /// The class of users' accounts.
    pub account_class: Felt,
    /// The addresses of the accounts that sign.
    pub accounts: Accounts<Felt>,
}

impl Pins {
    /// Whether the relay signs with this account.
    #[must_use]
    pub fn signs_with(&self, address: Felt) -> bool {
        self.accounts.iter().any(|account| *account == address)
    }
}

/// The bounds in force, which a reload changes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The amount of a drip, in fri.
    pub faucet_amount: u128,
    /// How long a recipient waits for its next drip.
    pub faucet_cooldown: Duration,
    /// The highest fee of a transaction that we sign, in fri.
    pub max_fee: u128,
    /// The most L2 gas of a transaction that we sign.
    pub max_l2_gas: u64,
    /// How long after its proposal a recovery can be cancelled.
    pub recovery_cancel_window: Duration,
    /// How long an operation waits for its receipt.
    pub receipt_timeout: Duration,
    /// How many blocks are above one that is final.
    pub confirmations: u64,
    /// The most that operations may spend within 24 hours.
    pub budgets: Budgets,
}

impl Settings {
    /// The balance that one drip needs, in fri: its amount and the highest fee.
    #[must_use]
    pub const fn drip_cost(&self) -> u128 {
        self.faucet_amount.saturating_add(self.max_fee)
    }
}

/// The pins that a write requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// All.
    All,
    /// All but the one that `/require-v2` makes true.
    AllButV2,
    /// All; if only the faucet's money is missing, that is the reason.
    Drip,
}

impl Required {
    /// `/require-v2` makes the V2 pin true, which therefore need not hold before.
    #[must_use]
    pub const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::RequireV2(_) => Self::AllButV2,
            Operation::FaucetDrip(_) => Self::Drip,
            _ => Self::All,
        }
    }
}
