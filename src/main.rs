//! The `portcullis` program: see [`portcullis::cli`].

use std::process::ExitCode;

/// jemalloc spends less on the small allocations of every request than the system's allocator, and
/// its own thread returns the memory of closed connections.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    portcullis::cli::run()
}
