//! Parts of every simulation: one source of chance, runs by seed or list, and shrinking.
//!
//! A world draws everything that may go one way or another from [`Chance::choose`], whose 0 is the
//! benign way: nothing fails, nothing is slow. So a run is the list of its choices. A seed makes such
//! a list; [`explore`] runs many seeds, and [`shrink`] makes the list of a failure shorter and more
//! benign for as long as it fails. The list replays on any machine: no clock, thread or hash key of
//! the process takes part.
//!
//! To add a simulation: write `fn run(&mut Chance) -> Outcome`, which ends at the first violation, and
//! draw the same number of choices in each step, so that whole steps can be left out.

use std::collections::VecDeque;
use std::env;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

/// How many of its last events a failure prints: `PORTCULLIS_SIMULATION_LINES`.
pub(crate) static LINES: LazyLock<usize> = LazyLock::new(|| {
    let lines = env::var("PORTCULLIS_SIMULATION_LINES").ok();
    lines.map_or(57, |lines| lines.parse().expect("a number of lines"))
});

/// In a list: the last way, however many there are.
const LAST: u32 = u32::MAX;

/// Runs that shrinking may take.
const MAX_RUNS: usize = 4_000;

/// All chance of a run.
pub(crate) struct Chance {
    source: Source,
    pub(crate) taken: Vec<u32>,
}

enum Source {
    Seed(u64),
    List(VecDeque<u32>),
}

impl Chance {
    /// The choices of a seed.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self {
            source: Source::Seed(seed),
            taken: Vec::new(),
        }
    }

    /// These choices, and benign ones after them.
    pub(crate) fn of_list(choices: &[u32]) -> Self {
        Self {
            source: Source::List(choices.iter().copied().collect()),
            taken: Vec::new(),
        }
    }

    /// A number below `n`; 0 is benign.
    pub(crate) fn choose(&mut self, n: u32) -> u32 {
        let choice = match &mut self.source {
            Source::Seed(state) => (split_mix(state) % u64::from(n)) as u32,
            Source::List(list) => match list.pop_front().unwrap_or(0) {
                LAST => n - 1,
                choice => choice % n,
            },
        };
        self.taken.push(choice);
        choice
    }

    /// One of these; the first is benign.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.choose(of.len() as u32) as usize]
    }
}

/// SplitMix64: each seed has a sequence of its own.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// How a run ended.
#[derive(Default)]
pub(crate) struct Outcome {
    /// The rule that was broken first, and how.
    pub(crate) violation: Option<String>,
    /// The events, a line each.
    pub(crate) trace: Vec<String>,
}

/// A failure, shrunk. It displays in at most 60 lines.
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) choices: Vec<u32>,
    outcome: Outcome,
}

/// Runs seeds until one fails, and shrinks its choices.
pub(crate) fn explore(
    seeds: Range<u64>,
    run: impl Fn(&mut Chance) -> Outcome,
) -> Result<(), Box<Failure>> {
    explore_within(shrinking_runs(), seeds, run)
}

/// The runs that shrinking may take; none where only the fact of a failure counts, as for the
/// property tests.
pub(crate) fn shrinking_runs() -> usize {
    let may_shrink = std::env::var_os("PROPTEST_MAX_SHRINK_ITERS").is_none_or(|most| most != "0");
    if may_shrink { MAX_RUNS } else { 0 }
}

/// [`explore`] in which shrinking takes at most `max_runs`, where a run is slow.
pub(crate) fn explore_within(
    max_runs: usize,
    seeds: Range<u64>,
    run: impl Fn(&mut Chance) -> Outcome,
) -> Result<(), Box<Failure>> {
    for seed in seeds {
        let mut chance = Chance::of_seed(seed);
        if run(&mut chance).violation.is_some() {
            return Err(Failure::shrunk(seed, chance.taken, max_runs, run));
        }
    }
    Ok(())
}

impl Failure {
    /// The failure of a seed, whose choices are made fewer and more benign in at most `max_runs`,
    /// while they break the same rule: what the violation says before its first colon.
    pub(crate) fn shrunk(
        seed: u64,
        choices: Vec<u32>,
        max_runs: usize,
        run: impl Fn(&mut Chance) -> Outcome,
    ) -> Box<Self> {
        let rule = |outcome: Outcome| {
            let violation = outcome.violation?;
            Some(violation.split(':').next().unwrap_or_default().to_owned())
        };
        let broken = if max_runs > 0 {
            rule(run(&mut Chance::of_list(&choices)))
        } else {
            None
        };
        let choices = shrink(choices, max_runs, |list| {
            rule(run(&mut Chance::of_list(list))) == broken
        });
        let outcome = run(&mut Chance::of_list(&choices));
        Box::new(Self {
            seed,
            choices,
            outcome,
        })
    }
}

/// Makes a failing list shorter and more benign: chunks are left out, then made zero, from halves
/// down to single choices (delta debugging), in at most `max_runs`.
pub(crate) fn shrink(
    mut list: Vec<u32>,
    max_runs: usize,
    fails: impl Fn(&[u32]) -> bool,
) -> Vec<u32> {
    let mut runs = 0;
    let mut size = list.len().div_ceil(2);
    while size > 0 && runs < max_runs {
        let mut from = 0;
        while from < list.len() && runs < max_runs {
            let end = (from + size).min(list.len());
            let mut shorter = list.clone();
            shorter.drain(from..end);
            let mut benign = list.clone();
            benign[from..end].fill(0);
            runs += 2;
            if fails(&shorter) {
                list = shorter;
                continue;
            }
            if benign != list && fails(&benign) {
                list = benign;
            }
            from = end;
        }
        size /= 2;
    }
    while list.last() == Some(&0) {
        list.pop();
    }
    list
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            choices,
            outcome,
        } = self;
        let violation = outcome
            .violation
            .as_deref()
            .unwrap_or("it passes when it is run again");
        writeln!(f, "seed {seed}: {violation}")?;
        writeln!(f, "choices: {choices:?}")?;
        let from = outcome.trace.len().saturating_sub(*LINES);
        if from > 0 {
            writeln!(f, "({from} events before)")?;
        }
        outcome.trace[from..]
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[test]
fn a_failure_shrinks_to_what_it_needs() {
    let fails = |list: &[u32]| list.iter().filter(|choice| **choice > 6).count() >= 2;
    let run = |chance: &mut Chance| {
        let drawn: Vec<u32> = (0..200).map(|_| chance.choose(9)).collect();
        let violation = fails(&drawn).then(|| "two are large".to_owned());
        Outcome {
            violation,
            trace: drawn.iter().map(u32::to_string).collect(),
        }
    };
    let failure = explore_within(MAX_RUNS, 0..9, run).unwrap_err();
    assert_eq!(failure.choices.len(), 2, "{failure}");
    assert!(
        failure.to_string().lines().count() <= *LINES + 3,
        "it is short"
    );
}
