//! `log.level = "debug"`: what it adds to the log, and what stays out of it.

use serde_json::Value;

use crate::admin::eventually;
use crate::support::chain::{Chain, ChainNode};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::{good, send, sized};
use crate::support::secure::{Pair, secured};

fn debugging(node: &Node) -> Setup {
    Setup::before(node.address()).set("log.level", "\"debug\"")
}

/// Waits for a debug line with this message.
fn line(edge: &Edge, message: &str) -> Value {
    edge.line(message, |line| {
        line["level"] == "debug" && line["message"] == message
    })
}

#[test]
fn each_attempt_at_a_node_has_a_line() {
    let node = Node::start(|call| match call.number {
        1 | 2 => good(call),
        _ => send(sized("405 No", &[], "")),
    });
    let edge = debugging(&node)
        .set("gateway.single_flight", "false")
        .start();
    let mut client = edge.client();
    let ask = rpc("1", "starknet_getNonce", r#"["latest","0xabcdef0123"]"#);
    for _ in 0..3 {
        client.ask(&Request::post(ask.clone()));
    }
    let of = |outcome: &str, connection: &str| {
        edge.line(outcome, |line| {
            line["message"] == "node attempt"
                && line["outcome"] == outcome
                && line["connection"] == connection
        })
    };
    for (outcome, connection, cause) in [
        ("ok", "new", ""),
        ("ok", "reused", ""),
        ("status", "reused", "405 Method Not Allowed"),
    ] {
        let line = of(outcome, connection);
        assert_eq!(line["level"], "debug");
        assert_eq!(line["node"], "0");
        assert_eq!(line["url"], format!("http://{}/rpc", node.address()));
        assert_eq!(line["method"], "starknet_getNonce");
        assert_eq!(line["cause"], cause);
        assert!(
            line["took"]
                .as_str()
                .is_some_and(|took| took.ends_with('s')),
            "{line}"
        );
    }
    let lines = edge.lines();
    assert!(
        !lines.iter().any(|line| line.contains("abcdef0123")),
        "no parameters: {lines:?}"
    );
}

#[test]
fn a_connection_is_followed_to_its_end() {
    let node = Node::start(good);
    let edge = debugging(&node).set("log.clients", "\"truncated\"").start();
    let mut client = edge.client();
    for _ in 0..3 {
        client.ask(&Request::post(QUESTION));
    }
    drop(client);
    let is_gateway = |line: &Value| line["surface"] == "gateway";
    let closed = edge.line("the end", |line| {
        line["message"] == "connection closed" && is_gateway(line)
    });
    assert_eq!(closed["requests"], "3");
    assert_eq!(closed["cause"], "the client left");
    edge.line("the begin", |line| {
        line["message"] == "connection accepted" && line["client"] == "127.0.0.0/24"
    });
    edge.client()
        .ask(&Request::post(QUESTION).with("Connection", "close"));
    edge.line("the end of another", |line| {
        line["cause"] == "no other request may follow the last one" && line["requests"] == "1"
    });
    edge.ask(&Request::new("GET", "/healthz").with("Bad Name", "x"));
    edge.line("a refused head", |line| {
        line["cause"] == "its request head was refused"
    });
    let lines = edge.lines();
    assert!(
        !lines.iter().any(|line| line.contains("127.0.0.1\"")),
        "log.clients holds for debug lines: {lines:?}"
    );
}

#[test]
fn plain_http_on_a_tls_listener_is_explained() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    pair.write(&folder);
    let edge = secured(debugging(&node), "gateway", &folder).start();
    let mut client = edge.client();
    client.send(Request::post(QUESTION).bytes());
    let _alert = client.rest();
    let failed = line(&edge, "TLS handshake failed");
    assert_eq!(failed["surface"], "gateway");
    assert!(
        failed["outcome"]
            .as_str()
            .is_some_and(|it| it.contains("plain HTTP")),
        "{failed}"
    );
    edge.line("the end", |line| {
        line["cause"] == "its TLS handshake failed"
    });
    pair.client(edge.gateway()).ask(&Request::post(QUESTION));
    edge.line("a good end", |line| {
        line["message"] == "connection closed" && line["requests"] == "1"
    });
}

fn one_block() -> ChainNode {
    let mut chain = Chain::default();
    chain.mine(1, &[]);
    ChainNode::start(chain)
}

fn watched(edge: &Edge) {
    eventually(edge, "the cache is in use", |now| {
        now["portcullis_cache_suspended"] == 0.0
    });
}

#[test]
fn the_cache_and_the_watch_are_explained() {
    let node = one_block();
    let edge = node.setup().set("log.level", "\"debug\"").start();
    assert_eq!(line(&edge, "chain polled")["outcome"], "ok");
    watched(&edge);
    edge.ask(&Request::post(rpc("1", "starknet_chainId", "[]")));
    assert_eq!(
        line(&edge, "not in the cache")["method"],
        "starknet_chainId"
    );
    assert_eq!(line(&edge, "answer for the cache")["decision"], "stored");
}

#[test]
fn info_has_none_of_it() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    edge.ask(&Request::post(QUESTION).with("X-Request-Id", "the-request"));
    edge.request_line("the-request");
    let lines = edge.lines();
    assert!(
        !lines.iter().any(|line| line.contains("\"debug\"")),
        "{lines:?}"
    );
}

#[test]
fn a_request_line_names_the_url_that_answered() {
    let (down, up) = (Node::nowhere(), one_block());
    let urls = format!(
        "[\"http://{down}/rpc\", \"http://{}/rpc\"]",
        up.node.address()
    );
    let edge = up.setup().set("node.url", &urls).start();
    watched(&edge);
    let node_of = |id: &str, body: String| {
        edge.ask(&Request::post(body).with("X-Request-Id", id));
        let line = edge.request_line(id);
        (line["cache"].clone(), line["node"].clone())
    };
    let read = |id: &str| node_of(id, rpc("1", "starknet_chainId", "[]"));
    assert_eq!(
        read("the-first-read"),
        ("miss".into(), "1".into()),
        "the second URL answered"
    );
    assert_eq!(
        read("a-cached-read"),
        ("hit".into(), "".into()),
        "no node was queried"
    );
    let refused = node_of("a-refused-read", rpc("1", "devnet_mint", "[]"));
    assert_eq!(refused, ("".into(), "".into()), "no node was queried");
}
