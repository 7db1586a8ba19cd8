//! The configuration of the write path: the accounts that sign, the contracts, and the bounds.

use crate::felt::Felt;
use crate::ledger::Budgets;
use crate::named::named;
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

/// A value for each account that signs.
#[derive(Clone, Copy, Debug)]
pub struct Accounts<T> {
    /// The value of the contracts' owner.
    pub owner: T,
    /// The value of the verifier.
    pub verifier: T,
    /// The value of the account that pays drips, if it is not the owner.
    pub faucet: Option<T>,
}

impl<T> Accounts<T> {
    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.owner, &self.verifier]
            .into_iter()
            .chain(&self.faucet)
    }

    /// The value of the account that signs for a role.
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

/// The configuration that does not change while the relay runs.
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
    /// The number of blocks above a block that counts as final.
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
    /// All pins but the one that `/require-v2` makes true.
    AllButV2,
    /// All; if only the faucet's balance is too low, the refusal says so.
    Drip,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn accounts(faucet: Option<u64>) -> Accounts<Felt> {
        let [owner, verifier] = [1_u64, 2].map(Felt::from);
        Accounts {
            owner,
            verifier,
            faucet: faucet.map(Felt::from),
        }
    }

    #[test]
    fn drips_are_paid_by_the_owner_without_an_account_of_their_own() {
        for (faucet, payer) in [(None, 1_u64), (Some(3), 3)] {
            assert_eq!(*accounts(faucet).of(Role::Faucet), Felt::from(payer));
            let roles: Vec<_> = accounts(faucet).roles().collect();
            let expected = [Role::Owner, Role::Verifier, Role::Faucet];
            assert_eq!(roles, expected[..accounts(faucet).iter().count()]);
        }
    }

    #[test]
    fn the_relay_signs_with_each_of_its_accounts_and_no_other() {
        let [token, staking, bridge, card, registry, usership] = [Felt::ZERO; 6];
        let contracts = Contracts {
            token,
            staking,
            bridge,
            card,
            registry,
            usership,
        };
        let of = |faucet| Pins {
            chain_id: Felt::ZERO,
            contracts,
            account_class: Felt::ZERO,
            accounts: accounts(faucet),
        };
        for (address, with_faucet, without) in [
            (1_u64, true, true),
            (2, true, true),
            (3, true, false),
            (4, false, false),
        ] {
            assert_eq!(
                of(Some(3)).signs_with(address.into()),
                with_faucet,
                "{address}"
            );
            assert_eq!(of(None).signs_with(address.into()), without, "{address}");
        }
    }

    #[test]
    fn a_drip_costs_its_amount_and_the_highest_fee() {
        let settings = Settings {
            faucet_amount: 100,
            faucet_cooldown: Duration::ZERO,
            max_fee: 20,
            max_l2_gas: 1,
            recovery_cancel_window: Duration::ZERO,
            receipt_timeout: Duration::ZERO,
            confirmations: 1,
            budgets: Budgets::default(),
        };
        assert_eq!(settings.drip_cost(), 120);
    }
}
