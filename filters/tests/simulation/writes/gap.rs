//! A gap at the end of a run: what an account wrote is gone together with a stranger's transaction below
//! it, and only the request of what it wrote is repeated. The free nonce must be filled (rule 8).

use super::machine::{CLIENTS, HasAgenda as _, Machine, Shared};
use super::requests::{CATALOG, PINS, Request};
use super::world::{CONFIRMATIONS, Fault, World};
use portcullis_filters::ledger::{Intent, IntentState};
use portcullis_filters::txm::settings::Role;
use std::time::Duration;

/// How long the request is repeated before the gap, and after it.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long pins do not hold once it is there.
const UNPROVEN: Duration = Duration::from_secs(3);

/// A gap, while the request above it is repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// The blocks below it.
    first: usize,
    /// The request need not be repeated any longer.
    is_over: bool,
}

/// Leaves a gap in a part of the seeds, and repeats the request above it until it is written again.
pub(super) fn leave(world: &Shared<World>, machine: &mut Machine<World>) {
    let Some(request) = world.lock().draw_gap() else {
        return;
    };
    let client = repeat(world.clone(), request.clone());
    world.lock().agenda().start(CLIENTS, client);
    run_until(world, machine, |world| world.has_written(&request));
    if world.lock().lose_both(&request) {
        run_until(world, machine, |world| world.has_doubted(&request));
        world.lock().fail_pins(UNPROVEN);
        run_until(world, machine, |world| world.has_written(&request));
        let mut world = world.lock();
        if !world.has_written(&request) {
            let account = world.account_of(request.wanted);
            let broken = format!("rule 8: a nonce below what is in doubt stays free; {account}");
            world.oracle.report(Err(broken));
        }
    }
    if let Some(gap) = &mut world.lock().gap {
        gap.is_over = true;
    }
    run_until(world, machine, |world| world.gap.is_none());
}

fn run_until(
    world: &Shared<World>,
    machine: &mut Machine<World>,
    is_done: impl Fn(&World) -> bool,
) {
    let end = world.now() + PATIENCE;
    machine.run(|world, _| {
        let is_over = world.now() >= end || world.oracle.violation.is_some();
        is_over || is_done(world)
    });
}

/// Repeats a request as long as there is a gap.
async fn repeat(world: Shared<World>, request: Request) {
    for attempt in 0.. {
        if world.lock().gap.is_none_or(|gap| gap.is_over) {
            break;
        }
        let relay = attempt % world.lock().relays.len();
        let slot = world.lock().send(relay, &request);
        let _reply = slot.wait().await;
        world.sleep(Duration::from_secs(1)).await;
    }
    world.lock().gap = None;
}

impl World {
    /// The request of an account whose next nonce a stranger has used.
    fn draw_gap(&mut self) -> Option<Request> {
        if !self.enabled.contains(&Fault::NonceTaken) || self.chance.choose(3) != 2 {
            return None;
        }
        let roles = [Role::Owner, Role::Verifier];
        let role = self.chance.pick(&roles);
        let account = *PINS.accounts.of(role);
        let wanted = self.fresh_of(role)?;
        if self.is_any_open(|it| it.signer == account) {
            return None;
        }
        self.close_blocks(1);
        self.gap = Some(Gap {
            first: self.chain.view().shown,
            is_over: false,
        });
        self.use_nonce(account);
        Some(Request {
            wanted,
            key: Some("gap".to_owned()),
            action: 0,
        })
    }

    fn newest_of_request(&self, request: &Request) -> Option<&Intent> {
        let digest = CATALOG[request.wanted].intent_digest();
        let mut newest = self.journal.tables.intents.values().rev();
        newest.find(|it| it.digest == digest && it.state != IntentState::Rejected)
    }

    fn has_doubted(&self, request: &Request) -> bool {
        let newest = self.newest_of_request(request);
        newest.is_none_or(|it| it.state == IntentState::Displaced)
    }

    /// From now on, pins do not hold for a while.
    pub(super) fn fail_pins(&mut self, time: Duration) {
        self.pins_fail_until = self.now() + time;
        for io in self.relays.iter().filter_map(|relay| relay.io.as_ref()) {
            *io.proof.lock().expect("no task panics") = None;
        }
    }

    /// Whether a block has the transaction of a request, as the journal says, too.
    fn has_written(&self, request: &Request) -> bool {
        let Some(intent) = self.newest_of_request(request) else {
            return false;
        };
        let view = self.chain.view();
        let found = view.find(intent.transaction_hash);
        intent.state.is_included() && found.is_some_and(|(_, block)| block.is_some())
    }

    /// The chain loses the transaction of a request, and the stranger's below it; whether it does.
    fn lose_both(&mut self, request: &Request) -> bool {
        let Some(gap) = self.gap.filter(|_| self.has_written(request)) else {
            return false;
        };
        let depth = self.chain.view().shown.saturating_sub(gap.first);
        if depth == 0 || depth > CONFIRMATIONS {
            return false;
        }
        self.count(Fault::NonceTaken);
        let now = self.now();
        let _gone = self.chain.roll_back(depth, now);
        self.oracle.notes.unsettled = Some(now);
        self.close_blocks(depth + 1);
        self.note(|| format!("a gap: {depth} blocks are gone"));
        true
    }
}
