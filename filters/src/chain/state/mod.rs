//! The state of the node: each of its URLs, and the chain that they serve. The one place that
//! concludes from what was observed.
//!
//! In: an [`Observation`], and the time. Out: the [`Change`] that it makes, the place of each URL
//! for a request, and a [`UrlView`] of each. The parts decide:
//! [`ServedChain`] which chain a URL must have, [`GroupState`] which URL is behind, [`UrlHealth`]
//! whether its answers are valid, [`Watch`] whether the chain continues. Nothing else holds them
//! together.

use super::continuity::Watch;
use super::failure::FailureClass;
use super::head_age::HeadTime;
use super::health::{Asked, Fault, UrlHealth};
use super::hedge::HedgeBudget;
use super::identity::{BlockIdentity, ChainChange, ChainIdentity, ServedChain};
use super::members::{Evidence, GroupState, LeftOut, PollResult, Source};
use super::proof::{Proof, Proven};
use super::routing::{Repeat, Standing};
use super::shown::{ConnectionId, Shows};
use super::url::{UrlFault, UrlView};
use crate::felt::Felt;
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// A request to a URL.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The index of the URL.
    pub url: usize,
    /// Its purpose.
    pub asked: Asked,
    /// When it was sent.
    pub sent: Duration,
}

/// An event at a URL, or in a poll of all URLs.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// The request got a valid answer.
    Answered(Request),
    /// The request got no valid answer.
    Failed(Request, FailureClass),
    /// A connection to the URL leads to a node of this chain, with this newest block if it was
    /// polled.
    Chain(usize, ChainIdentity, Option<BlockIdentity>),
    /// The URL returned its newest block.
    Head(usize, HeadTime),
    /// The watch has read this of a URL that may lead, over this connection.
    Watched(usize, ConnectionId, Watched),
    /// Clients have seen a block of this number.
    Shown(u64),
    /// The URLs are about to be polled.
    RoundBegun,
    /// The URLs were polled, with a result for each, `None` without an answer.
    Round(&'a [Option<PollResult>]),
    /// The relay has read what writes require.
    Proved(&'a Arc<Proof>),
    /// The accepted block of this number, which a receipt named, does not list the transaction.
    Missing(u64, Felt, ConnectionId),
}

/// A read of a URL by the watch.
#[derive(Clone, Copy, Debug)]
pub enum Watched {
    /// Its newest block.
    Head(BlockIdentity),
    /// It lacks the block of this number, which existed before.
    Gone(u64),
}

/// The change that an observation makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// None that anybody acts on.
    None,
    /// The URL is behind what clients have seen: what it lacks may exist or be gone.
    Behind,
    /// The chain of this URL, which is or was another one.
    Chain(usize, ChainChange),
    /// The chain went back; the number of times that it has.
    WentBack(u64),
    /// The transaction is gone from the block of this number: three connections have shown that.
    Displaced(u64),
}

/// The state of one URL, whatever its chain is.
#[derive(Clone, Debug, Default)]
struct UrlState {
    health: UrlHealth,
    /// The newest block that it has shown, and when it showed it.
    head: Option<(HeadTime, Duration)>,
    /// The newest block that the watch has read, until a round of polls uses it.
    watched: Option<WatchedHead>,
}

/// A block that the watch has read as the newest one.
#[derive(Clone, Copy, Debug)]
struct WatchedHead {
    block: BlockIdentity,
    connection: ConnectionId,
    read_at: Duration,
}

/// The state of the node.
#[derive(Clone, Debug)]
pub struct NodeState {
    /// The chain that is served.
    pub served: ServedChain,
    /// Which URLs are behind, and what clients have seen.
    pub group: GroupState,
    /// The calls that may be sent to a second URL because the first is slow.
    pub hedges: HedgeBudget,
    /// Whether the chain continues, for the cache and for positions.
    pub continuity: Watch,
    /// Whether the chain has the state that writes require.
    pub proven: Proven,
    urls: Vec<UrlState>,
}

impl NodeState {
    /// The state before the first observation of the URLs of `group`.
    pub fn new(served: ServedChain, group: GroupState) -> Self {
        Self {
            served,
            urls: vec![UrlState::default(); group.members.len()],
            group,
            hedges: HedgeBudget::default(),
            continuity: Watch::default(),
            proven: Proven::default(),
        }
    }

    /// Concludes from an observation at `now`.
    pub fn observe(&mut self, observation: Observation<'_>, now: Duration) -> Change {
        match observation {
            Observation::Answered(Request { url, asked, sent }) => {
                if let Some(state) = self.urls.get_mut(url) {
                    state.health.answered(asked, sent, now);
                }
            }
            Observation::Failed(Request { url, asked, sent }, class) => {
                if let Some(state) = self.urls.get_mut(url) {
                    state.health.failed(asked, class, sent, now);
                }
            }
            Observation::Chain(url, found, head) => {
                return Change::Chain(url, self.served.judge(url, found, head));
            }
            Observation::Head(url, head) => {
                if let Some(state) = self.urls.get_mut(url) {
                    state.head = Some((head, now));
                }
            }
            Observation::Watched(url, connection, watched) => {
                return self.watched(url, connection, watched, now);
            }
            Observation::Shown(number) => self.group.note_shown(number),
            Observation::Proved(proof) => self.proven.note(proof),
            Observation::RoundBegun => self.group.begin_round(),
            Observation::Round(results) => {
                if self.group.end_round(results) {
                    return Change::WentBack(self.group.rollbacks);
                }
            }
            Observation::Missing(block, hash, connection) => {
                if self.group.missed_in(block, hash, connection, now) {
                    return Change::Displaced(block);
                }
            }
        }
        Change::None
    }

    /// Concludes from a read of the watch. For the only URL, a head that is behind is a round.
    fn watched(
        &mut self,
        url: usize,
        connection: ConnectionId,
        watched: Watched,
        now: Duration,
    ) -> Change {
        let is_only = self.urls.len() == 1;
        let source = if is_only {
            Source::Any
        } else if self.group.is_latest_of_primary() {
            Source::Primary
        } else {
            Source::Replica
        };
        let answer = Evidence {
            source,
            shows: match watched {
                Watched::Head(head) => Shows::Head(head.number),
                Watched::Gone(number) => Shows::NoKnownBlock(number),
            },
            connection,
        };
        let floor = self.group.floor();
        let passes = self.group.answered(url, answer, floor, now);
        match watched {
            Watched::Head(head) if passes => {
                if let Some(state) = self.urls.get_mut(url) {
                    state.watched = Some(WatchedHead {
                        block: head,
                        connection,
                        read_at: now,
                    });
                }
                Change::None
            }
            Watched::Head(head) if is_only && self.group.begin_doubt(now) => {
                let result = PollResult::of_head(head.number, connection);
                if self.group.end_round(&[Some(result)]) {
                    return Change::WentBack(self.group.rollbacks);
                }
                Change::Behind
            }
            _ if passes => Change::None,
            _ => Change::Behind,
        }
    }

    /// The URL to try first for state at the block of this number: of two random ones that have it,
    /// the one with fewer calls in flight. `busy` returns a URL's calls in flight, `None` while its
    /// breaker is open.
    pub fn choose(
        &self,
        number: u64,
        chance: u64,
        busy: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        let able = (0..self.urls.len())
            .filter(|url| self.group.has_state(*url, number))
            .filter_map(|url| busy(url).map(|busy| (busy, url)));
        let count = able.clone().count();
        // the id of a call is a counter: spread it (Fibonacci hashing)
        let chance = usize::try_from(chance.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).ok()?;
        let first = chance.checked_rem(count)?;
        let others = count.saturating_sub(1);
        let step = chance.checked_div(count)?.checked_rem(others).unwrap_or(0);
        let second = first.saturating_add(1).saturating_add(step);
        let second = second.checked_rem(count)?;
        let chosen = [able.clone().nth(first), able.clone().nth(second)];
        let chosen = chosen.into_iter().flatten();
        chosen.min_by_key(|(busy, _)| *busy).map(|(_, url)| url)
    }

    /// The newest block of the URL and the connection that showed it, if the watch has read it
    /// within `time` before `now`, and no answer has shown a newer one since. A round of polls uses
    /// it instead of a poll of its own, once.
    pub fn take_watched(
        &mut self,
        url: usize,
        time: Duration,
        now: Duration,
    ) -> Option<(BlockIdentity, ConnectionId)> {
        let watched = self.urls.get_mut(url)?.watched.take()?;
        let is_recent = now.saturating_sub(watched.read_at) < time;
        let known = self.group.members.get(url)?.head;
        if is_recent && known <= Some(watched.block.number) {
            return Some((watched.block, watched.connection));
        }
        None
    }

    /// The place of a URL for a request about the state at `block`, or else for one to the primary.
    /// The only URL always gets it. A chain is judged for each connection, so it excludes no URL
    /// here: others of its connections may lead to the served one.
    pub fn standing(
        &mut self,
        url: usize,
        block: Option<u64>,
        asked: Asked,
        repeat: Repeat,
        now: Duration,
    ) -> Standing {
        if self.urls.len() == 1 {
            return Standing::Serves;
        }
        let is_able = match block {
            Some(number) => self.group.has_state(url, number),
            None => self.group.may_lead(url),
        };
        match self.urls.get_mut(url) {
            Some(state) if is_able => state.health.standing(asked, repeat, now),
            _ => Standing::Excluded,
        }
    }

    /// Begins a read at the URL. Returns how long to wait before sending it to a second one.
    pub fn begin_read(&mut self, url: usize) -> Duration {
        self.hedges.earn();
        let state = self.urls.get(url);
        state.map_or(Duration::ZERO, |state| state.health.latency.bound())
    }

    /// Why the answers of the URL are not valid, if it fails.
    pub fn fault(&self, url: usize) -> Option<Fault> {
        self.urls.get(url)?.health.fault()
    }

    /// Whether the URL has answered a call after `since`.
    pub fn has_answered_since(&self, url: usize, since: Duration) -> bool {
        let state = self.urls.get(url);
        state.is_some_and(|state| state.health.has_answered_since(since))
    }

    /// Whether the URL has shown its newest block in this time before `now`.
    pub fn has_shown_head_within(&self, url: usize, time: Duration, now: Duration) -> bool {
        let head = self.urls.get(url).and_then(|state| state.head);
        head.is_some_and(|(_, seen)| now.saturating_sub(seen) < time)
    }

    /// The URLs whose blocks are evidence: all that are not left out because of their blocks. A URL
    /// that fails is one of them: its silence proves nothing.
    pub fn witnesses(&self) -> Vec<usize> {
        let urls = 0..self.urls.len();
        urls.filter(|url| self.group.may_serve(*url)).collect()
    }

    /// The knowledge of the URL, for people and metrics. `failure` is its last one, in words;
    /// `answers` returns whether calls to a URL are answered.
    pub fn view(
        &self,
        url: usize,
        failure: Option<String>,
        answers: impl Fn(usize) -> bool,
    ) -> UrlView {
        let state = self.urls.get(url);
        let fault = self.fault(url).map(|fault| UrlFault {
            cause: failure.unwrap_or_else(|| fault.class.name().to_owned()),
            is_total: fault.is_total,
        });
        let head_time = state.and_then(|state| state.head).map(|(head, _)| head);
        let foreign = self.served.foreign(url).map(str::to_owned);
        let member = match self.group.members.get(url) {
            Some(member) if self.urls.len() > 1 => member,
            // the only URL always gets calls
            _ => {
                return UrlView {
                    head: None,
                    head_time,
                    left_out: None,
                    cause: foreign,
                    fault,
                };
            }
        };
        let failing = fault.as_ref();
        let left_out = member.left_out.or(failing.map(|_| LeftOut::Failing));
        let cause = failing.map(|fault| fault.cause.clone()).or(foreign);
        UrlView {
            head: member.head,
            head_time,
            left_out,
            cause: cause.or_else(|| self.group.cause(url, answers)),
            fault,
        }
    }
}

#[cfg(test)]
mod tests;
