//! Clients, one request after the other; and what else goes on: blocks, disturbances, and the
//! relay's background task.

use super::io::SimIo;
use super::machine::{CLIENTS, HasAgenda as _, Shared};
use super::node::Fate;
use super::requests::{CATALOG, FRESH, PINS, RIVALS, Reply, ReplyKind, Request, Wanted};
use super::store::Chore;
use super::world::World;
use portcullis_filters::ledger::IntentState;
use portcullis_filters::txm::io::{Io as _, JournalIo as _};
use portcullis_filters::txm::settings::Required;
use portcullis_filters::txm::{reconcile, round};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Clients that have a request each, one after the other.
const CLIENT_COUNT: u32 = 5;
/// Operations in doubt that are repeated in the end.
const DOUBTED: usize = 6;
/// How often a client repeats a request whose end is open.
const ATTEMPTS: u32 = 5;

/// Settles what is open, every two seconds, or when it is woken.
pub(super) async fn background(io: Arc<SimIo>) {
    loop {
        either(io.sleep(Duration::from_secs(2)), io.woken()).await;
        let now_us = io.clock_us();
        io.world.lock().journal.date_anew(now_us);
        let permitted = reconcile::permit(&*io, Required::AllButV2).await;
        let Ok(epoch) = permitted else {
            io.world.lock().release_chore(io.relay, Chore::Rounds);
            continue;
        };
        // the store decides who has it, for as long as that one is heard of
        if io.world.lock().try_chore(io.relay, Chore::Rounds) {
            let begun = io.world.lock().begin_round(io.relay);
            if round::pass_all(&io, &epoch).await.is_ok() {
                io.world.lock().end_round(begun, &epoch);
            }
        }
    }
}

async fn either(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| {
        let is_done =
            one.as_mut().poll(context).is_ready() || other.as_mut().poll(context).is_ready();
        if is_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Starts the clients.
pub(super) fn start_clients(world: &Shared<World>) {
    for _ in 0..CLIENT_COUNT {
        let client = client(world.clone());
        world.lock().agenda().start(CLIENTS, client);
    }
}

/// Starts the relays, the chain's blocks, and what disturbs them.
pub(super) fn start(world: &Shared<World>) {
    let mut locked = world.lock();
    for relay in 0..locked.relays.len() {
        locked.start(relay);
    }
    let blocks = world.clone();
    locked.agenda().start(CLIENTS, async move {
        loop {
            let wait = blocks.lock().millis(200, 6_000);
            blocks.sleep(wait).await;
            blocks.lock().close_block();
        }
    });
    let disturbed = world.clone();
    locked.agenda().start(CLIENTS, async move {
        loop {
            disturbed.sleep(Duration::from_secs(1)).await;
            disturbed.lock().disturb();
        }
    });
}

async fn client(world: Shared<World>) {
    let mut last: Option<Request> = None;
    loop {
        let think = world.lock().millis(10, 1_500);
        world.sleep(think).await;
        let request = world.lock().next_request(last.as_ref());
        last = Some(request.clone());
        let mut reply = None;
        for _ in 0..ATTEMPTS {
            let slot = {
                let mut world = world.lock();
                if world.is_healed {
                    return;
                }
                let relays = world.relays.len() as u32;
                let relay = world.chance.choose(relays) as usize;
                // some ask two relays at once, also under two keys
                let twice = world.chance.choose(8);
                let second = match twice {
                    5 => Some(request.clone()),
                    6 => Some(request.under_second_key()),
                    7 => world.rival(&request),
                    _ => None,
                };
                if let Some(second) = second {
                    let other = (relay + 1) % world.relays.len();
                    let _unread = world.send(other, &second);
                    last = Some(second);
                }
                world.send(relay, &request)
            };
            // some never read the answer
            if world.lock().chance.choose(8) == 7 {
                reply = None;
                break;
            }
            reply = slot.wait().await;
            if reply.as_ref().is_some_and(|reply| !reply.is_open()) {
                break;
            }
            let wait = world.lock().millis(100, 3_000);
            world.sleep(wait).await;
        }
        if let Some(reply) = reply {
            world.lock().count_action(&reply);
        }
    }
}

impl World {
    /// Whether a request has a transaction in doubt of an account that the relays sign with no longer,
    /// about which nothing is ever decided: below it is a free nonce that nobody can use, or the node
    /// decides nothing about it.
    fn is_stuck(&self, wanted: usize) -> bool {
        let (epoch, digest) = (self.epoch(), CATALOG[wanted].intent_digest());
        let mut of_epoch = self.journal.tables.of_epoch(&epoch);
        of_epoch.any(|it| {
            let is_open = it.state.is_unresolved() || it.state == IntentState::Displaced;
            let has_gap = self.chain.nonce(it.signer) < it.nonce;
            let fate = self.fates.get(&it.transaction_hash);
            let is_undecided = matches!(fate, Some(Fate::Undecided { .. }));
            let is_endless = has_gap || is_undecided;
            it.digest == digest && is_open && is_endless && !PINS.signs_with(it.signer)
        })
    }

    /// What the journal and the chain have of the account of a request.
    pub(super) fn account_of(&self, wanted: usize) -> String {
        let sender = CATALOG[wanted].sender();
        let (epoch, next) = (self.epoch(), self.chain.nonce(sender));
        let intents = self.journal.select(&epoch, |it| it.signer == sender);
        let intents: Vec<_> = intents
            .iter()
            .map(|it| (it.id.0, it.nonce, it.state, it.included.map(|it| it.number)))
            .collect();
        format!("the next nonce is {next} of {intents:?}")
    }

    /// Counts an action of a client that it has ended, with its last response.
    fn count_action(&mut self, reply: &Reply) {
        let is_written = matches!(reply.kind, ReplyKind::Written | ReplyKind::Already);
        self.actions.ended += 1;
        self.actions.written += u64::from(is_written);
    }

    /// The chain starts over: who waits for an operation asks for it again, under another key.
    pub(super) fn ask_again(&mut self) {
        for (relay, wanted) in self.open_operations() {
            let (later, number) = (self.millis(500, 6_000), self.ticket());
            let request = Request {
                wanted,
                key: Some(format!("k{number}")),
                action: number,
            };
            self.agenda().after(later, move |world: &mut Self| {
                let _unread = world.send(relay, &request);
            });
        }
    }

    fn next_request(&mut self, last: Option<&Request>) -> Request {
        let number = self.ticket();
        let new = |world: &mut Self| Request {
            wanted: world.chance.choose((CATALOG.len() - FRESH) as u32) as usize,
            key: (world.chance.choose(4) != 3).then(|| format!("k{number}")),
            action: number,
        };
        let Some(last) = last else { return new(self) };
        match self.chance.choose(16) {
            // the same key with the same body, much later
            8 => last.clone(),
            // the same body without a key
            9 => Request {
                key: None,
                action: number,
                ..last.clone()
            },
            // a second key
            10 => Request {
                key: Some(format!("k{number}")),
                action: number,
                ..last.clone()
            },
            // another body under the same key
            11 if last.key.is_some() => Request {
                key: last.key.clone(),
                ..new(self)
            },
            12.. => self.rival(last).unwrap_or_else(|| new(self)),
            _ => new(self),
        }
    }

    /// A request that excludes another one, or one that excludes that, if there is one.
    fn rival(&mut self, request: &Request) -> Option<Request> {
        let mut wanted = request.wanted;
        for _ in 0..=self.chance.choose(2) {
            let rivals = &RIVALS[wanted];
            if rivals.is_empty() {
                return None;
            }
            wanted = self.chance.pick(rivals);
        }
        let number = self.ticket();
        Some(Request {
            wanted,
            key: Some(format!("k{number}")),
            action: number,
        })
    }
}

/// Requests that must succeed in the end: one of each account, and the last ones again.
pub(super) fn probes(world: &World) -> Vec<Request> {
    let first = |name: &str| CATALOG.iter().position(|it| it.name() == name);
    let of_each = ["faucet-drip", "mint-card", "submit-usership"]
        .into_iter()
        .filter_map(first);
    let probe = |(at, wanted): (usize, usize)| Request {
        wanted,
        key: Some(format!("probe{at}")),
        action: 0,
    };
    let mut all: Vec<Request> = of_each.enumerate().map(probe).collect();
    let keys = world.oracle.bodies();
    let of_keys = keys.take(12).map(|(key, wanted)| (Some(key), wanted));
    let again = of_keys.chain(in_doubt(world));
    all.extend(again.map(|(key, wanted)| Request {
        wanted,
        key,
        action: 0,
    }));
    all
}

/// Some operations that are in doubt, with their keys.
fn in_doubt(world: &World) -> impl Iterator<Item = (Option<String>, usize)> {
    let epoch = world.epoch();
    let found = world.journal.select(&epoch, |it| {
        it.state == IntentState::Displaced && PINS.signs_with(it.signer)
    });
    let found = found.into_iter().filter_map(|it| {
        let key = world.journal.written_with.get(&it.id)?.clone();
        let of_it = |wanted: &Wanted| wanted.digest() == Some(it.digest);
        Some((key, CATALOG.iter().position(of_it)?))
    });
    found.take(DOUBTED)
}

/// Sends one operation to two relays at once, under one key or under two.
pub(super) fn two_requests(world: &Shared<World>, keys: [&str; 2]) {
    let wanted = CATALOG
        .iter()
        .position(|it| it.name() == "faucet-drip")
        .expect("there is one");
    for (relay, key) in keys.into_iter().enumerate() {
        let request = Request {
            wanted,
            key: Some(key.to_owned()),
            action: relay as u64,
        };
        world.lock().send(relay, &request);
    }
}

/// Repeats a request until it has a final answer, which it must have.
pub(super) async fn probe(world: Shared<World>, request: Request) {
    for attempt in 0..20 {
        let relay = attempt % world.lock().relays.len();
        let slot = world.lock().send(relay, &request);
        if let Some(reply) = slot.wait().await
            && !reply.is_open()
        {
            return;
        }
        world.sleep(Duration::from_secs(5)).await;
    }
    let mut world = world.lock();
    if world.has_fallen || world.is_stuck(request.wanted) {
        return;
    }
    let account = world.account_of(request.wanted);
    let broken = Err(format!(
        "progress: {request:?} has no final answer; {account}"
    ));
    world.oracle.report(broken);
}
