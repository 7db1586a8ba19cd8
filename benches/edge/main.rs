//! The cost of a request: CPU time, latency and memory of the real program on the loopback,
//! compared with what bare Pingora spends on forwarding the same request.
//!
//! `cargo bench --bench edge -- [WORD] [--seconds N] [--rounds N] [--idle N] [--program FILE]`,
//! Linux only. It starts a small node, the program and the pass-through, and drives each with
//! closed-loop clients in turn; each figure is the median over the rounds. A wrong response fails
//! the run. For one short round that checks all responses, use `cargo test --bench edge`.
//!
//! Modules: `scenario` (requests), `load` (clients), `process` (programs), `node` (upstream).

mod answers;
mod baseline;
mod connection;
mod idle;
mod load;
mod node;
mod process;
mod report;
mod scenario;

use clap::Parser;
use load::{Clients, Measured};
use node::Node;
use process::Process;
use report::Row;
use scenario::{CASES, Case, Program};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Command line options.
#[derive(Debug, Parser)]
#[command(about = "CPU time, latency and memory of a request")]
struct Options {
    /// Only the scenarios whose name contains this text.
    only: Option<String>,
    /// Seconds of load per scenario, round and program.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The number of rounds; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The number of idle connections, reduced if the open file limit is lower.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// The program to measure instead of the one built with the bench.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_portcullis"))]
    program: PathBuf,
    /// Set by `cargo bench`; without it the run is short.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn read() -> Self {
        let given = Self::parse();
        if given.bench {
            return given;
        }
        Self {
            seconds: 0.2,
            rounds: 1,
            idle: 100,
            ..given
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    }
}

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        eprintln!("this bench reads CPU times in /proc: it runs on Linux only");
        return ExitCode::SUCCESS;
    }
    // the pass-through is this executable, so that nothing else has to be built
    if let Some((own, node)) = baseline::requested() {
        baseline::run(own, node);
        return ExitCode::SUCCESS;
    }
    let options = Options::read();
    let open_files = process::raise_open_files();
    let wrong = measure(&options) + measure_idle(&options, open_files);
    if wrong == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("{wrong} answers were not what they must be: the figures say nothing");
    ExitCode::FAILURE
}

struct Bench {
    usual: Process,
    plain: Process,
    limited: Process,
    bare: Process,
    clients: Clients,
}

impl Bench {
    fn start(executable: &Path) -> Self {
        let node = Node::start().address;
        Self {
            usual: Process::program(executable, Program::Usual, node),
            plain: Process::program(executable, Program::Plain, node),
            limited: Process::program(executable, Program::Limited, node),
            bare: Process::baseline(node),
            clients: Clients::new(),
        }
    }

    fn program(&self, program: Program) -> &Process {
        match program {
            Program::Usual => &self.usual,
            Program::Plain => &self.plain,
            Program::Limited => &self.limited,
        }
    }

    /// Truncates the logs: one line per request would fill the disk.
    fn forget_logs(&self) {
        for program in [&self.usual, &self.plain, &self.limited, &self.bare] {
            program.forget_log();
        }
    }
}

/// Runs every scenario against the program and the pass-through in turn; returns the number of
/// wrong responses.
fn measure(options: &Options) -> u64 {
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| options.wants(case.name))
        .collect();
    if cases.is_empty() {
        return 0;
    }
    let mut bench = Bench::start(&options.program);
    println!("{}", report::conditions());
    println!("{}", report::HEAD);
    let time = Duration::from_secs_f64(options.seconds);
    let mut wrong = 0;
    for case in cases {
        let mut ours: Vec<Measured> = Vec::new();
        let mut bare: Vec<Measured> = Vec::new();
        for _ in 0..options.rounds {
            let clients = bench.clients.next();
            ours.push(load::run(case, clients, bench.program(case.program), time));
            let clients = bench.clients.next();
            bare.push(load::run(case, clients, &bench.bare, time));
            bench.forget_logs();
        }
        for measured in ours.iter().chain(&bare) {
            wrong += measured.wrong;
            if let Some(first) = &measured.first_wrong {
                eprintln!("{}: {} wrong, first: {first}", case.name, measured.wrong);
            }
        }
        println!("{}", Row::of(case, &ours, &bare));
    }
    wrong
}

/// Measures idle connections; returns the number of wrong responses.
fn measure_idle(options: &Options, open_files: u64) -> u64 {
    const NAME: &str = "idle connections";
    if !options.wants(NAME) {
        return 0;
    }
    let count = idle::within(options.idle, open_files);
    let node = Node::start().address;
    println!("\n{count} connections after one request each (limit on open files {open_files})");
    println!("{}", idle::HEAD);
    let mut clients = Clients::new();
    let mut wrong = 0;
    for (name, process) in [
        (
            "portcullis",
            Process::program(&options.program, Program::Usual, node),
        ),
        ("bare Pingora", Process::baseline(node)),
    ] {
        match idle::measure(&process, clients.next(), count) {
            Ok(figures) => println!("| {name} | {figures} |"),
            Err(error) => {
                eprintln!("{NAME}: {name}: {error}");
                wrong += 1;
            }
        }
    }
    wrong
}
