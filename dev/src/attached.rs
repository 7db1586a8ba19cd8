//! Child processes that the kernel kills when their parent ends, for whatever reason.
//!
//! Only the child itself can set its parent-death signal (PR_SET_PDEATHSIG, prctl(2)). So the child
//! starts as this program under another name, which sets the signal and then executes the actual
//! program.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The name under which this program is started as such a child.
const NAME: &str = "portcullis-attached";

/// A command for a program that is killed when the thread that spawned it ends.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(NAME)
        .arg(std::process::id().to_string())
        .arg(program);
    command
}

/// Executes the other program, if this process was started by `command`.
///
/// # Errors
/// The other program cannot be executed.
pub fn run() -> io::Result<()> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != NAME) {
        return Ok(());
    }
    let (parent, program) = (arguments.next(), arguments.next().unwrap_or_default());
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let now = getppid().map(|parent| OsString::from(parent.as_raw_nonzero().to_string()));
    if now != parent {
        return Err(io::Error::other("the process that started it has ended"));
    }
    Err(Command::new(program).args(arguments).exec())
}
