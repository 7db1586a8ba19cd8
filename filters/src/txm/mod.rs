//! The transaction manager: what becomes of a transaction that was sent.
//!
//! Pure: what the node's URLs show, what the journal has and the time in, verdicts out. Reading
//! order: [`request`] (which intent a request is about), [`evidence`] (whether the chain has a
//! transaction, and what proves that it never will).

pub mod evidence;
pub mod request;
