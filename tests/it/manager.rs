//! A service manager as seen by a process: it receives notifications (sd_notify(3)) and holds
//! sockets.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::support::client::PATIENCE;
use crate::support::edge::{Setup, scratch_path};

/// Receives notifications.
pub(crate) struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    pub(crate) fn new() -> Self {
        let path = scratch_path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, path }
    }

    /// The path of the notification socket: `NOTIFY_SOCKET`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Configures the program to notify this manager.
    pub(crate) fn of(&self, setup: Setup) -> Setup {
        setup.environment("NOTIFY_SOCKET", &self.path.display().to_string())
    }

    /// The next notification, each state on its own line.
    pub(crate) fn hear(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).expect("a notification");
        String::from_utf8(message[..length].to_vec()).expect("states are text")
    }

    /// Asserts that no notification arrived.
    pub(crate) fn is_silent(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let stated = self.socket.recv(&mut [0; 4096]);
        assert!(stated.is_err(), "{stated:?} bytes were sent");
    }

    /// The first notification with this state; earlier ones are skipped.
    pub(crate) fn hear_of(&self, state: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let message = self.hear();
            if message.lines().any(|line| line.starts_with(state)) {
                return message;
            }
        }
        panic!("{state} is not announced");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

/// The value of `name` in a message.
pub(crate) fn value<'a>(message: &'a str, name: &str) -> &'a str {
    let line = message
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("no {name} in {message:?}"))
}

/// A listening TCP socket, and its address.
pub(crate) fn listener() -> (Arc<OwnedFd>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (Arc::new(listener.into()), address)
}
