//! Handover to a successor process without a gap: an upgrade in place, for a process whose sockets
//! no service manager holds. At 500 requests per second it loses none.
//!
//! The old process starts its program again, from the path that it was started from, and passes it
//! the listening sockets as the service manager would. Both accept until the new one reports on a
//! socket pair that it is ready; then the old one announces it to the service manager, releases it,
//! and stops. If the successor fails, the old process continues to serve. SQLite, which only one
//! process can open, rules out a handover.
//!
//! A shell in between makes the successor a child of the service manager: systemd 252 kills a main
//! process that is not its child without waiting for it to stop.

use command_fds::{CommandFdExt as _, FdMapping};
use portcullis_base::telemetry::Surface;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The name of the socket pair, next to those of the surfaces.
pub(crate) const HANDOVER: &str = "succession";
/// Suffix of the name of a socket that the service manager holds, too.
pub(crate) const HELD: &str = "+held";
/// sd_listen_fds(3): `SD_LISTEN_FDS_START`.
pub(super) const FIRST_FD: i32 = 3;
/// Timeout for a successor to be ready: it waits only for its store.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the successor waits for its release.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the program in the background, and prints its process id.
const SPAWN: &str = r#""$0" "$@" >&2 & echo $!"#;

/// How long to wait for a failed successor to exit.
const EXIT_TIMEOUT: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

const READY: u8 = b'r';
const RELEASE: u8 = b'g';

/// The descriptor of a listening socket, for a successor.
#[derive(Debug)]
pub(crate) struct ListenerFd {
    pub(crate) surface: Surface,
    pub(crate) fd: OwnedFd,
    /// Whether the service manager also holds it.
    pub(crate) is_held: bool,
}

/// The command line of a successor.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// The program of this process, by the path that it was started from. The successor runs the
    /// file that is at this path by then.
    ///
    /// # Errors
    /// Fails if the path cannot be determined.
    pub fn of_this_process() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().map(PathBuf::from);
        // a name without a folder was found through PATH
        let path = match name.filter(|name| name.components().count() > 1) {
            Some(path) => std::path::absolute(path)?,
            None => std::env::current_exe()?,
        };
        Ok(Self {
            path,
            arguments: arguments.collect(),
        })
    }

    /// Starts the program with these sockets, and waits until it is ready to serve.
    pub(crate) async fn spawn_successor(
        &self,
        sockets: &[ListenerFd],
    ) -> Result<Successor, HandoverError> {
        if std::process::id() == 1 {
            return Err(HandoverError::FirstProcess);
        }
        let (ours, theirs) = UnixStream::pair()?;
        let process = self.start(sockets, theirs)?;
        let mut successor = Successor::of(process, ours)?;
        match tokio::time::timeout(READY_TIMEOUT, successor.stream.read_u8()).await {
            Ok(Ok(READY)) => Ok(successor),
            Ok(_) => {
                successor.exits().await;
                Err(HandoverError::Ended)
            }
            Err(_) => Err(HandoverError::Late),
        }
    }

    fn start(&self, sockets: &[ListenerFd], stream: UnixStream) -> io::Result<Pid> {
        let mut names = Vec::new();
        let mut fds = Vec::new();
        for ListenerFd {
            surface,
            fd,
            is_held,
        } in sockets
        {
            let held = if *is_held { HELD } else { "" };
            names.push(format!("{}{held}", surface.name()));
            fds.push(fd.try_clone()?);
        }
        names.push(HANDOVER.to_owned());
        fds.push(stream.into_std()?.into());
        let count = fds.len().to_string();
        let mappings = (FIRST_FD..).zip(fds);
        let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping {
            parent_fd,
            child_fd,
        });
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SPAWN])
            .arg(&self.path)
            .args(&self.arguments);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
            .env("LISTEN_FDS", count)
            .env("LISTEN_FDNAMES", names.join(":"));
        // these name this process; without them, the variables above apply to any process
        command.env_remove("LISTEN_PID").env_remove("WATCHDOG_PID");
        command
            .fd_mappings(mappings.collect())
            .map_err(io::Error::other)?;
        let output = command.output()?.stdout;
        let process = str::from_utf8(&output)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let process = process.and_then(Pid::from_raw);
        process.ok_or_else(|| io::Error::other("the shell started nothing"))
    }
}

/// A process that will serve; killed if dropped before its release.
#[derive(Debug)]
pub(crate) struct Successor {
    id: Pid,
    /// pidfd_open(2): names the process even if it has exited and another has its id. Readable once
    /// it has exited. `None` after the release.
    process: Option<OwnedFd>,
    stream: UnixStream,
}

impl Successor {
    fn of(id: Pid, stream: UnixStream) -> io::Result<Self> {
        Ok(Self {
            id,
            process: Some(pidfd_open(id, PidfdFlags::empty())?),
            stream,
        })
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits up to [`EXIT_TIMEOUT`] for a successor that closed the socket, so that its errors are
    /// logged first.
    async fn exits(&self) {
        let Some(Ok(process)) = self.process.as_ref().map(OwnedFd::try_clone) else {
            return;
        };
        let wait = move || {
            poll(
                &mut [PollFd::new(&process, PollFlags::IN)],
                Some(&EXIT_TIMEOUT),
            )
        };
        // whether it has exited or not, it is dropped next
        let _ = tokio::task::spawn_blocking(wait).await;
    }

    /// Releases the successor, which then serves alone.
    pub(crate) async fn release(mut self) {
        self.process = None;
        // if the successor has just exited, the service manager restarts it
        let _ = self.stream.write_u8(RELEASE).await;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            // an error means that it has exited
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
}

/// Why there is no successor.
#[derive(Debug, Error)]
pub enum HandoverError {
    /// The successor cannot be started.
    #[error("it cannot be started: {0}")]
    Start(#[from] io::Error),
    /// This is process 1: all others end with it.
    #[error("process 1 cannot be replaced: all others end with it")]
    FirstProcess,
    /// The successor exited before it was ready.
    #[error("it exited before it was ready; its errors are above")]
    Ended,
    /// The successor was not ready in time.
    #[error("it was not ready within {} s", READY_TIMEOUT.as_secs())]
    Late,
}

/// The process that this one replaces.
#[derive(Debug)]
pub(crate) struct Predecessor(std::os::unix::net::UnixStream);

impl Predecessor {
    pub(crate) fn new(stream: std::os::unix::net::UnixStream) -> Self {
        Self(stream)
    }

    /// Reports that this process is ready, and waits for the release. The predecessor first
    /// announces this process to the service manager.
    pub(crate) async fn notify_ready(self) {
        let released = async {
            self.0.set_nonblocking(true)?;
            let mut stream = UnixStream::from_std(self.0)?;
            stream.write_u8(READY).await?;
            stream.read_u8().await
        };
        match tokio::time::timeout(RELEASE_TIMEOUT, released).await {
            Ok(Ok(RELEASE)) => log::info!("took over from the previous process"),
            _ => log::warn!("no release from the previous process: serving alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::process::ExitStatusExt as _;

    #[tokio::test]
    async fn a_successor_that_failed_is_killed_and_no_other_process() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let of = |child: &std::process::Child| {
            let (stream, _) = UnixStream::pair().unwrap();
            Successor::of(Pid::from_raw(child.id().cast_signed()).unwrap(), stream).unwrap()
        };
        drop(of(&child));
        assert_eq!(
            child.wait().unwrap().signal(),
            Some(9),
            "it would serve next to its predecessor"
        );

        let mut child = Command::new("true").spawn().unwrap();
        let mut successor = of(&child);
        successor.exits().await;
        child.wait().unwrap();
        let process = successor.process.take().unwrap();
        let signalled = pidfd_send_signal(process, Signal::KILL);
        assert_eq!(
            signalled,
            Err(Errno::SRCH),
            "a process that has its id by now is not signalled"
        );
    }
}
