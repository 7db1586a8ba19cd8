//! The node's URLs: how each shows the chain, and which of them a relay asks.

use super::chain::{Chain, View};
use super::machine::Process;
use super::world::{Fault, World};

/// How a URL shows the chain.
pub(super) enum Mode {
    Fresh,
    Behind(usize),
    Frozen(Box<View>),
    Down,
    /// Some of its nodes are of another chain.
    TwoChains,
    /// It takes transactions without an answer to their submission.
    Mute,
    /// It states the newest head, and shows none of this many newest blocks.
    Hollow(usize),
}

pub(super) struct Url {
    pub(super) mode: Mode,
    /// Draws a view for each call.
    pub(super) is_balancer: bool,
}

impl Url {
    pub(super) const FRESH: Self = Self {
        mode: Mode::Fresh,
        is_balancer: false,
    };

    /// Whether it shows a chain from before the chain started over.
    pub(super) fn shows_former(&self, genesis: u64) -> bool {
        match &self.mode {
            Mode::Frozen(view) => view.genesis != genesis,
            Mode::TwoChains => true,
            Mode::Fresh | Mode::Behind(_) | Mode::Mute | Mode::Hollow(_) | Mode::Down => false,
        }
    }
}

impl World {
    /// The view of a URL; `None` if it is down.
    pub(super) fn view(&mut self, url: usize) -> Option<View> {
        let behind = if self.urls[url].is_balancer {
            self.chance.choose(3) as usize
        } else {
            0
        };
        let of = |behind: usize, chain: &Chain| {
            let mut view = chain.view();
            if behind > 0 {
                view.shown = view.shown.saturating_sub(behind).max(1);
                view.pending = None;
            }
            view
        };
        if self.is_healed {
            return Some(self.chain.view());
        }
        match &self.urls[url].mode {
            Mode::Fresh | Mode::Mute => Some(of(behind, &self.chain)),
            Mode::Behind(blocks) | Mode::Hollow(blocks) => Some(of(*blocks, &self.chain)),
            Mode::Frozen(view) => Some(View::clone(view)),
            Mode::TwoChains => {
                let is_other = self.chance.choose(2) == 1;
                Some(if is_other {
                    self.other.view()
                } else {
                    self.chain.view()
                })
            }
            Mode::Down => {
                if self.urls.iter().all(|url| matches!(url.mode, Mode::Down)) {
                    self.oracle.silent = self.oracle.silent.max(Some(self.now()));
                }
                None
            }
        }
    }

    /// The URL that serves calls of a relay.
    pub(super) fn serving(&mut self, relay: Process) -> Option<usize> {
        let urls = self.relays[relay].config.urls.clone();
        self.choose_serving(relay, &urls)
    }

    /// The URLs of a relay that have a say.
    pub(super) fn urls_of(&self, relay: Process) -> Vec<usize> {
        self.voters(&self.relays[relay].config.urls)
    }

    pub(super) fn change_mode(&mut self, url: usize) {
        let mode = if self.fires(Fault::UrlBehind, 12) {
            Mode::Behind(1 + self.chance.choose(3) as usize)
        } else if self.fires(Fault::UrlFrozen, 30) {
            Mode::Frozen(Box::new(self.chain.view()))
        } else if self.fires(Fault::UrlDown, 30) {
            Mode::Down
        } else if self.fires(Fault::HeadOnly, 40) {
            // the others are behind meanwhile
            for other in 0..self.urls.len() {
                let behind = Mode::Behind(3 + self.chance.choose(4) as usize);
                self.set_mode(other, behind);
            }
            Mode::Hollow(3 + self.chance.choose(4) as usize)
        } else if self.fires(Fault::TwoChains, 150) {
            Mode::TwoChains
        } else if self.chance.choose(4) == 0 {
            Mode::Fresh
        } else {
            return;
        };
        self.set_mode(url, mode);
    }

    pub(super) fn set_mode(&mut self, url: usize, mode: Mode) {
        self.urls[url].mode = mode;
    }
}
