//! The table: medians over the rounds.

use crate::load::Measured;
use crate::scenario::Case;
use std::fmt;

pub(crate) const HEAD: &str = "\
| scenario | clients | requests/s | CPU µs | p50 µs | p99 µs | bare Pingora: requests/s | CPU µs \
| p50 µs | p99 µs | CPU to bare |
|---|---|---|---|---|---|---|---|---|---|---|";

/// The conditions of a run, in addition to the machine.
pub(crate) fn conditions() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // the program, the node and the clients take one core each
    let crowd = if cores < 3 {
        ": too few for the rates and times, not for CPU"
    } else {
        ""
    };
    let build = if cfg!(debug_assertions) {
        "; NOT OPTIMIZED"
    } else {
        ""
    };
    format!("{cores} cores{crowd}{build}\n")
}

pub(crate) struct Row {
    case: &'static Case,
    ours: Figures,
    bare: Figures,
}

/// The figures of one program in one scenario.
struct Figures {
    rate: f64,
    cpu: f64,
    p50: f64,
    p99: f64,
    shared: f64,
}

impl Figures {
    fn of(rounds: &[Measured]) -> Self {
        let median_of = |figure: fn(&Measured) -> f64| median(rounds.iter().map(figure).collect());
        Self {
            rate: median_of(|one| one.requests as f64 / one.time.as_secs_f64()),
            cpu: median_of(|one| one.cpu.as_secs_f64() * 1e6 / one.requests as f64),
            p50: median_of(|one| percentile(&one.latencies, 50)),
            p99: median_of(|one| percentile(&one.latencies, 99)),
            shared: median_of(|one| 100.0 * one.shared as f64 / one.requests as f64),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rate,
            cpu,
            p50,
            p99,
            ..
        } = self;
        write!(f, "{rate:.0} | {cpu:.1} | {p50:.0} | {p99:.0}")
    }
}

impl Row {
    pub(crate) fn of(case: &'static Case, ours: &[Measured], bare: &[Measured]) -> Self {
        Self {
            case,
            ours: Figures::of(ours),
            bare: Figures::of(bare),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, ours, bare } = self;
        let shared = match ours.shared {
            0.0 => String::new(),
            shared => format!(" ({shared:.0} % shared)"),
        };
        let ratio = ours.cpu / bare.cpu;
        let (name, clients) = (case.name, case.connections);
        write!(
            f,
            "| {name}{shared} | {clients} | {ours} | {bare} | {ratio:.2} |"
        )
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn percentile(sorted: &[u32], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().map_or(f64::NAN, f64::from)
}
