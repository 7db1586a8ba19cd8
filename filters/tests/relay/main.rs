//! The relay's policy from the outside: heads, users' transactions, operations.

mod calls;
mod heads;
mod operations;
#[path = "../support/heads.rs"]
mod request_heads;
mod support;
mod transactions;
mod vectors;
