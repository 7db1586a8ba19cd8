//! A real `portcullis serve`, one for each test.
//!
//! In: the node behind it, and the keys that differ from this harness's defaults. Out: its listen
//! addresses (port 0, read from its own log), its log lines, its exit code. It ends with the test.
//! Its quota is far above what a test sends, unless the test sets one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value;

use crate::support::client::{Client, PATIENCE};
use crate::support::documents;
use crate::support::node::Node;
use crate::support::request::Request;
use crate::support::response::Response;

/// A quota that no test exhausts by accident.
pub(crate) const AMPLE: u32 = 10_000;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_portcullis");

/// A builder of configuration files.
#[derive(Clone)]
pub(crate) struct Setup {
    keys: BTreeMap<String, String>,
    environment: Vec<(String, String)>,
    program: PathBuf,
    sockets: Vec<(String, Arc<OwnedFd>)>,
}

impl Setup {
    /// Both surfaces on free ports, in front of a node at this address.
    pub(crate) fn before(node: SocketAddr) -> Self {
        let (keys, environment) = (BTreeMap::new(), Vec::new());
        Self {
            keys,
            environment,
            program: PROGRAM.into(),
            sockets: Vec::new(),
        }
        .set("server.threads", "2")
        .set("node.url", &format!("\"http://{node}/rpc\""))
        .set("gateway.listen", "\"127.0.0.1:0\"")
        .set("gateway.requests_per_minute", &AMPLE.to_string())
        .set("admin.listen", "\"127.0.0.1:0\"")
    }

    /// Sets a key, by its path, to a TOML value.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.keys.insert(key.into(), value.into());
        self
    }

    /// Removes a key, so that the program's default applies.
    pub(crate) fn unset(mut self, key: &str) -> Self {
        self.keys.remove(key);
        self
    }

    /// Sets an environment variable of the process.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts the program from this path.
    pub(crate) fn program(mut self, path: &Path) -> Self {
        self.program = path.into();
        self
    }

    /// Passes a socket under this name, as a service manager does.
    pub(crate) fn socket(mut self, name: &str, socket: &Arc<OwnedFd>) -> Self {
        self.sockets.push((name.into(), Arc::clone(socket)));
        self
    }

    /// The file's text.
    pub(crate) fn toml(&self) -> String {
        let mut keys = self.keys.clone();
        if keys.keys().any(|key| key.starts_with("gateway.")) {
            // the watch calls the node on its own: tests of the cache enable it
            keys.entry("gateway.cache.enabled".into())
                .or_insert_with(|| "false".into());
        }
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        for (path, value) in &keys {
            let (section, key) = path.rsplit_once('.').expect("a key is in a section");
            sections
                .entry(section)
                .or_default()
                .push_str(&format!("{key} = {value}\n"));
        }
        sections
            .iter()
            .map(|(name, keys)| format!("[{name}]\n{keys}"))
            .collect()
    }

    /// Runs a subcommand to its end on this file.
    pub(crate) fn run(&self, subcommand: &str) -> Output {
        self.run_with(subcommand, &[], "")
    }

    /// Runs a subcommand with more arguments and this standard input.
    pub(crate) fn run_with(&self, subcommand: &str, more: &[&str], input: &str) -> Output {
        let file = ConfigFile::write(&self.toml());
        let mut command = self.command(subcommand, &file);
        command
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let mut stdin = child.stdin.take().expect("it is piped");
        // the process may exit without reading its input
        let _not_read = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it is our child")
    }

    /// Starts a subcommand with this output; the process is killed on drop.
    pub(crate) fn spawn(&self, subcommand: &str, stdout: Stdio, stderr: Stdio) -> Spawned {
        let file = ConfigFile::write(&self.toml());
        let mut command = self.command(subcommand, &file);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let mut spawned = Spawned::of(command);
        spawned._file = Some(file);
        spawned
    }

    /// Starts `serve`, and returns once it serves.
    pub(crate) fn start(&self) -> Edge {
        let file = ConfigFile::write(&self.toml());
        let mut command = self.command("serve", &file);
        self.hand_in(&mut command);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let stderr = child.stderr.take().expect("it is piped");
        let log = Arc::new(Log::default());
        let sink = Arc::clone(&log);
        std::thread::spawn(move || sink.drain(BufReader::new(stderr)));
        let has = |section: &str| self.keys.keys().any(|key| key.starts_with(section));
        let mut edge = Edge {
            child,
            log,
            gateway: None,
            relay: None,
            sidecar: None,
            admin: None,
            file,
        };
        edge.line("serving", |line| line["message"] == "serving");
        if has("gateway.") {
            edge.gateway = edge.listens_on("gateway");
        }
        if has("relay.") {
            edge.relay = edge.listens_on("relay");
        }
        if has("sidecar.") {
            edge.sidecar = edge.listens_on("sidecar");
        }
        if has("admin.") {
            edge.admin = edge.listens_on("admin");
        }
        edge
    }

    /// Runs `serve` to its end, with its log in a file.
    pub(crate) fn serve_in_vain_to(&self, log: File) -> ExitStatus {
        let file = ConfigFile::write(&self.toml());
        let mut command = self.command("serve", &file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command.status().expect("the program can be started")
    }

    /// Runs `serve` to its end, with the sockets.
    pub(crate) fn serve_in_vain(&self) -> Output {
        let file = ConfigFile::write(&self.toml());
        let mut command = self.command("serve", &file);
        self.hand_in(&mut command);
        command
            .stdin(Stdio::null())
            .output()
            .expect("the program can be started")
    }

    fn hand_in(&self, command: &mut Command) {
        if self.sockets.is_empty() {
            return;
        }
        let names: Vec<_> = self.sockets.iter().map(|(name, _)| name.as_str()).collect();
        let fds = self
            .sockets
            .iter()
            .map(|(_, fd)| fd.try_clone().expect("files are left"));
        let mappings = (3..).zip(fds);
        let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping {
            parent_fd,
            child_fd,
        });
        command
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"));
        command
            .fd_mappings(mappings.collect())
            .expect("each number is used once");
    }

    fn command(&self, subcommand: &str, file: &ConfigFile) -> Command {
        // LISTEN_PID names the process that the shell becomes
        let shell = r#"LISTEN_PID=$$ exec "$0" "$@""#;
        let mut command = match self.sockets.is_empty() {
            true => program_by(&[&self.program]),
            false => program_by(&[
                Path::new("sh"),
                "-c".as_ref(),
                shell.as_ref(),
                &self.program,
            ]),
        };
        command
            .args(subcommand.split(' '))
            .arg("--config")
            .arg(&file.0);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The program without arguments, and without variables that it reads in its environment.
pub(crate) fn program() -> Command {
    program_by(&[Path::new(PROGRAM)])
}

/// The program by other words, such as the path of a link to it.
pub(crate) fn program_by(words: &[&Path]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("PORTCULLIS") || text.starts_with("OTEL_") {
            command.env_remove(name);
        }
    }
    command
}

/// A unique path for each caller, short enough for a socket.
pub(crate) fn scratch_path(extension: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("portcullis-it-{}-{next}.{extension}", std::process::id());
    std::env::temp_dir().join(name)
}

struct ConfigFile(PathBuf);

impl ConfigFile {
    fn write(text: &str) -> Self {
        let path = scratch_path("toml");
        std::fs::write(&path, text).expect("the directory for temporary files can be written");
        Self(path)
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0);
    }
}

/// A process whose output its test has; killed on drop.
pub(crate) struct Spawned {
    pub(crate) child: Child,
    _file: Option<ConfigFile>,
}

impl Spawned {
    pub(crate) fn of(mut command: Command) -> Self {
        Self {
            child: command.spawn().expect("the program can be started"),
            _file: None,
        }
    }

    /// How it ended, within whole seconds.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let id = Pid::from_raw(self.child.id().cast_signed()).expect("a process has an id");
        // fails if it is gone already
        if let Ok(process) = pidfd_open(id, PidfdFlags::empty()) {
            let limit = Timespec {
                tv_sec: limit.as_secs().cast_signed(),
                tv_nsec: 0,
            };
            poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).expect("it waits");
        }
        self.child.try_wait().expect("it is our child")
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// The lines that the process wrote to stderr.
#[derive(Default)]
struct Log {
    state: Mutex<(Vec<String>, bool)>,
    changed: Condvar,
}

impl Log {
    fn drain(&self, stderr: impl BufRead) {
        for line in stderr.lines().map_while(Result::ok) {
            self.state.lock().unwrap().0.push(line);
            self.changed.notify_all();
        }
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// The first line for which `wanted` returns a value.
    fn wait<T>(&self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(found) = state.0.iter().find_map(|line| wanted(line)) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let over = state.1 || left.is_zero();
            assert!(
                !over,
                "no line in the log about: {what}\n{}",
                state.0.join("\n")
            );
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn wait_for_the_end(&self) {
        let deadline = Instant::now() + 2 * PATIENCE;
        let mut state = self.state.lock().unwrap();
        while !state.1 {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "the process does not end\n{}",
                state.0.join("\n")
            );
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }
}

/// The running program; killed on drop.
pub(crate) struct Edge {
    child: Child,
    log: Arc<Log>,
    gateway: Option<SocketAddr>,
    relay: Option<SocketAddr>,
    sidecar: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    file: ConfigFile,
}

impl Edge {
    /// The program with this harness's defaults in front of `node`.
    pub(crate) fn start(node: &Node) -> Self {
        Setup::before(node.address()).start()
    }

    /// Starts it with some keys set to other TOML values.
    pub(crate) fn with(node: &Node, keys: &[(&str, &str)]) -> Self {
        let setup = Setup::before(node.address());
        keys.iter()
            .fold(setup, |setup, (key, value)| setup.set(key, value))
            .start()
    }

    /// The listen address of the gateway.
    pub(crate) fn gateway(&self) -> SocketAddr {
        self.gateway.expect("the gateway is on a TCP port")
    }

    /// The listen address of the relay.
    pub(crate) fn relay(&self) -> SocketAddr {
        self.relay.expect("the relay is on a TCP port")
    }

    /// The listen address of the sidecar.
    pub(crate) fn sidecar(&self) -> SocketAddr {
        self.sidecar.expect("the sidecar is on a TCP port")
    }

    /// The listen address of the admin surface.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.expect("the admin surface is on a TCP port")
    }

    /// A new connection to the gateway.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.gateway())
    }

    /// Sends one request over its own connection.
    pub(crate) fn ask(&self, request: &Request) -> Response {
        self.client().ask(request)
    }

    /// Sends one `GET` to the admin surface.
    pub(crate) fn admin_get(&self, path: &str) -> Response {
        let request = Request::new("GET", path)
            .without("Host")
            .with("Host", "localhost");
        Client::connect(self.admin()).ask(&request)
    }

    /// The log line of a request, by its request id.
    pub(crate) fn request_line(&self, request_id: &str) -> Value {
        self.line(&format!("the request {request_id}"), |line| {
            line["request_id"] == request_id
        })
    }

    /// Waits for the first log line that is JSON and matches.
    pub(crate) fn line(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.log.wait(what, |line| {
            serde_json::from_str::<Value>(line)
                .ok()
                .filter(|value| wanted(value))
        })
    }

    /// Every line of the log so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        // the log stays readable after a test has panicked with the lock held
        let state = self
            .log
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.0.clone()
    }

    /// Replaces the configuration file.
    pub(crate) fn rewrite(&self, setup: &Setup) {
        std::fs::write(&self.file.0, setup.toml()).expect("the file was written before");
    }

    /// Sends a signal, by its short name.
    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// The id of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has ended, even if another process holds its standard error.
    pub(crate) fn wait_alone(&mut self) -> ExitStatus {
        self.child.wait().expect("it is our child")
    }

    /// Waits until the process has ended and its log is closed.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.log.wait_for_the_end();
        self.child.wait().expect("it is our child")
    }

    /// True if the process still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    fn listens_on(&self, surface: &str) -> Option<SocketAddr> {
        let line = self.line(&format!("{surface} listening"), |line| {
            line["message"] == "listening" && line["surface"] == surface
        });
        let address = line["address"]
            .as_str()
            .expect("a listening line has an address");
        let address = address.parse().ok()?;
        documents::listens(surface, address, self.child.id());
        Some(address)
    }
}

/// Sends a signal, by its short name, to a process.
pub(crate) fn signal(process: u32, name: &str) {
    let kill = format!("kill -{name} {process}");
    let sent = Command::new("sh")
        .args(["-c", &kill])
        .status()
        .expect("there is a shell");
    assert!(sent.success(), "{kill} must work: the process is there");
}

impl Drop for Edge {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        documents::gone(self.child.id());
        let _status = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the edge:\n{}", self.lines().join("\n"));
        }
    }
}
