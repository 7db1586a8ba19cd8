//! A node that is asked for more than it can answer, and one that is not.
//!
//! Reading order: `world` (the node, its clients and the driver), `judge` (what must hold).

mod judge;
mod world;

use crate::planted::assert_found;
use crate::toolkit::{Chance, Outcome, explore};
use world::{Flow, Noise, Scenario, World};

const SEEDS: u64 = 96;

/// A mistake that a test plants, to see that the world finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// All clients share one claim.
    NoShares,
    /// A call waits for as long as its deadline is away.
    WaitsLong,
    /// No latency is recorded, so that the limit follows the demand.
    IgnoresLatency,
}

const BUGS: [Bug; 3] = [Bug::NoShares, Bug::WaitsLong, Bug::IgnoresLatency];

fn play(scenario: &Scenario, seed: u64, bug: Bug) -> Outcome {
    let mut world = World::new(scenario, seed, bug);
    world.run();
    let judge = world.judge;
    Outcome {
        violation: judge.violation,
        trace: judge.trace,
    }
}

/// A scenario that is made of chance.
fn run(chance: &mut Chance, bug: Bug) -> Outcome {
    let mut scenario = Scenario::plain(chance.pick(&[400, 50, 200, 25]));
    scenario.seconds = 50;
    scenario.workers = chance.pick(&[8, 4, 16, 32]);
    let service = chance.pick(&[80_000, 40_000, 20_000]);
    scenario.flows[0].service = service;
    scenario.noise = chance.pick(&[Noise::None, Noise::Uniform, Noise::Exponential]);
    if scenario.load <= 50 && chance.choose(2) == 1 {
        scenario.noise = Noise::Bimodal;
    }
    scenario.clients = chance.pick(&[600, 300, 2_000]);
    if chance.choose(3) == 1 {
        scenario.workers = scenario.workers.max(8);
        let slow = Flow {
            service: 5 * service,
            percent: 20,
        };
        scenario.flows[0].percent = 80;
        scenario.flows.push(slow);
    }
    if chance.choose(3) == 1 {
        let workers = chance.pick(&[scenario.workers, scenario.workers.div_ceil(2)]);
        scenario.change = Some((20, workers, chance.pick(&[100, 200, 50])));
    }
    scenario.failing = chance.pick(&[0, 50]);
    scenario.hanging = chance.pick(&[0, 0, 2]);
    if scenario.change.is_some() {
        // half load before the change may be all load after it
        scenario.load = scenario.load.max(200);
        if scenario.noise == Noise::Bimodal {
            scenario.noise = Noise::Exponential;
        }
    }
    let seed = u64::from(chance.choose(u32::MAX));
    play(&scenario, seed, bug)
}

#[test]
fn an_overloaded_node_serves_what_it_can() {
    if let Err(failure) = explore(0..SEEDS, |chance| run(chance, Bug::None)) {
        panic!("{failure}");
    }
}

#[test]
fn every_planted_mistake_of_the_admission_is_found() {
    assert_found(BUGS, 0..SEEDS, run);
}

#[test]
fn the_known_node_serves_its_capacity() {
    for noise in [Noise::None, Noise::Uniform, Noise::Exponential] {
        for (load, least) in [(25, 0.23), (50, 0.46), (200, 0.95), (400, 0.95)] {
            let mut scenario = Scenario::plain(load);
            scenario.noise = noise;
            scenario.seconds = 60;
            let mut world = World::new(&scenario, 1, Bug::None);
            world.run();
            let judge = world.judge;
            let case = format!("{load} {noise:?}: {:?}", judge.trace);
            assert_eq!(judge.violation, None, "{case}");
            assert!(judge.used() >= least, "{case}");
            let [served, refused] = judge.modest;
            assert!(refused * 100 <= served, "{case}");
        }
    }
}
