//! The `portcullis` program: see [`portcullis::cli`].

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;
use zeroizing_alloc::ZeroAlloc;

/// jemalloc spends less on the small allocations of every request than the system's allocator, and
/// its own thread returns the memory of closed connections. mimalloc 3 would compile in seconds and
/// take up to 5 % fewer instructions per read, but with it 18 to 26 MiB of some floods stay for
/// more than a minute, and one client can take 40 MiB instead of 18 (`tests/attack`).
///
/// Freed memory is wiped, because TLS and HTTP/2 copy the bearer tokens of requests into buffers of
/// their own; this costs about 1 % of a cached read.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<Jemalloc> = ZeroAlloc(Jemalloc);

fn main() -> ExitCode {
    portcullis::cli::run()
}
