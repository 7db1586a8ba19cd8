//! The sidecar's harness: stage, content, tokens, events, upstreams, expectations.

pub(crate) mod content;
pub(crate) mod event;
pub(crate) mod expect;
pub(crate) mod pieces;
pub(crate) mod stage;
pub(crate) mod token;
pub(crate) mod upstream;
pub(crate) mod xml;
