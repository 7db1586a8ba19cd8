//! Sockets that were bound before the process started: by the service manager (sd_listen_fds(3),
//! systemd.socket(5)), or by the predecessor in a handover.
//!
//! In: `LISTEN_FDS`, `LISTEN_FDNAMES` and open files from 3 on. Out: the socket of a surface, by
//! its name or its address. A socket that matches no surface is an error: its clients would wait
//! for ever.

use crate::process::handover::{FIRST_FD, HANDOVER, HELD, Predecessor};
use listenfd::ListenFd;
use nix::libc::{AF_UNIX, SOCK_STREAM};
use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
use portcullis_base::config::Listen;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use thiserror::Error;

/// A listening socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpListener),
    /// A Unix domain socket.
    Unix(UnixListener),
}

impl Socket {
    /// Its address, with the actual port.
    ///
    /// # Errors
    /// Fails for a Unix socket without a path.
    pub fn listen(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Listen::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address
                    .as_pathname()
                    .ok_or(io::ErrorKind::AddrNotAvailable)?;
                Ok(Listen::Unix(path.to_owned()))
            }
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener) => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A socket and its address.
#[derive(Debug)]
pub struct BoundSocket {
    pub(crate) socket: Socket,
    /// The address that it is bound to.
    pub listen: Listen,
    /// Whether the service manager holds it, too, and listens on it when the process ends.
    pub(crate) is_held: bool,
}

impl BoundSocket {
    /// # Errors
    /// Fails if the address cannot be read.
    pub(crate) fn new(socket: Socket) -> io::Result<Self> {
        Ok(Self {
            listen: socket.listen()?,
            socket,
            is_held: false,
        })
    }
}

/// The inherited sockets by name, and the predecessor if they came from one.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(String, BoundSocket)>,
    predecessor: Option<Predecessor>,
}

/// Why an inherited socket cannot be used.
#[derive(Debug, Error)]
pub enum InheritError {
    /// The file is not a listening stream socket with an address.
    #[error("file {fd} ({name:?}) of LISTEN_FDS is not a listening socket")]
    NoListener {
        /// Its file descriptor.
        fd: usize,
        /// Its name.
        name: String,
    },
    /// No surface is configured for the socket.
    #[error(
        "the socket {name:?} on {listen} of LISTEN_FDS matches no surface: configure one with this \
         address, or name the socket like its surface (gateway, relay, sidecar, admin, \
         acme); each surface has one socket"
    )]
    Unclaimed {
        /// Its name.
        name: String,
        /// Its address.
        listen: Listen,
    },
}

impl Inherited {
    /// Takes the inherited sockets. Call it once, while the process has a single thread.
    ///
    /// # Errors
    /// Fails if one of the files is not a listening socket.
    pub fn take() -> Result<Self, InheritError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut fds = ListenFd::from_env();
        let mut inherited = Self::default();
        for at in 0..fds.len() {
            let name = names
                .next()
                .filter(|name| !name.is_empty())
                .unwrap_or("unknown");
            let none = || InheritError::NoListener {
                fd: FIRST_FD as usize + at,
                name: name.to_owned(),
            };
            if name == HANDOVER {
                let stream = fds.take_custom(at, AF_UNIX, SOCK_STREAM, "stream socket");
                inherited.predecessor = stream.ok().flatten().map(Predecessor::new);
                continue;
            }
            let socket = listener(&mut fds, at).ok_or_else(none)?;
            let held_name = name.strip_suffix(HELD);
            let mut socket = BoundSocket::new(socket).map_err(|_| none())?;
            socket.is_held = held_name.is_some();
            inherited
                .sockets
                .push((held_name.unwrap_or(name).to_owned(), socket));
        }
        if inherited.predecessor.is_none() {
            // the service manager keeps the sockets that it passes
            inherited
                .sockets
                .iter_mut()
                .for_each(|(_, socket)| socket.is_held = true);
        }
        Ok(inherited)
    }

    /// Sockets that this process bound before it built the server, each with its surface's name.
    pub fn bound(sockets: Vec<(String, BoundSocket)>) -> Self {
        Self {
            sockets,
            predecessor: None,
        }
    }

    /// The socket for the surface `name` that is configured to listen on `listen`.
    ///
    /// A socket that the service manager holds belongs to the surface of its name, whatever its
    /// address. One that the predecessor bound is used only if its address is still configured.
    pub fn claim(&mut self, name: &str, listen: &Listen) -> Option<BoundSocket> {
        let is_handover = self.is_handover();
        let named = self.sockets.iter().position(|(own, socket)| {
            let is_usable = !is_handover || socket.is_held || matches(&socket.listen, listen);
            own == name && is_usable
        });
        let by_address = || {
            let same = |(_, socket): &(String, BoundSocket)| socket.listen == *listen;
            self.sockets.iter().position(same).filter(|_| !is_handover)
        };
        let at = named.or_else(by_address)?;
        Some(self.sockets.swap_remove(at).1)
    }

    /// Whether another process serves until this one is ready.
    pub(crate) fn is_handover(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Ends the claims, and returns the predecessor if there is one.
    ///
    /// # Errors
    /// Fails if the service manager passed a socket that no surface uses.
    pub(crate) fn finish(self) -> Result<Option<Predecessor>, InheritError> {
        match self
            .sockets
            .into_iter()
            .next()
            .filter(|_| self.predecessor.is_none())
        {
            Some((name, socket)) => Err(InheritError::Unclaimed {
                name,
                listen: socket.listen,
            }),
            None => Ok(self.predecessor),
        }
    }
}

fn listener(fds: &mut ListenFd, at: usize) -> Option<Socket> {
    let tcp = fds.take_tcp_listener(at).ok().flatten().map(Socket::Tcp);
    let socket = tcp.or_else(|| fds.take_unix_listener(at).ok().flatten().map(Socket::Unix))?;
    getsockopt(&socket, AcceptConn)
        .unwrap_or(false)
        .then_some(socket)
}

/// Whether a socket at `actual` matches the configured address; port 0 matches any port.
fn matches(actual: &Listen, configured: &Listen) -> bool {
    match (actual, configured) {
        (Listen::Tcp(actual), Listen::Tcp(any)) if any.port() == 0 => actual.ip() == any.ip(),
        _ => actual == configured,
    }
}
