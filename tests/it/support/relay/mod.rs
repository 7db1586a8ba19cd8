//! The relay's harness: stage, scripted chain, real devnet, users, expectations.

pub(crate) mod chain;
pub(crate) mod devnet;
pub(crate) mod expect;
pub(crate) mod stage;
pub(crate) mod user;
