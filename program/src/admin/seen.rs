//! When the newest block was first seen, and when the pins were last proven.
//!
//! In: the block and the proof of each sample, with its time. Out: two times for the page. Both
//! stay while the node is down, so that they show how old its data is.

use super::Admin;
use super::snapshot::millis;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::SystemTime;

/// The newest block and the last proof.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Last>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Last {
    /// The newest block, and when it was seen first.
    block: Option<(u64, SystemTime)>,
    /// When all pins were proven.
    proven: Option<SystemTime>,
}

impl Last {
    /// Updates the two with a sample at `now`. A lower number is another block, too: the chain was
    /// rolled back.
    fn after(self, number: Option<u64>, proven: Option<SystemTime>, now: SystemTime) -> Self {
        let is_known = |number: &u64| self.block.is_some_and(|(known, _)| known == *number);
        let newer = number
            .filter(|number| !is_known(number))
            .map(|number| (number, now));
        Self {
            block: newer.or(self.block),
            proven: proven.or(self.proven),
        }
    }
}

impl Admin {
    /// The newest block and the last proof, as of now.
    pub(super) fn seen(&self) -> Value {
        let last = self.look();
        json!({
            "block": last.block.map(|(number, _)| number),
            "block_ms": last.block.map(|(_, at)| millis(at)),
            "proven_ms": last.proven.map(millis),
        })
    }

    /// Records the newest block and the last proof.
    pub(super) fn note_seen(&self) {
        self.look();
    }

    fn look(&self) -> Last {
        let position = self
            .surfaces
            .gateway
            .as_ref()
            .and_then(|gateway| gateway.position());
        let heads = self
            .node
            .urls()
            .into_iter()
            .filter_map(|url| url.known.head);
        let number = heads.chain(position.map(|position| position.height)).max();
        let proof = self
            .surfaces
            .relay
            .as_ref()
            .and_then(|relay| relay.newest_proof());
        let proven = proof
            .filter(|proof| proof.is_ready())
            .map(|proof| SystemTime::UNIX_EPOCH + proof.checked_at);
        let mut last = self.seen.0.lock();
        *last = last.after(number, proven, SystemTime::now());
        *last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_age_of_a_block_is_since_it_was_seen_first() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut last = Last::default();
        for (now, number, block, why) in [
            (1, None, None, "nothing was seen"),
            (2, Some(7), Some((7, 2)), "the first"),
            (3, Some(7), Some((7, 2)), "it ages"),
            (
                4,
                None,
                Some((7, 2)),
                "it goes on ageing while the node is silent",
            ),
            (5, Some(8), Some((8, 5)), "a newer one"),
            (6, Some(6), Some((6, 6)), "after a rollback"),
        ] {
            last = last.after(number, None, at(now));
            assert_eq!(
                last.block,
                block.map(|(number, seen)| (number, at(seen))),
                "{why}"
            );
        }
    }

    #[test]
    fn the_last_proof_outlives_the_node() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let last = Last::default().after(None, Some(at(3)), at(4));
        assert_eq!(
            last.after(None, None, at(9)).proven,
            Some(at(3)),
            "unreadable since"
        );
        assert_eq!(
            last.after(None, Some(at(8)), at(9)).proven,
            Some(at(8)),
            "proven again"
        );
    }
}
