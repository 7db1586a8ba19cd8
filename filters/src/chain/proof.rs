//! The proofs that the chain has the state that writes require, and the epochs in which it did.
//!
//! In: what a proof has read. Out: whether it permits writes, for how long, and of which epoch a
//! block was recently the newest. Nothing here reads the chain.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use serde::Serialize;

/// The value of a pin that the node did not return.
pub const UNREADABLE: &str = "unreadable";

/// A failed proof is valid no longer than this, so that a repaired chain is noticed soon.
const RETRY: Duration = Duration::from_secs(1);

/// A pin, compared with the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pin {
    /// Its name, from a closed list.
    #[serde(rename = "pin")]
    pub name: &'static str,
    /// Whether the chain has the expected value.
    pub ok: bool,
    /// The required value.
    pub expected: String,
    /// The value on the chain; [`UNREADABLE`] if the node did not return it.
    pub actual: String,
}

/// The result of checking all pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// When it was begun, since 1970.
    pub checked_at: Duration,
    /// The chain's epoch, unless it changed during the proof: a test network can start again.
    pub epoch: Option<String>,
    /// A block that was recently the newest of that epoch.
    pub head: u64,
    /// The pins.
    pub pins: Vec<Pin>,
}

impl Proof {
    /// Whether every pin holds.
    pub fn is_ready(&self) -> bool {
        self.holds_without(|_| false)
    }

    /// Whether every pin holds that is not optional.
    pub fn holds_without(&self, is_optional: impl Fn(&Pin) -> bool) -> bool {
        self.epoch.is_some() && self.pins.iter().all(|pin| pin.ok || is_optional(pin))
    }

    /// How long it is valid; `max_age` is the longest time.
    pub fn lifetime(&self, max_age: Duration) -> Duration {
        if self.is_ready() {
            max_age
        } else {
            max_age.min(RETRY)
        }
    }
}

/// The newest proof, and the epoch that one found last.
#[derive(Clone, Debug, Default)]
pub struct Proven {
    /// The newest proof, valid or not.
    pub newest: Option<Arc<Proof>>,
    epoch: Option<(String, u64)>,
}

impl Proven {
    /// Records a proof.
    pub fn note(&mut self, proof: &Arc<Proof>) {
        if let Some(epoch) = &proof.epoch {
            self.epoch = Some((epoch.to_owned(), proof.head));
        }
        self.newest = Some(Arc::clone(proof));
    }

    /// The newest epoch that a proof found.
    pub fn epoch(&self) -> Option<&str> {
        let (epoch, _) = self.epoch.as_ref()?;
        Some(epoch)
    }

    /// The number of a block that was recently the newest of this epoch: the one that was read now
    /// or, if that failed, the last known one. A lower one is true as well, and a search begins
    /// further down; `None` proves nothing.
    pub fn head_of(&self, epoch: &str, read: Option<u64>) -> Option<u64> {
        match &self.epoch {
            _ if read.is_some() => read,
            Some((known, head)) if known == epoch => Some(*head),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn proof(epoch: Option<&str>, head: u64) -> Arc<Proof> {
        Arc::new(Proof {
            checked_at: Duration::ZERO,
            epoch: epoch.map(str::to_owned),
            head,
            pins: vec![],
        })
    }

    #[test]
    fn a_head_that_was_not_read_is_never_zero() {
        for (read, last, expected, why) in [
            (Some(9), Some("a"), Some(9), "it was read"),
            (Some(5), Some("a"), Some(5), "blocks were rolled back"),
            (Some(0), None, Some(0), "the first block"),
            (None, Some("a"), Some(7), "the last one that is known"),
            (None, None, None, "none is known"),
            (None, Some("b"), None, "that of another epoch"),
        ] {
            let mut proven = Proven::default();
            proven.note(&proof(last, 7));
            assert_eq!(proven.head_of("a", read), expected, "{why}");
        }
    }

    #[test]
    fn an_epoch_outlasts_a_proof_without_one() {
        let mut proven = Proven::default();
        proven.note(&proof(Some("a"), 7));
        let failed = proof(None, 0);
        proven.note(&failed);
        assert_eq!(proven.epoch(), Some("a"));
        assert_eq!(proven.newest, Some(Arc::clone(&failed)));
        assert!(!failed.is_ready(), "it has no epoch");
        assert_eq!(failed.lifetime(Duration::from_secs(5)), RETRY);
    }
}
