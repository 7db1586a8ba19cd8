//! The operations that a deployment permits, of those that the relay signs.

use super::RelayPolicy;
use crate::felt::Felt;
use crate::operation::{Operation, VerificationAttest};
use crate::stark::account_address;
use crate::verdict::{Reason, Refusal};

impl RelayPolicy {
    /// Judges an operation at `now`, in seconds since 1970.
    pub(super) fn permits(&self, operation: &Operation, now: u64) -> Result<(), Refusal> {
        match operation {
            Operation::Register(register) => {
                self.belongs("account", register.account, register.public_key)
            }
            Operation::FaucetDrip(drip) => {
                self.belongs("recipient", drip.recipient, drip.public_key)
            }
            Operation::RecoveryPropose(propose) => {
                self.belongs("new_account", propose.new_account, propose.new_public_key)
            }
            Operation::VerificationAttest(attest) => self.assures(attest, now),
            Operation::MintCard(mint) if self.contracts.at(mint.recipient).is_some() => {
                let message = "recipient must not be one of the product's own contracts";
                Err(Refusal::new(Reason::ArgumentNotAllowed, message))
            }
            Operation::SubmitUsership(submit) if !self.usership_epochs.contains(&submit.epoch) => {
                let message = "epoch is outside of the configured range";
                Err(Refusal::new(Reason::EpochOutOfRange, message))
            }
            Operation::MintCard(_)
            | Operation::SubmitUsership(_)
            | Operation::VerificationRevoke(_)
            | Operation::RecoveryExecute(_)
            | Operation::RecoveryCancel(_)
            | Operation::RequireV2(_) => Ok(()),
        }
    }

    /// The address of an account must follow from its key and the approved class.
    fn belongs(&self, name: &str, address: Felt, public_key: Felt) -> Result<(), Refusal> {
        if account_address(public_key, self.account_class) == address {
            return Ok(());
        }
        let message =
            alloc::format!("{name} must be the address of the approved account class for this key");
        Err(Refusal::new(Reason::AddressMismatch, message))
    }

    fn assures(&self, attest: &VerificationAttest, now: u64) -> Result<(), Refusal> {
        let VerificationAttest { assurance_type, assurance_level, expires_at, .. } = attest;
        let is_listed = self.assurance_types.iter().any(|known| known == assurance_type.as_str())
            && self.assurance_levels.contains(assurance_level);
        if !is_listed {
            let message = "this assurance_type and assurance_level are not on the configured list";
            return Err(Refusal::new(Reason::AssuranceNotAllowed, message));
        }
        if *expires_at <= now {
            let message = "expires_at must be in the future";
            return Err(Refusal::new(Reason::ArgumentNotAllowed, message));
        }
        Ok(())
    }
}
