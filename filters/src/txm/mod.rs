//! The transaction manager: what becomes of a transaction that was sent.
//!
//! Pure: what the node's URLs show and the time in, verdicts out. Reading order: [`evidence`]
//! (whether the chain has a transaction, and what proves that it never will).

pub mod evidence;
