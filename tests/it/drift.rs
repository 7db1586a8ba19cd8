//! The configuration in use and the one in the file: `config show`, and the metrics that differ.

use std::fs;

use crate::admin::{eventually, metrics};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::honest;
use crate::support::relay::stage as relay;
use crate::support::script::good;

const HASH: &str = "portcullis_config_hash";
const PENDING: &str = "portcullis_config_pending_restart";
const RELOADS: &str = "portcullis_config_reloads_total{outcome=\"ok\"}";

/// The output of `config show`.
fn shown(setup: &Setup) -> String {
    let output = setup.run_with("config", &["show"], "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The hash that `config show` prints.
fn shown_hash(setup: &Setup) -> f64 {
    let text = shown(setup);
    let line = text.lines().nth(1).expect("a second line");
    let hash = line.strip_prefix("# portcullis_config_hash ");
    hash.expect("the hash").parse().expect("a number")
}

/// Reloads, and returns the hash and the number of changes that wait for a restart.
fn reload(edge: &Edge) -> (f64, f64) {
    let before = metrics(edge)[RELOADS];
    edge.signal("HUP");
    eventually(edge, "the reload", |now| now[RELOADS] > before);
    let now = metrics(edge);
    (now[HASH], now[PENDING])
}

#[test]
fn changes_that_wait_for_a_restart_are_counted() {
    let (node, folder) = (Node::start(honest), Folder::new());
    let [first, other] = ["first", "other"].map(|name| {
        let file = folder.secret(name, "X-Key: a");
        format!("{file:?}")
    });
    let setup = relay::setup(node.address(), &folder, &[])
        .set("trace.endpoint", "\"http://127.0.0.1:1\"")
        .set("trace.header_file", &first);
    let edge = setup.start();
    let start = (shown_hash(&setup), 0.0);
    assert_eq!((metrics(&edge)[HASH], metrics(&edge)[PENDING]), start);

    edge.rewrite(&setup.clone().set("trace.header_file", &other));
    assert_eq!(
        reload(&edge),
        (start.0, 1.0),
        "another file, not its content"
    );
    edge.rewrite(&setup.clone().set("node.max_idle", "3"));
    assert_eq!(reload(&edge), (start.0, 1.0), "a key that needs a restart");
    let live = setup.clone().set("relay.requests_per_minute", "7000");
    edge.rewrite(&live);
    let reloaded = (shown_hash(&live), 0.0);
    assert_eq!(reload(&edge), reloaded, "a key that a reload applies");
    assert_ne!(reloaded, start);

    let key = folder.file("owner.key");
    let text = fs::read_to_string(&key).expect("a key");
    fs::write(&key, format!("{text}\n")).expect("another content");
    assert_eq!(
        reload(&edge),
        (reloaded.0, 1.0),
        "a file that a start reads"
    );
    fs::write(&key, text).expect("its content");
    assert_eq!(reload(&edge), reloaded, "as at the start");
    edge.rewrite(&setup.set("relay.max_clients", "\"many\""));
    edge.signal("HUP");
    let failed = "portcullis_config_reloads_total{outcome=\"failed\"}";
    eventually(&edge, "the mistake", |now| now[failed] == 1.0);
    assert_eq!(metrics(&edge)[HASH], reloaded.0, "nothing else is in use");
}

#[test]
fn a_new_section_waits_for_a_restart() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let edge = setup.start();
    let hash = metrics(&edge)[HASH];
    edge.rewrite(&setup.set("trace.ratio", "0.5"));
    let (now, pending) = reload(&edge);
    assert_eq!(now, hash);
    assert!(pending >= 1.0, "{pending}");
    let line = edge.line("the change", |line| line["key"] == "trace.ratio");
    assert_eq!(line["effective"], "after a restart");
}

#[test]
fn each_value_is_shown_with_its_origin() {
    let setup = Setup::before(Node::nowhere())
        .set("node.url", "\"https://node.example/v3/hunter2\"")
        .set("gateway.methods", "[\"starknet_chainId\"]")
        .environment("PORTCULLIS__GATEWAY__MAX_CLIENTS", "77");
    let text = shown(&setup);
    for line in [
        "[gateway]",
        "max_clients = 77  # PORTCULLIS__GATEWAY__MAX_CLIENTS",
        "max_in_flight_per_client = 64  # default",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    let methods = "methods = [\"starknet_chainId\"]  # line ";
    assert!(text.contains(methods), "{text}");
    assert!(text.contains("url = \"https://node.example/…\"  # line "));
    assert!(!text.contains("hunter2"), "{text}");
    let off = text.lines().last().expect("a last line");
    assert!(off.starts_with("# off: ") && off.contains(" relay.keys,"));
}

#[test]
fn a_mistake_is_reported_and_nothing_shown() {
    let setup = Setup::before(Node::nowhere()).set("gateway.max_clients", "\"many\"");
    let output = setup.run_with("config", &["show"], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("gateway.max_clients"), "{errors}");
}
