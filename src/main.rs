//! The `portcullis` program: see [`portcullis::cli`].

use std::process::ExitCode;

/// Small allocations on every request: mimalloc spends less on them than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portcullis::cli::run()
}
