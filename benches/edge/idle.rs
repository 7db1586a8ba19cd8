//! What connections cost that had one answer and do nothing: resident memory, for each of them and
//! after they are gone.

use crate::load::Client;
use crate::process::Process;
use crate::scenario::CASES;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub(crate) const HEAD: &str = "\
| | before | KiB each | with all of them | closed | 5 s later |
|---|---|---|---|---|---|";

/// What the bench and the program open beside the connections.
const OTHER_FILES: u64 = 500;
/// After which memory was given back, or is kept.
const LATER: Duration = Duration::from_secs(5);
/// For the program to notice that connections were closed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Resident memory in KiB.
pub(crate) struct Figures {
    count: usize,
    before: u64,
    with: u64,
    closed: u64,
    later: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
        let each = (self.with as f64 - self.before as f64) / self.count as f64;
        let Self { before, with, closed, later, .. } = *self;
        write!(f, "{} | {each:.1} | {} | {} | {}", mib(before), mib(with), mib(closed), mib(later))
    }
}

/// As many of `wanted` connections as the limit on open files allows.
pub(crate) fn within(wanted: usize, open_files: u64) -> usize {
    let most = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    wanted.min(most)
}

/// Opens the connections, closes them, and looks at the memory of the process.
pub(crate) fn measure(of: &Process, from: Ipv4Addr, count: usize) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let case = &CASES[0];
        // what is set up with the first request is not counted
        drop(Client::ready(case, from, of).await?);
        let before = of.memory();
        let files = of.open_files();
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(Client::ready(case, from, of).await?);
        }
        let with = of.memory();
        drop(clients);
        let end = Instant::now() + PATIENCE;
        while of.open_files() > files {
            if Instant::now() > end {
                return Err("closed connections stay open".into());
            }
            tokio::time::sleep(LOOK).await;
        }
        let closed = of.memory();
        tokio::time::sleep(LATER).await;
        Ok(Figures { count, before, with, closed, later: of.memory() })
    })
}
