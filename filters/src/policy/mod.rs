//! The policies of the surfaces: the order of all checks, on one screen each.
//!
//! A request is judged in two steps: `admit` sees the head before any of the body is read,
//! `inspect` sees the whole body. The first failed check is the refusal; a request that passes them
//! all gets a permit, whose fields are private, so a handler that takes one only sees requests that
//! were judged. `gateway` permits reads, `relay` writes, `sidecar` the service endpoints. The order
//! of the checks is code; a deployment configures their parameters only.

mod admission;
mod gateway;
mod hints;
mod relay;
mod sidecar;
mod transactions;
mod unread;

pub use crate::head::{MAX_BODY, MediaType, declared_length, within_size};
pub use crate::tx::Contracts;
pub use admission::{Admission, Admitted, PendingCall};
pub use gateway::{
    GatewayCall, GatewayPolicy, JudgedHead, PublicDocument, RPC_METHODS, Read, ReadCall, ReadPermit,
};
pub use hints::name_version;
pub use relay::{Caps, Endpoint, Inspected, OperationPermit, RelayCall, RelayPolicy};
pub use sidecar::{Authorization, Function, RequestParts, SidecarPolicy};
pub use transactions::{
    DEPLOY_ACCOUNT_METHOD, INVOKE_METHOD, TransactionKind, TransactionPermit, Unverified, method_of,
};
pub use unread::add_id;

use crate::felt::Felt;
use crate::operations::Operation;
use crate::tx::{AllowedCall, Transaction};

/// A check of a body that passed, reported to the observer of an inspection.
#[derive(Clone, Copy, Debug)]
pub enum Finding<'a> {
    /// The body is small enough; its length in bytes.
    Size(usize),
    /// The body is one JSON-RPC request, whose id has this JSON text.
    Envelope(&'a str),
    /// The method, with this name, is permitted.
    Method(&'a str),
    /// The parameters, this many, fit the method.
    Params(usize),
    /// The transaction has version 3 and no field that is unused here.
    Transaction(&'a Transaction),
    /// The calls are permitted; empty for the deployment of an account.
    Calls(&'a [AllowedCall]),
    /// The fee is within its bounds, and the user must have signed this hash.
    Hash(Felt),
    /// The operation is well-formed.
    Operation(&'a Operation),
}
