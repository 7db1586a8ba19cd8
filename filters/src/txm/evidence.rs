//! Judges the evidence of the node's URLs for a transaction.
//!
//! Only what a URL shows is evidence. That it shows nothing, refuses or does not answer proves
//! nothing: it may be behind, and one URL may be many nodes behind a balancer. So a transaction is
//! in doubt when a URL shows another block in the place of its block, or when all URLs stay below
//! that block for [`POLLS`]; and it is lost only once another transaction of its account has its
//! nonce in a block that is settled.

use alloc::collections::BTreeMap;
use core::time::Duration;

/// Polls in a row in which every URL's head must be below a block before the block counts as gone.
pub const POLLS: u8 = 3;
/// The shortest time between two of these polls.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long every URL must have shown a block without interruption before it is settled.
pub const SETTLING: Duration = Duration::from_secs(2);

/// The hash of a block.
pub type BlockHash = [u8; 32];

/// When a poll of the URLs began and ended, on a monotonic clock. Polls overlap, and a slow one
/// ends long after some URL answered it: what it shows is no newer than its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// When the URLs were queried.
    pub begun: Duration,
    /// When the last one had answered.
    pub ended: Duration,
}

impl Polled {
    /// Whether it began `time` or more after an earlier one had ended.
    fn is_after(self, ended: Duration, time: Duration) -> bool {
        debug_assert!(self.begun <= self.ended, "a poll ends after it began");
        self.begun >= ended.saturating_add(time)
    }
}

/// The result of one poll of a URL that answers and may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The number of its newest accepted block.
    pub head: u64,
    /// Its accepted block at the number in question, if it showed one.
    pub block: Option<ShownBlock>,
}

/// An accepted block, as a URL shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownBlock {
    /// Its hash.
    pub hash: BlockHash,
    /// Whether it lists the transaction in question.
    pub lists: bool,
}

/// Whether the chain still has a transaction that a block listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A URL shows it.
    Shown,
    /// The transaction is in doubt.
    Displaced(Doubt),
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
}

/// Why a transaction is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The block at its number does not list it.
    OtherBlock,
    /// Every URL stays below its block.
    HeadBelow,
}

impl Doubt {
    /// The text for the journal.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::OtherBlock => "block rolled back: another one has its place",
            Self::HeadBelow => "block rolled back: the head is below it",
        }
    }
}

/// One URL's answers about a transaction that was sent and is in no known block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Whether it shows the transaction, in an accepted block or in the one being built.
    pub is_shown: bool,
    /// The next nonce of the transaction's account.
    pub next_nonce: u64,
}

/// Whether a sent transaction may be taken for gone: some URL answers, none shows it, and to each
/// its `nonce`, if that matters, is free.
pub fn is_abandoned(views: impl IntoIterator<Item = SlotView>, nonce: Option<u64>) -> bool {
    let mut views = views.into_iter().peekable();
    views.peek().is_some()
        && views.all(|view| !view.is_shown && nonce.is_none_or(|nonce| view.next_nonce <= nonce))
}

/// The polls in a row in which every URL was below a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    polls: u8,
    /// When the last of them ended, or the one that began the count again.
    last: Duration,
}

impl Below {
    /// Judges one poll. `views` are those of all URLs that answered, at the block `number`, which
    /// included the transaction. URLs that contradict each other change nothing.
    pub fn judge(&mut self, views: &[View], number: u64, polled: Polled) -> Presence {
        let mut blocks = views.iter().filter_map(|view| view.block);
        if blocks.clone().any(|block| block.lists) {
            self.begin_again(polled);
            return Presence::Shown;
        }
        if blocks.next().is_some() {
            return Presence::Displaced(Doubt::OtherBlock);
        }
        if views.is_empty() {
            return Presence::Unknown;
        }
        if views.iter().any(|view| view.head >= number) {
            self.begin_again(polled);
            return Presence::Unknown;
        }
        let interval = if self.polls == 0 {
            Duration::ZERO
        } else {
            POLL_INTERVAL
        };
        if polled.is_after(self.last, interval) {
            *self = Self {
                polls: self.polls.saturating_add(1),
                last: polled.ended,
            };
        }
        debug_assert!(
            self.polls <= POLLS,
            "a block that is gone is no longer counted"
        );
        if self.polls < POLLS {
            return Presence::Unknown;
        }
        Presence::Displaced(Doubt::HeadBelow)
    }

    fn begin_again(&mut self, polled: Polled) {
        *self = Self {
            polls: 0,
            last: self.last.max(polled.ended),
        };
    }
}

/// Blocks that are deep enough, and since when every URL shows them.
#[derive(Clone, Debug, Default)]
pub struct Settling(BTreeMap<u64, Steady>);

/// The block that every URL shows at a number, since some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steady {
    /// The hash of the block; `None` if they do not show one and the same.
    hash: Option<BlockHash>,
    /// When the first poll that showed this ended.
    since: Duration,
}

impl Settling {
    /// The hash of the block `number`, if it is settled: `confirmations` blocks deep at every URL,
    /// and shown by every URL twice, [`SETTLING`] or more apart, with no other block in between.
    /// `views` are those of all URLs that answered, at that block.
    pub fn settled(
        &mut self,
        views: &[View],
        number: u64,
        confirmations: u64,
        polled: Polled,
    ) -> Option<BlockHash> {
        let depth = number.saturating_add(confirmations);
        let is_shown = |hash: BlockHash| {
            views.iter().all(|view| {
                view.head >= depth && view.block.is_some_and(|block| block.hash == hash)
            })
        };
        let hash = views
            .first()
            .and_then(|view| view.block)
            .map(|block| block.hash);
        let now = Steady {
            hash: hash.filter(|hash| is_shown(*hash)),
            since: polled.ended,
        };
        let Some(before) = self.0.get(&number).copied() else {
            self.0.insert(number, now);
            return None;
        };
        if before.hash.is_some() && before.hash == now.hash {
            let is_settled = polled.is_after(before.since, SETTLING);
            return if is_settled { now.hash } else { None };
        }
        // one that began before the last change is no sign that it is over
        let is_newer = polled.is_after(before.since, Duration::ZERO);
        self.0.insert(
            number,
            Steady {
                hash: if is_newer { now.hash } else { None },
                since: before.since.max(now.since),
            },
        );
        None
    }

    /// Forgets the blocks that are no longer wanted.
    pub fn retain(&mut self, is_wanted: impl Fn(u64) -> bool) {
        self.0.retain(|number, _| is_wanted(*number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u64 = 7;

    fn at(seconds: u64) -> Polled {
        at_ms(seconds * 1_000)
    }

    /// A poll that took no time.
    fn at_ms(millis: u64) -> Polled {
        taking(millis, millis)
    }

    fn taking(begun: u64, ended: u64) -> Polled {
        Polled {
            begun: Duration::from_millis(begun),
            ended: Duration::from_millis(ended),
        }
    }

    fn below() -> View {
        View {
            head: NUMBER - 1,
            block: None,
        }
    }

    fn block(hash: u8, lists: bool) -> View {
        View {
            head: NUMBER + 2,
            block: Some(ShownBlock {
                hash: [hash; 32],
                lists,
            }),
        }
    }

    #[test]
    fn a_block_that_lists_it_shows_it_whatever_others_say() {
        for others in [below(), block(2, false)] {
            let views = [others, block(1, true)];
            assert_eq!(
                Below::default().judge(&views, NUMBER, at(0)),
                Presence::Shown
            );
        }
    }

    #[test]
    fn another_block_in_its_place_is_doubt_at_once() {
        let found = Below::default().judge(&[below(), block(2, false)], NUMBER, at(0));
        assert_eq!(found, Presence::Displaced(Doubt::OtherBlock));
    }

    #[test]
    fn a_doubt_says_what_was_seen() {
        for (doubt, word) in [(Doubt::OtherBlock, "another"), (Doubt::HeadBelow, "below")] {
            assert!(doubt.text().contains(word), "{}", doubt.text());
        }
    }

    #[test]
    fn a_head_below_is_doubt_after_three_polls_a_second_apart() {
        let mut polls = Below::default();
        for (millis, found) in [
            (0, Presence::Unknown),
            (999, Presence::Unknown),
            (1_000, Presence::Unknown),
            (1_500, Presence::Unknown),
            (1_999, Presence::Unknown),
            (2_000, Presence::Displaced(Doubt::HeadBelow)),
        ] {
            let now = at_ms(millis);
            assert_eq!(
                polls.judge(&[below(), below()], NUMBER, now),
                found,
                "{millis} ms"
            );
        }
    }

    #[test]
    fn one_head_that_is_not_below_begins_the_polls_again() {
        let mut polls = Below::default();
        polls.judge(&[below()], NUMBER, at(0));
        polls.judge(&[below()], NUMBER, at(1));
        let behind = View {
            head: NUMBER,
            block: None,
        };
        assert_eq!(
            polls.judge(&[below(), behind], NUMBER, at(2)),
            Presence::Unknown
        );
        assert_eq!(polls.judge(&[below()], NUMBER, at(3)), Presence::Unknown);
        assert_eq!(polls.judge(&[below()], NUMBER, at(4)), Presence::Unknown);
        assert_eq!(
            polls.judge(&[below()], NUMBER, at(5)),
            Presence::Displaced(Doubt::HeadBelow)
        );
    }

    #[test]
    fn a_slow_poll_counts_from_its_begin() {
        for (slow, expected, why) in [
            (
                taking(100, 3_000),
                Presence::Unknown,
                "it overlaps the first",
            ),
            (
                taking(1_100, 3_000),
                Presence::Displaced(Doubt::HeadBelow),
                "it began later",
            ),
        ] {
            let mut polls = Below::default();
            polls.judge(&[below()], NUMBER, taking(0, 100));
            polls.judge(&[below()], NUMBER, slow);
            let last = polls.judge(&[below()], NUMBER, at(4));
            assert_eq!(last, expected, "{why}");
        }
    }

    #[test]
    fn a_poll_from_before_a_contradiction_counts_for_nothing() {
        let mut polls = Below::default();
        let behind = View {
            head: NUMBER,
            block: None,
        };
        polls.judge(&[behind], NUMBER, at(2));
        polls.judge(&[below()], NUMBER, taking(1_000, 3_000));
        polls.judge(&[below()], NUMBER, at(4));
        let second = polls.judge(&[below()], NUMBER, at(5));
        assert_eq!(second, Presence::Unknown);
        let third = polls.judge(&[below()], NUMBER, at(6));
        assert_eq!(third, Presence::Displaced(Doubt::HeadBelow));
    }

    #[test]
    fn a_listed_transaction_begins_the_polls_again() {
        let mut polls = Below::default();
        polls.judge(&[below()], NUMBER, at(0));
        polls.judge(&[below()], NUMBER, at(1));
        polls.judge(&[block(1, true)], NUMBER, at(2));
        assert_eq!(polls.judge(&[below()], NUMBER, at(3)), Presence::Unknown);
    }

    #[test]
    fn no_answer_proves_nothing() {
        let mut polls = Below::default();
        for second in 0..10 {
            assert_eq!(polls.judge(&[], NUMBER, at(second)), Presence::Unknown);
        }
    }

    #[test]
    fn a_block_settles_once_every_url_has_shown_it_for_two_seconds() {
        let mut blocks = Settling::default();
        let views = [block(1, true), block(1, true)];
        assert_eq!(blocks.settled(&views, NUMBER, 2, at(0)), None, "seen once");
        assert_eq!(blocks.settled(&views, NUMBER, 2, at_ms(1_999)), None);
        assert_eq!(blocks.settled(&views, NUMBER, 2, at(2)), Some([1; 32]));
    }

    #[test]
    fn a_block_that_is_not_deep_enough_everywhere_is_not_settled() {
        let shallow = View {
            head: NUMBER + 1,
            ..block(1, true)
        };
        for (views, why) in [
            ([block(1, true), shallow], "one URL is behind"),
            (
                [block(1, true), block(2, true)],
                "one URL has another block",
            ),
            (
                [
                    block(1, true),
                    View {
                        block: None,
                        ..block(1, true)
                    },
                ],
                "one URL shows none",
            ),
        ] {
            let mut blocks = Settling::default();
            for second in 0..10 {
                assert_eq!(blocks.settled(&views, NUMBER, 2, at(second)), None, "{why}");
            }
        }
        let mut blocks = Settling::default();
        for second in 0..10 {
            assert_eq!(
                blocks.settled(&[], NUMBER, 2, at(second)),
                None,
                "no URL answers"
            );
        }
    }

    #[test]
    fn another_block_in_between_begins_the_wait_again() {
        for between in [[block(2, true)], [below()]] {
            let mut blocks = Settling::default();
            let views = [block(1, true)];
            blocks.settled(&views, NUMBER, 2, at(0));
            blocks.settled(&between, NUMBER, 2, at(1));
            assert_eq!(blocks.settled(&views, NUMBER, 2, at(2)), None);
            assert_eq!(blocks.settled(&views, NUMBER, 2, at(3)), None);
            assert_eq!(blocks.settled(&views, NUMBER, 2, at(4)), Some([1; 32]));
        }
    }

    #[test]
    fn overlapping_polls_show_a_block_once() {
        let mut blocks = Settling::default();
        let views = [block(1, true)];
        blocks.settled(&views, NUMBER, 2, taking(0, 100));
        let slow = blocks.settled(&views, NUMBER, 2, taking(50, 4_000));
        assert_eq!(slow, None, "it began with the first");
        let later = blocks.settled(&views, NUMBER, 2, taking(2_100, 4_100));
        assert_eq!(later, Some([1; 32]));
    }

    #[test]
    fn a_poll_from_before_another_block_settles_nothing() {
        let mut blocks = Settling::default();
        let views = [block(1, true)];
        blocks.settled(&[block(2, true)], NUMBER, 2, at(3));
        blocks.settled(&views, NUMBER, 2, taking(1_000, 5_000));
        blocks.settled(&views, NUMBER, 2, at(6));
        assert_eq!(blocks.settled(&views, NUMBER, 2, at(7)), None, "once since");
        assert_eq!(blocks.settled(&views, NUMBER, 2, at(8)), Some([1; 32]));
    }

    #[test]
    fn a_block_that_nobody_asks_for_is_forgotten() {
        let mut blocks = Settling::default();
        blocks.settled(&[block(1, true)], NUMBER, 0, at(0));
        blocks.retain(|number| number != NUMBER);
        assert_eq!(
            blocks.settled(&[block(1, true)], NUMBER, 0, at(9)),
            None,
            "seen once"
        );
    }
}
