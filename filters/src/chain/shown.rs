//! The chain state that one answer shows, and the transactions that clients have seen accepted.
//!
//! "Not found" proves nothing if a URL's answers come from several nodes, some of them behind. A
//! transaction that was never shown is believed to be missing. One that was shown is believed to be
//! missing only after three checks, a second apart and over three connections, in which the block
//! of its receipt does not list it or does not exist.
//!
//! A receipt proves its block's number only until a rollback disproves it: `starknet-devnet` keeps
//! naming the number that a pending transaction had before blocks were aborted. Pure: time is an
//! argument.

use crate::felt::Felt;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

/// Transactions that are remembered: some minutes of all transactions of a public chain.
const CAPACITY: usize = 4_096;

/// The minimum time between polls of a single URL, which is polled only while its answers are in
/// doubt.
pub const DOUBT: Duration = Duration::from_secs(1);
/// A doubt that is older than this is unrelated to a new one.
pub const OLD_DOUBT: Duration = Duration::from_secs(10);

/// One connection to the node: a balancer may have tied it to one of several nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// The connections that have shown that something is gone. Three different ones are believed: one
/// or two may lead to a node that is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Witnesses([Option<ConnectionId>; 2]);

impl Witnesses {
    /// Adds a connection. Returns whether it is the third.
    pub(super) fn add(&mut self, connection: ConnectionId) -> bool {
        if self.0.contains(&Some(connection)) {
            return false;
        }
        let Some(free) = self.0.iter_mut().find(|known| known.is_none()) else {
            return true;
        };
        *free = Some(connection);
        false
    }
}

/// The part of the chain that an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Nothing that could be compared.
    Nothing,
    /// The newest block has this number.
    Head(u64),
    /// There is an accepted block of this number.
    Block(u64),
    /// The block of this number is missing, and may have been pruned if it is much older than what
    /// was shown.
    NoBlock(u64),
    /// The block of this number is missing, although it existed before: nodes do not prune so soon.
    NoKnownBlock(u64),
    /// The transaction is in an accepted block, of this number if it is named.
    Accepted(Felt, Option<u64>),
    /// The transaction is unknown, or not accepted yet.
    NotAccepted(Felt),
}

/// The state of a transaction as it was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Inclusion {
    /// Whether clients have seen it accepted.
    is_shown: bool,
    /// Its block, if a receipt named it.
    block: Option<u64>,
    /// The block that a receipt named before the chain went back to an earlier one.
    disproved: Option<u64>,
    /// The connections over which it was not found since it was shown, at least [`DOUBT`] apart.
    witnesses: Witnesses,
    /// When it was last not found over one of them.
    doubted: Option<Duration>,
}

impl Inclusion {
    fn doubt(&mut self, connection: ConnectionId, now: Duration) {
        let since = self.doubted.map(|before| now.saturating_sub(before));
        if since.is_some_and(|since| since < DOUBT) {
            return;
        }
        if since.is_some_and(|since| since > OLD_DOUBT) {
            self.witnesses = Witnesses::default();
        }
        self.doubted = Some(now);
        if self.witnesses.add(connection) {
            *self = Self {
                disproved: self.disproved,
                ..Self::default()
            };
        }
    }
}

/// The transactions that clients have seen accepted, the newest of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownTransactions {
    by_hash: BTreeMap<Felt, Inclusion>,
    /// The hashes, in the order in which they were first shown.
    order: VecDeque<Felt>,
}

impl ShownTransactions {
    /// Whether clients have seen the transaction accepted.
    pub fn is_shown(&self, hash: Felt) -> bool {
        self.by_hash.get(&hash).is_some_and(|known| known.is_shown)
    }

    /// The block that a receipt of the transaction has named.
    pub fn block_of(&self, hash: Felt) -> Option<u64> {
        self.by_hash
            .get(&hash)
            .filter(|known| known.is_shown)?
            .block
    }

    /// Records that a URL whose newest block is `head` showed the transaction, in this block if a
    /// receipt named it. Returns the block number that this proves to exist.
    pub fn insert(&mut self, hash: Felt, block: Option<u64>, head: Option<u64>) -> Option<u64> {
        if let Some(known) = self.by_hash.get_mut(&hash) {
            let block = block.filter(|_| block != known.disproved || block <= head);
            // it may be in a later block after a rollback
            let disproved = known.disproved;
            let block_of = block.or(known.block);
            *known = Inclusion {
                is_shown: true,
                block: block_of,
                disproved,
                ..Inclusion::default()
            };
            return block;
        }
        if self.order.len() >= CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_hash.remove(&oldest);
        }
        self.by_hash.insert(
            hash,
            Inclusion {
                is_shown: true,
                block,
                ..Inclusion::default()
            },
        );
        self.order.push_back(hash);
        debug_assert_eq!(
            self.order.len(),
            self.by_hash.len(),
            "each transaction has its place in the order"
        );
        block
    }

    /// Records that the transaction was not found, while clients have seen the blocks up to
    /// `floor`. Returns whether to believe that.
    pub fn not_found(
        &mut self,
        hash: Felt,
        floor: Option<u64>,
        connection: ConnectionId,
        now: Duration,
    ) -> bool {
        let Some(known) = self.by_hash.get_mut(&hash).filter(|known| known.is_shown) else {
            return true;
        };
        // otherwise its block or the heads decide; the chain may have gone back below that block
        if known.block.is_none() || known.block > floor {
            known.doubt(connection, now);
        }
        !known.is_shown
    }

    /// Records that the block of this number no longer lists the transaction. Returns whether that
    /// was seen often enough to be believed.
    pub fn missed_in(
        &mut self,
        block: u64,
        hash: Felt,
        connection: ConnectionId,
        now: Duration,
    ) -> bool {
        let known = self
            .by_hash
            .get_mut(&hash)
            .filter(|known| known.block == Some(block));
        known.is_some_and(|known| {
            known.doubt(connection, now);
            !known.is_shown
        })
    }

    /// Forgets the transactions of blocks after `head`, to which the chain went back.
    pub fn truncate(&mut self, head: Option<u64>) {
        for known in self.by_hash.values_mut() {
            if known.block.is_none() || known.block > head {
                let disproved = known.block.or(known.disproved);
                *known = Inclusion {
                    disproved,
                    ..Inclusion::default()
                };
            }
        }
        self.by_hash
            .retain(|_, known| known.is_shown || known.disproved.is_some());
        self.order.retain(|hash| self.by_hash.contains_key(hash));
        debug_assert_eq!(
            self.order.len(),
            self.by_hash.len(),
            "each transaction has its place in the order"
        );
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
        let mut shown = ShownTransactions::default();
        for number in 0..=CAPACITY {
            shown.insert(hash(number), Some(number as u64), None);
        }
        assert!(!shown.is_shown(hash(0)), "the oldest made room");
        assert_eq!(shown.block_of(hash(1)), Some(1));
        assert_eq!(
            (shown.by_hash.len(), shown.order.len()),
            (CAPACITY, CAPACITY)
        );
    }

    #[test]
    fn what_names_no_block_is_gone_when_it_is_not_found_three_times() {
        let (mut shown, now) = (ShownTransactions::default(), Duration::ZERO);
        let gone_at = |shown: &mut ShownTransactions, ms: &[u64]| {
            ms.iter()
                .map(|ms| {
                    let now = now + Duration::from_millis(*ms);
                    shown.not_found(hash(1), Some(3), ConnectionId(*ms), now)
                })
                .collect()
        };
        assert!(
            shown.not_found(hash(1), Some(3), ConnectionId(0), now),
            "it was not shown before"
        );
        shown.insert(hash(1), None, None);
        let found: Vec<bool> = gone_at(&mut shown, &[0, 10, 20, 1_000, 1_999]);
        assert_eq!(
            found, [false; 5],
            "these are two doubts: the others come too soon"
        );
        shown.insert(hash(1), None, None);
        let found: Vec<bool> = gone_at(&mut shown, &[2_000, 3_000, 15_000, 16_000]);
        assert_eq!(
            found, [false; 4],
            "it was found in between, and a doubt grows old"
        );
        let found: Vec<bool> = gone_at(&mut shown, &[17_000, 17_001]);
        assert_eq!(found, [true; 2]);
        shown.insert(hash(1), Some(3), None);
        let found: Vec<bool> = gone_at(&mut shown, &[20_000, 21_000, 22_000, 23_000]);
        assert_eq!(found, [false; 4], "its block tells whether it is gone");
        shown.insert(hash(1), Some(4), None);
        let found: Vec<bool> = gone_at(&mut shown, &[30_000, 31_000, 32_000]);
        assert_eq!(found, [false, false, true], "there is no such block");
    }

    #[test]
    fn one_connection_proves_nothing_alone() {
        let mut shown = ShownTransactions::default();
        shown.insert(hash(1), None, None);
        for (second, connection, is_believed) in [
            (0, 7, false),
            (1, 7, false),
            (2, 7, false),
            (3, 8, false),
            (4, 8, false),
            (5, 9, true),
        ] {
            let connection = ConnectionId(connection);
            let found = shown.not_found(hash(1), Some(3), connection, DOUBT * second);
            assert_eq!(found, is_believed, "at {second} s");
        }
    }

    #[test]
    fn a_rollback_forgets_later_blocks_and_disproves_their_numbers() {
        let mut shown = ShownTransactions::default();
        for (number, block) in [Some(3), Some(4), None].into_iter().enumerate() {
            shown.insert(hash(number), block, None);
        }
        shown.truncate(Some(3));
        let left = [0, 1, 2].map(|number| shown.is_shown(hash(number)));
        assert_eq!(left, [true, false, false]);
        assert_eq!(
            shown.insert(hash(1), Some(4), Some(3)),
            None,
            "the same claim again"
        );
        assert!(shown.is_shown(hash(1)), "it is in some block");
        assert_eq!(
            shown.insert(hash(1), Some(5), Some(3)),
            Some(5),
            "another claim"
        );
        assert_eq!(
            shown.insert(hash(1), Some(4), Some(4)),
            Some(4),
            "there is such a block"
        );
    }

    #[test]
    fn a_transaction_that_its_block_lists_no_longer_is_gone_after_three_looks() {
        let (mut shown, now) = (ShownTransactions::default(), Duration::ZERO);
        shown.insert(hash(1), Some(3), None);
        for (second, block, is_shown) in [
            (0, 3, true),
            (1, 4, true),
            (1, 3, true),
            (1, 3, true),
            (2, 3, false),
        ] {
            let connection = ConnectionId(u64::from(second));
            let is_gone = shown.missed_in(block, hash(1), connection, now + DOUBT * second);
            assert_eq!(
                (is_gone, shown.is_shown(hash(1))),
                (!is_shown, is_shown),
                "at {second} s"
            );
        }
    }
}
