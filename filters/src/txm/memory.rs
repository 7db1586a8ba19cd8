//! The memory of one process.

use super::sightings::Sightings;
use alloc::string::String;

/// State that the write path keeps between requests. Nothing of it outlives the process, and
/// nothing is wrong without it: it is found again.
#[derive(Default)]
pub struct Memory {
    pub(super) sightings: Sightings,
    /// How many displaced intents were looked for, so that each is.
    pub(super) followed: usize,
    /// The epoch for which the intents of earlier processes are settled.
    pub(super) reconciled: Option<String>,
}
