//! A program under load: a child process, its CPU time and its memory.

use crate::baseline;
use crate::scenario::Program;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The start timeout.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between polls.
const LOOK: Duration = Duration::from_millis(20);

/// A running program; ended on drop.
pub(crate) struct Process {
    child: Child,
    folder: PathBuf,
    /// The listen address.
    pub(crate) address: SocketAddr,
    /// Whether this is the pass-through.
    pub(crate) is_bare: bool,
}

impl Process {
    /// This executable as the program under test in front of this node, on one thread, with limits
    /// that no run reaches.
    pub(crate) fn program(executable: &Path, program: Program, node: SocketAddr) -> Self {
        let folder = new_folder();
        let config = folder.join("portcullis.toml");
        fs::write(&config, configuration(program, node, &folder)).expect("a folder of ours");
        let mut command = Command::new(executable);
        command.arg("serve").arg("--config").arg(config);
        let mut child = spawn(command, &folder);
        let address = eventually(&mut child, &folder, || listening(&folder));
        Self {
            child,
            folder,
            address,
            is_bare: false,
        }
        .ready("GET /healthz")
    }

    /// Bare Pingora, which forwards everything to this node.
    pub(crate) fn baseline(node: SocketAddr) -> Self {
        let folder = new_folder();
        let own = baseline::free_address();
        let this = std::env::current_exe().expect("a running program has a path");
        let mut command = Command::new(this);
        command.args(baseline::arguments(own, node));
        let child = spawn(command, &folder);
        // the pass-through has no response of its own: any response of the node will do
        Self {
            child,
            folder,
            address: own,
            is_bare: true,
        }
        .ready("POST /rpc")
    }

    /// Waits until the process responds.
    fn ready(mut self, line: &str) -> Self {
        let address = self.address;
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"starknet_chainId"}"#;
        let length = if line.starts_with("POST") {
            body.len()
        } else {
            0
        };
        let request = format!(
            "{line} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-length: {length}\r\n\
             \r\n{}",
            &body[..length]
        );
        eventually(&mut self.child, &self.folder, || {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.write_all(request.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        });
        self
    }

    /// The CPU time used so far by all its threads: proc(5), `schedstat`.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(self.proc("task")).expect("the process is alive");
        let nanoseconds = tasks.flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanoseconds.sum())
    }

    /// Its resident memory in KiB: proc(5), `VmRSS`.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(self.proc("status")).expect("the process is alive");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kib.expect("every process reports its resident memory")
    }

    /// The number of open files, including sockets.
    pub(crate) fn open_files(&self) -> usize {
        fs::read_dir(self.proc("fd"))
            .expect("the process is alive")
            .count()
    }

    fn proc(&self, what: &str) -> PathBuf {
        Path::new("/proc")
            .join(self.child.id().to_string())
            .join(what)
    }

    /// Truncates the log; the program opens it in append mode.
    pub(crate) fn forget_log(&self) {
        let log = OpenOptions::new().write(true).open(log_in(&self.folder));
        log.and_then(|log| log.set_len(0)).expect("a file of ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_bare {
            let _gone_already = self.child.kill();
        } else {
            // as an operator ends it, so that it writes its profile if it has counters
            let pid = Pid::from_raw(self.child.id().cast_signed());
            let _gone_already = signal::kill(pid, Signal::SIGTERM);
        }
        let _reaped = self.child.wait();
        let _left_behind = fs::remove_dir_all(&self.folder);
    }
}

fn configuration(program: Program, node: SocketAddr, folder: &Path) -> String {
    let keeps = program != Program::Plain;
    let per_minute = if program == Program::Limited {
        1
    } else {
        1_000_000_000
    };
    let admin = folder.join("admin.sock");
    format!(
        "[server]\nthreads = 1\n\
         [node]\nurl = \"http://{node}/rpc\"\n\
         [gateway]\nlisten = \"127.0.0.1:0\"\nrequests_per_minute = {per_minute}\n\
         max_in_flight_per_client = 100000\nsingle_flight = {keeps}\n\
         [gateway.cache]\nenabled = {keeps}\n\
         [admin]\nlisten = \"unix:{}\"\n",
        admin.display()
    )
}

fn new_folder() -> PathBuf {
    // unique in this process and across processes
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(format!("portcullis-bench.{process}.{number}"));
    fs::create_dir(&folder).expect("the folder for temporary files can be written to");
    folder
}

fn log_in(folder: &Path) -> PathBuf {
    folder.join("log")
}

fn spawn(mut command: Command, folder: &Path) -> Child {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log_in(folder));
    let log = log.expect("a folder of ours");
    let out: File = log.try_clone().expect("a file can be opened twice");
    command.stdin(Stdio::null()).stdout(out).stderr(log);
    command.spawn().expect("the program was built")
}

/// The gateway's listen address, read from the log.
fn listening(folder: &Path) -> Option<SocketAddr> {
    let log = fs::read_to_string(log_in(folder)).ok()?;
    let line = log.lines().find(|line| {
        line.contains(r#""message":"listening""#) && line.contains(r#""surface":"gateway""#)
    })?;
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    line["address"].as_str()?.parse().ok()
}

/// Polls `look` until it returns a value. Panics with the log if the program exits or the timeout
/// passes.
fn eventually<T>(child: &mut Child, folder: &Path, look: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        let ended = child.try_wait().ok().flatten();
        if ended.is_some() || Instant::now() > end {
            let log = fs::read_to_string(log_in(folder)).unwrap_or_default();
            let _gone_already = child.kill();
            panic!("a program did not come up ({ended:?}):\n{log}");
        }
        std::thread::sleep(LOOK);
    }
}

/// Raises the open file limit to its maximum for this process and its children; returns it.
pub(crate) fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}
