//! The planted mistakes of a world: its judge must find each.

use crate::toolkit::{Chance, Outcome};
use std::fmt::Debug;
use std::ops::Range;

/// Asserts that each mistake breaks a rule in the run of one of these seeds.
pub(crate) fn assert_found<Bug: Copy + Debug>(
    bugs: impl IntoIterator<Item = Bug>,
    seeds: Range<u64>,
    run: impl Fn(&mut Chance, Bug) -> Outcome,
) {
    for bug in bugs {
        let found = seeds.clone().find_map(|seed| {
            let violation = run(&mut Chance::of_seed(seed), bug).violation?;
            Some(format!("seed {seed}: {violation}"))
        });
        let found = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?}: {found}");
    }
}
