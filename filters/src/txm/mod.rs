//! The transaction manager: takes a write from its request to its outcome on the chain, and watches
//! it from then on.
//!
//! Each flow is an `async` function over [`io::Io`], and every decision is made here, or for one
//! operation in [`operations`](crate::operations): which intent a request is about, what is signed
//! with which nonce, what an answer of the node proves. An implementation of `Io` calls the node,
//! stores and signs. Reading order: `operation` and `transaction` (a request), with `claim`,
//! `request`, `sign` and `store_intent`; `submit`, `fate` and `doubt` (the node's answer, and a
//! transaction in doubt); `rollbacks` with `sightings` and `evidence` (after a receipt);
//! `reconcile`, `resend` and `round` (what is left open); `not_sent` and `outcome` (the answer);
//! `lock_share` (an account among several processes).
#![doc = include_str!("rules.md")]

mod bounds;
mod claim;
mod doubt;
pub mod evidence;
mod fate;
pub mod io;
pub mod lock_share;
pub mod memory;
pub mod node;
pub mod not_sent;
pub mod operation;
pub mod outcome;
pub mod pins;
pub mod reconcile;
mod record;
pub mod request;
mod resend;
mod rollbacks;
pub mod round;
pub mod settings;
mod sightings;
mod sign;
mod store_intent;
mod submit;
#[cfg(test)]
mod tests;
pub mod transaction;

use core::time::Duration;

/// The limit for all waiting, reading and signing until a write is journaled. Sending it then has
/// the node's timeout, and waiting for its receipt another one.
pub const DEADLINE: Duration = Duration::from_secs(60);
