//! Bounded I/O for clients and node alike: deadlines, reads without idle buffers, memory permits,
//! one computation shared by equal requests.
//!
//! Imports nothing of the program's own.

pub mod deadline;
pub mod memory;
pub mod shared;
pub mod step;
