//! Whether a relay saw that a block is settled: in two looks, two seconds or more apart, every URL that
//! answered showed it deep enough, and so it was in every look in between (rule 3).

use super::machine::Process;
use super::oracle::LOOK;
use super::shown::{Fact, SERVING, Shown};
use super::world::{CONFIRMATIONS, World};
use portcullis_filters::felt::Felt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How far apart the two looks are.
const SETTLING: Duration = Duration::from_secs(2);
/// The calls of looks that begin so close to each other cannot be told apart.
const AT_ONCE: Duration = Duration::from_millis(10);

/// A look at a block: the head and the block of each URL that answered.
#[derive(Debug, Default)]
struct Look {
    ended: Duration,
    /// It may be one for the receipt of a transaction that is in the block.
    is_other: bool,
    heads: BTreeMap<usize, u64>,
    blocks: BTreeMap<usize, Option<Felt>>,
    /// The URLs that did not answer one of the calls, and when that was over.
    silent: BTreeMap<usize, Duration>,
}

impl Look {
    /// The block that every URL shows deep enough, if they do.
    fn settled(&self, number: u64) -> Option<Felt> {
        let depth = number + CONFIRMATIONS as u64;
        let of_url = |(url, head): (&usize, &u64)| Some((*head, *self.blocks.get(url)?));
        let views: Vec<(u64, Option<Felt>)> = self.heads.iter().filter_map(of_url).collect();
        let (_, hash) = *views.first()?;
        let is_shown = |(head, block): &(u64, Option<Felt>)| *head >= depth && *block == hash;
        hash.filter(|_| views.iter().all(is_shown))
    }

    /// Whether each URL ended both of its calls: nothing follows from a look that was given up.
    fn is_whole(&self) -> bool {
        let mut urls = self.heads.keys().chain(self.blocks.keys());
        urls.all(|url| self.has_both(*url) || self.silent.contains_key(url))
    }

    fn is_answered(&self) -> bool {
        self.heads.keys().any(|url| self.blocks.contains_key(url))
    }

    fn has_both(&self, url: usize) -> bool {
        self.heads.contains_key(&url) && self.blocks.contains_key(&url)
    }

    /// A URL that answered both calls was silent in another look, which began at the same time.
    fn end(mut self) -> Self {
        let of_it = self.silent.iter().filter(|(url, _)| !self.has_both(**url));
        let silent = of_it.map(|(_, at)| *at).max();
        self.ended = self.ended.max(silent.unwrap_or_default());
        self
    }
}

impl World {
    pub(super) fn was_steady(&self, relay: Process, number: u64) -> bool {
        let recent = self.now().saturating_sub(LOOK);
        let looks = self.looks_at(relay, number);
        let newest = looks.iter().enumerate();
        let mut newest =
            newest.take_while(|(_, (_, look))| look.ended >= recent || self.has_leapt(LOOK));
        let settles = |(at, (begun, look)): (usize, &(Duration, Look))| {
            let Some(hash) = look.settled(number) else {
                return false;
            };
            // one that ended with it and began later is not before it
            let before = looks[at + 1..].iter();
            let before = before.filter(|(other, it)| it.ended < look.ended || other < begun);
            let before = before.filter(|(other, _)| other.abs_diff(*begun) >= AT_ONCE);
            let mut steady = before
                .map(|(_, look)| look)
                .filter(|it| it.is_whole())
                .filter(|it| it.settled(number) == Some(hash) || !it.is_other)
                .take_while(|it| it.settled(number) == Some(hash));
            steady.any(|it| it.ended + SETTLING <= *begun)
        };
        newest.any(settles)
    }

    /// The looks of a relay at a block, each with its begin, the last to end first.
    fn looks_at(&self, relay: Process, number: u64) -> Vec<(Duration, Look)> {
        let shown = || self.oracle.record.since(relay, Duration::ZERO);
        // to see whether the block of a transaction is gone, its receipt is asked for right before
        let is_receipt = |it: &&Shown| {
            it.url != SERVING && matches!(it.fact, Fact::Receipt(..) | Fact::NoReceipt(_))
        };
        let of_receipts: BTreeSet<Duration> = shown().filter(is_receipt).map(|it| it.at).collect();
        let is_block = |it: &&Shown| matches!(it.fact, Fact::Block(at, _) if at == number);
        let begins: BTreeSet<Duration> = shown().filter(is_block).map(|it| it.begun).collect();
        let mut looks: BTreeMap<Duration, Look> = BTreeMap::new();
        for it in shown().filter(|it| begins.contains(&it.begun)) {
            let look = looks.entry(it.begun).or_default();
            look.is_other = of_receipts.contains(&it.begun);
            let is_first = match &it.fact {
                Fact::Head(head) => {
                    let is_first = !look.heads.contains_key(&it.url);
                    // which of several belongs to it is not known
                    let shown = look.heads.entry(it.url).or_default();
                    *shown = (*shown).max(*head);
                    is_first
                }
                Fact::Block(at, block) if *at == number => {
                    let hash = block.as_ref().map(|block| block.hash);
                    look.blocks.insert(it.url, hash).is_none()
                }
                Fact::Silent => {
                    look.silent.entry(it.url).or_insert(it.at);
                    continue;
                }
                _ => continue,
            };
            // newest first: of looks that began at the same time, the first one to end counts
            look.ended = if is_first {
                look.ended.max(it.at)
            } else {
                it.at
            };
        }
        let mut looks: Vec<_> = looks
            .into_iter()
            .filter(|(_, it)| it.is_answered())
            .map(|(begun, it)| (begun, it.end()))
            .collect();
        looks.sort_by_key(|(_, look)| std::cmp::Reverse(look.ended));
        looks
    }
}
