//! What happens to the machines: relays crash, pause and reload, clocks are set, the store restarts;
//! and at the end, nothing goes wrong any longer.

use super::Bug;
use super::config;
use super::floor::Floor;
use super::io::SimIo;
use super::machine::{Process, fill};
use super::outbox::send_events;
use super::urls::Mode;
use super::world::{Fault, SKEW_US, World};
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// Something that happens to the machines, about once a second.
    pub(super) fn disturb(&mut self) {
        let relay = self.chance.choose(self.relays.len() as u32) as usize;
        if self.bug == Bug::StaleReads && self.now().as_secs().is_multiple_of(4) {
            self.stale = Some(self.journal.clone());
        }
        if self.fires(Fault::Crash, 60) {
            self.crash(relay);
        }
        if self.fires(Fault::Pause, 90) {
            let pause = self.millis(1_000, 90_000);
            let until = self.now() + pause;
            // it may be paused already, for longer
            let until = until.max(self.relays[relay].paused_until);
            self.relays[relay].paused_until = until;
            self.oracle.notes.paused.insert(relay, until);
            self.note(|| format!("relay {relay} is paused for {pause:?}"));
        }
        if self.fires(Fault::RelayClock, 90) {
            let minutes = i64::from(self.chance.choose(20)) - 10;
            self.relays[relay].clock_us = minutes * 60_000_000;
            // slow answers bound the clock loosely, and the estimate is within the bounds
            let slack = [0, 1_000, 50_000, 2_500_000][self.chance.choose(4) as usize];
            let skew = i64::from(self.chance.choose(201)) - 100;
            self.relays[relay].skew_us = skew * SKEW_US / 100;
            self.relays[relay].error_us = self.relays[relay].skew_us.abs() + slack;
            self.note(|| format!("relay {relay} takes the store's clock for {skew} ms ahead"));
        }
        self.disturb_store();
        self.disturb_receiver();
        if self.fires(Fault::Reload, 60) {
            self.reload(relay);
        }
        if self.fires(Fault::Repinned, 200) {
            self.repin();
        }
        if self.fires(Fault::PinsFail, 200) {
            self.pins_fail_until = self.now() + self.millis(500, 30_000);
            self.note(|| "pins do not hold for a while".to_owned());
        }
        if self.fires(Fault::FaucetEmpty, 200) {
            self.faucet_empty_until = self.now() + self.millis(500, 30_000);
            self.note(|| "the faucet is empty for a while".to_owned());
        }
        if self.fires(Fault::StoreRestarts, 120) {
            self.lose_locks();
        }
        if self.fires(Fault::StoreFull, 150) {
            self.full_until = self.now() + self.millis(500, 8_000);
        }
        if self.fires(Fault::StoreClock, 300) {
            let minutes = i64::from(self.chance.choose(60));
            self.set_clock(minutes * 60_000_000);
            self.note(|| format!("the store's clock is set forward by {minutes} minutes"));
        }
        if self.fires(Fault::StoreClockBack, 300) {
            let seconds = i64::from(self.chance.choose(3_600));
            self.set_clock(-seconds * 1_000_000);
            self.note(|| format!("the store's clock is set back by {seconds} seconds"));
        }
        if self.fires(Fault::HoursPass, 200) {
            let hours = 1 + u64::from(self.chance.choose(30)) + self.chance.pick(&[0, 0, 80]);
            self.pass(Duration::from_secs(hours * 3_600));
            self.note(|| format!("{hours} hours pass"));
        }
    }

    /// Time passes in which nothing happens.
    pub(super) fn pass(&mut self, time: Duration) {
        self.agenda.skip(time);
        // what was under way may be for a former chain
        self.oracle.former_shown = Some(self.now());
        self.oracle.leapt = Some(self.now());
    }

    /// The store's clock is set.
    pub(super) fn set_clock(&mut self, by_us: i64) {
        self.store_clock_us += by_us;
        self.oracle.notes.clock_set = Some(self.now());
    }

    /// The store restarts.
    pub(super) fn lose_locks(&mut self) {
        self.locks.clear();
        self.chores.clear();
        self.oracle.locks_lost = Some(self.now());
        self.note(|| "the store restarts: all locks are lost".to_owned());
    }

    /// A relay is cut off from the network for a while, and its sessions with the store end.
    pub(super) fn cut_off(&mut self, relay: Process) {
        self.lose_locks();
        self.relays[relay].cut_off_until = self.now() + self.millis(1_000, 8_000);
        self.note(|| format!("relay {relay} is cut off from its node"));
    }

    /// A relay ends without a word, and comes back later.
    pub(super) fn crash(&mut self, relay: Process) {
        if self.relays[relay].io.take().is_none() {
            return;
        }
        self.note(|| format!("relay {relay} crashes"));
        let now = self.now();
        self.oracle.crashed(relay, now);
        self.agenda.kill(relay);
        self.chores.retain(|_, (owner, _)| *owner != relay);
        self.relays[relay].paused_until = Duration::ZERO;
        for request in std::mem::take(&mut self.relays[relay].requests) {
            fill(&mut self.agenda, &request, None);
        }
        let down = self.millis(10, 20_000);
        self.agenda
            .after(down, move |world: &mut Self| world.start(relay));
    }

    /// Starts the process of a relay.
    pub(super) fn start(&mut self, relay: Process) {
        if self.relays[relay].io.is_some() {
            return;
        }
        let Some(me) = self.me.clone() else { return };
        let io = Arc::new(SimIo::new(relay, me, config::pins(self.variant)));
        self.relays[relay].io = Some(Arc::clone(&io));
        self.relays[relay].floor = Floor::default();
        self.agenda.start(relay, send_events(Arc::clone(&io)));
        self.agenda.start(relay, super::clients::background(io));
    }

    /// A day passes for the store.
    pub(super) fn pass_a_day(&mut self) {
        self.set_clock(25 * 3_600_000_000);
        self.note(|| "a day passes".to_owned());
    }

    /// Nothing goes wrong any longer.
    pub(super) fn heal(&mut self) {
        self.take_nonces();
        self.note(|| "nothing goes wrong any longer".to_owned());
        self.is_healed = true;
        let now = self.now();
        for url in &mut self.urls {
            url.mode = Mode::Fresh;
            url.is_balancer = false;
        }
        for relay in &mut self.relays {
            relay.paused_until = Duration::ZERO;
            relay.cut_off_until = Duration::ZERO;
        }
        self.pins_fail_until = now;
        self.let_go_of_own();
        self.chain.activate_v2();
        self.other.activate_v2();
        self.variant = 0;
        for relay in 0..self.relays.len() {
            let io = self.relays[relay].io.as_ref();
            if io.is_some_and(|io| !std::ptr::eq(io.pins, config::pins(0))) {
                self.crash(relay);
            }
        }
    }
}
