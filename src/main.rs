//! The `portcullis` program: see [`portcullis::cli`].

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;
use zeroizing_alloc::ZeroAlloc;

/// jemalloc spends less on the small allocations of every request than the system's allocator, and
/// its own thread returns the memory of closed connections. Freed memory is wiped, because TLS and
/// HTTP/2 copy the bearer tokens of requests into buffers of their own; this costs about 1 % of a
/// cached read.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<Jemalloc> = ZeroAlloc(Jemalloc);

fn main() -> ExitCode {
    portcullis::cli::run()
}
