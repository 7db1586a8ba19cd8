//! Other node implementations behind the gateway: their differences cause no error for a client.

use crate::admin::{eventually, series};
use crate::support::brands::{OLDEST, devnet, juno, katana, pathfinder, too_many_connections};
use crate::support::check::{assert_error, assert_one_of, assert_result, each};
use crate::support::edge::Setup;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::{send, sized};

type Brand = fn(&Call) -> Vec<Act>;

/// Each implementation, the path of its API, and how `check --live` names it.
const BRANDS: [(&str, Brand, &str); 4] = [
    ("/rpc/v0_10", pathfinder, "it is Pathfinder v0.23.0"),
    ("/v0_10", juno, "it is Juno v0.15.11"),
    ("/rpc", devnet, "it is starknet-devnet"),
    ("/", katana, ""),
];

fn setup(node: &Node, path: &str) -> Setup {
    Setup::before(node.address()).set("node.url", &format!("\"http://{}{path}\"", node.address()))
}

#[test]
fn every_implementation_is_read_from_and_named() {
    each(BRANDS, |(path, brand, name)| {
        let node = Node::start(brand);
        let setup = setup(&node, path).set("node.chain_id", "\"SN_SEPOLIA\"");
        let setup = setup.set("node.anchor", &OLDEST.to_string());
        let checked = setup.run_with("check", &["--live"], "");
        let text = String::from_utf8(checked.stdout).expect("text");
        assert_eq!(checked.status.code(), Some(0), "{path}: {text}");
        assert!(text.contains(name), "{path}: {text}");
        assert!(text.contains("it is of the served chain"), "{path}: {text}");
        let edge = setup.start();
        let read = Request::post(rpc("1", "starknet_blockNumber", "[]"));
        assert_result(&edge.ask(&read), "1", "4242", path);
    });
}

#[test]
fn a_node_without_its_first_block_needs_another_anchor() {
    let (one, other) = (Node::start(pathfinder), Node::start(devnet));
    let urls = format!(
        "[\"http://{}/rpc/v0_10\", \"http://{}/rpc\"]",
        one.address(),
        other.address()
    );
    for (anchor, code) in [("0", 1), (&*OLDEST.to_string(), 0)] {
        let setup = setup(&one, "")
            .set("node.url", &urls)
            .set("node.anchor", anchor);
        let checked = setup.run_with("check", &["--live"], "");
        let text = String::from_utf8(checked.stdout).expect("text");
        assert_eq!(checked.status.code(), Some(code), "anchor {anchor}: {text}");
    }
}

#[test]
fn an_answer_above_the_nodes_limit_is_its_error() {
    let node = Node::start(katana);
    let edge = setup(&node, "/").start();
    let params = r#"{"block_id":"latest","class_hash":"0x1"}"#;
    let answer = edge.ask(&Request::post(rpc("1", "starknet_getClass", params)));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (200, &(-32008).into())
    );
}

#[test]
fn connections_above_the_nodes_limit_harm_no_others() {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| match (call.connection, hold.is_open()) {
        (1, _) => [vec![Act::Hold(hold.clone())], katana(call)]
            .into_iter()
            .flatten()
            .collect(),
        (_, false) => too_many_connections(),
        (_, true) => katana(call),
    });
    let edge = setup(&node, "/")
        .set("gateway.single_flight", "false")
        .start();
    let mut first = edge.client();
    assert!(
        first.send(Request::post(QUESTION).bytes()),
        "the edge listens"
    );
    node.wait_for_calls(1);
    for _ in 0..5 {
        let refused = edge.ask(&Request::post(QUESTION));
        assert_error(
            &refused,
            "upstream_status",
            "7",
            "the node has one connection",
        );
    }
    latch.open();
    assert_result(&first.response(), "7", "4242", "the one that it has");
    assert_result(
        &edge.ask(&Request::post(QUESTION)),
        "7",
        "4242",
        "its breaker is closed",
    );
}

#[test]
fn a_node_that_refuses_all_gets_a_pause() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let node = Node::start(move |_| send(sized(status, &[], "busy")));
        let edge = setup(&node, "/").start();
        for _ in 0..3 {
            let refused = edge.ask(&Request::post(QUESTION));
            let reasons = ["upstream_status", "upstream_unreachable"];
            assert_one_of(&refused, &reasons, "7", status);
        }
        eventually(&edge, "its breaker is open", |now| {
            series(now, "portcullis_node_breaker_open", &["node=\"0\""]) == 1.0
        });
    }
}
