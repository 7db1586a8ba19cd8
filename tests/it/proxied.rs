//! Behind a TCP balancer: the header of the PROXY protocol, version 2, names the client.

use std::net::SocketAddr;
use std::time::Instant;

use crate::admin::{eventually, metrics, series};
use crate::support::balancer::{LOCAL, before, header, header_with, raw_header};
use crate::support::check::{assert_error, assert_result, rate_limit, request_id};
use crate::support::client::Client;
use crate::support::client2::Client2;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay;
use crate::support::request::{QUESTION, Request};
use crate::support::script::{RESULT, good};
use crate::support::secure::{ABOUT_A_SECOND, Pair, secured};
use crate::support::sidecar;

const HEADERS: &str = "portcullis_proxy_headers_total";

/// A gateway whose connections begin with a header, and its node.
fn stage(keys: &[(&str, &str)]) -> (Node, Edge) {
    let node = Node::start(good);
    let edge = setup(&node, keys).start();
    (node, edge)
}

fn setup(node: &Node, keys: &[(&str, &str)]) -> Setup {
    let setup = Setup::before(node.address()).set("gateway.proxy_protocol", "true");
    keys.iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value))
}

/// A connection that begins with these bytes.
fn client(edge: &Edge, first: impl AsRef<[u8]>) -> Client {
    let mut client = Client::over(std::net::TcpStream::connect(edge.gateway()).unwrap());
    client.send(first);
    client
}

/// Sends the header, and the request in the same segment.
fn at_once(edge: &Edge, first: Vec<u8>, request: &Request) -> Client {
    client(edge, [first, request.bytes()].concat())
}

/// The client as the log shows it.
fn logged(edge: &Edge, client: &mut Client, why: &str) -> String {
    let response = client.response();
    assert_result(&response, "7", RESULT, why);
    let line = edge.request_line(request_id(&response));
    line["client"].as_str().unwrap_or_default().to_owned()
}

fn counted(edge: &Edge, outcome: &str) -> f64 {
    let outcome = format!("outcome=\"{outcome}\"");
    series(&metrics(edge), HEADERS, &["surface=\"gateway\"", &outcome])
}

#[test]
fn the_header_names_the_client() {
    let (_node, edge) = stage(&[]);
    let extensions = [
        &[0x03, 0, 4, 1, 2, 3, 4][..],
        &[0x04, 0x0f, 0x00],
        &[0; 0xf00],
    ]
    .concat();
    for (what, first, client) in [
        ("IPv4", header("192.0.2.9"), "192.0.2.9"),
        ("IPv6", header("2001:db8::9"), "2001:db8::9"),
        ("IPv4 inside IPv6", header("::ffff:192.0.2.9"), "192.0.2.9"),
        (
            "extensions",
            header_with("192.0.2.9", &extensions),
            "192.0.2.9",
        ),
        ("a health check", LOCAL.to_vec(), "127.0.0.1"),
        (
            "a health check with addresses",
            raw_header(0x20, 0x11, &[9; 12]),
            "127.0.0.1",
        ),
        ("an unknown client", raw_header(0x21, 0, &[]), "127.0.0.1"),
    ] {
        let mut connection = at_once(&edge, first, &Request::post(QUESTION));
        assert_eq!(logged(&edge, &mut connection, what), client, "{what}");
        connection.send(Request::post(QUESTION).bytes());
        assert_eq!(
            logged(&edge, &mut connection, what),
            client,
            "{what}, the second request"
        );
    }
    eventually(&edge, "each is counted", |_| {
        (counted(&edge, "ok"), counted(&edge, "local")) == (4.0, 3.0)
    });
}

#[test]
fn a_header_in_single_bytes_is_read() {
    let (_node, edge) = stage(&[]);
    let mut connection = client(&edge, "");
    connection.drip(&header("192.0.2.9"), std::time::Duration::from_millis(1));
    connection.send(Request::post(QUESTION).bytes());
    assert_eq!(logged(&edge, &mut connection, "single bytes"), "192.0.2.9");
}

#[test]
fn a_bad_header_closes_the_connection() {
    let (node, edge) = stage(&[]);
    let whole = header("192.0.2.9");
    let post = Request::post(QUESTION).bytes();
    let too_large = raw_header(0x21, 0x11, &[0; 4081]);
    for (outcome, what, first) in [
        ("absent", "a plain request", post.clone()),
        ("absent", "TLS", vec![22, 3, 1, 0, 1]),
        (
            "absent",
            "a wrong signature",
            [b"\r\n\r\n\0\r\nQUIX\n", &whole[12..]].concat(),
        ),
        (
            "version_1",
            "version 1",
            b"PROXY TCP4 192.0.2.9 10.0.0.1 1 2\r\n".to_vec(),
        ),
        (
            "version_1",
            "the shortest of version 1",
            b"PROXY UNKNOWN\r\n".to_vec(),
        ),
        (
            "malformed",
            "version 3",
            raw_header(0x31, 0x11, &whole[16..]),
        ),
        (
            "malformed",
            "another command",
            raw_header(0x22, 0x11, &whole[16..]),
        ),
        (
            "malformed",
            "too short for its family",
            raw_header(0x21, 0x21, &whole[16..]),
        ),
        (
            "unsupported",
            "datagrams",
            raw_header(0x21, 0x12, &whole[16..]),
        ),
        (
            "unsupported",
            "a Unix socket",
            raw_header(0x21, 0x31, &[0; 216]),
        ),
        ("too_large", "one byte too many", [too_large, post].concat()),
        ("too_large", "64 KiB", raw_header(0x20, 0, &[0; 0xffff])),
    ] {
        let before = counted(&edge, outcome);
        let mut connection = client(&edge, first);
        connection.ends(what);
        eventually(&edge, what, |_| counted(&edge, outcome) == before + 1.0);
    }
    for cut in [1, 12, 15, 16, 27] {
        let mut connection = client(&edge, &whole[..cut]);
        connection.finish();
        connection.ends("a header that is cut");
    }
    eventually(&edge, "those are counted", |_| {
        counted(&edge, "truncated") == 5.0
    });
    drop(client(&edge, ""));
    eventually(&edge, "one that leaves is, too", |_| {
        counted(&edge, "gone") == 1.0
    });
    let line = edge.line("one line for all", |line| line["outcome"] == "absent");
    assert_eq!(line["peer"], "127.0.0.1", "{line}");
    let lines = edge
        .lines()
        .into_iter()
        .filter(|line| line.contains("PROXY header refused"));
    assert!(lines.count() < 5, "a flood has no line for each");
    assert_eq!(node.connections(), 0, "none of them reaches the node");
}

#[test]
fn an_untrusted_peer_is_never_read() {
    let (node, edge) = stage(&[("gateway.trusted_proxies", "[\"192.0.2.0/24\"]")]);
    let mut connection = at_once(&edge, header("192.0.2.9"), &Request::post(QUESTION));
    connection.ends("loopback is no balancer here");
    eventually(&edge, "it is counted", |_| {
        counted(&edge, "untrusted") == 1.0
    });
    edge.line("the reason", |line| {
        line["outcome"] == "untrusted"
            && line["message"]
                .as_str()
                .is_some_and(|text| text.contains("trusted_proxies"))
    });
    assert_eq!(node.connections(), 0, "it does not reach the node");
}

#[test]
fn a_reload_changes_who_is_trusted() {
    let node = Node::start(good);
    let setup = setup(&node, &[("gateway.trusted_proxies", "[\"192.0.2.0/24\"]")]);
    let edge = setup.start();
    let question = Request::post(QUESTION);
    at_once(&edge, header("192.0.2.9"), &question).ends("loopback is no balancer yet");
    edge.rewrite(&setup.set("gateway.trusted_proxies", "[\"127.0.0.1\"]"));
    edge.signal("HUP");
    edge.line("the reload", |line| {
        line["message"] == "configuration changed"
    });
    let mut connection = at_once(&edge, header("192.0.2.9"), &question);
    assert_eq!(logged(&edge, &mut connection, "it is one now"), "192.0.2.9");
}

#[test]
fn a_slow_header_times_out() {
    let (_node, edge) = stage(&[("gateway.connections.header_timeout", "\"1s\"")]);
    for first in [&b""[..], &header("192.0.2.9")[..20]] {
        let start = Instant::now();
        let mut connection = client(&edge, first);
        connection.ends("a header that takes too long");
        assert!(
            ABOUT_A_SECOND.contains(&start.elapsed()),
            "took {:?}",
            start.elapsed()
        );
    }
    eventually(&edge, "both are counted", |_| {
        counted(&edge, "timeout") == 2.0
    });
}

#[test]
fn forwarded_addresses_of_clients_are_ignored() {
    let keys = [(
        "gateway.trusted_proxies",
        "[\"127.0.0.1\", \"198.51.100.0/24\"]",
    )];
    let (_node, edge) = stage(&keys);
    let claim = Request::post(QUESTION).with("X-Forwarded-For", "203.0.113.5");
    for (what, first, client) in [
        ("a client is no proxy", header("192.0.2.9"), "192.0.2.9"),
        (
            "a proxy behind the balancer is",
            header("198.51.100.7"),
            "203.0.113.5",
        ),
        ("and so is the balancer", LOCAL.to_vec(), "203.0.113.5"),
    ] {
        let mut connection = at_once(&edge, first, &claim);
        assert_eq!(logged(&edge, &mut connection, what), client, "{what}");
    }
}

#[test]
fn requests_are_limited_by_client() {
    let (_node, edge) = stage(&[("gateway.requests_per_minute", "2")]);
    let ask = |address: &str| at_once(&edge, header(address), &Request::post(QUESTION)).response();
    for (address, left) in [
        ("192.0.2.9", Some(1)),
        ("192.0.2.9", Some(0)),
        ("192.0.2.9", None),
        ("192.0.2.10", Some(1)),
        ("2001:db8::1", Some(1)),
        ("2001:db8::2", Some(0)),
        ("2001:db8::3", None),
        ("2001:db8:0:1::1", Some(1)),
    ] {
        let response = ask(address);
        match left {
            Some(left) => assert_eq!(rate_limit(&response, address).0, left, "{address}"),
            None => assert_eq!(response.json()["error"]["data"]["reason"], "rate_limited"),
        }
    }
}

#[test]
fn connections_are_capped_by_client() {
    let (_node, edge) = stage(&[("gateway.connections.max_per_client", "1")]);
    let open = |address: &str| {
        let mut client = at_once(&edge, header(address), &Request::post(QUESTION));
        (client.response(), client)
    };
    let (first, held) = open("2001:db8::1");
    assert_result(&first, "7", RESULT, "the first connection of a client");
    let (second, mut refused) = open("2001:db8::2");
    assert_error(&second, "overloaded", "null", "the second of the same /64");
    refused.ends("it is closed");
    let line = edge.request_line(request_id(&second));
    assert_eq!(
        line["client"], "2001:db8::2",
        "the refusal names the client"
    );
    assert_result(&open("192.0.2.9").0, "7", RESULT, "another client");
    assert_result(
        &open("127.0.0.1").0,
        "7",
        RESULT,
        "a proxy may come through the balancer",
    );
    drop(held);
    eventually(&edge, "its place is free", |_| {
        open("2001:db8::3").0.status == 200
    });
}

#[test]
fn unread_headers_count_as_connections() {
    let (_node, edge) = stage(&[("gateway.connections.max", "2")]);
    let silent: Vec<_> = (0..2).map(|_| client(&edge, "")).collect();
    let open = |now: &std::collections::BTreeMap<String, f64>| {
        series(now, "portcullis_connections", &["surface=\"gateway\""])
    };
    eventually(&edge, "both have a place", |now| open(now) == 2.0);
    let mut third = client(&edge, "");
    assert_error(
        &third.response(),
        "overloaded",
        "null",
        "there is no third place",
    );
    drop(silent);
    eventually(&edge, "the places are free", |now| open(now) == 0.0);
    let mut connection = at_once(&edge, header("192.0.2.9"), &Request::post(QUESTION));
    assert_eq!(logged(&edge, &mut connection, "taken again"), "192.0.2.9");
}

#[test]
fn the_header_precedes_the_handshake() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    pair.write(&folder);
    let edge = secured(setup(&node, &[]), "gateway", &folder).start();
    let balancer = before(edge.gateway(), header("2001:db8::9"));
    let question = Request::post(QUESTION);
    let over_1 = pair.client(balancer).ask(&question);
    let over_2 = Client2::connect(balancer, &pair).ask(&question);
    for (version, response) in [("HTTP/1.1", over_1), ("HTTP/2", over_2)] {
        assert_eq!((response.status, &*response.version), (200, version));
        let line = edge.request_line(request_id(&response));
        assert_eq!(line["client"], "2001:db8::9", "{version}");
    }
    let wrong: SocketAddr = before(edge.gateway(), Vec::new());
    assert!(
        pair.client(wrong).rest().unwrap_or_default().is_empty(),
        "no handshake without it"
    );
    eventually(&edge, "it is counted", |_| counted(&edge, "absent") == 1.0);
}

#[test]
fn relay_and_sidecar_read_the_header_too() {
    let relay = relay::stage::Stage::scripted_with(&[("relay.proxy_protocol", "true")]);
    let sidecar = sidecar::stage::Stage::empty(&[("sidecar.proxy_protocol", "true")]);
    for (surface, edge, address) in [
        ("relay", &relay.edge, relay.edge.relay()),
        ("sidecar", &sidecar.edge, sidecar.edge.sidecar()),
    ] {
        let balancer = before(address, header("192.0.2.9"));
        let response = Client::connect(balancer).ask(&Request::new("GET", "/nothing"));
        assert_eq!(response.status, 404, "{surface}");
        let id = response
            .header("X-Request-Id")
            .expect("every response has one");
        assert_eq!(edge.request_line(id)["client"], "192.0.2.9", "{surface}");
        let mut without = Client::connect(before(address, Vec::new()));
        without.send(Request::new("GET", "/healthz").bytes());
        without.ends("there is no header");
    }
}

#[test]
fn a_listener_without_it_refuses_the_header() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut connection = at_once(&edge, header("192.0.2.9"), &Request::post(QUESTION));
    assert_error(
        &connection.response(),
        "invalid_request",
        "null",
        "it is no request",
    );
    assert_eq!(counted(&edge, "ok"), 0.0, "nothing reads it");
}

#[test]
fn it_needs_a_balancer_to_trust() {
    let node = Node::start(good);
    let output = setup(&node, &[("gateway.trusted_proxies", "[]")]).run("check");
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(
        words.contains("the balancer in gateway.trusted_proxies"),
        "{words}"
    );
}
