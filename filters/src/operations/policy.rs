//! The parameters of the policy for operations.

use crate::felt::Felt;
use crate::stark::account_address;
use crate::tx::Contracts;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use alloc::string::String;
use core::ops::RangeInclusive;

/// The parameters of the relay's policy by which an operation is admitted.
#[derive(Clone, Copy)]
pub(crate) struct OperationPolicy<'a> {
    /// The approved account class.
    pub(crate) account_class: Felt,
    /// The product's own contracts.
    pub(crate) contracts: &'a Contracts,
    /// Assurances that may be attested.
    pub(crate) assurance_types: &'a [String],
    /// Levels that may be attested.
    pub(crate) assurance_levels: &'a [u8],
    /// Epochs whose usership results are accepted.
    pub(crate) usership_epochs: &'a RangeInclusive<u64>,
}

impl OperationPolicy<'_> {
    /// Checks that an account's address follows from its key and the approved class.
    pub(super) fn belongs(
        &self,
        name: &str,
        address: Felt,
        public_key: Felt,
    ) -> Result<(), Refusal> {
        if account_address(public_key, self.account_class) == address {
            return Ok(());
        }
        let message =
            format!("{name} must be the address of the approved account class for this key");
        Err(Refusal::new(Reason::AddressMismatch, message))
    }
}
