//! Handing over to another process without a gap: an upgrade.
//!
//! The old process starts the program anew, from the path that it was started from itself, and
//! hands it its listening sockets as the service manager would. Both accept until the new one is
//! ready and says so on a socket between the two; then the old one has the service manager follow
//! the new one, lets it go on, and stops. When nothing comes of it, the old one has lost nothing.
//! Not with SQLite: such a store is one process's at a time.
//!
//! A shell in between makes it the service manager's child: when that stops a service whose main
//! process is not its own child, systemd 252 does not wait for it before it kills it.

use crate::telemetry::Surface;
use command_fds::{CommandFdExt as _, FdMapping};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The name of the socket between the two, beside those of the surfaces.
pub(crate) const SUCCESSION: &str = "succession";
/// Follows the name of a socket that the service manager holds, too.
pub(crate) const HELD: &str = "+held";
/// sd_listen_fds(3): `SD_LISTEN_FDS_START`.
const FIRST_FD: i32 = 3;
/// A successor that is not ready by then will not be: all that it waits for is its store.
const PATIENCE: Duration = Duration::from_secs(60);
/// For the predecessor's last word.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Runs the program apart, and says its process id.
const APART: &str = r#""$0" "$@" >&2 & echo $!"#;

/// How long one that gave up may take to end.
const MOMENTS: u32 = 100;
const MOMENT: Duration = Duration::from_millis(10);

const READY: u8 = b'r';
const GO_ON: u8 = b'g';

/// A listening socket that a successor gets.
#[derive(Debug)]
pub(crate) struct Bequest {
    /// Whose it is.
    pub(crate) surface: Surface,
    /// The socket.
    pub(crate) socket: OwnedFd,
    /// Whether the service manager holds it, too.
    pub(crate) is_held: bool,
}

/// What it takes to start the program anew.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// The program of this process, by the path that it was started from: what will lie there by
    /// then is what is started.
    ///
    /// # Errors
    /// The path can not be told.
    pub fn of_this_process() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().map(PathBuf::from);
        // a name alone was looked for in PATH
        let path = match name.filter(|name| name.components().count() > 1) {
            Some(path) => std::path::absolute(path)?,
            None => std::env::current_exe()?,
        };
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// Starts it with these sockets, and waits until it is ready to serve.
    pub(crate) async fn succeed(&self, sockets: &[Bequest]) -> Result<Successor, HandoverError> {
        if std::process::id() == 1 {
            return Err(HandoverError::FirstProcess);
        }
        let (ours, theirs) = UnixStream::pair().map_err(HandoverError::Start)?;
        let process = self.start(sockets, theirs).map_err(HandoverError::Start)?;
        let mut successor = Successor { process: Some(process), line: ours };
        match tokio::time::timeout(PATIENCE, successor.line.read_u8()).await {
            Ok(Ok(READY)) => Ok(successor),
            Ok(_) => {
                successor.ends().await;
                Err(HandoverError::Ended)
            }
            Err(_) => Err(HandoverError::Late),
        }
    }

    fn start(&self, sockets: &[Bequest], line: UnixStream) -> io::Result<Pid> {
        let mut names = Vec::new();
        let mut fds = Vec::new();
        for Bequest { surface, socket, is_held } in sockets {
            let held = if *is_held { HELD } else { "" };
            names.push(format!("{}{held}", surface.name()));
            fds.push(socket.try_clone()?);
        }
        names.push(SUCCESSION.to_owned());
        fds.push(line.into_std()?.into());
        let count = fds.len().to_string();
        let mappings = (FIRST_FD..).zip(fds);
        let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
        let mut command = Command::new("/bin/sh");
        command.args(["-c", APART]).arg(&self.path).args(&self.arguments);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command.env("LISTEN_FDS", count).env("LISTEN_FDNAMES", names.join(":"));
        // they name this process; without them, both are meant for whoever reads them
        command.env_remove("LISTEN_PID").env_remove("WATCHDOG_PID");
        command.fd_mappings(mappings.collect()).map_err(io::Error::other)?;
        let said = command.output()?.stdout;
        let process = str::from_utf8(&said).ok().and_then(|said| said.trim().parse().ok());
        process.map(Pid::from_raw).ok_or_else(|| io::Error::other("no shell started it"))
    }
}

/// A process that is about to take over; ended when dropped before that.
#[derive(Debug)]
pub(crate) struct Successor {
    process: Option<Pid>,
    line: UnixStream,
}

impl Successor {
    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.map_or(0, |process| process.as_raw().unsigned_abs())
    }

    /// It has left the line: it is given a moment to say why, and to end.
    async fn ends(&self) {
        let gone = |process| kill(process, None).is_err();
        for _ in 0..MOMENTS {
            if self.process.is_none_or(gone) {
                return;
            }
            tokio::time::sleep(MOMENT).await;
        }
    }

    /// Lets it go on alone.
    pub(crate) async fn go_on(mut self) {
        self.process = None;
        // one that is gone in this very moment is the service manager's to start again
        let _ = self.line.write_u8(GO_ON).await;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(process) = self.process {
            // most likely it has ended by itself
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

/// Why there is no successor.
#[derive(Debug)]
pub enum HandoverError {
    /// It could not be started.
    Start(io::Error),
    /// This is the first process, with which all others end.
    FirstProcess,
    /// It ended before it was ready.
    Ended,
    /// It was not ready in time.
    Late,
}

impl std::fmt::Display for HandoverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Start(error) => write!(f, "it can not be started: {error}"),
            Self::FirstProcess => {
                f.write_str("process 1 has no successor: every other ends with it")
            }
            Self::Ended => f.write_str("it ended before it was ready; what it said is above"),
            Self::Late => write!(f, "it was not ready within {} s", PATIENCE.as_secs()),
        }
    }
}

impl std::error::Error for HandoverError {}

/// The process that this one takes over from.
#[derive(Debug)]
pub(crate) struct Predecessor(std::os::unix::net::UnixStream);

impl Predecessor {
    /// At the other end of `line`.
    pub(crate) fn new(line: std::os::unix::net::UnixStream) -> Self {
        Self(line)
    }

    /// Tells it that this process is ready, and waits until the service manager has heard of that
    /// from it, as the one that it still listens to.
    pub(crate) async fn relieve(self) {
        let relieved = async {
            self.0.set_nonblocking(true)?;
            let mut line = UnixStream::from_std(self.0)?;
            line.write_u8(READY).await?;
            line.read_u8().await
        };
        match tokio::time::timeout(LAST_WORD, relieved).await {
            Ok(Ok(GO_ON)) => log::info!("took over from the process before"),
            _ => log::warn!("the process before said no last word: serving alone"),
        }
    }
}
