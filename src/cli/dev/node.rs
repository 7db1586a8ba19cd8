//! A `starknet-devnet` of our own: found or installed, started on a free port, stopped on exit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The version for which the development network is made.
const VERSION: &str = "0.10.1";
/// Where it is installed when it is not on `PATH`.
const TOOLS: &str = "target/tools";
/// A node starts in one to seven seconds, more on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Time between two polls while it starts.
const POLL: Duration = Duration::from_millis(50);

/// Why no node runs.
#[derive(Debug, Error)]
pub(super) enum StartError {
    /// `cargo install` failed.
    #[error("cannot install starknet-devnet: {0}")]
    Install(String),
    /// It does not start.
    #[error("cannot start {0}: {1}")]
    Spawn(PathBuf, io::Error),
    /// It exited or did not answer; its log has the reason.
    #[error("starknet-devnet did not start; see {0}")]
    NotAlive(PathBuf),
}

/// A running node; dropping it stops it.
pub(super) struct Devnet {
    process: Child,
    address: SocketAddr,
    program: PathBuf,
    log: PathBuf,
}

impl Devnet {
    /// Starts a node whose output goes to `log`, and waits until it answers.
    pub(super) async fn start(log: &Path) -> Result<Self, StartError> {
        let program = find_or_install()?;
        let spawn_failed = |error| StartError::Spawn(program.clone(), error);
        let address = free_address().map_err(spawn_failed)?;
        let out = File::create(log).map_err(spawn_failed)?;
        let process = spawn(&program, address, out).map_err(spawn_failed)?;
        let mut devnet = Self { process, address, program, log: log.to_owned() };
        eprintln!("starting {} on {address} ...", devnet.program.display());
        devnet.answers().await?;
        Ok(devnet)
    }

    /// Starts it again, at its address and with an empty chain, after it has ended.
    pub(super) async fn restart(&mut self) -> Result<(), StartError> {
        let spawn_failed = |error| StartError::Spawn(self.program.clone(), error);
        // the log keeps what it said at its end
        let out = OpenOptions::new().append(true).create(true).open(&self.log);
        let out = out.map_err(spawn_failed)?;
        self.process = spawn(&self.program, self.address, out).map_err(spawn_failed)?;
        self.answers().await
    }

    /// How it ended; `None` while it runs.
    pub(super) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Ends it.
    pub(super) fn stop(&mut self) {
        // it has nothing to save
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits until it answers.
    async fn answers(&mut self) -> Result<(), StartError> {
        let end = Instant::now() + START;
        while !is_alive(self.address) {
            if self.exit_status().is_some() || Instant::now() >= end {
                return Err(StartError::NotAlive(self.log.clone()));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The URL of its JSON-RPC.
    pub(super) fn url(&self) -> String {
        format!("http://{}/rpc", self.address)
    }
}

impl Drop for Devnet {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(program: &Path, address: SocketAddr, out: File) -> io::Result<Child> {
    let err = out.try_clone()?;
    Command::new(program)
        // seed 0: the same accounts each time; its own chain id, so that signatures made here are
        // invalid elsewhere
        .args(["--host", "127.0.0.1", "--seed", "0", "--chain-id", "PORTCULLIS_DEV"])
        .args(["--port", &address.port().to_string()])
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        // Ctrl-C is for this process; the node stops when requests in flight are answered
        .process_group(0)
        .spawn()
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
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

fn find_or_install() -> Result<PathBuf, StartError> {
    let installed = Path::new(TOOLS).join("bin/starknet-devnet");
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|dir| dir.join("starknet-devnet")).find(|p| p.is_file())
    });
    if let Some(program) = on_path.or_else(|| installed.is_file().then(|| installed.clone())) {
        return Ok(program);
    }
    eprintln!(
        "starknet-devnet is neither on PATH nor in {TOOLS}; installing {VERSION}. \
         Building it from source takes up to half an hour, once."
    );
    let status = Command::new("cargo")
        .args(["install", "--locked", "starknet-devnet", "--version", VERSION, "--root", TOOLS])
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(installed),
        Ok(status) => Err(StartError::Install(format!("cargo install: {status}"))),
        Err(error) => Err(StartError::Install(format!("cargo: {error}"))),
    }
}
