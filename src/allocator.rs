//! Memory that comes back: what was freed is given back to the system within milliseconds.
//!
//! mimalloc keeps freed pages for a second and longer, and then only looks at them when it is asked
//! for more, so that what ten thousand connections had taken would stay until some other burst. It
//! reads its options from the environment before `main`: a process that was started without this
//! one starts itself once more, under the same process id.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Milliseconds that freed pages are kept, as mimalloc reads it.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "10");

/// Sees to the option, where whoever started the process has not. To be called while the process
/// has nothing else yet: no threads, no files, no locks.
pub fn give_back_what_is_freed() {
    let (name, value) = PURGE_DELAY;
    if std::env::var_os(name).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let own_name = arguments.next();
    // it returns only when it fails, and then more memory is used than need be
    let _ = Command::new("/proc/self/exe")
        .arg0(own_name.as_deref().unwrap_or(OsStr::new("portcullis")))
        .args(arguments)
        .env(name, value)
        .exec();
}
