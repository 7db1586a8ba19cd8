//! What polls and answers prove about the URLs of the node: which may serve, and from which block
//! on. Pure: rounds of polls in, verdicts out.
//!
//! `shown` is the newest block that clients have seen, `head` the one to which a group of replicas
//! pins `latest`. Neither goes back within an epoch; a URL that is not as far is not used. An epoch
//! ends when the URL that had the block has lost it, and no other one has it.
//! Next: `guard` polls, `super::Group` shares this among all clients of the node.

use crate::config::NodeMode;
use crate::node::Route;
use crate::node::chain::BlockIdentity;
use portcullis_filters::named;

/// Rounds without an answer, or without a new block while others have one: a block that is a second
/// late at one URL is no fault.
const PATIENCE: u8 = 3;

named! {
    /// Why a URL is not used.
    pub enum LeftOut {
        /// It is more than `node.max_lag` blocks behind.
        Lagging = "lagging",
        /// Its head stands still while others move on.
        Frozen = "frozen",
        /// It has another block at a height that all have.
        Fork = "fork",
        /// It serves another minor version of the API.
        SpecVersion = "spec_version",
        /// It gives no answers to polls.
        Silent = "silent",
    }
}

/// What one poll found out about a URL of the served chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct PollResult {
    /// The number of its newest block.
    pub(in crate::node) head: u64,
    /// The minor version of the API: `0.10`.
    pub(in crate::node) version: Option<String>,
    /// Whether it knows the state at an older block.
    pub(in crate::node) keeps_history: bool,
    /// Its block at [`GroupState::common_height`], if it has one.
    pub(in crate::node) block: Option<BlockIdentity>,
}

/// One URL in the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct Member {
    /// The newest block that it is known to have.
    pub(in crate::node) head: Option<u64>,
    /// Why it is not used, if it is not.
    pub(in crate::node) left_out: Option<LeftOut>,
    /// Whether it knows the state at an older block.
    pub(in crate::node) keeps_history: bool,
    /// The newest block that it has had in this epoch.
    reached: Option<u64>,
    /// The newest block of its answers since the poll began: newer than what the poll finds.
    answered: Option<u64>,
    polled: Option<u64>,
    still: u8,
    missed: u8,
}

/// The state of all URLs: one plain value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct GroupState {
    /// The URLs, in order of preference.
    pub(in crate::node) members: Vec<Member>,
    /// Bumped when the chain went back.
    pub(in crate::node) epoch: u64,
    /// The newest block that a client may have seen from the primary.
    pub(in crate::node) shown: Option<u64>,
    /// The block that `latest` means to a group of replicas.
    pub(in crate::node) head: Option<u64>,
    /// The newest block of a URL that another one corroborates.
    top: Option<u64>,
    mode: NodeMode,
    max_lag: u64,
}

impl GroupState {
    pub(in crate::node) fn new(urls: usize, mode: NodeMode, max_lag: u64) -> Self {
        let (shown, head, top) = (None, None, None);
        Self { members: vec![Member::default(); urls], epoch: 0, shown, head, top, mode, max_lag }
    }

    /// Whether several URLs may serve at a time.
    pub(in crate::node) fn has_replicas(&self) -> bool {
        self.mode == NodeMode::Replicas
    }

    /// The newest block that clients have seen.
    pub(in crate::node) fn floor(&self) -> Option<u64> {
        self.shown.max(self.head)
    }

    /// Whether reads that name no block that all have, and writes, may be sent to the URL.
    pub(in crate::node) fn may_lead(&self, index: usize) -> bool {
        let found = self.members.get(index);
        found.is_some_and(|url| url.left_out.is_none() && url.head >= self.floor())
    }

    /// Whether state at this block may be read from the URL.
    pub(in crate::node) fn has_state(&self, index: usize, number: u64) -> bool {
        let found = self.members.get(index).filter(|_| self.mode == NodeMode::Replicas);
        found.is_some_and(|url| {
            let is_known = url.left_out.is_none() && url.missed < PATIENCE;
            is_known && url.keeps_history && url.head >= Some(number)
        })
    }

    /// The block that `latest` means; `None` unless a URL can answer about it.
    pub(in crate::node) fn pinned(&self) -> Option<u64> {
        let can_answer = |head: &u64| (0..self.members.len()).any(|url| self.has_state(url, *head));
        self.head.filter(can_answer)
    }

    /// Takes note of an answer of the URL, which may name its newest block. Returns false if it is
    /// not to be passed on: that block is older than `floor`, which clients had seen before.
    pub(in crate::node) fn answered(
        &mut self,
        index: usize,
        (route, number): (Route, Option<u64>),
        floor: Option<u64>,
    ) -> bool {
        let Some(url) = self.members.get_mut(index) else { return true };
        if number.is_some() && number < floor {
            url.head = number;
            return false;
        }
        url.answered = url.answered.max(number);
        url.head = url.head.max(number);
        url.reached = url.reached.max(number);
        self.shown = self.shown.max(url.head);
        if route.is_at_head() && self.head.is_some() {
            // it was sent before `latest` was pinned
            self.head = self.head.max(url.head);
        }
        true
    }

    /// Before the URLs are polled.
    pub(in crate::node) fn begin_round(&mut self) {
        self.members.iter_mut().for_each(|url| url.answered = None);
    }

    /// The height at which the blocks of the polled URLs are to be compared; `None` if they need
    /// not be: a URL behind by no more than `max_lag` may serve whatever the others have.
    pub(in crate::node) fn common_height(&self, results: &[Option<PollResult>]) -> Option<u64> {
        let voters = self.voters(results).map(|(_, result)| result.head);
        let (least, most) =
            voters.fold((u64::MAX, 0), |(least, most), head| (least.min(head), most.max(head)));
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

    /// Processes a round of polls: what was found out about each URL, `None` without an answer.
    /// Returns whether the chain went back.
    pub(in crate::node) fn end_round(&mut self, results: &[Option<PollResult>]) -> bool {
        let was_pinned = self.pinned().is_some();
        self.count(results);
        let voters: Vec<_> = self.voters(results).collect();
        let block = most_common(voters.iter().map(|(_, result)| result.block));
        let version = most_common(voters.iter().map(|(_, result)| &result.version)).cloned();
        let is_fork = |result: &PollResult| Some(result.block) != block;
        let heads = voters.iter().filter(|(_, result)| !is_fork(result));
        self.top = heads.map(|(_, result)| result.head).max().or(self.top);
        let forks: Vec<bool> = (0..results.len())
            .map(|url| voters.iter().any(|(voter, result)| *voter == url && is_fork(result)))
            .collect();
        let went_back = self.note_heads(results);
        for (index, (result, is_fork)) in results.iter().zip(forks).enumerate() {
            let differs =
                result.as_ref().is_some_and(|result| Some(&result.version) != version.as_ref());
            let left_out = self.verdict(index, is_fork, differs);
            if let Some(url) = self.members.get_mut(index) {
                url.left_out = left_out;
            }
        }
        self.pin(was_pinned);
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

    /// Takes over the polled heads. Returns whether the chain went back: the newest block that
    /// clients have seen was lost by a URL that had it, and none has it.
    fn note_heads(&mut self, results: &[Option<PollResult>]) -> bool {
        let floor = self.floor();
        let (mut is_lost, mut is_there) = (false, false);
        for (url, result) in self.members.iter_mut().zip(results) {
            let Some(result) = result else { continue };
            url.head = Some(result.head).max(url.answered);
            is_there |= url.head >= floor && url.left_out.is_none();
            is_lost |= url.reached >= floor && url.head < url.reached;
            url.reached = url.reached.max(url.head);
        }
        if is_there || !is_lost {
            return false;
        }
        self.epoch += 1;
        (self.shown, self.head) = (None, None);
        self.members.iter_mut().for_each(|url| url.reached = url.head);
        true
    }

    fn verdict(&self, index: usize, is_fork: bool, has_other_version: bool) -> Option<LeftOut> {
        let url = self.members.get(index)?;
        let is_replica = self.mode == NodeMode::Replicas;
        // slow nodes are better than none
        let others_answer = self.members.iter().any(|url| url.missed == 0);
        if is_replica && url.missed >= PATIENCE && others_answer {
            Some(LeftOut::Silent)
        } else if is_fork {
            Some(LeftOut::Fork)
        } else if url.head.is_some_and(|head| self.is_lagging(head)) {
            Some(LeftOut::Lagging)
        } else if is_replica && url.still >= PATIENCE {
            Some(LeftOut::Frozen)
        } else {
            (is_replica && has_other_version).then_some(LeftOut::SpecVersion)
        }
    }

    /// Pins `latest` to the lowest head of the group, never below what clients have seen.
    fn pin(&mut self, was_pinned: bool) {
        if self.mode == NodeMode::Failover {
            return;
        }
        let group = || self.members.iter().filter(|url| url.left_out.is_none());
        let Some(lowest) = group().filter_map(|url| url.head).min() else { return };
        if group().any(|url| url.keeps_history) {
            // before, `latest` was that of the primary
            let seen = if was_pinned { self.head } else { self.floor() };
            self.head = seen.max(Some(lowest));
        }
    }

    /// Whether a URL that answers polls is not used because of its head.
    pub(in crate::node) fn is_held_back(&self) -> bool {
        let mut polled = self.members.iter().filter(|url| url.missed == 0);
        polled.any(|url| url.left_out == Some(LeftOut::Lagging) || url.head < self.floor())
    }

    /// Whether such a URL may be used soon: it is only a few blocks behind.
    pub(in crate::node) fn is_catching_up(&self) -> bool {
        let mut polled = self.members.iter().filter(|url| url.missed == 0);
        polled.any(|url| url.left_out.is_none() && url.head < self.floor())
    }

    /// Why the URL is not used, in words for the operator; `None` if it is, or may be soon while
    /// another one is that `answers`.
    pub(in crate::node) fn cause(
        &self,
        index: usize,
        answers: impl Fn(usize) -> bool,
    ) -> Option<String> {
        let url = self.members.get(index)?;
        let number = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        let head = number(url.head);
        Some(match url.left_out {
            Some(LeftOut::Lagging) => {
                format!("lagging: its head is {head}, that of others {}", number(self.top))
            }
            Some(LeftOut::Frozen) => format!("frozen: its head stays {head} while others move on"),
            Some(LeftOut::Fork) => "fork: one of its blocks differs from that of others".to_owned(),
            Some(LeftOut::SpecVersion) => {
                "spec_version: it serves another one than others".to_owned()
            }
            Some(LeftOut::Silent) => "silent: it answers no poll".to_owned(),
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

/// The most frequent value; of several the first.
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
