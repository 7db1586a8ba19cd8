//! Repeated heads on a connection, and repeated bodies under other ids: a cached head or body must
//! never apply to a different request.

use crate::support::check::{assert_error, assert_one_of, assert_result, each, rate_limit};
use crate::support::client::Client;
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{Request, padded, rpc};
use crate::support::script::{RESULT, good};
use std::io::Write;

/// A request with this id, which determines its length.
fn question(id: usize) -> Request {
    Request::post(rpc(&id.to_string(), "starknet_blockNumber", "[]"))
}

/// A client whose head the gateway has cached.
fn familiar(edge: &Edge) -> Client {
    let mut client = edge.client();
    for id in [1, 22, 333, 4_444] {
        let response = client.ask(&question(id));
        assert_result(
            &response,
            &id.to_string(),
            RESULT,
            "a head that becomes familiar",
        );
    }
    client
}

#[test]
fn a_cached_head_accepts_bodies_of_any_length() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = familiar(&edge);
    let mut left = None;
    for power in 0..19 {
        let id = 10_usize.pow(power);
        let response = client.ask(&question(id));
        assert_result(
            &response,
            &id.to_string(),
            RESULT,
            "each body its own answer",
        );
        let (remaining, _) = rate_limit(&response, "every request counts");
        assert!(
            left.is_none_or(|left| remaining + 1 == left),
            "one request less: {remaining}"
        );
        left = Some(remaining);
    }
    assert_eq!(node.calls().len(), 23, "each reached the node once");
}

#[test]
fn a_cached_heads_body_may_arrive_in_pieces() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = familiar(&edge);
    for id in [5, 66] {
        let bytes = question(id).bytes();
        let head = question(id).head().len();
        for cut in [head - 3, head, head + 1, bytes.len() - 1] {
            let mut writer = client.writer();
            client.send(&bytes[..cut]);
            // until the gateway has read the first piece: otherwise both may arrive together
            assert!(
                client.silent_for(std::time::Duration::from_millis(50)),
                "not whole yet"
            );
            writer
                .write_all(&bytes[cut..])
                .expect("the connection is open");
            assert_result(&client.response(), &id.to_string(), RESULT, "cut in two");
        }
    }
}

#[test]
fn requests_after_a_cached_head_stay_ordered() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = familiar(&edge);
    client.send([question(5).bytes(), question(66).bytes()].concat());
    assert_result(&client.response(), "5", RESULT, "the first");
    match client.try_response() {
        Ok(second) => assert_result(&second, "66", RESULT, "the second, if at all"),
        Err(_) => assert_eq!(node.calls().len(), 5, "or it never reached the node"),
    }
}

#[test]
fn a_nearly_cached_head_is_parsed_afresh() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let (whole, text) = (question(5), rpc("5", "starknet_blockNumber", "[]"));
    let length = text.len();
    let with_length = |value: &str| {
        let head = String::from_utf8(whole.head()).expect("text");
        let line = format!("Content-Length: {length}");
        [
            head.replace(&line, &format!("Content-Length: {value}"))
                .as_bytes(),
            text.as_bytes(),
        ]
        .concat()
    };
    let typed = |media: &str| {
        let request = Request::new("POST", "/rpc").with("Content-Type", media);
        [
            request.with("Content-Length", &length.to_string()).head(),
            text.clone().into(),
        ]
        .concat()
    };
    each(
        [
            (
                "another media type",
                typed("text/plain"),
                "unsupported_media_type",
            ),
            (
                "another path",
                whole.clone().line("POST /rpx HTTP/1.1").bytes(),
                "not_found",
            ),
            (
                "another method",
                whole.clone().line("PUT /rpc HTTP/1.1").bytes(),
                "wrong_http_method",
            ),
            (
                "a coding",
                whole.clone().with("Content-Encoding", "gzip").bytes(),
                "unsupported_encoding",
            ),
            (
                "a length with a sign",
                with_length(&format!("+{length}")),
                "conflicting_framing",
            ),
            (
                "two lengths",
                with_length(&format!("{length}, 3")),
                "conflicting_framing",
            ),
            ("no length", with_length(""), "conflicting_framing"),
            (
                "a length of letters",
                with_length("abc"),
                "conflicting_framing",
            ),
            (
                "too large a body",
                Request::post(padded(&text, 65_537)).bytes(),
                "body_too_large",
            ),
        ],
        |(what, bytes, reason)| {
            let mut client = familiar(&edge);
            client.send(&bytes);
            let is_in_doubt = ["conflicting_framing", "body_too_large"].contains(&reason);
            let id = if is_in_doubt { "null" } else { "5" };
            assert_one_of(&client.response(), &[reason], id, what);
        },
    );
    let mut client = familiar(&edge);
    let refused = client.ask(&Request::post(rpc("9", "devnet_mint", "[]")));
    assert_error(
        &refused,
        "method_not_allowed",
        "9",
        "a familiar head lets no method through",
    );
    assert_result(
        &client.ask(&question(10)),
        "10",
        RESULT,
        "and the connection goes on",
    );
}

#[test]
fn a_cached_head_client_can_close() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = familiar(&edge);
    let response = client.ask(&question(5).with("Connection", "close"));
    assert_result(&response, "5", RESULT, "the last one");
    client.ends("as requested");
}

/// An uncacheable read with this id.
fn nonce(id: &str) -> String {
    rpc(id, "starknet_getNonce", r#"["latest","0x64b4"]"#)
}

#[test]
fn a_cached_body_is_answered_under_its_id() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let ids = [
        "1",
        "2",
        "3",
        "40",
        "0",
        "7000",
        "999999999999999",
        "9999999999999999",
    ];
    for (count, id) in ids.into_iter().enumerate() {
        assert_result(
            &edge.ask(&Request::post(nonce(id))),
            id,
            RESULT,
            "its own id",
        );
        let requested = node.calls()[count].json();
        assert_eq!(requested["method"], "starknet_getNonce", "{id}");
        assert_eq!(
            requested["params"],
            node.calls()[0].json()["params"],
            "{id}: the same call"
        );
    }
}

#[test]
fn a_nearly_cached_body_is_parsed_afresh() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for id in ["1", "2", "3", "4"] {
        assert_result(
            &edge.ask(&Request::post(nonce(id))),
            id,
            RESULT,
            "it becomes familiar",
        );
    }
    each(
        [
            ("a zero before it", nonce("05"), "parse_error", "null"),
            ("nothing", nonce(""), "parse_error", "null"),
            ("null", nonce("null"), "invalid_request", "null"),
            ("two ids", nonce("5,\"id\":6"), "invalid_request", "null"),
            ("another member", nonce("5,\"x\":6"), "invalid_request", "5"),
            (
                "something behind it",
                nonce("5") + "5",
                "parse_error",
                "null",
            ),
            (
                "another method",
                nonce("5").replace("Nonce", "Storage"),
                "method_not_allowed",
                "5",
            ),
            (
                "other parameters",
                nonce("5").replace("0x64b4", "64b4"),
                "invalid_params",
                "5",
            ),
            (
                "another version",
                nonce("5").replace("2.0", "1.0"),
                "invalid_request",
                "5",
            ),
        ],
        |(what, body, reason, id)| {
            assert_error(&edge.ask(&Request::post(body)), reason, id, what);
        },
    );
    for id in [
        "-5",
        "5.0",
        "5e3",
        "\"5\"",
        "\"\\u0035\"",
        "18446744073709551616",
    ] {
        assert_result(
            &edge.ask(&Request::post(nonce(id))),
            id,
            RESULT,
            "no plain number",
        );
    }
}
