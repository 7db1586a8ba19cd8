//! Events for the backend: one to three processes that share a journal, one of which sends; a receiver
//! that fails, refuses and forgets to answer.
//!
//! The flow and its decisions are the program's. Reading order: `world` (what happens), `outbox` (how
//! a process reaches the world), `judge` (what must hold).

mod judge;
mod outbox;
mod world;

use crate::planted::assert_found;
use crate::toolkit::{Chance, explore};
use std::env;
use std::sync::Mutex;
use world::World;

const STEPS: u32 = 600;

/// A mistake of the store that a test plants, to see that the world finds it. Those in the flow are
/// in `mistakes.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The cursor moves before the events are kept, in a commit of its own.
    CursorApart,
    /// Every event is due, also after one of its write that waits.
    OutOfOrder,
}

const BUGS: [Bug; 2] = [Bug::CursorApart, Bug::OutOfOrder];

fn seeds() -> u64 {
    let seeds = env::var("PORTCULLIS_SIMULATION_SEEDS").ok();
    seeds.map_or(512, |seeds| seeds.parse().expect("a number of seeds"))
}

#[test]
fn events_reach_the_backend_in_order() {
    let counted = Mutex::new(judge::Counted::default());
    let run = |chance: &mut Chance| {
        let (outcome, own) = World::run(chance, Bug::None, STEPS);
        counted.lock().expect("no run panics").add(own);
        outcome
    };
    if let Err(failure) = explore(0..seeds(), run) {
        println!("{failure}");
        panic!("{failure}");
    }
    println!("{:?}", counted.lock().expect("no run panics"));
}

#[test]
fn every_planted_mistake_of_the_store_is_found() {
    assert_found(BUGS, 0..256, |chance, bug| World::run(chance, bug, STEPS).0);
}
