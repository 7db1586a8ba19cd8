//! The watch, the positions, the cache and the floor of the URLs, under every interleaving of
//! rollbacks, nodes that are behind, frozen or down, balancers, and late answers.
//!
//! A seed makes every choice; a failure is shrunk, and printed with the list that replays it. Each
//! planted bug must be found, so that the world is seen to be hard enough and the oracle strict.

mod choices;
mod edge;
mod oracle;
mod world;

use choices::{Choices, shrink};
use edge::Edge;
use oracle::Oracle;
use std::time::Duration;
use world::{Question, World};

const SEEDS: u64 = 256;
const STEPS: u64 = 300;
/// Steps in which nothing is disturbed, at the end: then every answer is the chain's.
const CALM: u64 = 60;
const LINES: usize = 60;

/// A bug that is planted for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The floor follows polls only.
    ReceiptIgnored,
    /// A block below the floor is believed to be missing.
    NoBlockBelieved,
    /// Answers are not compared with what was shown before.
    NoFloor,
    /// One round of polls ends an epoch.
    OneRoundIsEnough,
    /// A transaction that was rolled back is never let go.
    NeverDisplaced,
    /// An answer is cached under the view of its arrival.
    StoredUnderLaterView,
    /// The watch believes a node that is behind.
    WatchAroundFloor,
}

const BUGS: [Bug; 7] = [
    Bug::ReceiptIgnored,
    Bug::NoBlockBelieved,
    Bug::NoFloor,
    Bug::OneRoundIsEnough,
    Bug::NeverDisplaced,
    Bug::StoredUnderLaterView,
    Bug::WatchAroundFloor,
];

/// The lines of a run, if they are wanted.
struct Trace(Option<Vec<String>>);

impl Trace {
    fn note(&mut self, now: Duration, text: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(format!("{:6} ms  {}", now.as_millis(), text()));
        }
    }
}

/// Runs the choices; returns the rule that was broken, and what happened how often.
fn run(
    choices: &mut Choices,
    bug: Option<Bug>,
    trace: &mut Trace,
) -> (Option<&'static str>, [usize; 6]) {
    let mut world = World::new(choices);
    let mut edge = Edge::new(world.urls.len(), bug);
    let mut oracle = Oracle::default();
    for step in 1..=STEPS + CALM {
        oracle.step = step;
        let is_calm = step > STEPS;
        if step == STEPS + 1 {
            world.heal();
        }
        act(is_calm, &mut world, &mut edge, choices, &mut oracle, trace);
        world.follow(step);
        let time = Duration::from_millis(100 + 100 * u64::from(choices.choose(5)));
        edge.pass(time, &world, choices, &mut oracle, trace);
        if oracle.broken.is_some() {
            return (oracle.broken, oracle.counts);
        }
    }
    (oracle.end(&world, &mut edge, choices, trace), oracle.counts)
}

/// One event.
fn act(
    is_calm: bool,
    world: &mut World,
    edge: &mut Edge,
    choices: &mut Choices,
    oracle: &mut Oracle,
    trace: &mut Trace,
) {
    let recent = |choices: &mut Choices, world: &World| {
        world.transactions.saturating_sub(1 + choices.choose(8))
    };
    match choices.choose(16) {
        1 | 2 => {
            trace.note(edge.now, || format!("block {} is mined", world.chain.len()));
            world.mine();
        }
        3..=7 | 11 => {
            let question = Question::Receipt(recent(choices, world));
            edge.read(question, world, choices, oracle, trace);
        }
        8 => edge.read(Question::Head, world, choices, oracle, trace),
        9 => {
            let number = (world.chain.len() as u64).saturating_sub(u64::from(choices.choose(6)));
            edge.read(Question::Block(number), world, choices, oracle, trace);
        }
        // rarely: an answer may be much older than what clients have seen since
        10 if choices.once_in(2) => edge.deliver(choices, oracle, world, trace),
        12..=14 if !is_calm => {
            let mode = world.disturb(choices);
            trace.note(edge.now, || format!("a node is {mode:?}"));
        }
        15 if !is_calm && choices.once_in(4) => {
            world.roll_back(choices);
            trace.note(edge.now, || format!("rolled back, then {} blocks", world.chain.len()));
        }
        _ => {}
    }
}

/// Shrinks a failure, and panics with it.
fn report(rule: &str, list: &[u32]) -> ! {
    let fails =
        |list: &[u32]| run(&mut Choices::of_list(list), None, &mut Trace(None)).0 == Some(rule);
    let list = shrink(list, fails);
    let mut trace = Trace(Some(Vec::new()));
    run(&mut Choices::of_list(&list), None, &mut trace);
    let lines = trace.0.unwrap_or_default();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    panic!("{rule}\n{}\nlist: {list:?}", last.join("\n"));
}

#[test]
fn no_interleaving_takes_back_what_was_shown() {
    let mut counts = [0; 6];
    for seed in 0..SEEDS {
        let mut choices = Choices::of_seed(seed);
        let (broken, found) = run(&mut choices, None, &mut Trace(None));
        if let Some(rule) = broken {
            report(rule, choices.made());
        }
        counts.iter_mut().zip(found).for_each(|(count, found)| *count += found);
    }
    println!("receipts, none, heads, hits, rollbacks, positions: {counts:?}");
    assert!(counts.iter().all(|count| *count > 100), "each happens: {counts:?}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in BUGS {
        let found = (0..SEEDS).find_map(|seed| {
            let broken = run(&mut Choices::of_seed(seed), Some(bug), &mut Trace(None)).0;
            broken.map(|rule| (seed, rule))
        });
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found in {SEEDS} seeds");
    }
}
