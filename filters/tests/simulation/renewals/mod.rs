//! Renewals of a certificate at 1 to 8 instances, with an authority, clocks, stores and disks that
//! fail in every way that reports name.
//!
//! Reading order: `authority` (its documents and faults), `world` (clocks, stores, crashes),
//! `instance` (the driver of the pure steps), `judge` (what must hold).

mod authority;
mod documents;
mod instance;
mod judge;
mod world;

use crate::planted::assert_found;
use crate::toolkit::{Chance, Outcome, explore};
use std::env;
use world::World;

const STEPS: u32 = 1_500;
/// Certificates, and orders, in the worst week of a fault that lasts.
const PER_WEEK: u64 = 5;
const PLACED_PER_WEEK: u64 = 600;

/// A mistake of the driver that a test plants, to see that the world finds it. Those in the steps
/// are in `mistakes.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Everybody has the right to order.
    NoLock,
    /// The last certificate is not recorded.
    NoReceipt,
}

const BUGS: [Bug; 2] = [Bug::NoLock, Bug::NoReceipt];

fn seeds() -> u64 {
    let seeds = env::var("PORTCULLIS_SIMULATION_SEEDS").ok();
    seeds.map_or(256, |seeds| seeds.parse().expect("a number of seeds"))
}

fn run(chance: &mut Chance, bug: Bug) -> Outcome {
    // one fault that lasts, or many that come and go
    if chance.choose(8) == 7 {
        let number = chance.choose(240);
        let ahead = chance.pick(&world::CLOCKS);
        let (issued, placed) = World::worst(number, ahead, bug, chance);
        let violation = if issued > PER_WEEK || placed > PLACED_PER_WEEK {
            Some(format!(
                "too much in a week: {issued} certificates, {placed} orders, fault {number}"
            ))
        } else {
            None
        };
        return Outcome {
            violation,
            trace: Vec::new(),
        };
    }
    World::new(chance, bug).run(STEPS, chance)
}

#[test]
fn renewals_are_true_under_every_fault() {
    if let Err(failure) = explore(0..seeds(), |chance| run(chance, Bug::None)) {
        println!("{failure}");
        panic!("{failure}");
    }
    println!("{}", judge::worst());
}

/// Each fault that lasts, with each clock, for certificates of 90 days.
#[test]
fn a_week_costs_at_most_five_certificates() {
    let mut worst = (0, 0);
    for number in (2..12)
        .chain((3..240).step_by(12))
        .chain((6..240).step_by(12))
    {
        for ahead in [0, 70 * 86_400] {
            let mut benign = Chance::of_list(&[]);
            let (issued, placed) = World::worst(number, ahead, Bug::None, &mut benign);
            assert!(issued <= PER_WEEK, "{number}, {ahead} s ahead: {issued}");
            assert!(
                placed <= PLACED_PER_WEEK,
                "{number}, {ahead} s ahead: {placed}"
            );
            worst = (worst.0.max(issued), worst.1.max(placed));
        }
    }
    println!("{} certificates, {} orders", worst.0, worst.1);
}

#[test]
fn every_planted_mistake_of_the_renewals_driver_is_found() {
    assert_found(BUGS, 0..256, run);
}
