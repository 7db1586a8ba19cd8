//! Starknet V3 transactions: one type for what is estimated, what users sign, and what we sign.
//!
//! A transaction is read strictly (`parse`), hashed (`hash`) and written in one canonical form
//! (`write`), so the node reads what was judged and what was signed. `calls` takes its calldata
//! apart with a `cursor`, and `rules` says which calls users may sign.

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
pub(crate) use parse::Unfit;
pub use rules::{AllowedCall, Contract, Contracts, Entrypoint};
pub use v3::{Bounds, Transaction};
pub(crate) use v3::{Kind, Mode};
pub(crate) use write::written;

use crate::felt::Felt;

/// What the chain holds of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The class of its contract.
    pub class_hash: Felt,
    /// The key that it takes signatures of.
    pub public_key: Felt,
}
