//! Clients that ask for what excludes a write while that is in doubt: for its nonce, its identity or
//! its recipient. By chance alone few of them come in time.

use super::chain::Tx;
use super::config::is_own;
use super::machine::{HasAgenda as _, Process};
use super::requests::{CATALOG, PINS, RIVALS, Request, Wanted};
use super::world::{Fault, World};
use crate::tables::DRIP;
use portcullis_filters::ledger::{Intent, IntentId, IntentState};
use std::time::Duration;

/// How late a submission, and its answer, may be, in milliseconds.
const LATE: u64 = 150;
/// After how long what is in doubt may be signed anew, in milliseconds.
const ANEW: u64 = 31_000;
/// After how many seconds a client asks again once the relays have ended: they are down for up to 20.
const AGAIN: [u64; 8] = [2, 5, 8, 11, 14, 17, 20, 23];

impl World {
    /// A write came into doubt: a client may ask for a rival, and later for the write again.
    pub(super) fn provoke(&mut self, doubted: IntentId) {
        let Some(intent) = self.journal.tables.intents.get(&doubted).cloned() else {
            return;
        };
        if self.fires(Fault::Rivalled, 8) {
            let within = self.millis(10, 2_000);
            self.ask_rival(Some(&intent), |_| true, within);
        }
        if is_own(intent.signer)
            && self.fires(Fault::Rivalled, 4)
            && let Some(wanted) = wanted_of(&intent)
        {
            let relay = self.chance.choose(self.relays.len() as u32) as usize;
            let within = self.millis(ANEW, 2 * ANEW);
            self.ask_anew(relay, wanted, within);
        }
        if intent.operation == DRIP && intent.signer == PINS.accounts.owner {
            self.provoke_other_pins(&intent);
        }
    }

    /// The owner signed a drip in doubt, for want of a faucet: the relays start with one, and the
    /// client asks again. The node may decide nothing about it any longer.
    fn provoke_other_pins(&mut self, doubted: &Intent) {
        let Some(wanted) = wanted_of(doubted) else {
            return;
        };
        if self.variant == 0 || !self.permits(Fault::Repinned) {
            return;
        }
        self.count(Fault::Repinned);
        self.variant = 0;
        if self.fires(Fault::UndecidedForEver, 2) {
            let fate = self.undecided();
            self.fates.insert(doubted.transaction_hash, fate);
        }
        for relay in 0..self.relays.len() {
            self.crash(relay);
        }
        for within in AGAIN {
            let relay = self.chance.choose(self.relays.len() as u32) as usize;
            self.ask_anew(relay, wanted, Duration::from_secs(within));
        }
    }

    /// A write took the nonce of others, in doubt: a client may ask for a rival of those that this one
    /// does not exclude.
    pub(super) fn provoke_beside(&mut self, new: &Intent) {
        let is_doubted = |it: &Intent| {
            let is_beside = it.slot() == new.slot() && it.digest != new.digest;
            is_beside && it.state == IntentState::Displaced
        };
        let Some(doubted) = self.journal.select(&new.epoch, is_doubted).pop() else {
            return;
        };
        if self.fires(Fault::Rivalled, 2) {
            let own = wanted_of(new);
            let within = self.millis(10, 4_000);
            let is_beside =
                |at: usize| own.is_some_and(|own| own != at && !RIVALS[own].contains(&at));
            self.ask_rival(Some(&doubted), is_beside, within);
        }
    }

    /// What is in doubt is sent again: a client may ask another relay for a rival at this moment.
    /// Returns how late it is sent, and how late the answer is.
    pub(super) fn provoke_sending(&mut self, relay: Process, tx: &Tx) -> [Duration; 2] {
        let intent = self.newest_of(tx.hash).cloned();
        let intent = intent.filter(|it| it.state == IntentState::Displaced);
        let is_own = is_own(tx.sender);
        let one_in = if is_own { 12 } else { 3 };
        if intent.is_none() || !self.fires(Fault::Rivalled, one_in) {
            return [Duration::ZERO; 2];
        }
        if is_own {
            self.lose_locks();
        }
        let within = self.millis(0, 30);
        self.ask_rival_at(
            (relay + 1) % self.relays.len(),
            intent.as_ref(),
            |_| true,
            within,
        );
        [self.millis(0, LATE), self.millis(0, LATE)]
    }

    fn ask_rival(&mut self, of: Option<&Intent>, is_it: impl Fn(usize) -> bool, within: Duration) {
        let relay = self.chance.choose(self.relays.len() as u32) as usize;
        self.ask_rival_at(relay, of, is_it, within);
    }

    fn ask_rival_at(
        &mut self,
        relay: Process,
        of: Option<&Intent>,
        is_it: impl Fn(usize) -> bool,
        within: Duration,
    ) {
        let rivals = of.and_then(wanted_of).map_or(&[][..], |at| &RIVALS[at]);
        let rivals: Vec<usize> = rivals.iter().copied().filter(|at| is_it(*at)).collect();
        if rivals.is_empty() {
            return;
        }
        let wanted = self.chance.pick(&rivals);
        self.ask_anew(relay, wanted, within);
    }

    /// A client asks for something later, under a new key.
    fn ask_anew(&mut self, relay: Process, wanted: usize, within: Duration) {
        let number = self.ticket();
        let request = Request {
            wanted,
            key: Some(format!("k{number}")),
            action: number,
        };
        self.agenda().after(within, move |world: &mut Self| {
            if !world.is_healed {
                let _unread = world.send(relay, &request);
            }
        });
    }
}

/// The request of an intent.
fn wanted_of(intent: &Intent) -> Option<usize> {
    let is_its = |it: &Wanted| it.intent_digest() == intent.digest;
    CATALOG.iter().position(is_its)
}
