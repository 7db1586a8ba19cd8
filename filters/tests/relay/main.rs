//! The relay's policy from the outside: heads, users' transactions, operations.

mod calls;
mod heads;
mod operations;
mod support;
mod transactions;
mod vectors;
