//! The way of one request through the URLs of the node.
//!
//! A read goes on to the next URL until one gives a valid answer that is not behind what clients
//! have seen. URLs that are left out are asked only after all others failed. A write goes on only
//! if the URL cannot have received it.

use core::cmp::Reverse;

/// Whether a request may be sent to a second URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// A read, which may be sent to another URL as well.
    Safe,
    /// A write: it is sent once.
    Never,
}

/// Why a request goes to a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is the next URL, and no earlier one may still answer.
    Next,
    /// Another one is slow.
    Second,
}

/// Whether and when a URL gets a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It gets requests in order of preference.
    Serves,
    /// It gets requests only after all others failed.
    LeftOut,
    /// It gets no request, because of its chain or its head.
    Excluded,
}

/// How an attempt at a URL ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A valid answer that may be passed on.
    Answer,
    /// A valid answer that is older than what clients have seen.
    Behind,
    /// The URL accepts no call at the moment.
    NotAsked,
    /// No connection.
    Unreachable,
    /// The URL has another chain.
    Foreign,
    /// No valid answer while the connection was checked: the request was not sent.
    Unsent,
    /// No valid answer.
    Failed,
    /// A JSON-RPC error that the API does not define.
    Error,
    /// Our own bound is reached, or the answer is too large: another URL would not help.
    Final,
}

/// The step after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The answer is passed on.
    Deliver,
    /// The request goes to another URL.
    Next,
    /// The failure is passed on.
    Stop,
}

/// The state of one request.
#[derive(Clone, Copy, Debug)]
pub struct Routing {
    repeat: Repeat,
    /// The URLs that were asked, one bit each.
    asked: u64,
    shown: Option<End>,
}

impl Routing {
    /// Begins a request.
    pub fn new(repeat: Repeat) -> Self {
        Self {
            repeat,
            asked: 0,
            shown: None,
        }
    }

    /// The URL to ask: the first in `order` that serves, or else, if none is being asked, the first
    /// that is left out.
    pub fn next(
        &mut self,
        turn: Turn,
        order: impl Iterator<Item = usize>,
        mut standing: impl FnMut(usize) -> Standing,
    ) -> Option<usize> {
        if turn == Turn::Second && self.repeat == Repeat::Never {
            return None;
        }
        let mut spare = None;
        for url in order {
            if self.was_asked(url) {
                continue;
            }
            match standing(url) {
                Standing::Serves => {
                    self.mark(url);
                    return Some(url);
                }
                Standing::LeftOut if turn == Turn::Next => spare = spare.or(Some(url)),
                Standing::LeftOut | Standing::Excluded => {}
            }
        }
        self.mark(spare?);
        spare
    }

    fn was_asked(&self, url: usize) -> bool {
        self.asked & bit(url) != 0
    }

    fn mark(&mut self, url: usize) {
        debug_assert!(!self.was_asked(url), "each URL is asked once");
        self.asked |= bit(url);
    }

    /// Decides what follows an attempt that ended like this.
    pub fn after(&self, end: End) -> Step {
        match end {
            End::Answer => Step::Deliver,
            End::Final => Step::Stop,
            End::Failed | End::Error if self.repeat == Repeat::Never => Step::Stop,
            End::Behind | End::NotAsked | End::Unreachable => Step::Next,
            End::Foreign | End::Unsent | End::Failed | End::Error => Step::Next,
        }
    }

    /// Whether this failure is the one to show if no URL answers: the first of those that say most.
    pub fn shows(&mut self, end: End) -> bool {
        let is_shown = self
            .shown
            .is_none_or(|shown| Reverse(weight(end)) < Reverse(weight(shown)));
        if is_shown {
            self.shown = Some(end);
        }
        is_shown
    }
}

/// The URL's bit; none beyond the bound on URLs, which is far below.
fn bit(url: usize) -> u64 {
    u32::try_from(url).map_or(0, |url| 1_u64.checked_shl(url).unwrap_or(0))
}

/// How much a failure says to a client.
fn weight(end: End) -> u8 {
    match end {
        End::Answer | End::Behind | End::NotAsked => 0,
        End::Unreachable => 1,
        End::Foreign => 2,
        End::Unsent | End::Failed => 3,
        End::Error => 4,
        End::Final => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(routing: &mut Routing, standings: &[Standing]) -> Vec<usize> {
        let next = || routing.next(Turn::Next, 0..standings.len(), |url| standings[url]);
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn urls_left_out_come_last() {
        use Standing::{Excluded, LeftOut, Serves};
        for (standings, order) in [
            ([Serves, Serves, Serves], vec![0, 1, 2]),
            ([LeftOut, Serves, LeftOut], vec![1, 0, 2]),
            ([Excluded, LeftOut, Serves], vec![2, 1]),
            ([LeftOut, LeftOut, LeftOut], vec![0, 1, 2]),
        ] {
            let mut routing = Routing::new(Repeat::Safe);
            assert_eq!(walk(&mut routing, &standings), order, "{standings:?}");
        }
    }

    #[test]
    fn a_write_moves_on_only_unsent() {
        let (read, write) = (Routing::new(Repeat::Safe), Routing::new(Repeat::Never));
        for (end, of_read, of_write) in [
            (End::Answer, Step::Deliver, Step::Deliver),
            (End::Unreachable, Step::Next, Step::Next),
            (End::Foreign, Step::Next, Step::Next),
            (End::Unsent, Step::Next, Step::Next),
            (End::NotAsked, Step::Next, Step::Next),
            (End::Failed, Step::Next, Step::Stop),
            (End::Error, Step::Next, Step::Stop),
            (End::Behind, Step::Next, Step::Next),
            (End::Final, Step::Stop, Step::Stop),
        ] {
            assert_eq!(read.after(end), of_read, "{end:?}");
            assert_eq!(write.after(end), of_write, "{end:?}");
        }
    }

    #[test]
    fn the_first_most_telling_failure_is_shown() {
        let mut routing = Routing::new(Repeat::Safe);
        let ends = [
            (End::Unreachable, true),
            (End::Unreachable, false),
            (End::Foreign, true),
            (End::Failed, true),
            (End::Unsent, false),
            (End::Error, true),
            (End::Failed, false),
        ];
        for (end, is_shown) in ends {
            assert_eq!(routing.shows(end), is_shown, "{end:?}");
        }
    }

    #[test]
    fn only_a_serving_url_is_second() {
        let standings = [Standing::Serves, Standing::LeftOut, Standing::Serves];
        let standing = |url: usize| standings[url];
        let mut read = Routing::new(Repeat::Safe);
        assert_eq!(read.next(Turn::Next, 0..3, standing), Some(0));
        assert_eq!(read.next(Turn::Second, 0..3, standing), Some(2));
        assert_eq!(read.next(Turn::Second, 0..3, standing), None);
        let mut write = Routing::new(Repeat::Never);
        assert_eq!(
            write.next(Turn::Second, 0..3, standing),
            None,
            "it is sent once"
        );
    }
}
