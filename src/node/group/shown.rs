//! What one answer shows of the chain, and the transactions that clients have seen accepted.
//!
//! "Not found" proves nothing of a URL whose answers come from several nodes, some of them behind.
//! It is believed only of a transaction that was not shown before. Pure: time is an argument.

use portcullis_filters::felt::Felt;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Transactions that are remembered: 4,096 are some minutes of all transactions of a public chain.
const CAPACITY: usize = 4_096;
/// How long an accepted status is remembered: it names no block in which to look for the
/// transaction again, and the receipt is requested soon.
const STATUS: Duration = Duration::from_secs(30);

/// What an answer shows of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Nothing that could be compared.
    Nothing,
    /// The newest block has this number.
    Head(u64),
    /// There is an accepted block of this number.
    Block(u64),
    /// It is missing, and may have been pruned if it is much older than what was shown.
    NoBlock(u64),
    /// It is missing, although it was there before: nodes do not prune so soon.
    NoKnownBlock(u64),
    /// The transaction is in an accepted block, of this number if it is named.
    Accepted(Felt, Option<u64>),
    /// The transaction is unknown, or not accepted yet.
    NotAccepted(Felt),
}

impl Shows {
    /// The number of a block that is there.
    pub(super) fn block(self) -> Option<u64> {
        match self {
            Self::Head(number) | Self::Block(number) => Some(number),
            Self::Accepted(_, number) => number,
            Self::Nothing | Self::NoBlock(_) | Self::NoKnownBlock(_) | Self::NotAccepted(_) => None,
        }
    }
}

/// A transaction that was shown as accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inclusion {
    /// Its block, if a receipt named it.
    pub(super) block: Option<u64>,
    since: Instant,
}

/// The transactions that clients have seen accepted, the newest [`CAPACITY`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownTransactions {
    by_hash: HashMap<Felt, Inclusion>,
    /// In the order in which they were shown first.
    order: VecDeque<Felt>,
}

impl ShownTransactions {
    pub(super) fn get(&self, hash: Felt, now: Instant) -> Option<Inclusion> {
        let found = self.by_hash.get(&hash).copied()?;
        let is_valid = found.block.is_some() || now.duration_since(found.since) < STATUS;
        is_valid.then_some(found)
    }

    pub(super) fn insert(&mut self, hash: Felt, block: Option<u64>, now: Instant) {
        if let Some(known) = self.by_hash.get_mut(&hash) {
            // it may be in a later block after a rollback
            *known = Inclusion { block: block.or(known.block), since: now };
            return;
        }
        if self.order.len() >= CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_hash.remove(&oldest);
        }
        self.by_hash.insert(hash, Inclusion { block, since: now });
        self.order.push_back(hash);
    }

    /// The transaction is not in the block that was shown.
    pub(super) fn remove(&mut self, hash: Felt) {
        if self.by_hash.remove(&hash).is_some() {
            self.order.retain(|known| *known != hash);
        }
    }

    /// The chain went back to `head`: what was in a later block is gone.
    pub(super) fn truncate(&mut self, head: Option<u64>) {
        self.by_hash.retain(|_, known| known.block.is_some() && known.block <= head);
        self.order.retain(|hash| self.by_hash.contains_key(hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> Felt {
        Felt::from_limbs([number as u64, 0, 0, 0]).expect("it is small")
    }

    #[test]
    fn only_the_newest_transactions_are_remembered() {
        let (mut shown, now) = (ShownTransactions::default(), Instant::now());
        for number in 0..=CAPACITY {
            shown.insert(hash(number), Some(number as u64), now);
        }
        assert_eq!(shown.get(hash(0), now), None, "the oldest made room");
        assert_eq!(shown.get(hash(1), now).and_then(|known| known.block), Some(1));
        assert_eq!((shown.by_hash.len(), shown.order.len()), (CAPACITY, CAPACITY));
    }

    #[test]
    fn a_status_is_remembered_for_a_while() {
        let (mut shown, now) = (ShownTransactions::default(), Instant::now());
        shown.insert(hash(1), None, now);
        assert!(shown.get(hash(1), now + STATUS / 2).is_some());
        assert_eq!(shown.get(hash(1), now + STATUS), None);
        shown.insert(hash(1), Some(3), now);
        shown.insert(hash(1), None, now);
        let later = shown.get(hash(1), now + STATUS).and_then(|known| known.block);
        assert_eq!(later, Some(3), "a receipt has named its block");
    }

    #[test]
    fn a_rollback_forgets_later_blocks() {
        let (mut shown, now) = (ShownTransactions::default(), Instant::now());
        for (number, block) in [Some(3), Some(4), None].into_iter().enumerate() {
            shown.insert(hash(number), block, now);
        }
        shown.truncate(Some(3));
        let left = [0, 1, 2].map(|number| shown.get(hash(number), now).is_some());
        assert_eq!(left, [true, false, false]);
        shown.remove(hash(0));
        assert_eq!(shown, ShownTransactions::default());
    }
}
