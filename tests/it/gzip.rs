//! Answers in gzip: which clients get them, from which size on, and from the cache.

use std::thread;

use crate::admin::{eventually, metrics, series};
use crate::http2::Stage;
use crate::support::chain::{Chain, ChainNode, question};
use crate::support::check::{assert_common, assert_error, each};
use crate::support::client::Client;
use crate::support::client2::Client2;
use crate::support::edge::{Edge, Setup};
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::response::Response;
use crate::support::script::{result, send};

const BLOCK_1: &str = r#"[{"block_number":1}]"#;

/// A result that fills an answer to the id 1 up to exactly this size.
fn filling(size: usize) -> String {
    let frame = r#"{"jsonrpc":"2.0","id":1,"result":""}"#.len();
    format!(
        "\"{}\"",
        "0x1f".repeat(size / 4 + 1).split_at(size - frame).0
    )
}

/// A gateway before a node whose answers to the id 1 have this size.
fn before(size: usize, keys: &[(&str, &str)]) -> (Node, Edge) {
    let node = Node::start(move |call| send(result(call, &filling(size))));
    let setup = Setup::before(node.address());
    let edge = keys
        .iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value))
        .start();
    (node, edge)
}

fn accepting(body: &str, coding: &str) -> Request {
    Request::post(body).with("Accept-Encoding", coding)
}

fn coding(response: &Response) -> Option<&str> {
    response.header("Content-Encoding")
}

/// Asserts an answer that is sent in gzip.
fn assert_zipped(response: &Response, body: &[u8], why: &str) {
    assert_common(response, why);
    assert_eq!(
        (response.status, coding(response)),
        (200, Some("gzip")),
        "{why}"
    );
    assert_eq!(response.header("Vary"), Some("Accept-Encoding"), "{why}");
    assert_eq!(
        response.header("Content-Type"),
        Some("application/json"),
        "{why}"
    );
    assert!(response.decoded() == body, "{why}: the same answer");
    assert!(response.body.len() < body.len(), "{why}: a smaller one");
}

#[test]
fn answers_from_1_kib_on_are_zipped() {
    for (size, is_zipped) in [
        (1023, false),
        (1024, true),
        (16 << 10, true),
        (1 << 20, true),
    ] {
        let (_node, edge) = before(size, &[]);
        let plain = edge.ask(&Request::post(QUESTION));
        assert_eq!((coding(&plain), plain.body.len()), (None, size));
        let vary = is_zipped.then_some("Accept-Encoding");
        assert_eq!(
            plain.header("Vary"),
            vary,
            "{size}: the plain form says so, too"
        );
        let response = edge.ask(&accepting(QUESTION, "gzip"));
        if is_zipped {
            assert_zipped(&response, &plain.body, &size.to_string());
        } else {
            assert_eq!(
                (coding(&response), &response.body),
                (None, &plain.body),
                "{size}"
            );
        }
    }
}

#[test]
fn only_clients_that_prefer_gzip_get_it() {
    let (_node, edge) = before(4096, &[]);
    let plain = edge.ask(&Request::post(QUESTION));
    let many: Vec<_> = (0..1000)
        .map(|at| format!("c{at};q=0.{}", at % 1000))
        .collect();
    let many = many.join(",");
    each(
        [
            ("gzip, deflate, br", true, "as browsers send"),
            ("GZIP;Q=0.001", true, "in capitals"),
            ("*", true, "any"),
            ("gzip;q=0, *", false, "any but gzip"),
            ("identity;q=0", false, "gzip is not listed"),
            ("identity, gzip;q=0.5", false, "the identity is preferred"),
            ("gzip;q=1.5", false, "malformed"),
            ("gzip, gzip;q=0", false, "a contradiction"),
            ("", false, "empty"),
            (&",".repeat(8192), false, "8 KiB of nothing"),
            (&many, false, "a thousand other codings"),
            (&format!("{many}, gzip"), true, "and gzip"),
            (
                &format!("{}gzip", " ".repeat(8192)),
                true,
                "after 8 KiB of space",
            ),
        ],
        |(accepted, is_zipped, why)| {
            let response = edge.ask(&accepting(QUESTION, accepted));
            if is_zipped {
                assert_zipped(&response, &plain.body, why);
            } else {
                assert_common(&response, why);
                assert_eq!(
                    (coding(&response), &response.body),
                    (None, &plain.body),
                    "{why}"
                );
            }
        },
    );
    let two = accepting(QUESTION, "br").with("Accept-Encoding", "gzip");
    assert_zipped(&edge.ask(&two), &plain.body, "in two fields");
}

#[test]
fn each_request_of_a_connection_has_its_coding() {
    let (_node, edge) = before(4096, &[]);
    let mut client = Client::connect(edge.gateway());
    for accepted in [
        "gzip", "gzip", "gzip", "identity", "identity", "gzip", "br", "gzip",
    ] {
        let response = client.ask(&accepting(QUESTION, accepted));
        let expected = (accepted == "gzip").then_some("gzip");
        assert_eq!(coding(&response), expected, "{accepted}");
    }
}

#[test]
fn any_id_frames_the_same_form() {
    let (_node, edge) = before(4096, &[]);
    for id in [
        "7",
        "\"\"",
        "\"a wallet's\"",
        "18446744073709551615",
        &format!("{:?}", "i".repeat(60_000)),
    ] {
        let body = rpc(id, "starknet_blockNumber", "[]");
        let plain = edge.ask(&Request::post(&body));
        let response = edge.ask(&accepting(&body, "gzip"));
        assert_eq!(coding(&response), Some("gzip"));
        assert!(response.decoded() == plain.body, "{} bytes of id", id.len());
    }
}

#[test]
fn refusals_are_plain() {
    let (_node, edge) = before(4096, &[]);
    let body = rpc("1", "starknet_addInvokeTransaction", "[]");
    let response = edge.ask(&accepting(&body, "gzip"));
    assert_error(&response, "method_not_allowed", "1", "in plain text");
    assert_eq!((coding(&response), response.header("Vary")), (None, None));
}

#[test]
fn a_listed_origin_and_a_coding_share_vary() {
    let keys = [("gateway.cors_origins", "[\"https://app.example\"]")];
    let (_node, edge) = before(4096, &keys);
    let request = accepting(QUESTION, "gzip").with("Origin", "https://app.example");
    let response = edge.ask(&request);
    assert_eq!(coding(&response), Some("gzip"));
    assert_eq!(
        response.header("Vary"),
        Some("origin, Accept-Encoding"),
        "one field"
    );
}

#[test]
fn gzip_can_be_switched_off() {
    let (_node, edge) = before(4096, &[("gateway.gzip", "false")]);
    let response = edge.ask(&accepting(QUESTION, "gzip"));
    assert_eq!(
        (coding(&response), response.header("Vary")),
        (None, None),
        "it has one form"
    );
}

#[test]
fn http2_gets_the_same() {
    let node = Node::start(|call| send(result(call, &filling(1 << 20))));
    let stage = Stage::before(node, &[]);
    let plain = Client2::connect(stage.edge.gateway(), &stage.pair).ask(&Request::post(QUESTION));
    let mut client = Client2::connect(stage.edge.gateway(), &stage.pair);
    for _ in 0..2 {
        let response = client.ask(&accepting(QUESTION, "gzip"));
        assert_eq!(coding(&response), Some("gzip"));
        let stated = response.header("Content-Length").map(str::to_owned);
        assert_eq!(stated, Some(response.body.len().to_string()));
        assert!(response.decoded() == plain.body, "the same answer");
    }
}

#[test]
fn clients_at_a_time_get_one_whole_answer_each() {
    let (_node, edge) = before(1 << 20, &[]);
    let plain = edge.ask(&Request::post(QUESTION));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let response = edge.ask(&accepting(QUESTION, "gzip"));
                assert_common(&response, "at a time");
                assert!(
                    response.decoded() == plain.body,
                    "whole, whether zipped or not"
                );
            });
        }
    });
}

#[test]
fn memory_for_zipped_answers_is_released() {
    let (_node, edge) = before(1 << 20, &[]);
    for _ in 0..3 {
        edge.ask(&accepting(QUESTION, "gzip"));
    }
    eventually(&edge, "the memory is free", |now| {
        now["portcullis_answer_memory_bytes"] == 0.0
    });
}

/// A chain whose block 1 has a large answer, which names `time`.
fn chain(time: u64) -> Chain {
    let mut chain = Chain::default();
    chain.mine(0, &[]);
    let hashes: Vec<_> = (0..500)
        .map(|at| format!("{:#x}", 0xa000_u64 + at))
        .collect();
    let hashes: Vec<&str> = hashes.into_iter().map(|hash| &*hash.leak()).collect();
    chain.mine(time, &hashes);
    chain.mine(20, &[]);
    chain.mine(30, &[]);
    chain.l1 = Some(1);
    chain
}

/// Requests block 1 in gzip; returns `X-Cache` and the response.
fn block(edge: &Edge) -> (String, Response) {
    let response =
        edge.ask(&question("getBlockWithTxHashes", BLOCK_1).with("Accept-Encoding", "gzip"));
    assert_eq!(coding(&response), Some("gzip"));
    (
        response.header("X-Cache").unwrap_or_default().to_owned(),
        response,
    )
}

fn settled(edge: &Edge) {
    eventually(edge, "block 3 settles", |now| {
        now.get("portcullis_cache_settled_block") == Some(&3.0)
    });
}

#[test]
fn a_cached_answer_is_zipped_once() {
    let node = ChainNode::start(chain(10));
    let edge = node.setup().start();
    settled(&edge);
    let plain = edge.ask(&question("getBlockWithTxHashes", BLOCK_1));
    let weight = || metrics(&edge)["portcullis_cache_bytes"];
    let before = weight();
    let (from, first) = block(&edge);
    assert_eq!(from, "hit");
    assert_zipped(&first, &plain.body, "the first");
    let grown = weight() - before;
    // all but its frame
    let expected = first.body.len() as f64;
    assert!(
        (expected - 100.0..expected).contains(&grown),
        "{grown} of {expected} bytes"
    );
    for _ in 0..3 {
        assert_eq!(block(&edge).1.body, first.body, "the same form");
    }
    assert_eq!(weight() - before, grown, "it is weighed once");
    assert_eq!(node.requests().len(), 1, "one call to the node");
    let again = edge.ask(&question("getBlockWithTxHashes", BLOCK_1));
    assert_eq!(
        (coding(&again), &again.body),
        (None, &plain.body),
        "others get the plain one"
    );
    assert_eq!(again.header("X-Cache"), Some("hit"));
}

#[test]
fn a_miss_in_gzip_is_a_hit_in_both_forms() {
    let node = ChainNode::start(chain(10));
    let edge = node.setup().start();
    settled(&edge);
    let (from, zipped) = block(&edge);
    assert_eq!(from, "miss");
    let plain = edge.ask(&question("getBlockWithTxHashes", BLOCK_1));
    assert_eq!(
        (plain.header("X-Cache"), coding(&plain)),
        (Some("hit"), None)
    );
    assert!(zipped.decoded() == plain.body);
    let (from, again) = block(&edge);
    assert_eq!((from.as_str(), &again.body), ("hit", &zipped.body));
    let cached = metrics(&edge)["portcullis_cache_bytes"];
    let both = (zipped.body.len() + plain.body.len()) as f64;
    assert!(cached > both - 200.0, "{cached} of {both} bytes");
}

#[test]
fn a_rollback_empties_both_forms() {
    let node = ChainNode::start(chain(10));
    let edge = node.setup().start();
    settled(&edge);
    block(&edge);
    let (from, before) = block(&edge);
    assert_eq!(from, "hit");
    let ended = |now: &_| series(now, "portcullis_cache_epochs_total", &["genesis"]);
    let epochs = ended(&metrics(&edge));
    node.change(|own| {
        *own = chain(11);
        own.blocks[0].time = 1;
    });
    eventually(&edge, "an epoch ends", |now| ended(now) > epochs);
    settled(&edge);
    let (_, after) = block(&edge);
    let time = |response: &Response| {
        let text: serde_json::Value = serde_json::from_slice(&response.decoded()).expect("JSON");
        text["result"]["timestamp"].clone()
    };
    assert_eq!(
        (time(&before), time(&after)),
        (10.into(), 11.into()),
        "the block as it is now"
    );
}
