//! Runs seeds on all processors.

use crate::toolkit::{Chance, Failure, Outcome, shrinking_runs};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs seeds, but those that are skipped, until one fails: the lowest that does. Shrinks its
/// choices.
pub(super) fn explore(
    seeds: Range<u64>,
    skips: impl Fn(u64) -> bool + Sync,
    run: impl Fn(&mut Chance) -> Outcome + Sync,
) -> Result<(), Box<Failure>> {
    let next = AtomicU64::new(seeds.start);
    let failed: Mutex<Option<(u64, Vec<u32>)>> = Mutex::new(None);
    side_by_side(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let is_below = |it: &(u64, _)| it.0 < seed;
            if seed >= seeds.end || lock(&failed).as_ref().is_some_and(is_below) {
                return;
            }
            if skips(seed) {
                continue;
            }
            let mut chance = Chance::of_seed(seed);
            if run(&mut chance).violation.is_some() {
                let mut failed = lock(&failed);
                if !failed.as_ref().is_some_and(is_below) {
                    *failed = Some((seed, chance.taken));
                }
                return;
            }
        }
    });
    match failed.into_inner().expect("no thread panics with it") {
        Some((seed, choices)) => Err(Failure::shrunk(seed, choices, shrinking_runs(), run)),
        None => Ok(()),
    }
}

/// Runs `work` on each of as many threads as tests may have.
pub(super) fn side_by_side(work: impl Fn() + Sync) {
    let threads = std::env::var("RUST_TEST_THREADS")
        .ok()
        .and_then(|number| number.parse().ok())
        .or_else(|| Some(thread::available_parallelism().ok()?.get()));
    thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1) {
            scope.spawn(&work);
        }
    });
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with it")
}
