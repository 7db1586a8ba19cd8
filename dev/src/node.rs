//! A `starknet-devnet` of our own: started on a free port, stopped on exit.

use super::install::{InstallError, RELEASE};
use super::{attached, hold};
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::net::TcpSocket;

/// The node's own chain id, so that signatures made here are invalid elsewhere.
pub(super) const CHAIN_ID: &str = "PORTCULLIS_DEV";
/// A node starts in one to seven seconds, more on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Time between two polls while it starts.
const POLL: Duration = Duration::from_millis(50);

/// Why the node did not start.
#[derive(Debug, Error)]
pub(super) enum StartError {
    /// The program is missing, and so is cargo to build it.
    #[error(
        "starknet-devnet was not found, and cargo, which would build it, is not on PATH; install \
         the package portcullis-devnet, unpack starknet-devnet from {RELEASE} onto PATH, or name a \
         running node with --node"
    )]
    NoCargo,
    /// The program cannot be built.
    #[error(
        "cannot install starknet-devnet: {0}; install it in another way, or name a running node \
         with --node"
    )]
    Install(#[from] InstallError),
    /// No port is free.
    #[error("no port is free: {0}")]
    Port(io::Error),
    /// The program cannot be executed.
    #[error("cannot start {0}: {1}")]
    Spawn(PathBuf, io::Error),
    /// The node exited or did not answer; its log has the reason.
    #[error("starknet-devnet did not start; see {0}")]
    NotAlive(PathBuf),
}

/// A running node; dropping it stops it.
pub(super) struct Devnet {
    process: Child,
    port: Port,
    program: PathBuf,
    log: PathBuf,
}

impl Devnet {
    /// Starts a node whose output goes to `log`, and waits until it answers.
    pub(super) async fn start(
        program: PathBuf,
        port: Port,
        log: &Path,
    ) -> Result<Self, StartError> {
        let spawn_failed = |error| StartError::Spawn(program.clone(), error);
        let out = hold::replace(log).map_err(spawn_failed)?;
        let process = spawn(&program, port.address, out).map_err(spawn_failed)?;
        let mut devnet = Self {
            process,
            port,
            program,
            log: log.to_owned(),
        };
        devnet.answers().await?;
        Ok(devnet)
    }

    /// Restarts a node that has ended, at its address and with an empty chain.
    pub(super) async fn restart(&mut self) -> Result<(), StartError> {
        let spawn_failed = |error| StartError::Spawn(self.program.clone(), error);
        // appended: the log has the last output before the node ended
        let out = OpenOptions::new()
            .append(true)
            .create(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&self.log)
            .map_err(spawn_failed)?;
        self.process = spawn(&self.program, self.port.address, out).map_err(spawn_failed)?;
        self.answers().await
    }

    /// The exit status; `None` while the node runs.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Kills the node.
    pub(super) fn stop(&mut self) {
        // it has nothing to save
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits until the node answers.
    async fn answers(&mut self) -> Result<(), StartError> {
        let end = Instant::now() + START;
        while !is_alive(self.port.address) {
            if self.exit_status().is_some() || Instant::now() >= end {
                return Err(StartError::NotAlive(self.log.clone()));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

impl Drop for Devnet {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port on loopback, reserved for a node that starts later and may restart. Without a node,
/// connections to the port are refused.
pub(super) struct Port {
    pub(super) address: SocketAddr,
    /// Bound but not listening: the system does not assign the port to others, and the node can
    /// listen on it, as both set `SO_REUSEADDR`.
    _socket: TcpSocket,
}

impl Port {
    /// Reserves a free port.
    pub(super) fn reserve() -> Result<Self, StartError> {
        let socket = TcpSocket::new_v4().map_err(StartError::Port)?;
        socket.set_reuseaddr(true).map_err(StartError::Port)?;
        socket
            .bind((Ipv4Addr::LOCALHOST, 0).into())
            .map_err(StartError::Port)?;
        let address = socket.local_addr().map_err(StartError::Port)?;
        Ok(Self {
            address,
            _socket: socket,
        })
    }

    /// The URL of the node's JSON-RPC.
    pub(super) fn url(&self) -> String {
        format!("http://{}/rpc", self.address)
    }
}

fn spawn(program: &Path, address: SocketAddr, out: File) -> io::Result<Child> {
    let err = out.try_clone()?;
    attached::command(program)
        // seed 0: the same accounts each time
        .args(["--host", "127.0.0.1", "--seed", "0", "--chain-id", CHAIN_ID])
        .args(["--port", &address.port().to_string()])
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        // Ctrl-C signals only this process; the node stops after the requests in flight
        .process_group(0)
        .spawn()
}

fn is_alive(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /is_alive HTTP/1.0\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(answer.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_reserved_port_is_for_its_node() {
        let port = Port::reserve().expect("a port is free");
        let other = || TcpSocket::new_v4().and_then(|socket| socket.bind(port.address));
        assert_eq!(other().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // a listener sets SO_REUSEADDR, and accepts the connections
        let node = TcpListener::bind(port.address).expect("the node can have it");
        TcpStream::connect(port.address).expect("the node listens");
        node.accept().expect("it is the node's");
        drop(node);
        TcpStream::connect(port.address).expect_err("the node has ended");
        TcpListener::bind(port.address).expect("it starts again");
    }
}
