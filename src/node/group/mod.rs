//! The URLs of the node as a group, shared by all clients of it; only with several URLs.
//!
//! [`GroupState`] decides which URL may serve; `super::guard` polls them. A call locks the state
//! for a few comparisons, as it does the breaker's.

mod state;
#[cfg(test)]
mod tests;

pub use state::LeftOut;
pub(super) use state::{GroupState, PollResult};

use super::Route;
use crate::config::NodeConfig;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long a call waits for a URL that is a few blocks behind: two rounds of polls.
pub(super) const CATCH_UP: Duration = Duration::from_secs(3);

/// The state of the group, and its rounds of polls.
#[derive(Debug)]
pub(super) struct Group {
    state: Mutex<GroupState>,
    rounds: watch::Sender<u64>,
}

impl Group {
    /// `None` with one URL: whatever it answers is what there is.
    pub(super) fn new(config: &NodeConfig) -> Option<Self> {
        let urls = config.url.iter().count();
        let state = GroupState::new(urls, config.mode, config.max_lag);
        (urls > 1).then(|| Self { state: Mutex::new(state), rounds: watch::Sender::new(0) })
    }

    /// A copy of the state.
    pub(super) fn state(&self) -> GroupState {
        self.state.lock().clone()
    }

    /// Reads the state; `read` must be quick.
    pub(super) fn read<T>(&self, read: impl FnOnce(&GroupState) -> T) -> T {
        read(&self.state.lock())
    }

    /// See [`GroupState::answered`].
    pub(super) fn answered(
        &self,
        index: usize,
        newest: (Route, Option<u64>),
        floor: Option<u64>,
    ) -> bool {
        self.state.lock().answered(index, newest, floor)
    }

    /// The URL to try first for state at this block: of two random ones the one with fewer calls in
    /// flight. `busy` returns these, `None` while a breaker is open.
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
        chosen.into_iter().flatten().min_by_key(|(busy, _)| *busy).map(|(_, url)| url)
    }

    /// Before the URLs are polled.
    pub(super) fn begin_round(&self) {
        self.state.lock().begin_round();
    }

    /// Processes what the polls found out, and wakes the calls that wait for it.
    pub(super) fn end_round(&self, results: &[Option<PollResult>]) {
        let mut state = self.state.lock();
        let before: Vec<_> = state.members.iter().map(|url| url.left_out).collect();
        if state.end_round(results) {
            log::warn!(epoch = state.epoch; "the node went back to an earlier block");
        }
        for (node, (url, before)) in state.members.iter().zip(before).enumerate() {
            if url.left_out != before {
                let (head, reason) = (url.head, url.left_out.map_or("none", LeftOut::name));
                log::debug!(node, head:?, reason; "node URL left out or back");
            }
        }
        drop(state);
        self.rounds.send_modify(|rounds| *rounds += 1);
    }

    /// Waits for the next round of polls; false if that makes no difference, or not in time.
    pub(super) async fn may_change(&self, until: Instant) -> bool {
        let mut rounds = self.rounds.subscribe();
        // subscribed before: a round that ends now is not missed
        self.read(GroupState::is_catching_up)
            && matches!(timeout_at(until, rounds.changed()).await, Ok(Ok(())))
    }
}
