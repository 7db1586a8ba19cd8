//! The fleet's leases: 2 to 8 instances share one store, each with room for four of five clients.
//!
//! Reading order: `world` (what happens), `messages`, `judge` (what must hold), `script` (the store).

mod judge;
mod messages;
mod script;
mod world;

use crate::planted::assert_found;
use crate::toolkit::{Chance, Outcome, explore};
use world::World;

const STEPS: u32 = 400;
const SEEDS: u64 = 256;

/// A mistake that a test plants, to see that the world finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A lease is evicted apart from its client's window.
    EvictedApart,
    /// The holder of a client that was evicted has the name of the one before.
    NumberRestarts,
    /// The store does not remember what it granted.
    GrantNotRemembered,
    /// A report takes from the store what the instance still holds.
    HoldLostOnReport,
    /// A use is not sent again after a message without an answer.
    UseSentOnce,
    /// A use that is sent again counts again.
    RepeatCountsTwice,
    /// A refused client asks the store at each request.
    RefusalForgotten,
}

fn run(chance: &mut Chance, bug: Bug) -> Outcome {
    World::new(chance, bug).run(STEPS)
}

#[test]
fn leases_keep_every_quota() {
    if let Err(failure) = explore(0..SEEDS, |chance| run(chance, Bug::None)) {
        panic!("{failure}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    assert_found(
        [
            Bug::EvictedApart,
            Bug::NumberRestarts,
            Bug::GrantNotRemembered,
            Bug::HoldLostOnReport,
            Bug::UseSentOnce,
            Bug::RepeatCountsTwice,
            Bug::RefusalForgotten,
        ],
        0..SEEDS,
        run,
    );
}
