//! Which runs a test makes: all of them, or those that the environment selects.
//!
//! `PORTCULLIS_SIMULATION_SEED` is one seed, `_SEEDS` how many, `_STEPS` the steps of each, `_BUG` a
//! planted bug of the world, `_SKIP` seeds that are left out, `_LINES` how many events a failure
//! prints, and `_WORLD` the faults that may happen: `none`, names with commas between them, or names
//! that each begin with `-`, which are left out.

use super::bug::Bug;
use super::world::Fault;
use std::env;
use std::fmt::Debug;
use std::ops::Range;
use std::str::FromStr;

/// Seeds of a run, and the steps of each.
const SEEDS: u64 = 256;
const STEPS: u64 = 20_000;
/// Seeds of a long run, and the steps of each.
pub(super) const LONG: (u64, u64) = (4_096, 100_000);

/// The runs of a test.
pub(super) struct Options {
    pub(super) seeds: Range<u64>,
    pub(super) steps: u64,
    pub(super) bug: Bug,
    world: Option<String>,
    /// Seeds that are left out, because they fail without a mistake, too.
    skipped: Vec<u64>,
    /// Whether they are all runs, so that everything must have happened in one of them.
    pub(super) are_all: bool,
}

impl Options {
    /// All runs, with a planted bug or without.
    pub(super) fn of(bug: Bug) -> Self {
        let is_long = env::var_os("PORTCULLIS_TEST_LONG").is_some();
        let (seeds, steps) = if is_long { LONG } else { (SEEDS, STEPS) };
        Self {
            seeds: 0..seeds,
            steps,
            bug,
            world: None,
            skipped: Vec::new(),
            are_all: true,
        }
    }

    /// The runs that the environment selects.
    pub(super) fn selected() -> Self {
        let all = Self::of(Bug::None);
        let [seed, seeds, steps] = ["SEED", "SEEDS", "STEPS"].map(number);
        let bug = text("BUG");
        let bug = bug.map(|name| Bug::named(&name).unwrap_or_else(|| panic!("no bug {name}")));
        let world = text("WORLD");
        let are_all = seed.is_none()
            && seeds.is_none_or(|seeds| seeds >= all.seeds.end)
            && steps.is_none_or(|steps| steps >= all.steps)
            && bug.is_none()
            && world.is_none();
        let first = seed.unwrap_or(0);
        let default = if seed.is_some() { 1 } else { all.seeds.end };
        Self {
            seeds: first..first + seeds.unwrap_or(default),
            steps: steps.unwrap_or(all.steps),
            bug: bug.unwrap_or(Bug::None),
            world,
            skipped: text("SKIP")
                .iter()
                .flat_map(|seeds| seeds.split(','))
                .filter_map(|seed| seed.parse().ok())
                .collect(),
            are_all,
        }
    }

    /// Whether this seed is left out.
    pub(super) fn skips(&self, seed: u64) -> bool {
        self.skipped.contains(&seed)
    }

    /// Leaves the faults that may happen.
    pub(super) fn select(&self, faults: &mut Vec<Fault>) {
        let Some(world) = &self.world else { return };
        let names: Vec<&str> = world.split(',').collect();
        let known = |name: &&str| {
            let name = name.trim_start_matches('-');
            name == "none" || Fault::ALL.iter().any(|fault| format!("{fault:?}") == name)
        };
        assert!(names.iter().all(known), "a fault of {world} is unknown");
        let is_named = |fault: &Fault, prefix: &str| {
            let name = format!("{prefix}{fault:?}");
            names.contains(&name.as_str())
        };
        if names.iter().all(|name| name.starts_with('-')) {
            faults.retain(|fault| !is_named(fault, "-"));
        } else {
            *faults = Fault::ALL.to_vec();
            faults.retain(|fault| is_named(fault, ""));
        }
    }
}

fn text(name: &str) -> Option<String> {
    env::var(format!("PORTCULLIS_SIMULATION_{name}")).ok()
}

fn number<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let text = text(name)?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {text}")),
    )
}
