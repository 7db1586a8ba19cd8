//! Writes: one to three relays with one journal, before a chain that rolls back and URLs that are
//! behind. The flows, the ledger and the evidence are the production code; the world and the
//! relay's driver are here.
//!
//! Reading order: `requests` and `clients`, `world` (what goes wrong), `oracle` (what must hold),
//! `driver` and `io` (how a relay reaches the world), `node` (what the node answers), `journal`,
//! `chain`, `machine`.

mod chain;
mod clients;
mod driver;
mod io;
mod journal;
mod machine;
mod node;
mod oracle;
mod requests;
mod world;

use crate::toolkit::{Chance, Outcome, explore};
use machine::{CLIENTS, HasAgenda as _, Machine, Shared};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use world::{Fault, World};

/// Seeds of a run, and the steps of each.
const SEEDS: u64 = 256;
const STEPS: u64 = 20_000;
/// Seeds of a long run, and the steps of each.
const LONG: (u64, u64) = (4_096, 100_000);
/// Seeds of long runs that broke a rule once.
const KEPT: [u64; 6] = [
    // all locks were lost between the commit of an intent and its first attempt: another relay sent
    // it, and the first one, which could not confirm the chain, rejected it
    196,
    // a drip was under way when the chain started over, and was included in the new one
    232,
    // one relay refused a request, or answered it with a write that it joined, while another relay
    // wrote for the same key
    266,
    // a write that had the nonce of one in doubt was moved to another block, and was searched in the
    // former one for ever
    438,
    // a relay that could not confirm the chain said that nothing was sent, while another one, which
    // held the account meanwhile, had sent its intent
    692,
    // the store failed before a key was linked to the write that its request had joined, and the
    // key got another answer later
    2056,
];
/// The steps of a run with two requests, and the choices of which each is once not benign.
const SMALL: u64 = 600;
const SCOPE: usize = 400;
/// How long everything takes to settle once nothing goes wrong.
const SETTLING: Duration = Duration::from_secs(120);

/// A mistake that a test plants, to see that the world finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// A block that a URL does not show is taken for another one, and its transaction for lost.
    AbsentIsLost,
    /// A transaction in doubt is lost.
    DisplacedIsLost,
    /// A lost transaction never comes back.
    LostIsFinal,
    /// A key is not linked to the intent that its request joined.
    UnlinkedJoiner,
    /// "Already so" is stored.
    StoredAlready,
    /// The journal is read as it was some seconds ago.
    StaleReads,
    /// A key is linked to whatever body.
    LinkAnyBody,
    /// A relay counts nonces by itself.
    LocalCounter,
    /// A nonce is used up when it is signed with.
    BurnedNonce,
    /// A sent transaction is never sent again.
    SentIsBroadcast,
    /// It is sent before it is stored.
    SendFirst,
    /// A commit without a confirmation is taken for a failed one.
    UnknownIsFailed,
    /// An add without an answer is taken for one that was not sent.
    CutIsUnsent,
    /// A lost lock and a used slot are not noticed.
    NoFence,
    /// A repeat that is refused is taken for rejected.
    RefusedRepeatIsRejected,
    /// That it is sent again is not recorded, and its first sender rejects it.
    SilentRepeat,
    /// The cooldown is read before the lock only.
    CooldownBeforeLock,
    /// Each relay uses its own clock.
    WallClock,
    /// Who waited in vain for a lock gets it later.
    LockLeaked,
    /// Bindings are never released.
    BindingKept,
    /// All requests join one write.
    JoinedByNothing,
}

impl Bug {
    const PLANTED: &[Self] = &[
        Self::AbsentIsLost,
        Self::DisplacedIsLost,
        Self::LostIsFinal,
        Self::UnlinkedJoiner,
        Self::StoredAlready,
        Self::StaleReads,
        Self::LinkAnyBody,
        Self::LocalCounter,
        Self::BurnedNonce,
        Self::SentIsBroadcast,
        Self::SendFirst,
        Self::UnknownIsFailed,
        Self::CutIsUnsent,
        Self::NoFence,
        Self::RefusedRepeatIsRejected,
        Self::SilentRepeat,
        Self::CooldownBeforeLock,
        Self::WallClock,
        Self::LockLeaked,
        Self::BindingKept,
        Self::JoinedByNothing,
    ];
}

/// The steps, faults and replies of the runs.
#[derive(Default)]
struct Coverage {
    steps: u64,
    fired: BTreeMap<Fault, u64>,
    replies: BTreeMap<(&'static str, String), u64>,
}

/// Runs clients until the steps are over, then until everything is settled.
fn run(chance: &mut Chance, bug: Bug, steps: u64, coverage: &mut Coverage) -> Outcome {
    let drawn = std::mem::replace(chance, Chance::of_list(&[]));
    let world = Shared::new(World::new(drawn, bug));
    let outcome = play(&world, clients::start_clients, steps, coverage);
    *chance = std::mem::replace(&mut world.lock().chance, Chance::of_list(&[]));
    outcome
}

fn play(
    world: &Shared<World>,
    start: impl FnOnce(&Shared<World>),
    steps: u64,
    coverage: &mut Coverage,
) -> Outcome {
    world.lock().me = Some(world.clone());
    let mut machine = Machine::new(world.clone());
    clients::start(world);
    machine.run(|world, _| world.relays.iter().all(|relay| relay.io.is_some()));
    start(world);
    machine.run(|world, done| done >= steps || world.oracle.violation.is_some());
    if world.lock().oracle.violation.is_none() {
        settle(world, &mut machine);
    }
    let mut world = world.lock();
    world.me = None;
    for relay in &mut world.relays {
        relay.io = None;
    }
    coverage.steps += machine.steps;
    for (fault, times) in &world.fired {
        *coverage.fired.entry(*fault).or_default() += times;
    }
    for (reply, times) in std::mem::take(&mut world.oracle.replies) {
        *coverage.replies.entry(reply).or_default() += times;
    }
    let trace = world.oracle.lines.drain(..).collect();
    Outcome {
        violation: world.oracle.violation.take(),
        trace,
    }
}

/// Nothing goes wrong any longer: all is settled, and each account writes.
fn settle(world: &Shared<World>, machine: &mut Machine<World>) {
    let end = {
        let mut world = world.lock();
        world.heal();
        world.now() + SETTLING
    };
    machine.run(|world, _| world.now() >= end || world.oracle.violation.is_some());
    world.lock().judge_end();
    let probes = clients::probes(&world.lock());
    let end = world.now() + SETTLING;
    for probe in probes {
        let world_of_probe = world.clone();
        world
            .lock()
            .agenda()
            .start(CLIENTS, clients::probe(world_of_probe, probe));
    }
    machine.run(|world, _| world.now() >= end || world.oracle.violation.is_some());
}

#[test]
fn writes_are_true_under_every_interleaving() {
    let is_long = std::env::var_os("PORTCULLIS_TEST_LONG").is_some();
    let (seeds, steps) = if is_long { LONG } else { (SEEDS, STEPS) };
    let coverage = RefCell::new(Coverage::default());
    let run = |chance: &mut Chance| run(chance, Bug::None, steps, &mut coverage.borrow_mut());
    if let Err(failure) = explore(0..seeds, run) {
        panic!("{failure}");
    }
    let coverage = coverage.into_inner();
    println!("{} steps, faults {:?}", coverage.steps, coverage.fired);
    println!(
        "{} requests with their replies: {:?}",
        coverage.replies.len(),
        coverage.replies
    );
    let missing: Vec<_> = Fault::ALL
        .iter()
        .filter(|it| !coverage.fired.contains_key(it))
        .collect();
    // a balancer is drawn once for all calls
    assert_eq!(missing, [&Fault::Balancer], "faults that never happened");
}

#[test]
fn seeds_that_broke_a_rule_once_pass() {
    for seed in KEPT {
        let chance = &mut Chance::of_seed(seed);
        let outcome = run(chance, Bug::None, LONG.1, &mut Coverage::default());
        assert_eq!(outcome.violation, None, "seed {seed}");
    }
}

#[test]
fn two_requests_at_two_relays_survive_each_fault() {
    for keys in [["a", "a"], ["a", "b"]] {
        for at in 0..SCOPE {
            // each choice once goes the way next to the benign one, and once the last way
            for way in [1, u32::MAX] {
                let mut choices = vec![0; at];
                choices.push(way);
                let world = World::of(Chance::of_list(&choices), Bug::None, 2, 1);
                let start = |world: &Shared<World>| clients::two_requests(world, keys);
                let outcome = play(&Shared::new(world), start, SMALL, &mut Coverage::default());
                if let Some(violation) = outcome.violation {
                    let trace = outcome.trace.join("\n");
                    panic!("{keys:?}, choice {at}, way {way}: {violation}\n{trace}");
                }
            }
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    let mut seeds = Vec::new();
    for bug in Bug::PLANTED {
        let found = (0..SEEDS).find_map(|seed| {
            let chance = &mut Chance::of_seed(seed);
            let violation = run(chance, *bug, STEPS, &mut Coverage::default()).violation?;
            Some((seed, violation))
        });
        match found {
            Some((seed, violation)) => {
                println!("{bug:?}: seed {seed}: {violation}");
                seeds.push(seed);
            }
            None => missed.push(bug),
        }
    }
    seeds.sort_unstable();
    println!(
        "median {:?}, most {:?}",
        seeds.get(seeds.len() / 2),
        seeds.last()
    );
    assert!(missed.is_empty(), "not found: {missed:?}");
}
