//! Protection of the private keys in memory: no core file, no debugger of another process, and the
//! keys in pages that are not swapped out.

use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};
use portcullis_filters::secret::SecretKey;
use region::LockGuard;

/// Disables core files: prctl(2), `PR_SET_DUMPABLE`; setrlimit(2), `RLIMIT_CORE`.
pub fn no_core_files() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0).and_then(|()| set_dumpable(false)) {
        log::warn!("a crash may leave the keys in a core file: {error}");
    }
}

/// 256 KiB: calls that handle keys use less of the stack.
const STACK: usize = 256 << 10;

/// Overwrites the part of the stack that earlier calls used: moves and arithmetic leave copies of
/// keys there.
#[inline(never)]
pub fn wipe_stack() {
    std::hint::black_box(&mut [0_u8; STACK]);
}

/// Locks a key's page in memory while the guard lives: mlock(2).
pub fn lock(key: &SecretKey) -> Option<LockGuard> {
    match region::lock(key.location(), size_of::<[u8; 32]>()) {
        Ok(guard) => Some(guard),
        Err(error) => {
            log::warn!("a key may be swapped out (see LimitMEMLOCK): {error}");
            None
        }
    }
}
