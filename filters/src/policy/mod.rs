//! The policies of the surfaces: the order of all checks, on one screen each.
//!
//! A request is judged in two steps: `admit` sees the head, before a byte of the body is read;
//! `inspect` sees the whole body. The first check that fails answers, and only what passed all of
//! them goes on, with a permit. `gateway` lets reads through, `relay` writes, `sidecar` the service
//! endpoints. The order is code and can not be configured; a deployment sets the parameters.

mod gateway;
mod head;
mod operations;
mod relay;
mod sidecar;
mod transactions;

pub use crate::tx::Contracts;
pub use gateway::{
    Admission, Admitted, AdmittedCall, Finding, GatewayPolicy, JudgedHead, RPC_METHODS,
};
pub(crate) use head::not_json;
pub use head::{MAX_BODY, within_size};
pub use relay::{
    Caps, Endpoint, Inspected, RelayAdmission, RelayAdmitted, RelayCall, RelayFinding, RelayPolicy,
};
pub use sidecar::{
    Asked, Authorization, Function, SidecarAdmission, SidecarAdmitted, SidecarCall, SidecarPolicy,
};
