//! The URLs that may serve a process: none that is behind what it has shown, and none that is far
//! behind another one. As the relay's own URLs (`chain::members`).

use super::machine::Process;
use super::urls::Mode;
use super::world::{Fault, World};
use std::time::Duration;

/// A URL that is more blocks behind another one has no say.
const MAX_LAG: u64 = 8;
/// How long no URL has a block before it is believed to be gone.
const GONE: Duration = Duration::from_secs(3);

/// The newest block that a process has shown.
#[derive(Debug, Default)]
pub(super) struct Floor {
    shown: Option<u64>,
    /// Since when no URL has it.
    gone: Option<Duration>,
}

impl Floor {
    pub(super) fn note_shown(&mut self, number: u64) {
        self.shown = self.shown.max(Some(number));
    }
}

impl World {
    /// The number of a URL's newest block, if it does not hide behind a balancer; `None` if it is
    /// down.
    fn head_of(&self, url: usize) -> Option<u64> {
        let of_chain = self.chain.view().shown;
        let shown = match &self.urls[url].mode {
            _ if self.is_healed => of_chain,
            Mode::Fresh | Mode::Mute | Mode::TwoChains | Mode::Hollow(_) => of_chain,
            Mode::Behind(blocks) => of_chain.saturating_sub(*blocks).max(1),
            Mode::Frozen(view) => view.shown,
            Mode::Down => return None,
        };
        Some(shown as u64 - 1)
    }

    /// The URLs that have a say. One that is down has: its silence is no evidence.
    pub(super) fn voters(&self, urls: &[usize]) -> Vec<usize> {
        let top = urls.iter().filter_map(|url| self.head_of(*url)).max();
        let is_near = |url: &usize| {
            let head = self.head_of(*url);
            head.is_none_or(|head| Some(head + MAX_LAG) >= top)
        };
        urls.iter().copied().filter(is_near).collect()
    }

    /// The first of these URLs that answers, and is not behind what the process has shown. A block
    /// that none of them has for a while is gone.
    pub(super) fn choose_serving(&mut self, relay: Process, urls: &[usize]) -> Option<usize> {
        let (now, voters) = (self.now(), self.voters(urls));
        let heads = voters.iter().map(|url| (*url, self.head_of(*url)));
        let up: Vec<_> = heads.filter(|(_, head)| head.is_some()).collect();
        let floor = &mut self.relays[relay].floor;
        if let Some((url, _)) = up.iter().find(|(_, head)| *head >= floor.shown) {
            floor.gone = None;
            return Some(*url);
        }
        let (first, _) = up.first()?;
        if now < *floor.gone.get_or_insert(now) + GONE {
            self.count(Fault::BelowFloor);
            return None;
        }
        *floor = Floor::default();
        Some(*first)
    }
}
