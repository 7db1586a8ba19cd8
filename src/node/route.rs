//! Which of several URLs a call goes to.

use super::Payload;
use super::group::{Group, GroupState};
use serde::Deserialize;

/// What a call needs of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The primary: the first URL in order of preference that may serve.
    Primary,
    /// The same, for state at the newest block.
    Head,
    /// The same; the result is the number of that block.
    HeadNumber,
    /// The same; the result is that block.
    HeadBlock,
    /// Any URL that has the state at this block; the primary if no URL has it.
    Block(u64),
}

impl Route {
    /// The number of the newest block, if that is what the result is about.
    fn newest_block(self, (_, result): &Payload) -> Option<u64> {
        /// The part of a block that is read.
        #[derive(Deserialize)]
        struct Block {
            block_number: u64,
        }
        match self {
            Self::HeadNumber => serde_json::from_slice(result).ok(),
            Self::HeadBlock => {
                serde_json::from_slice(result).ok().map(|Block { block_number }| block_number)
            }
            Self::Primary | Self::Head | Self::Block(_) => None,
        }
    }

    /// Whether the result shows what is newest.
    pub const fn is_at_head(self) -> bool {
        matches!(self, Self::Head | Self::HeadNumber | Self::HeadBlock)
    }
}

/// The URLs for one attempt at a call.
pub(super) struct Choice<'a> {
    group: Option<&'a Group>,
    /// The block that is read, and the URL to try first; `None` if it is the primary's.
    replica: Option<(u64, usize)>,
    /// The newest block that clients had seen before.
    floor: Option<u64>,
}

impl<'a> Choice<'a> {
    /// Chooses among the URLs. `id` is that of the call; `busy` returns a URL's calls in flight,
    /// `None` while its breaker is open.
    pub(super) fn new(
        group: Option<&'a Group>,
        (route, id): (Route, u64),
        busy: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let replica = match (group, route) {
            (Some(group), Route::Block(number)) => {
                group.choose(number, id, busy).map(|first| (number, first))
            }
            _ => None,
        };
        Self { group, replica, floor: group.and_then(|group| group.read(GroupState::floor)) }
    }

    /// The places of the URLs, in the order in which they are tried.
    pub(super) fn order(&self, urls: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.replica.map(|(_, first)| first);
        first.into_iter().chain((0..urls).filter(move |index| Some(*index) != first))
    }

    /// Whether the URL may be sent the call.
    pub(super) fn admits(&self, index: usize) -> bool {
        self.group.is_none_or(|group| {
            group.read(|state| match self.replica {
                Some((number, _)) => state.has_state(index, number),
                None => state.may_lead(index),
            })
        })
    }

    /// Takes note of an answer. Returns whether it may be passed on: not if it names the newest
    /// block, and clients had seen a newer one before the call.
    pub(super) fn passes_on(&self, index: usize, route: Route, payload: &Payload) -> bool {
        let Some(group) = self.group.filter(|_| self.is_of_primary()) else { return true };
        group.answered(index, (route, route.newest_block(payload)), self.floor)
    }

    /// Whether the call is for the primary.
    pub(super) fn is_of_primary(&self) -> bool {
        self.replica.is_none()
    }

    /// Whether a URL that could answer is not used because of its head.
    pub(super) fn holds_back(&self) -> bool {
        self.group.is_some_and(|group| group.read(GroupState::is_held_back))
    }
}
