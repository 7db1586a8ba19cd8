//! The URLs of the node as a group, shared by all clients of the node: with `node.mode` `replicas`
//! each serves a part of the reads, and no client sees the chain go back when it changes the URL.
//!
//! [`GroupState`] decides which URL may serve and which answer may be passed on; `poller` polls
//! several URLs, `behind` a single one while its answers are in doubt. A call locks the state for a
//! few comparisons, as it locks the breaker. With a single URL it does so only if the answer shows
//! chain state.

use crate::config::NodeConfig;
use crate::io::monotonic;
use parking_lot::Mutex;
use portcullis_filters::chain::{Evidence, GroupState, LeftOut, PollResult};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The state of the group, and its rounds of polls.
#[derive(Debug)]
pub(super) struct Group {
    state: Mutex<GroupState>,
    /// One more than [`GroupState::floor`], or 0 without a floor; read without the lock.
    floor: AtomicU64,
    has_several: bool,
    rounds: watch::Sender<u64>,
}

impl Group {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let urls = config.url.iter().count();
        Self {
            state: Mutex::new(GroupState::new(urls, config.mode, config.max_lag)),
            floor: AtomicU64::new(0),
            has_several: urls > 1,
            rounds: watch::Sender::new(0),
        }
    }

    /// Whether there are several URLs.
    pub(super) fn has_several(&self) -> bool {
        self.has_several
    }

    /// The newest block that clients have seen.
    pub(super) fn floor(&self) -> Option<u64> {
        self.floor.load(Ordering::Acquire).checked_sub(1)
    }

    /// A copy of the state.
    pub(super) fn state(&self) -> GroupState {
        self.state.lock().clone()
    }

    /// Reads the state; `read` must be quick.
    pub(super) fn read<T>(&self, read: impl FnOnce(&GroupState) -> T) -> T {
        read(&self.state.lock())
    }

    /// Changes the state; `change` must be quick.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut GroupState) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let floor = state.floor().map_or(0, |floor| floor.saturating_add(1));
        self.floor.store(floor, Ordering::Release);
        result
    }

    /// See [`GroupState::answered`].
    pub(super) fn answered(&self, index: usize, answer: Evidence, floor: Option<u64>) -> bool {
        let now = monotonic::now();
        self.change(|state| state.answered(index, answer, floor, now))
    }

    /// Chooses the URL to try first for state at this block: of two random ones, the one with fewer
    /// calls in flight. `busy` returns a URL's calls in flight, `None` while its breaker is open.
    pub(super) fn choose(
        &self,
        number: u64,
        chance: u64,
        busy: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        let state = self.state.lock();
        let able = (0..state.members.len())
            .filter(|url| state.has_state(*url, number))
            .filter_map(|url| busy(url).map(|busy| (busy, url)));
        let count = able.clone().count();
        // the id of a call is a counter: spread it (Fibonacci hashing)
        let chance = usize::try_from(chance.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).ok()?;
        let first = chance.checked_rem(count)?;
        let second = match count {
            1 => first,
            _ => (first + 1 + (chance / count) % (count - 1)) % count,
        };
        let chosen = [able.clone().nth(first), able.clone().nth(second)];
        chosen
            .into_iter()
            .flatten()
            .min_by_key(|(busy, _)| *busy)
            .map(|(_, url)| url)
    }

    /// Starts a round, before the URLs are polled.
    pub(super) fn begin_round(&self) {
        self.state.lock().begin_round();
    }

    /// Processes the results of the polls, and wakes the calls that wait for them. Returns whether
    /// the chain went back.
    pub(super) fn end_round(&self, results: &[Option<PollResult>]) -> bool {
        let went_back = self.change(|state| {
            let before: Vec<_> = state.members.iter().map(|url| url.left_out).collect();
            let went_back = state.end_round(results);
            if went_back {
                log::warn!(epoch = state.rollbacks; "the node went back to an earlier block");
            }
            for (node, (url, before)) in state.members.iter().zip(before).enumerate() {
                if url.left_out != before {
                    let (head, reason) = (url.head, url.left_out.map_or("none", LeftOut::name));
                    log::debug!(node, head:?, reason; "node URL left out or back");
                }
            }
            went_back
        });
        self.rounds.send_modify(|rounds| *rounds += 1);
        went_back
    }

    /// Waits for the next round of polls. Returns false if no URL is catching up, or if no round
    /// ends by `until`.
    pub(super) async fn may_change(&self, until: Instant) -> bool {
        let mut rounds = self.rounds.subscribe();
        // subscribed before: a round that ends now is not missed
        self.read(GroupState::is_catching_up)
            && matches!(timeout_at(until, rounds.changed()).await, Ok(Ok(())))
    }
}
