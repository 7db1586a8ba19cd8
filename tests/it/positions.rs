//! Where the chain is, in `X-Chain-Position`: answers say it, and requests demand it.

use std::cell::Cell;

use crate::admin::eventually;
use crate::support::chain::{Chain, ChainNode, Health, question};
use crate::support::check::{assert_common, assert_error};
use crate::support::client2::Client2;
use crate::support::edge::Edge;
use crate::support::folder::Folder;
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::secure::{Pair, secured};

/// The epoch and the height.
type Position = (u64, u64);

const BLOCK_1: (&str, &str) = ("getBlockWithTxHashes", r#"[{"block_number":1}]"#);
const NUMBER: (&str, &str) = ("getNonce", r#"["latest","0x1"]"#);

/// A chain of three blocks, of which two are accepted on L1.
fn chain() -> Chain {
    let mut chain = Chain::default();
    chain.mine(10, &[]);
    chain.mine(20, &[]);
    chain.mine(30, &[]);
    chain.l1 = Some(1);
    chain
}

fn parsed(text: &str) -> Position {
    let (epoch, height) = text.split_once('.').expect("it is EPOCH.HEIGHT");
    (
        epoch.parse().expect("a number"),
        height.parse().expect("a number"),
    )
}

/// The position of the chain that a response states.
pub(crate) fn stated(response: &Response) -> Option<Position> {
    response.header("X-Chain-Position").map(parsed)
}

/// Asks for an answer from this position or later.
pub(crate) fn ask_from(edge: &Edge, (method, params): (&str, &str), from: &str) -> Response {
    let response = edge.ask(&question(method, params).with("X-Chain-Position", from));
    assert_common(&response, from);
    response
}

fn ask(edge: &Edge, (method, params): (&str, &str)) -> Response {
    let response = edge.ask(&question(method, params));
    assert_common(&response, method);
    response
}

fn text((epoch, height): Position) -> String {
    format!("{epoch}.{height}")
}

/// Waits until answers state a position that is as wanted.
pub(crate) fn reaches(edge: &Edge, what: &str, wanted: impl Fn(Position) -> bool) -> Position {
    let found = Cell::new(None);
    eventually(edge, what, |_| {
        found.set(stated(&ask(edge, NUMBER)).filter(|now| wanted(*now)));
        found.get().is_some()
    });
    found.get().expect("it was found")
}

#[test]
fn answers_say_how_far_the_chain_is() {
    let node = ChainNode::start(chain());
    let edge = node.setup().start();
    let (epoch, _) = reaches(&edge, "a poll", |(_, height)| height == 2);
    let before_1970 = 1_600_000_000_000;
    assert!(
        epoch > before_1970,
        "epochs of a restarted process are later: {epoch}"
    );
    eventually(&edge, "block 2 settles", |now| {
        now["portcullis_cache_settled_block"] == 2.0
    });
    for cache in ["miss", "hit"] {
        let response = ask(&edge, BLOCK_1);
        assert_eq!(response.header("X-Cache"), Some(cache));
        assert_eq!(stated(&response), Some((epoch, 2)), "on a {cache}");
    }
    let missing = ask(&edge, ("getTransactionReceipt", r#"["0xdead"]"#));
    assert_eq!(
        stated(&missing),
        Some((epoch, 2)),
        "an error of the node is an answer"
    );
    node.change(|chain| chain.mine(40, &[]));
    reaches(&edge, "the next block", |now| now == (epoch, 3));
    node.change(|chain| chain.blocks.truncate(2));
    let (later, _) = reaches(&edge, "the rollback", |(_, height)| height == 1);
    assert!(later > epoch, "what went back is another epoch: {later}");
    for request in [
        Request::post("{"),
        Request::new("OPTIONS", "/rpc"),
        Request::new("GET", "/healthz"),
    ] {
        assert_eq!(
            stated(&edge.ask(&request)),
            None,
            "{request:?}: nothing of the chain"
        );
    }
}

#[test]
fn a_request_is_answered_from_its_position_or_later() {
    let node = ChainNode::start(chain());
    let edge = node.setup().start();
    let (epoch, height) = reaches(&edge, "a poll", |(_, height)| height == 2);
    for from in [
        (epoch, height),
        (epoch, 0),
        (epoch - 1, height + 100),
        (0, 0),
    ] {
        let requested = node.requests().len();
        let response = ask_from(&edge, NUMBER, &text(from));
        assert_eq!(response.status, 200, "{from:?} is reached");
        assert_eq!(stated(&response), Some((epoch, height)));
        assert_eq!(
            node.requests().len(),
            requested + 1,
            "and nothing more is requested"
        );
    }
    for from in [
        (epoch, height + 1),
        (epoch + 60_000, height + 1),
        (u64::MAX, u64::MAX),
    ] {
        let response = ask_from(&edge, NUMBER, &text(from));
        assert_error(
            &response,
            "chain_position_behind",
            "1",
            "the chain is not there",
        );
        assert_eq!(response.header("Retry-After"), Some("1"));
        assert_eq!(
            stated(&response),
            Some((epoch, height)),
            "it says where it is"
        );
    }
    node.change(|chain| chain.mine(40, &[]));
    let response = ask_from(&edge, NUMBER, &text((epoch, height + 1)));
    assert_eq!(
        response.status, 200,
        "the node is there before the watch has seen it"
    );
    assert!(
        stated(&response) >= Some((epoch, height + 1)),
        "no earlier than requested"
    );
}

/// As one has it from a process whose clock was ahead.
#[test]
fn a_later_epoch_is_answered_by_the_node() {
    let node = ChainNode::start(chain());
    let edge = node.setup().start();
    let (epoch, _) = reaches(&edge, "a poll", |(_, height)| height == 2);
    eventually(&edge, "block 2 settles", |now| {
        now["portcullis_cache_settled_block"] == 2.0
    });
    for _ in 0..2 {
        ask(&edge, BLOCK_1);
    }
    let later = (epoch + 60_000, 2);
    let response = ask_from(&edge, BLOCK_1, &text(later));
    assert_eq!(response.status, 200, "nobody waits for a clock");
    assert_eq!(
        response.header("X-Cache"),
        Some("miss"),
        "what is cached may be from before"
    );
    assert_eq!(
        stated(&response),
        Some(later),
        "what was requested is not taken back"
    );
}

#[test]
fn a_malformed_position_is_refused() {
    let node = ChainNode::start(chain());
    let edge = node.setup().start();
    reaches(&edge, "a poll", |(_, height)| height == 2);
    let requested = node.requests().len();
    for from in [
        "", "1", "1.", ".1", "1.2.3", "-1.2", "+1.2", "0x1.2", "1 .2", "1,2", "a.b",
    ] {
        let response = ask_from(&edge, NUMBER, from);
        assert_error(&response, "invalid_request", "1", from);
        assert_eq!(stated(&response), None);
    }
    let twice = question(NUMBER.0, NUMBER.1).with("X-Chain-Position", "1.1");
    let response = edge.ask(&twice.with("X-Chain-Position", "1.1"));
    assert_error(&response, "invalid_request", "1", "one position");
    assert_eq!(node.requests().len(), requested, "the node is not queried");
}

#[test]
fn without_the_watch_the_node_says_how_far_it_is() {
    let node = ChainNode::start(chain());
    let edge = node.setup().set("gateway.cache.enabled", "false").start();
    assert_eq!(stated(&ask(&edge, NUMBER)), None, "nobody knows");
    let response = ask_from(&edge, NUMBER, "7.2");
    assert_eq!(
        (response.status, stated(&response)),
        (200, Some((7, 2))),
        "but the node does"
    );
    let response = ask_from(&edge, NUMBER, "7.3");
    assert_error(&response, "chain_position_behind", "1", "it is not there");
    assert_eq!(stated(&response), None);
    node.change(|chain| chain.health = Health::Away);
    let response = ask_from(&edge, NUMBER, "7.2");
    assert_error(&response, "upstream_unreachable", "1", "nor is the node");
}

#[test]
fn positions_are_the_same_over_http2() {
    let node = ChainNode::start(chain());
    let (folder, pair) = (Folder::new(), Pair::new());
    pair.write(&folder);
    let edge = secured(node.setup(), "gateway", &folder).start();
    let ask = |from: Option<Position>| {
        let question = question(NUMBER.0, NUMBER.1);
        let question = match from {
            Some(from) => question.with("x-chain-position", &text(from)),
            None => question,
        };
        Client2::connect(edge.gateway(), &pair).ask(&question)
    };
    eventually(&edge, "a poll", |_| stated(&ask(None)).is_some());
    let position = stated(&ask(None)).expect("it was known a moment ago");
    let response = ask(Some(position));
    assert_eq!((response.status, stated(&response)), (200, Some(position)));
    let behind = ask(Some((position.0, 9)));
    assert_eq!((behind.status, stated(&behind)), (503, Some(position)));
}
