//! The process that holds an address, for the message about an address in use.
//!
//! Linux lists listening sockets in `/proc/net/tcp` and `/proc/net/tcp6` with their inode and user,
//! and each process's open files in `/proc/PID/fd` (proc(5)), which only its user and root can
//! read.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use portcullis_base::config::Listen;
use rustix::process::geteuid;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Who holds an address.
#[derive(Debug, PartialEq, Eq)]
pub enum PortOwner {
    /// A process, with its command line.
    Process(u32, String),
    /// A process whose files this one cannot read, by the id of its user.
    User(u32),
}

impl PortOwner {
    /// The owner of an address in use, if it can be found.
    pub fn of(listen: &Listen) -> Option<Self> {
        match listen {
            Listen::Tcp(_) => {
                let sockets = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
                let tables = sockets.map(|table| fs::read_to_string(table).unwrap_or_default());
                let mut lines = tables.iter().flat_map(|table| table.lines());
                let (user, inode) = lines.find_map(|line| socket_at(line, listen))?;
                Some(process_with(&inode).map_or(Self::User(user), Self::process))
            }
            Listen::Unix(path) => {
                let peer = getsockopt(&UnixStream::connect(path).ok()?, PeerCredentials).ok()?;
                Some(u32::try_from(peer.pid()).map_or(Self::User(peer.uid()), Self::process))
            }
        }
    }

    fn process(id: u32) -> Self {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .collect();
        Self::Process(id, words.join(" ").trim_end().to_owned())
    }

    /// Whether this is a running Portcullis, or the service manager on its behalf: its address
    /// becomes free when it stops, or is passed on.
    pub fn is_the_service(&self) -> bool {
        match self {
            Self::Process(id, line) => {
                let mut words = line.split(' ');
                let is_ours = words.next().is_some_and(|program| {
                    Path::new(program)
                        .file_name()
                        .is_some_and(|name| name == "portcullis")
                });
                *id == 1 || is_ours && words.next() == Some("serve")
            }
            // systemd, whose sockets the service cannot read; or the service, which hides its files
            // from its own user when it has secrets (`hardening::no_core_files`)
            Self::User(user) => *user == 0 || *user == geteuid().as_raw(),
        }
    }
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(id, line) => write!(f, "process {id} ({line})"),
            Self::User(0) => f.write_str("a process of root, such as systemd for a socket unit"),
            Self::User(user) if *user == geteuid().as_raw() => {
                f.write_str("a process of this user that hides its files, as the running service")
            }
            Self::User(user) => write!(f, "a process of user {user}; root can see which one"),
        }
    }
}

/// The user and the inode of the socket in a line, if it collides with `listen`.
fn socket_at(line: &str, listen: &Listen) -> Option<(u32, String)> {
    let columns: Vec<_> = line.split_whitespace().collect();
    let &[_, local, _, LISTENING, _, _, _, user, _, inode, ..] = &*columns else {
        return None;
    };
    let (address, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let found = Listen::Tcp(SocketAddr::new(parse_address(address)?, port));
    listen
        .collides(&found)
        .then(|| Some((user.parse().ok()?, inode.to_owned())))?
}

/// An address in hexadecimal: words of 32 bits in the byte order of the machine.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at| {
        Some(
            u32::from_str_radix(text.get(at..at + 8)?, 16)
                .ok()?
                .to_ne_bytes(),
        )
    };
    if text.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (at, part) in bytes.chunks_mut(4).enumerate() {
        part.copy_from_slice(&word(8 * at)?);
    }
    Some(Ipv6Addr::from(bytes).to_canonical())
}

/// The process that has the socket of this inode open.
fn process_with(inode: &str) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    let has_it = |id: &u32| {
        let files = fs::read_dir(format!("/proc/{id}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.as_os_str() == &*wanted)
    };
    let names = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .map(|entry| entry.file_name());
    let ids = names.filter_map(|name| name.to_str()?.parse().ok());
    // a service that inherited its socket, rather than the service manager that passed it
    ids.filter(has_it).max()
}
