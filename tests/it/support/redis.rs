//! Redis servers of a test's own, on ports of loopback: single ones, and clusters.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::PATIENCE;
use super::folder::Folder;

/// A running server.
pub(crate) struct Redis {
    pub(crate) port: u16,
    options: Vec<String>,
    folder: Folder,
    child: Child,
}

/// A port that is free now. The kernel gives it to nobody else soon.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

/// redis-tools has the server under another name: the package of the server would start a service.
fn program() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = ["redis-server", "redis-check-rdb"].iter().find_map(|name| {
        std::env::split_paths(&folders)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    });
    found.expect("Redis is installed: the package redis-tools")
}

impl Redis {
    /// Starts one with these options.
    pub(crate) fn start(options: &[&str]) -> Self {
        let options = [&["--save", ""], options].concat();
        Self::start_with(options.into_iter().map(str::to_owned).collect())
    }

    /// Starts one by a file, and these options.
    pub(crate) fn start_by(file: &str, options: &[&str]) -> Self {
        let file = file.to_owned();
        let options = options.iter().map(|option| (*option).to_owned());
        Self::start_with([file].into_iter().chain(options).collect())
    }

    fn start_with(mut options: Vec<String>) -> Self {
        let folder = Folder::new();
        let name = folder.path().join("redis-server");
        std::os::unix::fs::symlink(program(), &name).expect("the folder is new");
        let port = free_port();
        let own = ["--bind", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned);
        options.extend(own);
        let child = spawn(&folder, &options);
        let server = Self {
            port,
            options,
            folder,
            child,
        };
        server.wait();
        server
    }

    /// Starts a cluster of three primaries, each with this many replicas.
    pub(crate) fn cluster(replicas: usize, options: &[&str]) -> Vec<Self> {
        let mut options = options.to_vec();
        options.extend(["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
        options.extend(["--repl-diskless-sync-delay", "0"]);
        let servers: Vec<_> = (0..3 * (1 + replicas))
            .map(|_| {
                let bus = free_port().to_string();
                let own = ["--cluster-port", bus.as_str()];
                Self::start(&[&options[..], &own].concat())
            })
            .collect();
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(servers.iter().map(Self::address));
        create.args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"]);
        let created = create.output().expect("redis-cli is installed");
        let text = String::from_utf8_lossy(&created.stdout).into_owned();
        assert!(created.status.success(), "{text}");
        // a replica that never had the data is not promoted
        let is_whole = |server: &Self| {
            let info = server.ask(&["INFO", "replication"]);
            let is_current = info.contains("role:master") || info.contains("link_status:up");
            is_current
                && server
                    .ask(&["CLUSTER", "INFO"])
                    .contains("cluster_state:ok")
        };
        eventually("the cluster is whole", || servers.iter().all(is_whole));
        servers
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The answer to a command.
    pub(crate) fn ask(&self, command: &[&str]) -> String {
        let mut client = Command::new("redis-cli");
        client.args(["-p", &self.port.to_string()]).args(command);
        let answer = client.output().expect("redis-cli is installed");
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    fn wait(&self) {
        eventually("it answers", || self.ask(&["PING"]).contains("PONG"));
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        let _status = self.child.wait();
    }

    /// Stops it where it is, as a machine that vanishes: it answers nothing, and closes nothing.
    pub(crate) fn freeze(&self) {
        super::edge::signal(self.child.id(), "STOP");
    }

    /// Starts it again after [`Self::kill`], on the same port.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.folder, &self.options);
        self.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _status = self.child.wait();
    }
}

fn spawn(folder: &Folder, options: &[String]) -> Child {
    let mut server = Command::new(folder.path().join("redis-server"));
    server.args(options).current_dir(folder.path());
    server.stdout(Stdio::null()).stderr(Stdio::null());
    server.spawn().expect("Redis is installed")
}

fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
