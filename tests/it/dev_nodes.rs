//! `portcullis dev` without a node on `PATH`, which it finds elsewhere or builds, and with a node
//! that is not a devnet.
//!
//! The cargo here draws the bar of the real one and installs the real node when a test says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::client::Client;
use crate::support::dev::{Dev, SURFACES, dev, dev_of, eventually, said};
use crate::support::edge::{PROGRAM, program, program_by, signal};
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::request::{Request, rpc};
use crate::support::script::{good, json, result};
use crate::support::secure::{Pair, secured_node};

/// Builds when it reads a word from its pipe: `ok`, or anything else to fail.
const CARGO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/cargo");

/// A folder for `dev` where the only cargo is the one above, and no node is found.
struct Workshop(Folder);

impl Workshop {
    fn new() -> Self {
        let packaged = Path::new("/usr/lib/portcullis/starknet-devnet");
        assert!(
            !packaged.exists(),
            "remove the package portcullis-devnet: `dev` would start its node"
        );
        let folder = Folder::new();
        std::os::unix::fs::symlink(CARGO, folder.file("cargo")).unwrap();
        Self(folder)
    }

    fn command(&self, state: &str) -> Command {
        self.command_of(program(), state)
    }

    fn command_of(&self, program: Command, state: &str) -> Command {
        let mut command = dev_of(program, &self.state(state), &[]);
        command
            .current_dir(self.0.path())
            .env("REAL_NODE", real_node());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.0.path().display()));
        command
    }

    fn state(&self, state: &str) -> PathBuf {
        self.0.path().join(state)
    }

    /// Serves without a node; the build is under way.
    fn start(&self, state: &str) -> Dev {
        let mut dev = Dev::spawn(self.command(state), &self.state(state));
        // the addresses come after the first text and before the second
        dev.wait_for_all(&[
            "without a node for now",
            "Faster, before the next start",
            " serving",
        ]);
        dev
    }

    fn say(&self, word: &str) {
        fs::write(self.0.path().join("word"), format!("{word}\n")).unwrap();
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.0.path().join(file)).unwrap_or_default()
    }
}

/// The node on `PATH`.
fn real_node() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join("starknet-devnet"));
    places
        .find(|node| node.is_file())
        .expect("the tests need one")
}

/// Program and node in a folder of their own, as unpacked from archives.
struct Unpacked(PathBuf);

impl Unpacked {
    fn new() -> Self {
        let name = format!("unpacked-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir(&folder).unwrap();
        let folder = folder.canonicalize().unwrap();
        // not a symbolic link, of which the program would see the target
        fs::hard_link(PROGRAM, folder.join("portcullis")).unwrap();
        std::os::unix::fs::symlink(real_node(), folder.join("starknet-devnet")).unwrap();
        Self(folder)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has_ended(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.is_err() || status.is_ok_and(|status| status.contains("\nState:\tZ"))
}

/// The conditions that the verbose probe reports.
fn conditions(dev: &Dev) -> String {
    dev.get("admin", "/readyz?verbose").text().to_owned()
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn dev_starts_the_node_next_to_its_program() {
    let (workshop, unpacked) = (Workshop::new(), Unpacked::new());
    let command = workshop.command_of(program_by(&[&unpacked.0.join("portcullis")]), "state");
    let mut dev = Dev::spawn(command, &workshop.state("state"));
    let started = format!("starting {}/starknet-devnet on ", unpacked.0.display());
    dev.wait_for_all(&[&started, "Log lines follow", " serving"]);
    assert_eq!(dev.view_call(), 200);
    dev.stop();
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn dev_names_faster_ways_than_a_build() {
    let workshop = Workshop::new();
    let mut dev = Dev::spawn(workshop.command("state"), &workshop.state("state"));
    dev.wait_for_all(&[
        "cargo builds version 0.10.1 of it, once",
        "install the package portcullis-devnet",
        "https://github.com/starknet-io/starknet-devnet/releases/tag/v0.10.1",
        "docker run --rm -p 127.0.0.1:5050:5050 shardlabs/starknet-devnet-rs:0.10.1",
        "portcullis dev --node http://127.0.0.1:5050/rpc --deploy",
    ]);
    dev.stop();
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn dev_serves_while_its_node_is_built() {
    let workshop = Workshop::new();
    let mut dev = workshop.start("state");
    eventually("the page says how far the build is", || {
        conditions(&dev).contains("building starknet-devnet: 3 of 12 crates")
    });
    let refused = dev.read();
    assert_eq!(
        (refused.status, refused.header("Retry-After")),
        (503, Some("5"))
    );
    assert_eq!(refused.json()["error"]["data"]["reason"], "node_starting");
    assert_eq!(dev.get("admin", "/").status, 200, "the page is up");
    assert_eq!(dev.get("sidecar", "/functions/health-check").status, 200);
    assert_eq!(dev.ready().status, 503, "nothing can be proven");
    assert_eq!(workshop.text("state/build.log").trim(), "Updating index");

    workshop.say("ok");
    dev.wait_for_all(&["starknet-devnet: 12 of 12 crates", "Log lines follow"]);
    assert_eq!(dev.view_call(), 200, "the first read");
    eventually("the relay proves its pins", || dev.ready().status == 200);
    eventually("nothing is wrong", || {
        conditions(&dev).contains("verdict: ok")
    });
    let began = "portcullis_condition_changes_total{change=\"began\",condition=\"pins\"} 0\n";
    assert!(
        dev.get("admin", "/metrics").text().contains(began),
        "there were no pins to lose"
    );
    assert!(
        !workshop.state("../target/tools/build").exists(),
        "nothing is left of the build"
    );
    let process = dev.node().to_string();
    dev.stop();
    assert!(has_ended(&process), "the node");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn ctrl_c_ends_a_build() {
    let workshop = Workshop::new();
    let dev = workshop.start("state");
    eventually("it builds", || conditions(&dev).contains("3 of 12"));
    dev.stop();
    let processes = workshop.text("processes");
    assert_eq!(processes.lines().count(), 2, "cargo and a compiler");
    assert!(processes.lines().all(has_ended), "{processes}");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_failed_build_ends_dev() {
    let workshop = Workshop::new();
    let mut dev = workshop.start("state");
    eventually("it builds", || conditions(&dev).contains("3 of 12"));
    workshop.say("fail");
    dev.wait_for("cannot install starknet-devnet: cargo install: exit status: 101; see ");
    assert_eq!(dev.child.wait().unwrap().code(), Some(70));
    assert!(
        workshop
            .text("state/build.log")
            .contains("error: it does not compile")
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn two_devs_build_one_node() {
    let workshop = Workshop::new();
    let mut both = [workshop.start("one"), workshop.start("two")];
    eventually("one builds", || {
        both.iter().any(|dev| conditions(dev).contains("3 of 12"))
    });
    workshop.say("ok");
    for dev in &mut both {
        dev.wait_for("Log lines follow");
        assert_eq!(dev.view_call(), 200);
    }
    assert_eq!(workshop.text("runs").lines().count(), 1, "cargo ran once");
    both.into_iter().for_each(Dev::stop);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn without_cargo_dev_reports_what_is_missing() {
    let workshop = Workshop::new();
    let output = workshop
        .command("state")
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70), "{}", said(&output));
    assert!(said(&output).contains("cargo, which would build it, is not on PATH"));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_killed_dev_leaves_no_node_running() {
    let folder = Folder::new();
    let dev = Dev::start(folder.path());
    let node = dev.node().to_string();
    signal(dev.child.id(), "KILL");
    eventually("the node ends", || has_ended(&node));
}

/// A node of another chain that has no methods of devnet.
fn foreign(call: &Call) -> Vec<Act> {
    match call.json()["method"].as_str() {
        Some("starknet_chainId") => vec![Act::Send(result(call, r#""0x534e5f4d41494e""#))],
        Some(method) if method.starts_with("devnet_") => {
            vec![Act::Send(failure(call, -32601, "Method not found"))]
        }
        _ => good(call),
    }
}

fn failure(call: &Call, code: i32, message: &str) -> Vec<u8> {
    let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
    json(format!(
        r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
        call.id()
    ))
}

/// `dev` on a node behind TLS.
fn on_a_secured_node(state: &Path, folder: &Folder) -> Command {
    let (node, pair) = (Node::start(foreign), Pair::with("localhost", |_| {}));
    let address = secured_node(node.address(), &pair);
    // it lives as long as the process of the tests
    std::mem::forget(node);
    let ca = folder.secret("ca.pem", &pair.certificate);
    let mut command = dev(state, &["--node"]);
    command.arg(format!("https://localhost:{}/rpc", address.port()));
    command.env("PORTCULLIS__NODE__CA_FILE", ca);
    command
}

#[test]
fn dev_reads_from_any_node() {
    let (folder, state) = (Folder::new(), Folder::new());
    let command = on_a_secured_node(state.path(), &folder);
    let mut dev = Dev::spawn(command, state.path());
    dev.wait_for_all(&["Log lines follow", " serving"]);
    assert!(
        dev.seen
            .iter()
            .any(|line| line.starts_with("  relay     off: ")),
        "{:?}",
        dev.seen
    );
    let chain = Request::post(rpc("1", "starknet_chainId", "[]"));
    let mut gateway = Client::connect(dev.address("gateway"));
    assert_eq!(gateway.ask(&chain).json()["result"], "0x534e5f4d41494e");
    assert_eq!(dev.get("sidecar", "/functions/health-check").status, 200);
    let config = dev.config();
    let served = SURFACES
        .into_iter()
        .filter(|surface| config.contains_key(*surface));
    assert_eq!(served.collect::<Vec<_>>(), ["gateway", "sidecar", "admin"]);
    dev.stop();
}

#[test]
fn the_sample_content_is_in_the_configured_store() {
    let (state, other, node) = (Folder::new(), Folder::new(), Node::start(foreign));
    let url = format!("http://{}/rpc", node.address());
    let mut command = dev(state.path(), &["--node", &url]);
    let file = other.path().join("other.db");
    command.env(
        "PORTCULLIS__STORE__URL",
        format!("sqlite:{}", file.display()),
    );
    let mut dev = Dev::spawn(command, state.path());
    dev.wait_for_all(&["Log lines follow", " serving"]);
    let podcast = "/functions/podcast-rss-feed?handle=ember.cards.example";
    assert_eq!(dev.get("sidecar", podcast).status, 200);
    assert!(!state.path().join("portcullis.db").exists());
    dev.stop();
}

#[test]
fn contracts_are_prepared_on_a_devnet_only() {
    let (folder, state) = (Folder::new(), Folder::new());
    for option in ["--prepare", "--deploy"] {
        let mut command = on_a_secured_node(state.path(), &folder);
        let output = command.arg(option).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("takes a starknet-devnet"),
            "{}",
            said(&output)
        );
    }
}

#[test]
fn a_devnet_that_is_named_is_only_read() {
    let state = Folder::new();
    let node = Node::start(|call| match call.json()["method"].as_str() {
        Some("devnet_getConfig") => vec![Act::Send(result(call, "{}"))],
        _ => foreign(call),
    });
    let mut command = dev(state.path(), &["--node"]);
    command.arg(format!("http://{}/rpc", node.address()));
    let mut dev = Dev::spawn(command, state.path());
    dev.wait_for_all(&[
        "--deploy sets up such a network",
        "Log lines follow",
        " serving",
    ]);
    dev.stop();
    for call in node.calls() {
        let method = call.json()["method"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let writes = method.starts_with("starknet_add") || method == "devnet_mint";
        assert!(!writes, "{method} was sent");
    }
}

#[test]
fn a_node_that_responds_too_late_is_retried() {
    let (state, late) = (Folder::new(), Latch::default());
    let node = Node::start(move |call| match call.json()["method"].as_str() {
        Some("devnet_getConfig") => vec![Act::Send(result(call, "{}"))],
        Some("starknet_getClassHashAt") if !late.is_open() => {
            vec![Act::Tell(late.clone()), Act::Hang]
        }
        // it has no accounts, and refuses to mint
        Some("starknet_getClassHashAt") => {
            vec![Act::Send(failure(call, 20, "Contract not found"))]
        }
        _ => foreign(call),
    });
    let url = format!("http://{}/rpc", node.address());
    let mut command = dev(state.path(), &["--node", &url, "--deploy"]);
    let output = command
        .env("PORTCULLIS__NODE__TIMEOUT", "2s")
        .output()
        .unwrap();
    let said = said(&output);
    assert!(
        said.contains("the node did not respond in time: retrying"),
        "{said}"
    );
    assert!(
        said.contains("cannot set up the network: deploying an account: "),
        "{said}"
    );
}

#[test]
fn a_node_that_does_not_answer_is_named() {
    let (state, url) = (Folder::new(), format!("http://{}/rpc", Node::nowhere()));
    let output = dev(state.path(), &["--node", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(70), "{}", said(&output));
    let expected = format!("--node: {url} does not answer: connection refused; is it running");
    assert!(said(&output).contains(&expected), "{}", said(&output));
}
