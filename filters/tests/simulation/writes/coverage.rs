//! What happened in the runs: a rule that was never put to the test proves nothing.

use super::regime::Share;
use super::rules::{Case, need_not_be_taken};
use super::world::{Fault, World};
use portcullis_filters::ledger::IntentState;
use std::collections::BTreeMap;

/// The least share of actions that are written, in percent by regime: about half of what it is.
const LEAST: &[(&str, u64)] = &[
    ("plain", 12),
    ("deep rollbacks", 7),
    ("frequent rollbacks", 9),
    ("V2 later", 4),
    ("commits are lost", 7),
    ("few drips", 9),
    ("few fees", 5),
];

/// The steps, faults, replies, transitions and cases of the runs.
#[derive(Default)]
pub(super) struct Coverage {
    steps: u64,
    fired: BTreeMap<Fault, u64>,
    replies: BTreeMap<(&'static str, String), u64>,
    transitions: BTreeMap<(IntentState, IntentState), u64>,
    cases: BTreeMap<Case, u64>,
    /// The share of actions that were written, by regime.
    shares: BTreeMap<&'static str, Share>,
}

impl Coverage {
    /// What happened in a world that is over.
    pub(super) fn of(world: &mut World, steps: u64) -> Self {
        Self {
            steps,
            fired: std::mem::take(&mut world.fired),
            replies: std::mem::take(&mut world.oracle.replies),
            transitions: std::mem::take(&mut world.oracle.transitions),
            cases: std::mem::take(&mut world.oracle.cases),
            shares: world
                .regime
                .names()
                .into_iter()
                .map(|name| (name, world.actions))
                .collect(),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.steps += other.steps;
        add(&mut self.fired, other.fired);
        add(&mut self.replies, other.replies);
        add(&mut self.transitions, other.transitions);
        add(&mut self.cases, other.cases);
        for (name, Share { written, ended }) in other.shares {
            let sum = self.shares.entry(name).or_default();
            sum.written += written;
            sum.ended += ended;
        }
    }

    pub(super) fn print(&self) {
        println!("{} steps, faults {:?}", self.steps, self.fired);
        println!(
            "{} requests with their replies: {:?}",
            self.replies.len(),
            self.replies
        );
        for ((from, to), times) in &self.transitions {
            println!("{} to {}: {times}", from.name(), to.name());
        }
        for (case, times) in &self.cases {
            println!("{}: {times}", case.text());
        }
        for (name, share) in &self.shares {
            let Share { written, ended } = share;
            println!(
                "{name}: {written} of {ended} actions are written, {}%",
                share.percent()
            );
        }
    }

    /// Everything happened.
    pub(super) fn check(&self) {
        let mut missing: Vec<_> = Fault::ALL.to_vec();
        missing.retain(|it| !self.fired.contains_key(it));
        // a balancer is drawn once for all calls
        assert_eq!(missing, [Fault::Balancer], "faults that never happened");
        let cases: Vec<_> = Case::ALL
            .iter()
            .filter(|case| !self.cases.contains_key(case))
            .map(|case| case.text())
            .collect();
        assert!(cases.is_empty(), "cases that never came up: {cases:?}");
        let is_possible = |from: IntentState, to: IntentState| {
            from.may_become(to) && !need_not_be_taken(from, to)
        };
        let mut transitions = Vec::new();
        for from in IntentState::ALL {
            for to in IntentState::ALL {
                let is_taken = self.transitions.contains_key(&(from, to));
                if is_possible(from, to) && !is_taken {
                    transitions.push(format!("{} to {}", from.name(), to.name()));
                }
            }
        }
        assert!(transitions.is_empty(), "never taken: {transitions:?}");
        for (name, least) in LEAST {
            let share = self.shares.get(name).copied().unwrap_or_default();
            assert!(share.percent() >= *least, "{name}: {share:?} is too little");
        }
    }
}

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, others: BTreeMap<K, u64>) {
    for (key, times) in others {
        *sums.entry(key).or_default() += times;
    }
}
