//! Strict JSON-RPC 2.0, and the thirteen reads.
//!
//! A body passes through [`json`] (one strict pass to a tree that borrows from it), [`envelope`]
//! (exactly one request, its id kept byte for byte), [`method`] (the allowlist) and [`params`]
//! (typed, and written again in one canonical form). [`response`] judges what the node answers,
//! [`keep`] whether that may be given again, and [`numbered`] tells a body that came before from a
//! new one.

pub mod envelope;
pub mod json;
pub mod keep;
pub mod method;
pub mod numbered;
pub mod params;
pub mod response;
mod scan;
pub(crate) mod values;

pub use envelope::{Envelope, Id};
pub use method::{Method, MethodSet};
pub use numbered::Numbered;
pub use params::Params;
pub use values::Misfit;
