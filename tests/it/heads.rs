//! Requests refused by their head alone, and sizes at their exact limits.
//!
//! Routes, media types, codings, expectations, sizes of head and body. A refused request never
//! reaches the node, and its response is JSON with a request id, like any other.

use crate::support::check::{assert_common, assert_error, assert_one_of, assert_result, each};
use crate::support::client::Client;
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, padded};
use crate::support::response::Response;
use crate::support::script::{RESULT, good};

/// The gateway's limit on the size of a request body.
const BODY_CAP: usize = 65_536;

#[test]
fn any_path_but_the_two_is_not_found() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let paths = [
        "/",
        "/rpc/",
        "/RPC",
        "//rpc",
        "/rpc?x=1",
        "/rpc?",
        "/rpc;x",
        "/%72pc",
        "/rpc%00",
        "/rpc/../rpc",
        "/./rpc",
        "/healthz/",
        "/healthz?",
        "/Healthz",
        "/metrics",
        "/readyz",
        "/rpc/v0_10",
        "/ws",
        "/rpcs",
        "/rp",
        "*",
        "/favicon.ico",
    ];
    for path in paths {
        for method in ["POST", "GET", "OPTIONS"] {
            let response = edge.ask(&Request::post(QUESTION).line(&request_line(method, path)));
            assert_error(&response, "not_found", "7", &format!("{method} {path}"));
        }
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn an_absolute_target_is_served_by_its_path() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for target in ["http://edge.test/rpc", "HTTPS://other.test:8443/rpc"] {
        let line = format!("POST {target} HTTP/1.1");
        let response = edge.ask(&Request::post(QUESTION).line(&line));
        assert_result(&response, "7", RESULT, target);
    }
    let health = Request::new("GET", "http://edge.test/healthz");
    assert_eq!(edge.ask(&health).status, 200);
    for (target, reason, id) in [
        ("http://edge.test", "not_found", "7"),
        ("http://edge.test?/rpc", "not_found", "7"),
        ("http://user@edge.test/rpc", "invalid_request", "null"),
        ("http:///rpc", "invalid_request", "null"),
        ("http://:80/rpc", "invalid_request", "null"),
        ("http://edge test/rpc", "invalid_request", "null"),
    ] {
        let line = format!("POST {target} HTTP/1.1");
        let response = edge.ask(&Request::post(QUESTION).line(&line));
        assert_error(&response, reason, id, target);
    }
    // the authority of the target counts, whatever Host says
    for (host, status) in [("localhost", 200), ("other.test", 421)] {
        let request = Request::new("GET", &format!("http://{host}/config"))
            .without("Host")
            .with("Host", "localhost");
        assert_eq!(Client::connect(edge.admin()).ask(&request).status, status);
    }
}

#[test]
fn two_framings_are_refused_on_every_listener() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (listener, path) in [(edge.gateway(), "/healthz"), (edge.admin(), "/livez")] {
        let request = Request::new("GET", path)
            .without("Host")
            .with("Host", "localhost")
            .with("Content-Length", "5")
            .with("Transfer-Encoding", "chunked");
        let mut client = Client::connect(listener);
        client.send(request.bytes());
        client.send("0\r\n\r\n");
        assert_eq!(client.response().status, 400, "{path}");
    }
}

#[test]
fn a_target_with_a_fragment_is_refused() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (method, path) in [("POST", "/rpc#"), ("POST", "/rpc#x"), ("GET", "/healthz#x")] {
        let response = edge.ask(&Request::post(QUESTION).line(&request_line(method, path)));
        assert_error(&response, "invalid_request", "null", path);
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

fn request_line(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1")
}

#[test]
fn a_wrong_method_gets_the_allowed_ones() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let others = [
        "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "post", "Get", "M-SEARCH",
    ];
    for (path, own) in [("/rpc", ["OPTIONS", "POST"]), ("/healthz", ["GET", "HEAD"])] {
        let foreign = ["GET", "POST", "OPTIONS"]
            .into_iter()
            .filter(|name| !own.contains(name));
        for method in others.into_iter().chain(foreign) {
            let what = format!("{method} {path}");
            let response = edge.ask(&Request::new(method, path).with("Content-Length", "0"));
            assert_error(&response, "wrong_http_method", "null", &what);
            let mut allowed: Vec<&str> = response
                .header("Allow")
                .unwrap_or_default()
                .split(',')
                .map(str::trim)
                .collect();
            allowed.sort_unstable();
            assert_eq!(allowed, own, "{what}: Allow names what the path takes");
        }
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn head_of_rpc_is_refused_without_a_body() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.send(
        Request::new("HEAD", "/rpc")
            .with("Connection", "close")
            .bytes(),
    );
    let response = client.response_to_head();
    assert_common(&response, "HEAD /rpc");
    assert_eq!(response.status, 405, "HEAD /rpc is another method");
    client.ends("an answer to HEAD has no body");
}

#[test]
fn connect_is_refused_with_an_envelope() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for target in [
        node.address().to_string(),
        "example.com:443".into(),
        "/rpc".into(),
    ] {
        let mut client = edge.client();
        client.send(Request::new("CONNECT", &target).bytes());
        let response = client.response();
        assert_one_of(
            &response,
            &["wrong_http_method"],
            "null",
            &format!("CONNECT {target}"),
        );
        assert!(response.header("Allow").is_some(), "a 405 has an Allow");
        client.send(Request::post(QUESTION).bytes());
        client.finish();
        let later = client.try_response().map(|later: Response| later.status);
        assert!(
            later.is_err() || later == Ok(200),
            "no tunnel was opened: {later:?}"
        );
    }
    assert!(node.calls().len() <= 3, "a tunnel would reach the node raw");
}

#[test]
fn only_json_is_taken() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let refused: [&[&str]; 14] = [
        &[],
        &[""],
        &["text/plain"],
        &["text/json"],
        &["application/jsonx"],
        &["application/json-rpc"],
        &["application/vnd.api+json"],
        &["application"],
        &["*/*"],
        &["application/x-www-form-urlencoded"],
        &["application/json, text/plain"],
        &["text/plain; application/json"],
        &["application/json application/json"],
        &["application/json", "text/plain"],
    ];
    for types in refused {
        let bare = Request::post(QUESTION).without("Content-Type");
        let request = types
            .iter()
            .fold(bare, |own, value| own.with("Content-Type", value));
        let response = edge.ask(&request);
        assert_error(
            &response,
            "unsupported_media_type",
            "7",
            &format!("{types:?}"),
        );
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn json_passes_with_parameters_and_in_any_case() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let passed = [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json ; charset=\"utf-8\"",
        "application/json; charset=utf-8; profile=\"a;b\"",
    ];
    for value in passed {
        let request = Request::post(QUESTION)
            .without("Content-Type")
            .with("Content-Type", value);
        assert_result(&edge.ask(&request), "7", RESULT, value);
    }
}

#[test]
fn a_body_in_any_content_coding_is_refused() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let codings: [&[&str]; 10] = [
        &["gzip"],
        &["GZIP"],
        &["x-gzip"],
        &["deflate"],
        &["br"],
        &["zstd"],
        &["compress"],
        &["unheard-of"],
        &["identity, gzip"],
        &["identity", "gzip"],
    ];
    for codings in codings {
        let request = codings.iter().fold(Request::post(QUESTION), |own, value| {
            own.with("Content-Encoding", value)
        });
        let response = edge.ask(&request);
        assert_error(
            &response,
            "unsupported_encoding",
            "7",
            &format!("{codings:?}"),
        );
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn bodies_pass_up_to_65536_bytes() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let (fits, too_large) = (padded(QUESTION, BODY_CAP), padded(QUESTION, BODY_CAP + 1));
    let with_length = edge.ask(&Request::post(&fits));
    assert_result(&with_length, "7", RESULT, "65,536 bytes with a length");
    let in_one_chunk = edge.ask(&Request::post_chunked(&fits, BODY_CAP));
    assert_result(&in_one_chunk, "7", RESULT, "65,536 bytes in one chunk");
    let in_chunks = edge.ask(&Request::post_chunked(&fits, 1000));
    assert_result(&in_chunks, "7", RESULT, "65,536 bytes in chunks of 1,000");
    let reached = node.calls().len();
    let cases = [
        ("a length", Request::post(&too_large)),
        ("one chunk", Request::post_chunked(&too_large, BODY_CAP + 1)),
        ("chunks of 1,000", Request::post_chunked(&too_large, 1000)),
        (
            "a last chunk of one byte",
            Request::post_chunked(&too_large, BODY_CAP),
        ),
    ];
    for (what, request) in cases {
        let response = edge.ask(&request);
        assert_error(
            &response,
            "body_too_large",
            "null",
            &format!("65,537 bytes with {what}"),
        );
    }
    assert_eq!(
        node.calls().len(),
        reached,
        "a refused request never reaches the node"
    );
}

#[test]
fn one_byte_chunks_form_one_body() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let response = edge.ask(&Request::post_chunked(QUESTION, 1));
    assert_result(&response, "7", RESULT, "chunks are put together");
}

#[test]
fn a_declared_oversize_is_refused_before_the_body() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for length in ["65537", "4294967296", "18446744073709551615"] {
        let request = Request::post("")
            .without("Content-Length")
            .with("Content-Length", length);
        let mut client = edge.client();
        client.send(request.head());
        let response = client.response();
        assert_error(
            &response,
            "body_too_large",
            "null",
            &format!("{length} bytes announced"),
        );
    }
}

#[test]
fn an_expectation_other_than_100_continue_fails() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for value in ["200-ok", "100-continue, 200-ok", "100-continued", "x=y"] {
        let response = edge.ask(&Request::post(QUESTION).with("Expect", value));
        assert_error(&response, "expectation_failed", "7", value);
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn a_head_above_header_size_is_too_large() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let fill = |size: usize| Request::post(QUESTION).with("X-Fill", &"a".repeat(size));
    let fits = edge.ask(&fill(15 * 1024));
    assert_result(&fits, "7", RESULT, "a head of some 15 KiB passes");
    let reached = node.calls().len();
    let many = (0..400).fold(Request::post(QUESTION), |own, number| {
        own.with(&format!("X-Fill-{number}"), &"a".repeat(40))
    });
    let cases = [
        ("one header of 16 KiB", fill(16 * 1024)),
        ("one header of 60 KB", fill(60_000)),
        ("one header of 1 MiB", fill(1024 * 1024)),
        ("400 headers of 50 bytes", many),
        ("a target of 20 KB", {
            Request::post(QUESTION).line(&request_line("POST", &format!("/{}", "a".repeat(20_000))))
        }),
    ];
    each(cases, |(what, request)| {
        let mut client = edge.client();
        client.send(request.bytes());
        assert_error(&client.response(), "header_too_large", "null", what);
        client.ends("what follows a head that was not read is no request");
    });
    assert_eq!(
        node.calls().len(),
        reached,
        "a refused request never reaches the node"
    );
}

#[test]
fn three_hundred_small_headers_are_too_many() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let many = (0..300).fold(Request::post(QUESTION), |own, number| {
        own.with(&format!("X{number}"), "1")
    });
    let response = edge.ask(&many);
    let reasons = ["header_too_large", "invalid_request"];
    assert_one_of(&response, &reasons, "null", "300 headers in 3 KB");
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

/// The operator's port speaks to people: no JSON-RPC envelope there.
#[test]
fn the_admin_listener_refuses_in_plain_text() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        ("CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", 405),
    ] {
        let mut client = Client::connect(edge.admin());
        client.send(head);
        let response = client.response();
        assert_eq!(response.status, status, "{head:?}");
        assert_eq!(
            response.header("Content-Type"),
            Some("text/plain; charset=utf-8"),
            "{head:?}"
        );
        assert!(response.announces_close(), "{head:?}");
        client.ends("a refused head ends the connection");
    }
}

#[test]
fn a_head_without_end_is_ended() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.send(b"POST /rpc HTTP/1.1\r\n");
    let line = format!("X-Flood: {}\r\n", "a".repeat(1000));
    // 64 MB, far above every limit: the gateway closes the connection long before.
    let took_all = (0..65_536).all(|_| client.send(&line));
    assert!(!took_all, "the edge reads only so much of a head");
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}
