//! Starknet V3 transactions: one type for those that are estimated, those that users sign, and
//! those that the relay signs.
//!
//! A transaction is parsed strictly and written in one canonical form (`json`), so the node reads
//! exactly what was judged and signed; `v3` has its fields, hash and signature. `calls` decodes its
//! calldata with a `cursor`, and `rules` says which calls users may sign.

pub(crate) mod calls;
mod cursor;
mod json;
pub(crate) mod rules;
mod v3;

pub use crate::stark::{account_address, contract_address, is_public_key, selector};
pub use calls::Call;
pub(crate) use json::{TransactionError, written};
pub use rules::{AllowedCall, Contract, Contracts, Entrypoint};
pub use v3::{Bounds, Declare, DeployAccount, Invoke, Transaction};
pub(crate) use v3::{Kind, Mode};

use crate::felt::Felt;

/// An account as the chain stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The class of the contract.
    pub class_hash: Felt,
    /// The key whose signatures it accepts.
    pub public_key: Felt,
}
