//! Starknet V3 transactions: one type for those that are estimated, that users sign, and that the
//! relay signs.
//!
//! A transaction is parsed strictly (`parse`), hashed (`hash`) and written in one canonical form
//! (`write`), so the node reads exactly what was judged and signed. `calls` decodes its calldata
//! with a `cursor`, and `rules` says which calls users may sign.

mod build;
pub(crate) mod calls;
mod cursor;
mod hash;
mod parse;
pub(crate) mod rules;
mod v3;
mod write;

pub use crate::stark::{account_address, contract_address, is_public_key, selector};
pub use build::{Declare, DeployAccount, Invoke};
pub use calls::Call;
pub(crate) use parse::TransactionError;
pub use rules::{AllowedCall, Contract, Contracts, Entrypoint};
pub use v3::{Bounds, Transaction};
pub(crate) use v3::{Kind, Mode};
pub(crate) use write::written;

use crate::felt::Felt;

/// An account as the chain stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The class of the contract.
    pub class_hash: Felt,
    /// The key whose signatures it accepts.
    pub public_key: Felt,
}
