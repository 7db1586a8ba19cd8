//! Decides from polls and answers which URLs of the node may serve, and from which block on. Pure:
//! rounds of polls in, verdicts out.
//!
//! `shown` is the newest block that clients have seen, `head` the one to which a group of replicas
//! pins `latest`. Neither goes back unless the chain does; a URL that has not reached them is not
//! used, and its "not found" is not passed on. The chain went back when the URL that had the block
//! has lost it for three rounds, each over another connection, and no other URL has it.
//! [`shown`](super::shown) reads what an answer shows. Nothing here polls.

use super::identity::BlockIdentity;
use super::shown::{ConnectionId, DOUBT, OLD_DOUBT, ShownTransactions, Shows, Witnesses};
use crate::felt::Felt;
use crate::named;
use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// Rounds without an answer, or without a new block while others have one, after which a URL is at
/// fault: a block may be a second late at one URL.
const PATIENCE: u8 = 3;

named! {
    /// Why a URL is not used.
    pub enum LeftOut {
        /// The URL is more than `node.max_lag` blocks behind.
        Lagging = "lagging",
        /// The URL's head does not change while others advance.
        Frozen = "frozen",
        /// The URL has another block at a height that all URLs have.
        Fork = "fork",
        /// The URL serves another minor version of the API.
        SpecVersion = "spec_version",
        /// The URL does not answer polls.
        Silent = "silent",
        /// The URL's calls or polls have no valid answer.
        Failing = "failing",
    }
}

/// How several URLs of the node serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeMode {
    /// One URL serves, in order of preference.
    Failover,
    /// All URLs serve.
    Replicas,
}

/// The result of one poll of a URL of the served chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollResult {
    /// The number of its newest block.
    pub head: u64,
    /// The minor version of the API: `0.10`.
    pub version: Option<String>,
    /// Whether the URL has the state at an older block.
    pub keeps_history: bool,
    /// Its block at [`GroupState::common_height`], if it has one.
    pub block: Option<BlockIdentity>,
    /// The connection that showed the head.
    pub connection: ConnectionId,
}

impl PollResult {
    /// The result of a poll of the newest block alone.
    pub fn of_head(head: u64, connection: ConnectionId) -> Self {
        Self {
            head,
            version: None,
            keeps_history: false,
            block: None,
            connection,
        }
    }
}

/// One URL in the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The newest block that it is known to have.
    pub head: Option<u64>,
    /// Why the URL is left out, if it is.
    pub left_out: Option<LeftOut>,
    /// Whether the URL has the state at an older block.
    pub keeps_history: bool,
    /// The newest block that it has had since the last rollback.
    reached: Option<u64>,
    /// The newest block that its answers have shown since the poll began, which may be newer than
    /// the poll's result.
    answered: Option<u64>,
    polled: Option<u64>,
    still: u8,
    missed: u8,
}

/// How a URL's poll differs from those of most URLs.
#[derive(Clone, Copy, Debug)]
struct Differences {
    is_fork: bool,
    has_other_version: bool,
}

/// The URL that answered, and the block that the answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The primary: its head counts as shown.
    Primary,
    /// The primary, about its newest block.
    PrimaryAtHead,
    /// Any URL, about the block that the request named; or the only URL.
    Any,
    /// A replica, about its own chain, which clients do not see: `latest` means another block.
    Replica,
}

/// The source of an answer, and the chain state that the answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The URL that answered.
    pub source: Source,
    /// The chain state that its answer shows.
    pub shows: Shows,
    /// The connection that the answer arrived over.
    pub connection: ConnectionId,
}

/// The state of all URLs, as one plain value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupState {
    /// The URLs, in order of preference.
    pub members: Vec<Member>,
    /// How often the chain went back.
    pub rollbacks: u64,
    /// The newest block that a client may have seen from the primary.
    pub shown: Option<u64>,
    /// The block that `latest` means to a group of replicas.
    pub head: Option<u64>,
    /// The newest block of the URLs that are on the majority's chain.
    top: Option<u64>,
    /// Shared with copies for metrics, and cloned only if it changes while one exists.
    transactions: Arc<ShownTransactions>,
    /// The connections that have shown that the newest block is gone.
    witnesses: Witnesses,
    /// When the only URL was last polled because of a doubt.
    doubted: Option<Duration>,
    mode: NodeMode,
    max_lag: u64,
}

impl GroupState {
    /// The state before the first poll of this many URLs.
    pub fn new(urls: usize, mode: NodeMode, max_lag: u64) -> Self {
        Self {
            members: vec![Member::default(); urls],
            rollbacks: 0,
            shown: None,
            head: None,
            top: None,
            transactions: Arc::default(),
            witnesses: Witnesses::default(),
            doubted: None,
            // one URL is no group: nothing is rewritten for it
            mode: if urls > 1 { mode } else { NodeMode::Failover },
            max_lag,
        }
    }

    /// Whether several URLs may serve concurrently.
    pub fn has_replicas(&self) -> bool {
        self.mode == NodeMode::Replicas
    }

    /// The newest block that clients have seen.
    pub fn floor(&self) -> Option<u64> {
        self.shown.max(self.head)
    }

    /// Why each URL is left out because of its blocks, if it is.
    pub fn left_out(&self) -> Vec<Option<LeftOut>> {
        self.members.iter().map(|url| url.left_out).collect()
    }

    /// Whether the URL is not left out.
    pub fn may_serve(&self, index: usize) -> bool {
        self.members
            .get(index)
            .is_some_and(|url| url.left_out.is_none())
    }

    /// Whether the URL may get writes, and reads that name no block that all URLs have.
    pub fn may_lead(&self, index: usize) -> bool {
        let found = self.members.get(index);
        found.is_some_and(|url| url.left_out.is_none() && url.head >= self.floor())
    }

    /// Whether state at this block may be read from the URL.
    pub fn has_state(&self, index: usize, number: u64) -> bool {
        let found = self
            .members
            .get(index)
            .filter(|_| self.mode == NodeMode::Replicas);
        found.is_some_and(|url| {
            let is_known = url.left_out.is_none() && url.missed < PATIENCE;
            is_known && url.keeps_history && url.head >= Some(number)
        })
    }

    /// The block that `latest` means; `None` unless a URL can answer about it.
    pub fn pinned(&self) -> Option<u64> {
        let can_answer = |head: &u64| (0..self.members.len()).any(|url| self.has_state(url, *head));
        self.head.filter(can_answer)
    }

    /// Whether `latest` means the primary's newest block. For replicas that is unknown before they
    /// were polled.
    pub(super) fn is_latest_of_primary(&self) -> bool {
        !self.has_replicas() || (self.top.is_some() && self.pinned().is_none())
    }

    /// The block that counts as the newest one of the chain if a URL that may lead has this `head`.
    /// `None` before replicas were polled.
    pub fn newest(&self, head: u64) -> Option<u64> {
        if self.is_latest_of_primary() {
            return Some(head);
        }
        self.pinned()
    }

    /// Records an answer of the URL. Returns false if it must not be passed on: it is older than
    /// `floor`, which clients had seen before the call, or does not have a transaction that was
    /// shown as accepted.
    pub fn answered(
        &mut self,
        index: usize,
        answer: Evidence,
        floor: Option<u64>,
        now: Duration,
    ) -> bool {
        let Evidence { source, shows, .. } = answer;
        let before = self.floor();
        let is_behind = self.is_behind(answer, floor, now);
        let Some(url) = self.members.get_mut(index) else {
            return true;
        };
        if is_behind {
            // "not found" says nothing about the URL's head: the chain may have gone back
            if let Shows::Head(number) = shows {
                url.head = Some(number);
                url.reached = url.reached.max(url.head);
            }
            return false;
        }
        let number = match shows {
            Shows::Accepted(hash, block) => {
                Arc::make_mut(&mut self.transactions).insert(hash, block, url.head)
            }
            _ if source == Source::Replica => None,
            Shows::Head(number) | Shows::Block(number) => Some(number),
            Shows::Nothing | Shows::NoBlock(_) | Shows::NoKnownBlock(_) | Shows::NotAccepted(_) => {
                None
            }
        };
        url.head = url.head.max(number);
        url.reached = url.reached.max(number);
        debug_assert!(url.reached >= url.head, "a URL has reached its head");
        let head = url.head;
        // otherwise repeated receipts with a wrong number would never let the doubt settle
        if number.is_some() && !matches!(shows, Shows::Accepted(..)) {
            url.answered = url.answered.max(number);
            if number >= self.floor() {
                self.witnesses = Witnesses::default();
            }
        }
        self.shown = self.shown.max(match source {
            Source::Primary | Source::PrimaryAtHead => head,
            Source::Any | Source::Replica => number,
        });
        if source == Source::PrimaryAtHead && self.head.is_some() {
            // the request was sent before `latest` was pinned
            self.head = self.head.max(head);
        }
        debug_assert!(self.floor() >= before, "no answer takes a block back");
        true
    }

    /// Whether an answer is older than what clients have seen.
    fn is_behind(&mut self, answer: Evidence, floor: Option<u64>, now: Duration) -> bool {
        match answer.shows {
            Shows::Head(number) => Some(number) < floor,
            Shows::NoKnownBlock(number) => Some(number) <= floor,
            Shows::NoBlock(number) => {
                Some(number) <= floor && Some(number.saturating_add(self.max_lag)) >= floor
            }
            Shows::NotAccepted(hash) => {
                let highest = self.floor();
                self.transactions.is_shown(hash)
                    && !Arc::make_mut(&mut self.transactions).not_found(
                        hash,
                        highest,
                        answer.connection,
                        now,
                    )
            }
            Shows::Nothing | Shows::Block(_) | Shows::Accepted(..) => false,
        }
    }

    /// Records that clients have seen a block of this number.
    pub fn note_shown(&mut self, number: u64) {
        self.shown = self.shown.max(Some(number));
    }

    /// The block that a receipt of this transaction has named.
    pub fn block_of(&self, hash: Felt) -> Option<u64> {
        self.transactions.block_of(hash)
    }

    /// Records that the accepted block of this number, which a receipt named, no longer lists the
    /// transaction. Returns whether that was seen often enough to count as a rollback.
    pub fn missed_in(
        &mut self,
        block: u64,
        hash: Felt,
        connection: ConnectionId,
        now: Duration,
    ) -> bool {
        Arc::make_mut(&mut self.transactions).missed_in(block, hash, connection, now)
    }

    /// Starts a round for the only URL, whose answer is in doubt, at most once per [`DOUBT`].
    /// Returns whether it did.
    pub fn begin_doubt(&mut self, now: Duration) -> bool {
        let since = self.doubted.map(|before| now.saturating_sub(before));
        if since.is_some_and(|since| since < DOUBT) {
            return false;
        }
        if since.is_none_or(|since| since > OLD_DOUBT) {
            self.witnesses = Witnesses::default();
        }
        self.doubted = Some(now);
        self.begin_round();
        true
    }

    /// Starts a round, before the URLs are polled.
    pub fn begin_round(&mut self) {
        self.members.iter_mut().for_each(|url| url.answered = None);
    }

    /// The height at which to compare the blocks of the polled URLs; `None` if there is no need: a
    /// URL behind by no more than `max_lag` may serve, whatever the others have.
    pub fn common_height(&self, results: &[Option<PollResult>]) -> Option<u64> {
        let voters = self.voters(results).map(|(_, result)| result.head);
        let (least, most) = voters.fold((u64::MAX, 0), |(least, most), head| {
            (least.min(head), most.max(head))
        });
        let is_far = most.saturating_sub(least) > self.max_lag;
        (least <= most && (is_far || self.mode == NodeMode::Replicas)).then_some(least)
    }

    /// The polled URLs that are neither left far behind nor frozen: the others do not vote.
    fn voters<'a>(
        &self,
        results: &'a [Option<PollResult>],
    ) -> impl Iterator<Item = (usize, &'a PollResult)> + Clone {
        let seen = self.members.iter().zip(results).enumerate();
        seen.filter_map(|(index, (url, result))| {
            let result = result.as_ref()?;
            let is_behind = url.left_out == Some(LeftOut::Lagging) && self.is_lagging(result.head);
            let is_frozen = url.still >= PATIENCE && url.polled == Some(result.head);
            (!is_behind && !is_frozen).then_some((index, result))
        })
    }

    fn is_lagging(&self, head: u64) -> bool {
        Some(head.saturating_add(self.max_lag)) < self.top
    }

    /// Processes a round of polls, with a result for each URL, `None` without an answer. Returns
    /// whether the chain went back.
    pub fn end_round(&mut self, results: &[Option<PollResult>]) -> bool {
        debug_assert_eq!(results.len(), self.members.len(), "a result for each URL");
        let floor = self.floor();
        let was_pinned = self.pinned().is_some();
        self.count(results);
        let voters: Vec<_> = self.voters(results).collect();
        let block = most_common(voters.iter().map(|(_, result)| result.block));
        let version = most_common(voters.iter().map(|(_, result)| &result.version)).cloned();
        let is_fork = |result: &PollResult| Some(result.block) != block;
        let heads = voters.iter().filter(|(_, result)| !is_fork(result));
        self.top = heads.map(|(_, result)| result.head).max().or(self.top);
        let forks: Vec<bool> = (0..results.len())
            .map(|url| {
                voters
                    .iter()
                    .any(|(voter, result)| *voter == url && is_fork(result))
            })
            .collect();
        let went_back = self.note_heads(results);
        for (index, (result, is_fork)) in results.iter().zip(forks).enumerate() {
            let has_other_version = result
                .as_ref()
                .is_some_and(|result| Some(&result.version) != version.as_ref());
            let left_out = self.verdict(
                index,
                Differences {
                    is_fork,
                    has_other_version,
                },
            );
            if let Some(url) = self.members.get_mut(index) {
                url.left_out = left_out;
            }
        }
        // until now, `latest` was the primary's
        self.pin(if was_pinned { self.head } else { self.floor() });
        debug_assert!(
            went_back || self.floor() >= floor,
            "what was shown stays unless the chain went back"
        );
        went_back
    }

    /// Counts rounds without an answer, and rounds in which others moved on without this one.
    fn count(&mut self, results: &[Option<PollResult>]) {
        let heads = results.iter().zip(&self.members);
        let moved: Option<u64> = heads
            .filter_map(|(result, url)| {
                let head = result.as_ref()?.head;
                (url.polled.is_some_and(|polled| head > polled)).then_some(head)
            })
            .max();
        let top = results.iter().flatten().map(|result| result.head).max();
        for (url, result) in self.members.iter_mut().zip(results) {
            let Some(result) = result else {
                url.missed = url.missed.saturating_add(1);
                continue;
            };
            url.missed = 0;
            let head = Some(result.head);
            if url.polled != head || head == top {
                url.still = 0;
            } else if head < moved {
                url.still = url.still.saturating_add(1);
            }
            (url.polled, url.keeps_history) = (head, result.keeps_history);
        }
    }

    /// Applies the polled heads. Returns whether the chain went back: three connections have shown
    /// that a URL has lost the newest block that clients have seen, and meanwhile no URL had it.
    fn note_heads(&mut self, results: &[Option<PollResult>]) -> bool {
        let floor = self.floor();
        // a floor that no URL has reached dates from before the start
        let is_old = self.members.iter().all(|url| url.reached < floor);
        let mut is_there = false;
        let mut witness = None;
        for (url, result) in self.members.iter_mut().zip(results) {
            let Some(result) = result else { continue };
            url.head = Some(result.head).max(url.answered);
            let has_a_say = url.left_out.is_none();
            is_there |= has_a_say && url.head >= floor;
            let has_lost_it = has_a_say && url.reached >= floor && url.head < url.reached;
            if witness.is_none() && (is_old || has_lost_it) {
                witness = Some(result.connection);
            }
            url.reached = url.reached.max(url.head);
        }
        if results.iter().all(Option::is_none) {
            return false;
        }
        let Some(witness) = witness else {
            self.witnesses = Witnesses::default();
            return false;
        };
        if is_there {
            self.witnesses = Witnesses::default();
            return false;
        }
        if !self.witnesses.add(witness) {
            return false;
        }
        self.rollbacks = self.rollbacks.saturating_add(1);
        self.witnesses = Witnesses::default();
        (self.shown, self.head) = (None, None);
        self.members
            .iter_mut()
            .for_each(|url| url.reached = url.head);
        let head = results.iter().flatten().map(|result| result.head).max();
        Arc::make_mut(&mut self.transactions).truncate(head);
        true
    }

    fn verdict(&self, index: usize, found: Differences) -> Option<LeftOut> {
        let url = self.members.get(index)?;
        let is_replica = self.mode == NodeMode::Replicas;
        // slow nodes are better than none
        let others_answer = self.members.iter().any(|url| url.missed == 0);
        if is_replica && url.missed >= PATIENCE && others_answer {
            Some(LeftOut::Silent)
        } else if found.is_fork {
            Some(LeftOut::Fork)
        } else if url.head.is_some_and(|head| self.is_lagging(head)) {
            Some(LeftOut::Lagging)
        } else if is_replica && url.still >= PATIENCE {
            Some(LeftOut::Frozen)
        } else {
            (is_replica && found.has_other_version).then_some(LeftOut::SpecVersion)
        }
    }

    /// Pins `latest` to the lowest head of the group, never below what clients have `seen`.
    fn pin(&mut self, seen: Option<u64>) {
        if self.mode == NodeMode::Failover {
            return;
        }
        let group = || self.members.iter().filter(|url| url.left_out.is_none());
        let Some(lowest) = group().filter_map(|url| url.head).min() else {
            return;
        };
        if group().any(|url| url.keeps_history) {
            self.head = seen.max(Some(lowest));
        }
    }

    /// Whether a URL that answers polls is not used because of its head.
    pub fn is_held_back(&self) -> bool {
        let mut polled = self.members.iter().filter(|url| url.missed == 0);
        polled.any(|url| url.left_out == Some(LeftOut::Lagging) || url.head < self.floor())
    }

    /// Whether such a URL may be used soon: it is only a few blocks behind.
    pub fn is_catching_up(&self) -> bool {
        let mut polled = self.members.iter().filter(|url| url.missed == 0);
        polled.any(|url| url.left_out.is_none() && url.head < self.floor())
    }

    /// Why the URL is not used, in words for the operator. `None` if it is used, or if it is
    /// catching up while another URL that `answers` is used.
    pub fn cause(&self, index: usize, answers: impl Fn(usize) -> bool) -> Option<String> {
        let url = self.members.get(index)?;
        let number = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        let head = number(url.head);
        Some(match url.left_out {
            Some(LeftOut::Lagging) => {
                format!(
                    "lagging: its head is {head}, that of others {}",
                    number(self.top)
                )
            }
            Some(LeftOut::Frozen) => format!("frozen: its head stays {head} while others move on"),
            Some(LeftOut::Fork) => "fork: one of its blocks differs from that of others".to_owned(),
            Some(LeftOut::SpecVersion) => {
                "spec_version: it serves another one than others".to_owned()
            }
            Some(LeftOut::Silent) => "silent: it answers no poll".to_owned(),
            Some(LeftOut::Failing) => "failing: it gives no valid answers".to_owned(),
            None if self.may_lead(index) => return None,
            None if (0..self.members.len()).any(|url| self.may_lead(url) && answers(url)) => {
                return None;
            }
            None => format!(
                "lagging: its head is {head}, and clients have seen {}",
                number(self.floor())
            ),
        })
    }
}

/// The most frequent value; the first one of several.
fn most_common<T: PartialEq>(values: impl Iterator<Item = T> + Clone) -> Option<T> {
    let mut best: Option<(usize, T)> = None;
    for value in values.clone() {
        let count = values.clone().filter(|other| *other == value).count();
        if best.as_ref().is_none_or(|(most, _)| count > *most) {
            best = Some((count, value));
        }
    }
    best.map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
