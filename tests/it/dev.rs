//! `portcullis dev` with a real node: a second one changes nothing, its configuration is right, and
//! it survives the end of its node and a prune.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};

use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{program, signal};
use crate::support::folder::Folder;
use crate::support::request::{Request, rpc};

/// The addresses of the four surfaces.
const SURFACES: [&str; 4] = ["gateway", "relay", "sidecar", "admin"];

/// A `dev` on free ports; killed on drop, its node with it.
struct Dev {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    state: PathBuf,
}

fn dev(state: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.args(["dev", "--state"]).arg(state).args(more);
    for surface in SURFACES {
        command.env(format!("PORTCULLIS__{}__LISTEN", surface.to_uppercase()), "127.0.0.1:0");
    }
    command
}

impl Dev {
    fn start(state: &Path) -> Self {
        let mut command = dev(state, &[]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        forward(child.stdout.take().unwrap(), sender.clone());
        forward(child.stderr.take().unwrap(), sender);
        let mut dev = Self { child, lines, seen: Vec::new(), state: state.to_owned() };
        dev.wait_for("Log lines follow");
        // a signal before that is lost
        dev.wait_for(" serving");
        dev
    }

    /// Waits for a line with this text.
    fn wait_for(&mut self, text: &str) {
        loop {
            let line = self.lines.recv_timeout(3 * PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{text:?} is in {}", self.seen.join("\n")));
            let is_it = line.contains(text);
            self.seen.push(line);
            if is_it {
                return;
            }
        }
    }

    /// Where a surface is, as the greeting says.
    fn address(&self, surface: &str) -> SocketAddr {
        let start = format!("  {surface} ");
        let line = self.seen.iter().find(|line| line.starts_with(&start)).unwrap();
        let (_, origin) = line.split_once("http://").unwrap();
        origin.split(['/', ' ']).next().unwrap().parse().unwrap()
    }

    fn config(&self) -> toml::Table {
        let text = std::fs::read_to_string(self.state.join("portcullis.toml")).unwrap();
        text.parse().unwrap()
    }

    /// Calls the contract of the token, as the greeting suggests.
    fn view_call(&self) -> u16 {
        let token = "0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d";
        let selector = "0x4c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9";
        let call = format!(
            r#"[{{"contract_address":"{token}","entry_point_selector":"{selector}","calldata":[]}},"latest"]"#
        );
        let request = Request::post(rpc("1", "starknet_call", &call));
        let response = Client::connect(self.address("gateway")).ask(&request);
        assert!(!response.text().contains("\"error\""), "{}", response.text());
        response.status
    }

    /// Whether the relay proves its pins, with the token of the folder.
    fn ready(&self) -> u16 {
        let token = std::fs::read_to_string(self.state.join("relay.token")).unwrap();
        let request = Request::new("GET", "/readyz");
        let request = request.with("Authorization", &format!("Bearer {}", token.trim_end()));
        Client::connect(self.address("relay")).ask(&request).status
    }

    /// The process of its node.
    fn node(&self) -> u32 {
        let own = format!("PPid:\t{}", self.child.id());
        let is_child = |id: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{id}/status"));
            status.is_ok_and(|status| status.lines().any(|line| line == own))
        };
        let names = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name());
        let mut ids = names.filter_map(|name| name.to_str()?.parse().ok());
        ids.find(is_child).expect("dev started a node")
    }

    fn stop(mut self) {
        signal(self.child.id(), "INT");
        assert!(self.child.wait().unwrap().success(), "{}", self.seen.join("\n"));
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone_already = Command::new("kill").arg(self.child.id().to_string()).status();
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

/// Every file of a folder with its content, except those of a database that is in use.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let names = names.filter(|name| !name.contains(".db-") && name != "node.log");
    names.map(|name| (name.clone(), std::fs::read(folder.join(&name)).unwrap())).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[test]
fn a_second_dev_changes_nothing() {
    let folder = Folder::new();
    let first = Dev::start(folder.path());
    let before = files(folder.path());
    let prepare = ["--prepare", "--node", "http://127.0.0.1:1/rpc"];
    for more in [&[][..], &["--fresh"], &prepare] {
        let output = dev(folder.path(), more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", said(&output));
        let holder = format!("is in use by process {}", first.child.id());
        assert!(said(&output).contains(&holder), "{more:?}: {}", said(&output));
    }
    assert!(files(folder.path()) == before, "no file has changed");
    assert_eq!((first.view_call(), first.ready()), (200, 200), "the first one serves");
    first.stop();
}

#[test]
fn the_written_configuration_has_the_ports_in_use() {
    let folder = Folder::new();
    let dev = Dev::start(folder.path());
    let config = dev.config();
    for surface in SURFACES {
        let listen = config[surface]["listen"].as_str().unwrap();
        assert_eq!(listen, dev.address(surface).to_string(), "{surface}");
    }
    let base_url = config["sidecar"]["base_url"].as_str().unwrap();
    assert_eq!(base_url, format!("http://{}", dev.address("sidecar")));
    dev.stop();
}

#[test]
fn a_node_that_dies_is_started_again() {
    let folder = Folder::new();
    let mut dev = Dev::start(folder.path());
    for _ in 0..2 {
        let node = dev.node();
        signal(node, "KILL");
        dev.wait_for("the node ended (signal: 9");
        dev.wait_for("the node runs again");
        assert_ne!(dev.node(), node);
        assert_eq!(dev.view_call(), 200, "the printed commands work");
        let proven = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            dev.ready() == 200
        });
        assert!(proven, "the pins hold again");
    }
    dev.stop();
}

#[test]
fn dev_starts_again_after_a_prune() {
    let folder = Folder::new();
    Dev::start(folder.path()).stop();
    let mut prune = program();
    prune.args([
        "store",
        "prune",
        "--suggestions-older-than",
        "0s",
        "--feed-items-older-than",
        "0s",
    ]);
    let output = prune.arg("--config").arg(folder.path().join("portcullis.toml")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    Dev::start(folder.path()).stop();
}

#[test]
fn a_port_in_use_stops_dev_before_it_starts_anything() {
    let (folder, taken) = (Folder::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = taken.local_addr().unwrap().to_string();
    let mut command = dev(folder.path(), &["--fresh"]);
    let output = command.env("PORTCULLIS__SIDECAR__LISTEN", &address).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let holder = format!("sidecar.listen: {address} is in use by process {}", std::process::id());
    for named in [&*holder, "PORTCULLIS__SIDECAR__LISTEN"] {
        assert!(said(&output).contains(named), "{named} in {}", said(&output));
    }
    let left: Vec<_> = files(folder.path()).into_keys().collect();
    assert_eq!(left, ["dev.lock"], "nothing was created");
}
