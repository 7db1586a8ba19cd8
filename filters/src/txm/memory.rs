//! The memory of one process.

use super::resend::Resent;
use super::sightings::Sightings;
use crate::felt::Felt;
use crate::ledger::IntentId;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// The write path's state between requests. It ends with the process, and losing it is harmless: it
/// is found again.
#[derive(Default)]
pub struct Memory {
    pub(super) sightings: Sightings,
    /// The last displaced intent that was passed; `None` to begin with the newest.
    pub(super) displaced: Option<IntentId>,
    /// Whether the open intents of users are being passed.
    pub(super) passes_users: bool,
    /// Where the next round over them begins, so that each gets its turn.
    pub(super) next_open: usize,
    /// The last intent of an unknown block that was passed; `None` to begin with the newest.
    pub(super) anywhere: Option<IntentId>,
    /// When each open intent was last sent again unasked.
    pub(super) resent: BTreeMap<IntentId, Resent>,
    /// The epoch in which each account's intents of earlier processes are resolved.
    pub(super) caught_up: BTreeMap<Felt, String>,
    /// The epoch whose highest known block the node's URLs are held to.
    pub(super) floor: Option<String>,
}
