//! Reads and writes over several URLs of a node that fail in every way that reports name.
//!
//! Reading order: `world` (the URLs), `edge` (the driver of the pure steps), `judge` (what must
//! hold).

mod edge;
mod judge;
mod world;

use crate::planted::assert_found;
use crate::toolkit::{Chance, Outcome, explore};
use edge::Edge;
use world::World;

const STEPS: u32 = 600;
const SEEDS: u64 = 256;

/// A mistake that a test plants, to see that the world finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A failure of the first URL ends a read.
    FailureStops,
    /// An internal error is passed on as an answer.
    ErrorIsAnswer,
    /// An invalid answer proves that a URL works.
    AnyAnswerHeals,
    /// An answered poll proves that calls work.
    PollsHealCalls,
    /// No failure of a call is recorded.
    CallsIgnored,
    /// No failure of a poll is recorded.
    PollsIgnored,
    /// A URL that was left out is never tried again.
    NoTrial,
    /// A URL that is left out is not asked, even if no other answers.
    LeftOutIsExcluded,
    /// A read waits for a URL that hangs.
    HangWaits,
    /// Each slow call costs double.
    HedgesAreFree,
    /// A write goes on to the next URL.
    WriteRepeated,
    /// An answer that is behind is passed on.
    BehindIsAnswer,
    /// A URL of another chain is asked.
    ForeignAsked,
}

const BUGS: [Bug; 13] = [
    Bug::FailureStops,
    Bug::ErrorIsAnswer,
    Bug::AnyAnswerHeals,
    Bug::PollsHealCalls,
    Bug::CallsIgnored,
    Bug::PollsIgnored,
    Bug::NoTrial,
    Bug::LeftOutIsExcluded,
    Bug::HangWaits,
    Bug::HedgesAreFree,
    Bug::WriteRepeated,
    Bug::BehindIsAnswer,
    Bug::ForeignAsked,
];

fn run(chance: &mut Chance, bug: Bug) -> Outcome {
    let mut world = World::new(chance);
    let mut edge = Edge::new(&world, bug);
    for _ in 0..STEPS {
        world.change(chance);
        edge.step(&world, chance);
        if edge.judge.violation.is_some() {
            break;
        }
    }
    edge.judge.outcome()
}

#[test]
fn no_read_fails_while_a_url_would_answer() {
    if let Err(failure) = explore(0..SEEDS, |chance| run(chance, Bug::None)) {
        panic!("{failure}");
    }
}

#[test]
fn every_planted_mistake_of_the_routing_is_found() {
    assert_found(BUGS, 0..SEEDS, run);
}
