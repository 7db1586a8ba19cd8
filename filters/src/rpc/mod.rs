//! Strict JSON-RPC 2.0, and the thirteen reads.
//!
//! A body passes through [`json`] (one strict pass to a tree that borrows from it), [`envelope`]
//! (exactly one request, its id byte for byte, and whether it repeats another) and [`reads`] (the
//! allowlist, and parameters that are typed, and written again in one canonical form). [`response`]
//! verifies the node's answer and decides whether it may be cached.

pub mod envelope;
pub mod json;
pub mod reads;
pub mod response;

pub use envelope::{BodyWithoutId, Envelope, Id};
pub use json::ParamError;
pub use reads::{Argument, BlockId, Method, MethodSet, Params};
pub use response::{CacheClass, CachePolicy};
