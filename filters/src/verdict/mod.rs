//! What the policy says: a refusal with its reason, or a proof that lets the request go on.
//!
//! The proofs ([`ReadPermit`], [`TransactionPermit`], [`OperationPermit`]) have private fields and
//! are made by [`crate::policy`] alone, so a handler that takes one can be reached by no request
//! that was not judged.

mod read;
mod reason;
mod write;

pub use read::{Read, ReadCall, ReadPermit};
pub use reason::{Reason, Refusal};
pub(crate) use write::{DEPLOY_ACCOUNT, INVOKE};
pub use write::{OperationPermit, TransactionPermit, Unverified, method_of};
