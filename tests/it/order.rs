//! The order of checks: route, rate, headers, declared size, body, JSON, envelope, method, params.
//!
//! Each request here breaks two rules at once; the response names the one that is checked first.

use crate::support::check::{assert_common_with_quota, assert_error};
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, padded, rpc};
use crate::support::script::good;

/// A body above the size limit that is not JSON either.
fn huge() -> Vec<u8> {
    padded("{", 65_537)
}

#[test]
fn the_first_check_that_fails_answers() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let text = |body: &[u8]| {
        Request::post(body)
            .without("Content-Type")
            .with("Content-Type", "text/plain")
    };
    let both = r#"{"jsonrpc":"1.0","id":7,"method":"devnet_mint","params":[]}"#;
    let cases = [
        (
            "path before method",
            Request::new("DELETE", "/nowhere"),
            "not_found",
            "null",
        ),
        (
            "path before body",
            Request::post("{").line("POST /x HTTP/1.1"),
            "not_found",
            "null",
        ),
        (
            "path before type",
            text(b"{").line("POST /x HTTP/1.1"),
            "not_found",
            "null",
        ),
        (
            "path before size",
            Request::post(huge()).line("POST /x HTTP/1.1"),
            "not_found",
            "null",
        ),
        (
            "method before type",
            text(b"{").line("PUT /rpc HTTP/1.1"),
            "wrong_http_method",
            "null",
        ),
        (
            "type before size",
            text(&huge()),
            "unsupported_media_type",
            "null",
        ),
        (
            "type before JSON",
            text(b"{"),
            "unsupported_media_type",
            "null",
        ),
        (
            "coding before size",
            Request::post(huge()).with("Content-Encoding", "gzip"),
            "unsupported_encoding",
            "null",
        ),
        (
            "size before JSON",
            Request::post(huge()),
            "body_too_large",
            "null",
        ),
        (
            "JSON before method",
            Request::post(r#"{"method":"devnet_mint""#),
            "parse_error",
            "null",
        ),
        (
            "JSON before shape",
            Request::post(r#"{"jsonrpc":"1.0","id":7}x"#),
            "parse_error",
            "null",
        ),
        (
            "shape before method",
            Request::post(both),
            "invalid_request",
            "7",
        ),
        (
            "method before params",
            Request::post(rpc("7", "devnet_mint", r#"[{"amount":-1}]"#)),
            "method_not_allowed",
            "7",
        ),
    ];
    for (what, request, reason, id) in cases {
        let response = edge.ask(&request);
        let id = if reason == "invalid_request" {
            crate::support::check::id_bytes(&response)
        } else {
            id.into()
        };
        assert_error(&response, reason, &id, what);
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn the_rate_is_checked_right_after_the_route() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "1")]);
    let first = edge.ask(&Request::post(QUESTION));
    assert_common_with_quota(&first, 1, "the only request of the minute");
    assert_eq!(first.status, 200, "the only request of the minute passes");
    let reason = |request: &Request| {
        let response = edge.ask(request);
        assert_common_with_quota(&response, 1, "a request above the quota");
        response.json()["error"]["data"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let limited = [
        Request::post(QUESTION),
        Request::post("{"),
        Request::post(huge()),
        Request::post(QUESTION).without("Content-Type"),
        Request::post(QUESTION).with("Content-Encoding", "gzip"),
        Request::post(QUESTION).with("Expect", "nothing"),
    ];
    for request in &limited {
        assert_eq!(
            reason(request),
            "rate_limited",
            "the rate beats what is wrong with {request:?}"
        );
    }
    let routes = [
        (
            Request::post(QUESTION).line("POST /x HTTP/1.1"),
            "not_found",
        ),
        (
            Request::post(QUESTION).line("PUT /rpc HTTP/1.1"),
            "wrong_http_method",
        ),
    ];
    for (request, expected) in &routes {
        assert_eq!(reason(request), *expected, "the route beats the rate");
    }
    assert_eq!(
        node.calls().len(),
        1,
        "a refused request never reaches the node"
    );
}
