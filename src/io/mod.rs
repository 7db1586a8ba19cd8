//! Bounded I/O for clients and node alike: deadlines, reads without idle buffers, memory permits,
//! one computation shared by equal requests.
//!
//! Imports nothing of the program's own.

pub mod clock;
pub mod deadline;
pub mod memory;
pub mod read;
pub mod shared;

use std::pin::Pin;

/// Boxes a future that is seldom awaited, so that the one that awaits it stays small: a request
/// holds its whole future while the node is asked.
pub fn cold<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}
