//! The end of a run: nothing goes wrong any longer, all relays start anew, and each account writes
//! something that nothing forbids.

use super::conflicts::conflicts;
use super::machine::{CLIENTS, HasAgenda as _, Shared};
use super::requests::{CATALOG, FRESH, PINS, Reply, ReplyKind, Request, Wanted};
use super::rules::Case;
use super::world::World;
use portcullis_filters::ledger::{Intent, IntentState};
use portcullis_filters::txm::settings::Role;
use portcullis_filters::verdict::Reason;
use std::time::Duration;

/// How soon after its start a relay takes a write.
const START: Duration = Duration::from_secs(10);
/// How long a client repeats a request that nothing forbids.
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    /// All relays start anew, a day later, so that no budget and no cooldown forbids anything.
    fn start_anew(&mut self) {
        self.pass_a_day();
        for relay in 0..self.relays.len() {
            self.crash(relay);
            self.start(relay);
        }
    }

    /// A request of a role that was never made, and that the contracts permit.
    pub(super) fn fresh_of(&self, role: Role) -> Option<usize> {
        let account = *PINS.accounts.of(role);
        let view = self.chain.view();
        let mut fresh = (CATALOG.len() - FRESH..CATALOG.len()).filter(|at| {
            let wanted = &CATALOG[*at];
            let Wanted::Operation(permit) = wanted else {
                return false;
            };
            let is_free = conflicts(permit.operation(), view.state()).is_empty();
            let digest = wanted.intent_digest();
            let mut intents = self.journal.tables.intents.values();
            let is_made = intents.any(|it| it.digest == digest);
            wanted.sender() == account && is_free && !is_made
        });
        fresh.next()
    }

    /// Whether an intent that satisfies this is open or in doubt.
    pub(super) fn is_any_open(&self, is_it: impl Fn(&Intent) -> bool) -> bool {
        let epoch = self.epoch();
        let is_open = |it: &Intent| it.state.is_unresolved() || it.state == IntentState::Displaced;
        let mut intents = self.journal.tables.of_epoch(&epoch);
        intents.any(|it| is_open(it) && is_it(it))
    }
}

/// Starts all relays anew, and one client for each account.
pub(super) fn start_anew(world: &Shared<World>) {
    let mut locked = world.lock();
    locked.start_anew();
    if locked.is_any_open(|it| !PINS.signs_with(it.signer)) {
        locked.met(Case::StartedBesideOpen);
    }
    for role in [Role::Owner, Role::Verifier, Role::Faucet] {
        let Some(wanted) = locked.fresh_of(role) else {
            continue;
        };
        let account = *PINS.accounts.of(role);
        // what is open of the account itself may hold it up
        let limit = if locked.is_any_open(|it| it.signer == account) {
            PATIENCE
        } else {
            START
        };
        let client = written(world.clone(), wanted, limit);
        locked.agenda().start(CLIENTS, client);
    }
}

/// Repeats a request until it is written, which it must be, and begun within the limit.
async fn written(world: Shared<World>, wanted: usize, limit: Duration) {
    let request = Request {
        wanted,
        key: Some(format!("fresh{wanted}")),
        action: 0,
    };
    let begun = world.now();
    for attempt in 0.. {
        let relay = attempt % world.lock().relays.len();
        let slot = world.lock().send(relay, &request);
        let reply = slot.wait().await;
        if world.lock().is_over(wanted, reply, begun, limit) {
            return;
        }
        world.sleep(Duration::from_secs(1)).await;
    }
}

impl World {
    /// Judges a response; whether it is the last one.
    fn is_over(
        &mut self,
        wanted: usize,
        reply: Option<Reply>,
        begun: Duration,
        limit: Duration,
    ) -> bool {
        if self.has_fallen {
            return true;
        }
        let name = CATALOG[wanted].name();
        let is_late = self.now() > begun + PATIENCE;
        let judged = match reply {
            Some(reply) if reply.kind == ReplyKind::Written => {
                self.judge_start(wanted, begun + limit)
            }
            // what the others open at the same time may use up a day's fees; that is judged elsewhere
            Some(reply) if reply.kind == ReplyKind::Refused(Reason::BudgetExceeded) => Ok(()),
            Some(reply) if !reply.is_open() || is_late => {
                let account = self.account_of(wanted);
                Err(format!(
                    "progress: nothing forbids {name}: {reply:?}; {account}"
                ))
            }
            None if is_late => Err(format!("progress: {name} has no answer")),
            _ => return false,
        };
        self.oracle.report(judged);
        true
    }

    /// Rule 8: a start takes a write in time.
    fn judge_start(&self, wanted: usize, limit: Duration) -> Result<(), String> {
        let digest = CATALOG[wanted].intent_digest();
        let intents = self.journal.tables.intents.values();
        let own = intents.filter(|it| it.digest == digest);
        let stored = own.filter_map(|it| self.oracle.stored_at(it.id));
        match stored.max() {
            Some(at) if at > limit => Err(format!(
                "rule 8: a start took {} only {:?} after its time",
                CATALOG[wanted].name(),
                at - limit
            )),
            _ => Ok(()),
        }
    }
}
