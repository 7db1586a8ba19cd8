//! Selects the URL that a call goes to.

use super::Node;
use super::answer::{Payload, RESULT, error_code};
use super::chain::{code, is_accepted};
use super::target::Origin;
use portcullis_filters::chain::{Asked, Evidence, Repeat, Shows, Source, Standing};
use portcullis_filters::felt::Felt;
use portcullis_filters::rpc::json::scan::{select, string_in};
use std::borrow::Cow;

/// The requirements of a call for its URL, and the chain state that its answer may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The primary: the first URL in order of preference that may serve.
    Primary,
    /// As [`Route::Primary`], for state at the newest block.
    Head,
    /// As [`Route::Head`]; the result is the number of that block.
    HeadNumber,
    /// As [`Route::Head`]; the result is that block.
    HeadBlock,
    /// The primary, for its own newest block or that block's number, whatever `latest` means to
    /// clients.
    HeadOfPrimary,
    /// The primary, about this transaction: its receipt, its status or itself.
    Transaction(Felt),
    /// The primary, about the block of this number, which existed before.
    BlockOfPrimary(u64),
    /// Any URL that has the state at this block; the primary if no URL has it.
    Block(u64),
    /// Only the URL at this index, whatever clients have seen: the caller compares its answer.
    Url(usize),
}

impl Route {
    /// Whether the result is about the newest block.
    pub const fn is_at_head(self) -> bool {
        matches!(self, Self::Head | Self::HeadNumber | Self::HeadBlock)
    }

    /// The chain state that an answer shows, except what `floor` shows already.
    fn shows(self, payload: &Payload, floor: Option<u64>) -> Shows {
        let (member, text) = payload;
        let is_result = *member == RESULT;
        let code = || error_code(payload);
        match self {
            Self::Primary | Self::Head | Self::Url(_) => Shows::Nothing,
            Self::HeadNumber => serde_json::from_slice(text).map_or(Shows::Nothing, Shows::Head),
            Self::HeadBlock => Named::read(text).head(),
            Self::HeadOfPrimary if text.starts_with(b"{") => Named::read(text).head(),
            Self::HeadOfPrimary => Self::HeadNumber.shows(payload, floor),
            Self::Transaction(hash) if is_result => Named::read(text).transaction(hash),
            Self::Transaction(hash) if code() == code::TRANSACTION_NOT_FOUND => {
                Shows::NotAccepted(hash)
            }
            Self::Block(number) | Self::BlockOfPrimary(number) if is_result => {
                let is_shown = Some(number) <= floor;
                if is_shown || Named::read(text).is_open() {
                    Shows::Nothing
                } else {
                    Shows::Block(number)
                }
            }
            Self::Block(number) if code() == code::BLOCK_NOT_FOUND => Shows::NoBlock(number),
            Self::BlockOfPrimary(number) if code() == code::BLOCK_NOT_FOUND => {
                Shows::NoKnownBlock(number)
            }
            Self::Transaction(_) | Self::Block(_) | Self::BlockOfPrimary(_) => Shows::Nothing,
        }
    }
}

/// The part of a block, of a receipt or of a transaction's status that is read.
#[derive(Default)]
struct Named<'a> {
    block_number: Option<u64>,
    /// The status of a block.
    status: Option<Cow<'a, str>>,
    /// The status in a receipt or in a status response.
    finality_status: Option<Cow<'a, str>>,
}

impl<'a> Named<'a> {
    /// Nothing is read from a text that is no object, or has a member of another type.
    fn read(text: &'a [u8]) -> Self {
        Self::parse(text).unwrap_or_default()
    }

    fn parse(text: &'a [u8]) -> Option<Self> {
        let names = ["block_number", "status", "finality_status"];
        let [number, status, finality] = select(text, names)?;
        let string = |member: Option<&'a [u8]>| match member {
            None | Some(b"null") => Some(None),
            Some(text) => string_in(text).map(Some),
        };
        Some(Self {
            block_number: serde_json::from_slice(number.unwrap_or(b"null")).ok()?,
            status: string(status)?,
            finality_status: string(finality)?,
        })
    }

    fn head(&self) -> Shows {
        self.block_number.map_or(Shows::Nothing, Shows::Head)
    }

    fn transaction(&self, hash: Felt) -> Shows {
        match &self.finality_status {
            Some(status) if is_accepted(status) => Shows::Accepted(hash, self.block_number),
            Some(_) => Shows::NotAccepted(hash),
            None => Shows::Nothing,
        }
    }

    /// Whether it is a block that is being built.
    fn is_open(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| !is_accepted(status))
    }
}

/// The URLs for one attempt at a call.
pub(super) struct Choice<'a> {
    node: &'a Node,
    /// The block that is read, and the URL to try first; `None` if the call is for the primary.
    replica: Option<(u64, usize)>,
    /// The one URL that gets the request.
    only: Option<usize>,
    /// The newest block that clients had seen before the call.
    floor: Option<u64>,
}

impl<'a> Choice<'a> {
    /// Chooses among the URLs. `id` is that of the call; `busy` returns a URL's calls in flight,
    /// `None` while its breaker is open.
    pub(super) fn new(
        node: &'a Node,
        route: Route,
        id: u64,
        busy: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let floor = node.floor();
        if let Route::Url(only) = route {
            return Self {
                node,
                replica: None,
                only: Some(only),
                floor,
            };
        }
        let replica = match route {
            Route::Block(number) if node.has_several() => {
                let first = node.read(|state| state.choose(number, id, busy));
                first.map(|first| (number, first))
            }
            _ => None,
        };
        Self {
            node,
            replica,
            only: None,
            floor,
        }
    }

    /// The indices of the URLs, in the order in which they are tried.
    pub(super) fn order(&self, urls: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.replica.map(|(_, first)| first).or(self.only);
        let others = if self.only.is_some() { 0..0 } else { 0..urls };
        first
            .into_iter()
            .chain(others.filter(move |index| Some(*index) != first))
    }

    /// The place of the URL for the call. A single URL always gets it, and its answers are judged.
    pub(super) fn standing(&self, index: usize, asked: Asked, repeat: Repeat) -> Standing {
        if !self.has_alternatives() {
            return Standing::Serves;
        }
        let block = self.replica.map(|(number, _)| number);
        self.node
            .update(|state, now| state.standing(index, block, asked, repeat, now))
    }

    /// Records an answer. Returns whether it may be passed on, which it may not if it is older than
    /// what clients had seen.
    pub(super) fn passes_on(&self, origin: Origin, route: Route, payload: &Payload) -> bool {
        let shows = route.shows(payload, self.floor);
        if self.only.is_some() {
            return true;
        }
        let source = match self.replica {
            None if self.node.has_several() && route.is_at_head() => Source::PrimaryAtHead,
            None if self.node.has_several() => Source::Primary,
            _ => Source::Any,
        };
        if source == Source::Any && shows == Shows::Nothing {
            // without a lock
            return true;
        }
        let answer = Evidence {
            source,
            shows,
            connection: origin.connection,
        };
        self.node
            .update(|state, now| state.group.answered(origin.url, answer, self.floor, now))
    }

    /// Whether the URL's health decides, too: not if the caller chose the URL, or if there is one.
    pub(super) fn has_alternatives(&self) -> bool {
        self.only.is_none() && self.node.has_several()
    }

    /// Whether the call is for the primary.
    pub(super) fn is_of_primary(&self) -> bool {
        self.replica.is_none() && self.only.is_none()
    }

    /// Whether a URL that could answer is not used because of its head.
    pub(super) fn holds_back(&self) -> bool {
        self.has_alternatives() && self.node.read(|state| state.group.is_held_back())
    }
}
