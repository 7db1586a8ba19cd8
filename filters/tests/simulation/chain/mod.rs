//! Simulates the watch, the positions, the cache and the floor of the URLs under interleavings of
//! rollbacks, nodes that are behind, ahead, frozen, down or of another version, balancers, and late
//! answers; with URLs of which one serves, or all.
//!
//! A seed makes every choice; a failure is shrunk, and printed with the list that replays it. Each
//! planted bug must be found, which shows that the world is hard enough and the oracle strict.

mod edge;
mod oracle;
mod world;

use crate::toolkit::{Chance, Outcome, explore};
use edge::Edge;
use oracle::Oracle;
use std::cell::Cell;
use std::time::Duration;
use world::{Question, World};

const SEEDS: u64 = 256;
/// A late answer that a rollback overtakes is rare.
const SEEDS_OF_BUGS: u64 = 4_096;
const STEPS: u64 = 300;
/// Undisturbed steps at the end, after which every answer must be the chain's.
const CALM: u64 = 60;

/// A bug that is planted for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The floor follows polls only.
    ReceiptIgnored,
    /// A block below the floor is believed to be missing.
    NoBlockBelieved,
    /// Answers are not compared with what was shown before.
    NoFloor,
    /// One round of polls is a rollback.
    OneRoundIsEnough,
    /// Polls over one connection count as several.
    ConnectionsNotCounted,
    /// A transaction that was rolled back is never forgotten.
    NeverDisplaced,
    /// A receipt raises the floor again after its block was disproved.
    DisprovedBelieved,
    /// A second doubt counts at once.
    OneDoubtIsEnough,
    /// An answer is cached under the view of its arrival.
    StoredUnderLaterView,
    /// The watch believes a node that is behind.
    WatchAroundFloor,
    /// A connection that led to a node which is behind is used again.
    ConnectionKept,
    /// A round uses a block of the watch again, whatever answers have shown since.
    WatchedTwice,
    /// The version of a replica is not read.
    VersionIgnored,
    /// Replicas pin `latest` to the lowest head, whatever clients have seen.
    PinFollowsLowest,
    /// The watch takes the newest block of one replica for that of all.
    WatchOfOneReplica,
}

const BUGS: [Bug; 15] = [
    Bug::ReceiptIgnored,
    Bug::NoBlockBelieved,
    Bug::NoFloor,
    Bug::OneRoundIsEnough,
    Bug::ConnectionsNotCounted,
    Bug::NeverDisplaced,
    Bug::DisprovedBelieved,
    Bug::OneDoubtIsEnough,
    Bug::StoredUnderLaterView,
    Bug::WatchAroundFloor,
    Bug::ConnectionKept,
    Bug::WatchedTwice,
    Bug::VersionIgnored,
    Bug::PinFollowsLowest,
    Bug::WatchOfOneReplica,
];

/// The events of a run, one line each.
struct Trace(Vec<String>);

impl Trace {
    fn note(&mut self, now: Duration, text: impl FnOnce() -> String) {
        self.0.push(format!("{:6} ms  {}", now.as_millis(), text()));
    }
}

/// True once in `count` times, for the last choice: a shrunk run prefers the first.
fn once_in(choices: &mut Chance, count: u32) -> bool {
    choices.choose(count) == count - 1
}

/// Runs the choices. Returns the rule that was broken, and how often each kind of event happened.
fn run(choices: &mut Chance, bug: Option<Bug>) -> (Outcome, [usize; 6]) {
    let mut trace = Trace(Vec::new());
    let mut world = World::new(choices);
    let mut edge = Edge::new(&world, bug);
    let mut oracle = Oracle::default();
    for step in 1..=STEPS + CALM {
        oracle.step = step;
        let is_calm = step > STEPS;
        if step == STEPS + 1 {
            world.heal();
        }
        act(
            is_calm,
            &mut world,
            &mut edge,
            choices,
            &mut oracle,
            &mut trace,
        );
        world.follow(step);
        let time = Duration::from_millis(100 + 100 * u64::from(choices.choose(5)));
        edge.pass(time, &world, choices, &mut oracle, &mut trace);
        if oracle.broken.is_some() {
            break;
        }
    }
    world.roll_back(choices);
    world.follow(STEPS + CALM);
    trace.note(edge.now, || {
        format!("rolled back, then {} blocks", world.chain.len())
    });
    let broken = match oracle.broken {
        Some(rule) => Some(rule),
        None => oracle.end(&world, &mut edge, choices, &mut trace),
    };
    (
        Outcome {
            violation: broken.map(str::to_owned),
            trace: trace.0,
        },
        oracle.counts,
    )
}

/// Performs one event.
fn act(
    is_calm: bool,
    world: &mut World,
    edge: &mut Edge,
    choices: &mut Chance,
    oracle: &mut Oracle,
    trace: &mut Trace,
) {
    let recent = |choices: &mut Chance, world: &World| {
        world.transactions.saturating_sub(1 + choices.choose(8))
    };
    match choices.choose(17) {
        1 | 2 => {
            trace.note(edge.now, || format!("block {} is mined", world.chain.len()));
            world.mine();
        }
        3..=7 | 11 => {
            let question = Question::Receipt(recent(choices, world));
            edge.read(question, world, choices, oracle, trace);
        }
        16 => {
            let question = Question::Status(recent(choices, world));
            edge.read(question, world, choices, oracle, trace);
        }
        8 => edge.read(Question::Head, world, choices, oracle, trace),
        9 => {
            let number = (world.chain.len() as u64).saturating_sub(u64::from(choices.choose(6)));
            edge.read(Question::Block(number), world, choices, oracle, trace);
        }
        // seldom, so that an answer may be much older than what clients have seen since
        10 if once_in(choices, 2) => edge.deliver(choices, oracle, world, trace),
        12..=14 if !is_calm => {
            let mode = world.disturb(choices);
            trace.note(edge.now, || format!("a node is {mode:?}"));
        }
        15 if !is_calm && once_in(choices, 4) => {
            world.roll_back(choices);
            trace.note(edge.now, || {
                format!("rolled back, then {} blocks", world.chain.len())
            });
        }
        _ => {}
    }
}

#[test]
fn no_interleaving_takes_back_what_was_shown() {
    let counts = Cell::new([0; 6]);
    let explored = explore(0..SEEDS, |choices| {
        let (outcome, found) = run(choices, None);
        let mut sums = counts.get();
        sums.iter_mut()
            .zip(found)
            .for_each(|(sum, found)| *sum += found);
        counts.set(sums);
        outcome
    });
    if let Err(failure) = explored {
        panic!("{failure}");
    }
    let counts = counts.get();
    println!("receipts, none, heads, hits, rollbacks, positions: {counts:?}");
    assert!(
        counts.iter().all(|count| *count > 100),
        "each happens: {counts:?}"
    );
}

#[test]
fn every_planted_bug_is_found() {
    for bug in BUGS {
        let found = (0..SEEDS_OF_BUGS).find_map(|seed| {
            let (outcome, _) = run(&mut Chance::of_seed(seed), Some(bug));
            outcome.violation.map(|rule| (seed, rule))
        });
        println!("{bug:?}: {found:?}");
        assert!(
            found.is_some(),
            "{bug:?} is not found in {SEEDS_OF_BUGS} seeds"
        );
    }
}
