//! The fields of a V3 transaction.
//!
//! `BROADCASTED_INVOKE_TXN_V3`, `BROADCASTED_DEPLOY_ACCOUNT_TXN_V3` and
//! `BROADCASTED_DECLARE_TXN_V3` of the Starknet API, without proof and proof facts, which are
//! refused.

use crate::felt::Felt;
use alloc::string::String;
use alloc::vec::Vec;

/// A V3 transaction; unsigned while its signature is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    pub(crate) kind: Kind,
    /// Of the query version, 2^128 + 3: it can be estimated, and never submitted.
    pub(crate) query: bool,
    pub(crate) signature: Vec<Felt>,
    pub(crate) nonce: Felt,
    pub(crate) bounds: Bounds,
    pub(crate) tip: u64,
    pub(crate) paymaster_data: Vec<Felt>,
    pub(crate) nonce_mode: Mode,
    pub(crate) fee_mode: Mode,
}

impl Transaction {
    /// The account's nonce.
    pub fn nonce(&self) -> Felt {
        self.nonce
    }

    /// The resource bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }
}

/// The fields that only one kind of transaction has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invoke {
        sender: Felt,
        calldata: Vec<Felt>,
        account_deployment_data: Vec<Felt>,
    },
    DeployAccount {
        class_hash: Felt,
        salt: Felt,
        constructor_calldata: Vec<Felt>,
    },
    /// Never parsed from a request: a class is larger than a request may be.
    Declare {
        sender: Felt,
        class_hash: Felt,
        compiled_class_hash: Felt,
        /// The class as JSON text.
        contract_class: String,
    },
}

/// For each resource: the highest amount that a transaction may use, and the highest price in fri.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Gas of L1.
    pub l1_gas: (u64, u128),
    /// Gas of L1 for data.
    pub l1_data_gas: (u64, u128),
    /// Gas of L2.
    pub l2_gas: (u64, u128),
}

impl Bounds {
    /// No bounds, for an estimate.
    pub const ZERO: Self = Self { l1_gas: (0, 0), l1_data_gas: (0, 0), l2_gas: (0, 0) };

    /// The highest possible cost, in fri; `None` beyond 128 bits.
    pub fn max_fee(&self) -> Option<u128> {
        [self.l1_gas, self.l1_data_gas, self.l2_gas]
            .into_iter()
            .try_fold(0_u128, |sum, (amount, price)| {
                u128::from(amount).checked_mul(price)?.checked_add(sum)
            })
    }
}

/// A data availability mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    L1,
    L2,
}

impl Transaction {
    /// The lists of felts, with their names.
    pub(crate) fn lists(&self) -> [(&'static str, &[Felt]); 4] {
        let (calldata, deployment): (_, &[Felt]) = match &self.kind {
            Kind::Invoke { calldata, account_deployment_data, .. } => {
                (("calldata", calldata.as_slice()), account_deployment_data)
            }
            Kind::DeployAccount { constructor_calldata, .. } => {
                (("constructor_calldata", constructor_calldata.as_slice()), &[])
            }
            Kind::Declare { .. } => (("calldata", [].as_slice()), &[]),
        };
        [
            calldata,
            ("signature", &self.signature),
            ("paymaster_data", &self.paymaster_data),
            ("account_deployment_data", deployment),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fee_sums_over_the_resources() {
        let bounds = Bounds { l1_gas: (2, 3), l1_data_gas: (5, 7), l2_gas: (11, 13) };
        assert_eq!(bounds.max_fee(), Some(6 + 35 + 143));
        assert_eq!(Bounds { l1_gas: (2, u128::MAX), ..bounds }.max_fee(), None, "a product");
        let sum = Bounds { l1_gas: (1, u128::MAX), l2_gas: (1, 1), ..Bounds::ZERO };
        assert_eq!(sum.max_fee(), None, "a sum");
    }
}
