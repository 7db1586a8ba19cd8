//! The harness of the sidecar: a stage with content, tokens, upstreams, and what is expected.

pub(crate) mod content;
pub(crate) mod event;
pub(crate) mod expect;
pub(crate) mod stage;
pub(crate) mod token;
pub(crate) mod upstream;
