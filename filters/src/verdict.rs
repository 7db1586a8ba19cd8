//! What the policy says: a refusal with its reason, or a proof that lets the request go on.
//!
//! The proofs ([`ReadPermit`], [`TransactionPermit`], [`OperationPermit`]) have private fields and
//! are made by [`crate::policy`] alone, so a handler that takes one can be reached by no request
//! that was not judged.

mod reason;
mod write;

pub use reason::{Reason, Refusal};
pub(crate) use write::{DEPLOY_ACCOUNT, INVOKE};
pub use write::{OperationPermit, TransactionPermit, Unverified};

use crate::rpc::{Id, Method, Params};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Proof that a read passed the whole policy. Borrows the request body it was parsed from.
#[derive(Debug)]
pub struct ReadPermit<'a> {
    id: Id<'a>,
    method: Method,
    params: Params,
}

impl<'a> ReadPermit<'a> {
    pub(crate) fn new(id: Id<'a>, method: Method, params: Params) -> Self {
        Self { id, method, params }
    }

    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.id
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The parameters as they were understood.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Appends the request that the node gets: this method and these parameters, by name, with
    /// `id` in place of the client's.
    pub fn write_request(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.to_string().as_bytes());
        out.extend_from_slice(br#","method":""#);
        out.extend_from_slice(self.method.name().as_bytes());
        out.extend_from_slice(br#"","params":"#);
        self.params.write(out);
        out.push(b'}');
    }
}
