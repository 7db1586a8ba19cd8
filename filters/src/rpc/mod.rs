//! Strict JSON-RPC 2.0, and the thirteen reads.
//!
//! A body passes through [`json`] (one strict pass to a tree that borrows from it), [`envelope`]
//! (exactly one request, its id byte for byte), [`method`] (the allowlist) and [`params`] (typed,
//! and written again in one canonical form). [`response`] verifies the node's answer,
//! [`cache_policy`] decides whether it may be cached, and [`body_without_id`] recognises a repeated
//! body.

pub mod body_without_id;
pub mod cache_policy;
pub mod envelope;
pub mod json;
pub mod method;
pub mod params;
pub mod response;
mod scan;
pub(crate) mod values;

pub use body_without_id::BodyWithoutId;
pub use cache_policy::{CacheClass, CachePolicy};
pub use envelope::{Envelope, Id};
pub use method::{Method, MethodSet};
pub use params::Params;
pub use values::ParamError;
