//! `log.sample_rate`: which requests have no log line, and what the lines of the others say.

use serde_json::Value;

use crate::admin::eventually;
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Act, Call, Node};
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::{good, send};
use crate::support::{relay, sidecar};

/// The largest rate: a line for one of a few answers would be a rare accident.
const RAREST: &str = "1000000";
const KEY: &str = "log.sample_rate";

/// Answers all but `starknet_chainId`.
fn script(call: &Call) -> Vec<Act> {
    if call.json()["method"] == "starknet_chainId" {
        return send("HTTP/1.1 301 No\r\nContent-Length: 0\r\n\r\n");
    }
    good(call)
}

fn setup(node: &Node, rate: &str) -> Setup {
    Setup::before(node.address()).set(KEY, rate)
}

/// Sends a request with this id.
fn ask(edge: &Edge, id: &str, body: &str) -> u16 {
    edge.ask(&Request::post(body).with("X-Request-Id", id))
        .status
}

/// Sends `count` reads whose ids begin with `word`, then one that is refused; returns the lines of
/// the reads. Lines are in the order of the requests, which are one after another.
fn lines_of_reads(edge: &Edge, word: &str, count: usize) -> Vec<Value> {
    for number in 0..count {
        assert_eq!(ask(edge, &format!("{word}-{number:08}"), QUESTION), 200);
    }
    let last = format!("{word}-is-over");
    assert_eq!(ask(edge, &last, &rpc("1", "devnet_mint", "[]")), 403);
    edge.request_line(&last);
    let mut reads = Vec::new();
    for line in edge.lines() {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        let id = line["request_id"].as_str().unwrap_or_default();
        if id.starts_with(word) && id != last {
            reads.push(line);
        }
    }
    reads
}

#[test]
fn only_answers_are_left_out() {
    let node = Node::start(script);
    let edge = setup(&node, RAREST).start();
    assert_eq!(lines_of_reads(&edge, "answered", 10).len(), 0, "too many");
    for (id, body, status, reason) in [
        (
            "is-failed",
            rpc("1", "starknet_chainId", "[]"),
            502,
            "upstream_redirect",
        ),
        (
            "is-refused",
            rpc("1", "devnet_mint", "[]"),
            403,
            "method_not_allowed",
        ),
    ] {
        assert_eq!(ask(&edge, id, &body), status, "{id}");
        let line = edge.request_line(id);
        assert_eq!(line["reason"], reason, "{id}");
        assert_eq!(line.get("sample_rate"), None, "{id}: each has its line");
    }
    let counted = "portcullis_requests_total{reason=\"none\",verdict=\"answered\"}";
    eventually(&edge, "each answer is counted", |now| {
        now.get(counted) == Some(&10.0)
    });
}

#[test]
fn writes_have_their_lines_and_documents_do_not() {
    let sampled = [(KEY, RAREST)];
    let relay = relay::stage::Stage::scripted_with(&sampled);
    let ready = relay::stage::authorised(Request::new("GET", "/readyz"));
    assert_eq!(
        relay
            .ask(&ready.with("X-Request-Id", "of-the-relay"))
            .status,
        200
    );
    relay.edge.request_line("of-the-relay");
    let sidecar = sidecar::stage::Stage::with(&sampled);
    let get = |path: &str, id: &str| {
        let request = Request::new("GET", path).with("X-Request-Id", id);
        sidecar.ask(&request).status
    };
    assert_eq!(get("/functions/describeFeedGenerator", "is-served"), 200);
    assert_eq!(get("/functions/nothing", "is-refused"), 404);
    sidecar.edge.request_line("is-refused");
    let lines = sidecar.edge.lines().concat();
    assert!(!lines.contains("is-served"), "{lines}");
}

#[test]
fn a_line_says_how_many_it_represents() {
    let node = Node::start(script);
    let edge = setup(&node, RAREST).start();
    edge.rewrite(&setup(&node, "2"));
    edge.signal("HUP");
    let change = edge.line("the reload", |line| line["key"] == KEY);
    assert_eq!(change["effective"], "now", "it is live");
    let lines = lines_of_reads(&edge, "halved", 64);
    assert!((1..64).contains(&lines.len()), "{} of 64", lines.len());
    for line in lines {
        assert_eq!(line["sample_rate"], 2, "{line}");
    }
    edge.rewrite(&setup(&node, "1"));
    edge.signal("HUP");
    edge.line("the reload", |line| line["key"] == KEY && line["to"] == "1");
    let lines = lines_of_reads(&edge, "whole", 10);
    assert_eq!(lines.len(), 10, "every request has its line");
    for line in lines {
        assert_eq!(line.get("sample_rate"), None, "{line}");
    }
}
