//! A `portcullis dev` on free ports, and what it printed.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{program, signal};
use crate::support::request::{Request, rpc};
use crate::support::response::Response;

/// The addresses of the four surfaces.
pub(crate) const SURFACES: [&str; 4] = ["gateway", "relay", "sidecar", "admin"];

/// A `dev` on free ports; killed on drop, its node with it.
pub(crate) struct Dev {
    pub(crate) child: Child,
    lines: Receiver<String>,
    pub(crate) seen: Vec<String>,
    state: PathBuf,
}

/// The command, with more arguments.
pub(crate) fn dev(state: &Path, more: &[&str]) -> Command {
    dev_of(program(), state, more)
}

/// The command of another program.
pub(crate) fn dev_of(mut command: Command, state: &Path, more: &[&str]) -> Command {
    command.args(["dev", "--state"]).arg(state).args(more);
    for surface in SURFACES {
        command.env(
            format!("PORTCULLIS__{}__LISTEN", surface.to_uppercase()),
            "127.0.0.1:0",
        );
    }
    command
}

impl Dev {
    /// One that serves with a node.
    pub(crate) fn start(state: &Path) -> Self {
        let mut dev = Self::spawn(dev(state, &[]), state);
        dev.wait_for_all(&["Log lines follow", " serving"]);
        dev
    }

    /// Starts it, without waiting for anything.
    pub(crate) fn spawn(mut command: Command, state: &Path) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        forward(child.stdout.take().unwrap(), sender.clone());
        forward(child.stderr.take().unwrap(), sender);
        Self {
            child,
            lines,
            seen: Vec::new(),
            state: state.to_owned(),
        }
    }

    /// Waits for a further line with this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        self.wait_for_all(&[text]);
    }

    /// Waits for further lines with these texts, in any order: two streams have none.
    pub(crate) fn wait_for_all(&mut self, texts: &[&str]) {
        let mut missing = texts.to_vec();
        while !missing.is_empty() {
            let line = self.lines.recv_timeout(3 * PATIENCE);
            let seen = || self.seen.join("\n");
            let line = line.unwrap_or_else(|_| panic!("{missing:?} are in {}", seen()));
            missing.retain(|text| !line.contains(text));
            self.seen.push(line);
        }
    }

    /// Where a surface is, as the greeting says.
    pub(crate) fn address(&self, surface: &str) -> SocketAddr {
        let start = format!("  {surface} ");
        let line = self
            .seen
            .iter()
            .find(|line| line.starts_with(&start))
            .unwrap();
        let (_, origin) = line.split_once("http://").unwrap();
        origin.split(['/', ' ']).next().unwrap().parse().unwrap()
    }

    /// The configuration that it wrote.
    pub(crate) fn config(&self) -> toml::Table {
        let text = std::fs::read_to_string(self.state.join("portcullis.toml")).unwrap();
        text.parse().unwrap()
    }

    /// Calls the contract of the token, as the greeting suggests.
    pub(crate) fn view_call(&self) -> u16 {
        let token = "0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d";
        let selector = "0x4c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9";
        let call = format!(
            r#"[{{"contract_address":"{token}","entry_point_selector":"{selector}","calldata":[]}},"latest"]"#
        );
        let request = Request::post(rpc("1", "starknet_call", &call));
        let response = Client::connect(self.address("gateway")).ask(&request);
        assert!(
            !response.text().contains("\"error\""),
            "{}",
            response.text()
        );
        response.status
    }

    /// The relay's proof of its pins, requested with the token of the folder.
    pub(crate) fn ready(&self) -> Response {
        let token = std::fs::read_to_string(self.state.join("relay.token")).unwrap();
        let request = Request::new("GET", "/readyz");
        let request = request.with("Authorization", &format!("Bearer {}", token.trim_end()));
        Client::connect(self.address("relay")).ask(&request)
    }

    /// Reads the number of blocks.
    pub(crate) fn read(&self) -> Response {
        let request = Request::post(rpc("1", "starknet_blockNumber", "[]"));
        Client::connect(self.address("gateway")).ask(&request)
    }

    /// Sends a GET to a path.
    pub(crate) fn get(&self, surface: &str, path: &str) -> Response {
        let request = Request::new("GET", path)
            .without("Host")
            .with("Host", "localhost");
        Client::connect(self.address(surface)).ask(&request)
    }

    /// The process of its node.
    pub(crate) fn node(&self) -> u32 {
        let own = format!("PPid:\t{}", self.child.id());
        let is_child = |id: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{id}/status"));
            status.is_ok_and(|status| status.lines().any(|line| line == own))
        };
        let names = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name());
        let mut ids = names.filter_map(|name| name.to_str()?.parse().ok());
        ids.find(is_child).expect("dev started a node")
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn stop(mut self) {
        signal(self.child.id(), "INT");
        assert!(
            self.child.wait().unwrap().success(),
            "{}",
            self.seen.join("\n")
        );
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone_already = Command::new("kill")
                .arg(self.child.id().to_string())
                .status();
            let _status = self.child.wait();
        }
    }
}

fn forward(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
}

/// Everything that a process printed.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Waits until a condition holds, at most a minute.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let found = (0..600).any(|_| {
        thread::sleep(Duration::from_millis(100));
        is_so()
    });
    assert!(found, "{what}");
}
