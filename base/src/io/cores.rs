//! Work that keeps a core busy for long, outside of the runtime: by half of the cores at most, so
//! that the others serve requests meanwhile.

use std::sync::LazyLock;
use tokio::sync::{Semaphore, SemaphorePermit};

static CORES: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Semaphore::new((cores / 2).max(1))
});

/// 16 KiB of input: shorter work takes 0.2 ms, which is about the cost of another thread.
pub(super) const INLINE: usize = 16 << 10;

/// Runs work on this many bytes, outside of the runtime if they are many. `None` if it panicked.
pub async fn run<T: Send + 'static>(
    length: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if length <= INLINE {
        return Some(work());
    }
    Core::acquire().await.run(work).await
}

/// A core for one piece of work.
#[derive(Debug)]
pub struct Core {
    _permit: SemaphorePermit<'static>,
}

impl Core {
    /// Waits for a core.
    pub async fn acquire() -> Self {
        let permit = CORES.acquire().await;
        Self {
            _permit: permit.expect("the semaphore is never closed"),
        }
    }

    /// Runs the work to its end, even if the caller leaves. `None` if the work panicked.
    pub async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let work = move || {
            // the core is in use until the work ends, even if the caller is gone
            let _core = self;
            work()
        };
        tokio::task::spawn_blocking(work).await.ok()
    }
}
