//! The outcome of the policy: a refusal with its reason, or a permit.
//!
//! The permits ([`ReadPermit`], [`TransactionPermit`], [`OperationPermit`]) have private fields and
//! are made by [`crate::policy`] alone, so a handler that takes a permit only sees requests that
//! were judged.

mod read;
mod reason;
mod write;

pub use read::{Read, ReadCall, ReadPermit};
pub use reason::{Reason, Refusal};
pub use write::{
    DEPLOY_ACCOUNT_METHOD, INVOKE_METHOD, OperationPermit, TransactionPermit, Unverified, method_of,
};
