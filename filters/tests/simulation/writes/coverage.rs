//! What happened in the runs: a rule that was never put to the test proves nothing.

use super::world::{Fault, World};
use std::collections::BTreeMap;

/// The steps, faults and replies of the runs.
#[derive(Default)]
pub(super) struct Coverage {
    steps: u64,
    fired: BTreeMap<Fault, u64>,
    replies: BTreeMap<(&'static str, String), u64>,
}

impl Coverage {
    /// What happened in a world that is over.
    pub(super) fn of(world: &mut World, steps: u64) -> Self {
        Self {
            steps,
            fired: std::mem::take(&mut world.fired),
            replies: std::mem::take(&mut world.oracle.replies),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        add(&mut self.fired, other.fired);
        add(&mut self.replies, other.replies);
    }

    pub(super) fn print(&self) {
        println!("{} steps, faults {:?}", self.steps, self.fired);
        println!(
            "{} requests with their replies: {:?}",
            self.replies.len(),
            self.replies
        );
    }

    /// Everything happened.
    pub(super) fn check(&self) {
        let mut missing: Vec<_> = Fault::ALL.to_vec();
        missing.retain(|it| !self.fired.contains_key(it));
        // a balancer is drawn once for all calls
        assert_eq!(missing, [Fault::Balancer], "faults that never happened");
    }
}

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, others: BTreeMap<K, u64>) {
    for (key, times) in others {
        *sums.entry(key).or_default() += times;
    }
}
