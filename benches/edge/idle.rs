//! The cost of idle connections that have had one response: resident memory per connection, and
//! resident memory after they are closed.

use crate::load::Client;
use crate::process::Process;
use crate::scenario::CASES;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub(crate) const HEAD: &str = "\
| | before | KiB each | with all of them | closed | 5 s later |
|---|---|---|---|---|---|";

/// Files opened by the bench and the program in addition to the connections.
const OTHER_FILES: u64 = 500;
/// The delay after which freed memory is measured.
const LATER: Duration = Duration::from_secs(5);
/// Timeout for the program to notice closed connections.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between polls.
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
        let Self {
            before,
            with,
            closed,
            later,
            ..
        } = *self;
        write!(
            f,
            "{} | {each:.1} | {} | {} | {}",
            mib(before),
            mib(with),
            mib(closed),
            mib(later)
        )
    }
}

/// Reduces `wanted` to the number of connections that the open file limit allows.
pub(crate) fn within(wanted: usize, open_files: u64) -> usize {
    let most = usize::try_from(open_files.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    wanted.min(most)
}

/// Opens and closes the connections, and measures the process's memory.
pub(crate) fn measure(of: &Process, from: Ipv4Addr, count: usize) -> Result<Figures, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be made").block_on(async {
        let case = &CASES[0];
        // exclude one-time allocations of the first request
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
        Ok(Figures {
            count,
            before,
            with,
            closed,
            later: of.memory(),
        })
    })
}
