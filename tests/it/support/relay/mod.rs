//! The harness of the relay: a stage, a scripted chain or a real devnet, users, and what is expected.

pub(crate) mod chain;
pub(crate) mod devnet;
pub(crate) mod expect;
pub(crate) mod stage;
pub(crate) mod user;
