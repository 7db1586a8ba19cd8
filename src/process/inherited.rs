//! Sockets that were bound before the process began: by the service manager, which starts it for
//! them (sd_listen_fds(3), systemd.socket(5)), or by the process that it takes over from.
//!
//! In: `LISTEN_FDS`, `LISTEN_FDNAMES` and open files from 3 on. Out: the listener of a surface, by
//! its name or its address. One that fits nothing is an error: whoever binds a socket that nobody
//! serves leaves its clients waiting.

use crate::config::Listen;
use crate::process::handover::{HELD, Predecessor, SUCCESSION};
use listenfd::ListenFd;
use nix::libc::{AF_UNIX, SOCK_STREAM};
use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// A bound socket.
#[derive(Debug)]
pub enum Socket {
    /// Of a TCP address.
    Tcp(TcpListener),
    /// Of a path.
    Unix(UnixListener),
}

impl Socket {
    /// Where it listens, its port known.
    ///
    /// # Errors
    /// It has no address that a configuration could name.
    pub fn listen(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Listen::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().ok_or(io::ErrorKind::AddrNotAvailable)?;
                Ok(Listen::Unix(path.to_owned()))
            }
        }
    }

    /// The same socket once more.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn share(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}

/// A socket that was handed in.
#[derive(Debug)]
struct Given {
    name: String,
    listen: Listen,
    socket: Socket,
    /// The service manager has it, too, and goes on listening when the process ends.
    is_held: bool,
}

/// The sockets that were handed in, and who handed them.
#[derive(Debug, Default)]
pub struct Inherited {
    given: Vec<Given>,
    predecessor: Option<Predecessor>,
}

/// Why what was handed in can not be used.
#[derive(Debug)]
pub enum InheritError {
    /// It is not a stream socket that listens at an address.
    NoListener {
        /// Its number.
        fd: usize,
        /// Its name.
        name: String,
    },
    /// No surface is configured for it.
    Unclaimed {
        /// Its name.
        name: String,
        /// Where it listens.
        listen: Listen,
    },
}

impl std::fmt::Display for InheritError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoListener { fd, name } => {
                write!(f, "file {fd} ({name:?}), handed in by LISTEN_FDS, is no listening socket")
            }
            Self::Unclaimed { name, listen } => write!(
                f,
                "the socket {name:?} on {listen}, handed in by LISTEN_FDS, fits no surface: one \
                 must be switched on that has this address, or the socket its name (gateway, \
                 relay, sidecar, admin), and each takes one socket"
            ),
        }
    }
}

impl std::error::Error for InheritError {}

impl Inherited {
    /// Takes what was handed in. To be called once, while the process has no threads yet.
    ///
    /// # Errors
    /// One of the files is no socket that listens.
    pub fn take() -> Result<Self, InheritError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut fds = ListenFd::from_env();
        let mut inherited = Self::default();
        for at in 0..fds.len() {
            let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown");
            let none = || InheritError::NoListener { fd: FIRST_FD + at, name: name.to_owned() };
            if name == SUCCESSION {
                let stream = fds.take_custom(at, AF_UNIX, SOCK_STREAM, "stream socket");
                inherited.predecessor = stream.ok().flatten().map(Predecessor::new);
                continue;
            }
            let socket = listener(&mut fds, at).ok_or_else(none)?;
            let listen = socket.listen().map_err(|_| none())?;
            let held_name = name.strip_suffix(HELD);
            let name = held_name.unwrap_or(name).to_owned();
            inherited.given.push(Given { name, listen, socket, is_held: held_name.is_some() });
        }
        if inherited.predecessor.is_none() {
            // the service manager keeps what it hands out
            inherited.given.iter_mut().for_each(|given| given.is_held = true);
        }
        Ok(inherited)
    }

    /// The socket for the surface `name` that is configured to listen on `listen`, and whether the
    /// service manager holds it, too.
    ///
    /// What the service manager calls by the surface's name is its socket, wherever it is, and that
    /// of a successor, too. What a predecessor bound itself is taken over where it is still wanted.
    pub(crate) fn claim(&mut self, name: &str, listen: &Listen) -> Option<(Socket, bool)> {
        let succeeds = self.predecessor.is_some();
        let named = self.given.iter().position(|given| {
            let is_meant = !succeeds || given.is_held || is_wanted(&given.listen, listen);
            given.name == name && is_meant
        });
        let at = named
            .or_else(|| self.given.iter().position(|given| !succeeds && given.listen == *listen))?;
        let Given { socket, is_held, .. } = self.given.swap_remove(at);
        Some((socket, is_held))
    }

    /// Everything was claimed that will be: who is to be taken over from.
    ///
    /// # Errors
    /// The service manager bound a socket that no surface serves.
    pub(crate) fn finish(self) -> Result<Option<Predecessor>, InheritError> {
        if self.predecessor.is_none()
            && let Some(Given { name, listen, .. }) = self.given.into_iter().next()
        {
            return Err(InheritError::Unclaimed { name, listen });
        }
        Ok(self.predecessor)
    }
}

/// sd_listen_fds(3): `SD_LISTEN_FDS_START`.
const FIRST_FD: usize = 3;

fn listener(fds: &mut ListenFd, at: usize) -> Option<Socket> {
    let tcp = fds.take_tcp_listener(at).ok().flatten().map(Socket::Tcp);
    let socket = tcp.or_else(|| fds.take_unix_listener(at).ok().flatten().map(Socket::Unix))?;
    let listens = match &socket {
        Socket::Tcp(listener) => getsockopt(listener, AcceptConn),
        Socket::Unix(listener) => getsockopt(listener, AcceptConn),
    };
    listens.unwrap_or(false).then_some(socket)
}

/// Whether a socket at `have` is what the configuration wants: port 0 wants any.
fn is_wanted(have: &Listen, wanted: &Listen) -> bool {
    match (have, wanted) {
        (Listen::Tcp(have), Listen::Tcp(wanted)) if wanted.port() == 0 => have.ip() == wanted.ip(),
        _ => have == wanted,
    }
}
