//! Strict JSON-RPC 2.0, and the thirteen reads.
//!
//! A body passes through [`json`] (one strict pass to a tree that borrows from it), [`envelope`]
//! (exactly one request with its id byte for byte; bodies that differ in the id only are
//! recognized) and [`reads`] (the allowlist; parameters are typed, then written in one canonical
//! form). [`response`] verifies the node's answer and decides whether it may be cached;
//! [`version`] is the version of the API that a node must serve.

pub mod envelope;
pub mod json;
pub mod reads;
pub mod response;
pub mod version;

pub use envelope::{BodyWithoutId, Envelope, Id};
pub use json::ParamError;
pub use reads::{Argument, BlockId, Method, MethodSet, Params};
pub use response::{CacheClass, CachePolicy};
