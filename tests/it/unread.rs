//! The id in a refusal of a request whose body was not read.

use crate::support::check::{assert_error, each, id_bytes};
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, padded, rpc};
use crate::support::script::good;

/// An edge whose client has used up its quota.
fn limited(node: &Node) -> Edge {
    let edge = Edge::with(node, &[("gateway.requests_per_minute", "1")]);
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200);
    edge
}

/// The reason and the id of a refusal, as text.
fn reason_and_id(edge: &Edge, request: &Request) -> (String, String) {
    let body = edge.ask(request).json();
    let reason = body["error"]["data"]["reason"].as_str().unwrap_or_default();
    (reason.to_owned(), body["id"].to_string())
}

#[test]
fn a_limited_client_gets_its_id() {
    let node = Node::start(good);
    let edge = limited(&node);
    each(
        [
            (QUESTION.as_bytes().to_vec(), "7", "a number"),
            (
                rpc(r#""a-1""#, "starknet_chainId", "[]").into_bytes(),
                "\"a-1\"",
                "a string",
            ),
            (br#"{"id":1.50}"#.to_vec(), "1.50", "byte for byte"),
            (
                rpc("8", "devnet_mint", "{}").into_bytes(),
                "8",
                "any method",
            ),
            (padded(QUESTION, 4 << 10), "7", "4 KiB"),
            (padded(QUESTION, (4 << 10) + 1), "null", "a byte more"),
            (br#"[{"id":1}]"#.to_vec(), "null", "a batch"),
            (br#"{"id":1,"id":2}"#.to_vec(), "null", "two ids"),
            (br#"{"id":1"#.to_vec(), "null", "cut off"),
            (Vec::new(), "null", "no body"),
        ],
        |(body, id, why)| {
            let refused = edge.client().ask(&Request::post(body));
            let found = id_bytes(&refused);
            assert_eq!((refused.status, found.as_str()), (429, id), "{why}");
        },
    );
}

#[test]
fn a_body_after_its_head_is_not_awaited() {
    let node = Node::start(good);
    let edge = limited(&node);
    let request = Request::post(QUESTION);
    let mut client = edge.client();
    client.send(request.head());
    let refused = client.response();
    assert_eq!(refused.status, 429, "at once");
    assert_eq!(id_bytes(&refused), "null");
}

#[test]
fn a_connection_goes_on_after_a_refusal_with_an_id() {
    let node = Node::start(good);
    let edge = limited(&node);
    let mut client = edge.client();
    for id in ["1", "2", "3"] {
        let refused = client.ask(&Request::post(rpc(id, "starknet_chainId", "[]")));
        assert_eq!(refused.status, 429);
        assert_eq!(id_bytes(&refused), id);
    }
}

#[test]
fn other_refusals_have_the_id_as_well() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let post = || Request::post(QUESTION);
    each(
        [
            (post().line("POST /rpc/v0_8 HTTP/1.1"), "not_found", "7"),
            (post().line("PUT /rpc HTTP/1.1"), "wrong_http_method", "7"),
            (
                post()
                    .without("Content-Type")
                    .with("Content-Type", "text/plain"),
                "unsupported_media_type",
                "7",
            ),
            (
                post().with("Content-Encoding", "gzip"),
                "unsupported_encoding",
                "7",
            ),
            (
                post().with("Transfer-Encoding", "chunked"),
                "conflicting_framing",
                "null",
            ),
        ],
        |(request, reason, id)| {
            let found = reason_and_id(&edge, &request);
            assert_eq!(found, (reason.to_owned(), id.to_owned()), "{request:?}");
        },
    );
    let blocked = Edge::with(&node, &[("gateway.blocked", "\"127.0.0.1\"")]);
    assert_error(&blocked.ask(&post()), "blocked", "7", "not its network");
}
