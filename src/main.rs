//! The `portcullis` program: see [`portcullis::cli`].

use std::process::ExitCode;

/// Small allocations on every request: jemalloc spends less on them than the system's allocator,
/// and a thread of its own gives back what closed connections had.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    portcullis::cli::run()
}
