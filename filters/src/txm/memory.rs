//! The memory of one process.

use super::sightings::Sightings;
use alloc::string::String;

/// The write path's state between requests. It ends with the process, and losing it is harmless: it
/// is found again.
#[derive(Default)]
pub struct Memory {
    pub(super) sightings: Sightings,
    /// Where the next round over the displaced intents begins, so that each gets its turn.
    pub(super) followed: usize,
    /// The epoch in which the intents of earlier processes are settled.
    pub(super) reconciled: Option<String>,
}
