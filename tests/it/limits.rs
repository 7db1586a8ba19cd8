//! Limits per client, and limits on the number of clients.
//!
//! The quota at its exact limit, client identification, requests in flight, connections, memory.

use std::time::{Duration, Instant};

use crate::admin::eventually;
use crate::node_head::{ask_about, row};
use crate::support::check::{assert_common_with_quota, assert_error, assert_result, rate_limit};
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::{ANSWER_CAP, RESULT, echo, good, http, json, padded_envelope, send};

/// A request forwarded by a proxy for this client.
fn forwarded(for_whom: &str) -> Request {
    Request::post(QUESTION).with("X-Forwarded-For", for_whom)
}

#[test]
fn the_181st_request_in_a_minute_is_refused() {
    let node = Node::start(good);
    let setup = Setup::before(node.address()).unset("gateway.requests_per_minute");
    let edge = setup.start();
    let mut client = edge.client();
    for number in 1..=180 {
        let response = client.ask(&Request::post(QUESTION));
        assert_common_with_quota(&response, 180, "within the quota");
        assert_eq!(response.status, 200, "request {number} of 180 passes");
        let (left, _) = rate_limit(&response, "within the quota");
        assert_eq!(left, 180 - number, "RateLimit counts down");
    }
    for _ in 0..3 {
        let refused = edge.ask(&Request::post(QUESTION));
        assert_common_with_quota(&refused, 180, "above the quota");
        assert_eq!(
            refused.status, 429,
            "request 181 does not pass, whatever its connection"
        );
        let error = &refused.json()["error"];
        assert_eq!(error["code"], -32005, "the code of a limit");
        assert_eq!(error["data"]["reason"], "rate_limited", "the reason");
        assert_eq!(refused.json()["id"], 7, "the body came with its head");
        let (left, seconds) = rate_limit(&refused, "above the quota");
        let retry: u32 = refused
            .header("Retry-After")
            .unwrap_or_default()
            .parse()
            .unwrap();
        assert_eq!(left, 0, "nothing is left");
        assert!(
            (1..=60).contains(&retry),
            "Retry-After tells seconds: {retry}"
        );
        assert!(
            seconds.abs_diff(retry) <= 1,
            "RateLimit's t and Retry-After tell the same"
        );
    }
    assert_eq!(
        node.calls().len(),
        180,
        "a refused request never reaches the node"
    );
}

#[test]
fn only_rpc_requests_count_against_the_quota() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "8")]);
    let free = [
        Request::new("GET", "/healthz"),
        Request::new("OPTIONS", "/rpc").with("Origin", "https://a.test"),
        Request::new("GET", "/rpc"),
        Request::post(QUESTION).line("POST /elsewhere HTTP/1.1"),
    ];
    let counted = [
        Request::post(QUESTION),
        Request::post("{"),
        Request::post("[]"),
        Request::post(rpc("1", "devnet_mint", "[]")),
        Request::post(rpc("1", "starknet_chainId", "[1]")),
        Request::post(QUESTION).without("Content-Type"),
        Request::post(QUESTION).with("Content-Encoding", "gzip"),
        Request::post(vec![b' '; 65_537]),
    ];
    let left = |request: &Request| {
        let response = edge.ask(request);
        assert_common_with_quota(&response, 8, "any answer");
        (response.status, rate_limit(&response, "any answer").0)
    };
    for (number, request) in (1..).zip(&counted) {
        for free in &free {
            assert_eq!(left(free).1, 9 - number, "it does not count: {free:?}");
        }
        let (status, left) = left(request);
        assert_ne!(status, 429, "within the quota: {request:?}");
        assert_eq!(left, 8 - number, "it counts: {request:?}");
    }
    assert_eq!(
        left(&Request::post(QUESTION)),
        (429, 0),
        "the quota is used up"
    );
    for free in &free {
        assert_ne!(
            left(free).0,
            429,
            "what does not count is not limited: {free:?}"
        );
    }
}

#[test]
fn clients_behind_a_proxy_have_separate_quotas() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "1")]);
    let mut client = edge.client();
    let mut first_and_second = |request: &Request| {
        let first = client.ask(request).status;
        let connection = if first == 429 {
            0
        } else {
            client.ask(request).status
        };
        (first, connection)
    };
    let fresh = [
        ("an address", "203.0.113.1"),
        ("its neighbour", "203.0.113.2"),
        ("an IPv6 network", "2001:db8::1"),
        ("its neighbour", "2001:db8:0:1::1"),
        ("the last hop that is not ours", "203.0.113.1, 198.51.100.7"),
        ("hops of ours behind it", "198.51.100.8, 127.0.0.1, ::1"),
        ("spaces around it", "  198.51.100.9\t"),
    ];
    for (what, for_whom) in fresh {
        assert_eq!(
            first_and_second(&forwarded(for_whom)),
            (200, 429),
            "{what}: {for_whom}"
        );
    }
    let spent = [
        ("the same address", "203.0.113.1"),
        ("the same address, mapped into IPv6", "::ffff:203.0.113.1"),
        ("the same /64", "2001:db8::ffff:ffff:ffff:ffff"),
        ("the same /64, written out", "2001:0DB8:0:0:1::"),
        ("a lie before it", "192.0.2.200, 203.0.113.1"),
        ("noise before it", "unknown, 203.0.113.1"),
    ];
    for (what, for_whom) in spent {
        assert_eq!(
            first_and_second(&forwarded(for_whom)).0,
            429,
            "{what}: {for_whom}"
        );
    }
}

#[test]
fn lines_of_x_forwarded_for_are_one_list() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "1")]);
    let two = forwarded("203.0.113.1").with("X-Forwarded-For", "203.0.113.2");
    assert_eq!(edge.ask(&two).status, 200, "the client is the last hop");
    assert_eq!(
        edge.ask(&forwarded("203.0.113.1")).status,
        200,
        "the first line is hearsay"
    );
    assert_eq!(
        edge.ask(&forwarded("203.0.113.2")).status,
        429,
        "the last line was the client"
    );
}

#[test]
fn a_malformed_hop_counts_for_the_peer() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "1")]);
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the peer itself, once"
    );
    for hop in [
        "garbage",
        "203.0.113.5, garbage",
        "203.0.113.500",
        "",
        ",",
        "_hidden",
    ] {
        let refused = edge.ask(&forwarded(hop));
        assert_eq!(
            refused.status, 429,
            "{hop:?} is nobody: the peer's own quota is spent"
        );
    }
}

#[test]
fn untrusted_x_forwarded_for_is_ignored() {
    let node = Node::start(good);
    let keys = [
        ("gateway.requests_per_minute", "2"),
        ("gateway.trusted_proxies", "[]"),
    ];
    let edge = Edge::with(&node, &keys);
    let statuses = ["203.0.113.1", "203.0.113.2", "203.0.113.3", "2001:db8::1"]
        .map(|for_whom| edge.ask(&forwarded(for_whom)).status);
    assert_eq!(
        statuses,
        [200, 200, 429, 429],
        "a client cannot name itself anew"
    );
}

#[test]
fn exempt_clients_are_not_counted() {
    let node = Node::start(good);
    let keys = [
        ("gateway.requests_per_minute", "2"),
        (
            "gateway.exempt",
            "[\"10.9.0.0/16\", \"2001:db8::7\", \"::ffff:192.0.2.9\"]",
        ),
    ];
    let edge = Edge::with(&node, &keys);
    // a neighbour in the same /64 uses up the quota of both
    for (client, passes) in [("2001:db8::8", 2), ("10.8.255.255", 2), ("10.10.0.0", 2)] {
        let statuses = (0..4).map(|_| edge.ask(&forwarded(client)).status);
        assert_eq!(
            statuses.filter(|status| *status == 200).count(),
            passes,
            "{client} counts"
        );
    }
    for client in [
        "10.9.0.1",
        "10.9.255.255",
        "2001:db8::7",
        "192.0.2.9",
        "1.1.1.1, 10.9.3.4",
    ] {
        for _ in 0..4 {
            let response = edge.ask(&forwarded(client));
            assert_common_with_quota(&response, 2, client);
            assert_eq!(response.status, 200, "{client} does not count");
        }
    }
    for _ in 0..2 {
        let response = edge.ask(&forwarded("10.9.0.1"));
        assert_eq!(rate_limit(&response, "as if it were the first").0, 2);
    }
    let refused = edge.ask(&Request::post("{").with("X-Forwarded-For", "10.9.0.1"));
    assert_eq!(refused.status, 400, "every other rule applies");
}

#[test]
fn a_forged_exempt_address_is_counted() {
    let node = Node::start(good);
    for trusted in ["[]", "[\"127.0.0.1/32\", \"10.9.0.0/16\"]"] {
        let keys = [
            ("gateway.requests_per_minute", "2"),
            ("gateway.exempt", "[\"10.9.0.0/16\"]"),
            ("gateway.trusted_proxies", trusted),
        ];
        let edge = Edge::with(&node, &keys);
        // the client wrote the first hop itself
        let request = forwarded("10.9.0.1, 192.0.2.1");
        let statuses: Vec<_> = (0..3).map(|_| edge.ask(&request).status).collect();
        assert_eq!(statuses, [200, 200, 429], "{trusted}");
    }
}

#[test]
fn exempt_clients_have_every_other_limit() {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| {
        [vec![Act::Hold(hold.clone())], echo(call)]
            .into_iter()
            .flatten()
            .collect()
    });
    let keys = [
        ("gateway.exempt", "[\"127.0.0.0/8\"]"),
        ("gateway.max_in_flight_per_client", "1"),
    ];
    let edge = Edge::with(&node, &keys);
    let mut first = edge.client();
    first.send(Request::post(QUESTION).bytes());
    node.wait_for_calls(1);
    let refused = edge.ask(&Request::post(QUESTION));
    assert_error(&refused, "too_many_in_flight", "7", "one at a time");
    latch.open();
    assert_eq!(first.response().status, 200);
}

#[test]
fn a_reload_changes_who_is_exempt() {
    let node = Node::start(good);
    let setup = Setup::before(node.address()).set("gateway.requests_per_minute", "1");
    let edge = setup.start();
    let mut client = edge.client();
    let statuses: Vec<_> = (0..2)
        .map(|_| client.ask(&Request::post(QUESTION)).status)
        .collect();
    assert_eq!(statuses, [200, 429]);
    edge.rewrite(&setup.clone().set("gateway.exempt", "[\"127.0.0.1\"]"));
    edge.signal("HUP");
    edge.line("the change", |line| line["key"] == "gateway.exempt");
    let statuses: Vec<_> = (0..2)
        .map(|_| client.ask(&Request::post(QUESTION)).status)
        .collect();
    assert_eq!(statuses, [200, 200], "on the same connection");
}

/// The only test that waits for the real minute; it runs in parallel with the others.
#[test]
fn the_window_slides() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "3")]);
    let ask = || edge.ask(&Request::post(QUESTION));
    // A silent connection to the node: reading from it is a timed wait.
    let mut clock = Client::connect(node.address());
    assert_eq!(ask().status, 200, "the first, at the start");
    assert!(
        clock.silent_for(Duration::from_secs(4)),
        "four seconds go by"
    );
    assert_eq!([ask().status, ask().status], [200, 200], "two more, later");
    let refused = ask();
    assert_eq!(refused.status, 429, "three are all");
    let retry: u64 = refused
        .header("Retry-After")
        .unwrap_or_default()
        .parse()
        .unwrap();
    assert!(
        (50..=57).contains(&retry),
        "the first request leaves the window in {retry} s"
    );
    let stated = Instant::now() + Duration::from_secs(retry);
    let before = stated - Duration::from_millis(2_500);
    assert!(
        clock.silent_for(before - Instant::now()),
        "almost the announced time passes"
    );
    assert_eq!(ask().status, 429, "not before the announced time");
    assert!(
        clock.silent_for(stated - Instant::now()),
        "the announced time is over"
    );
    assert_eq!(
        ask().status,
        200,
        "one request left the window, so one passes"
    );
    let next = ask();
    assert_eq!(
        next.status, 429,
        "the two later ones are still in the window"
    );
    let retry: u64 = next
        .header("Retry-After")
        .unwrap_or_default()
        .parse()
        .unwrap();
    assert!((1..=6).contains(&retry), "they leave it in {retry} s");
}

#[test]
fn too_many_in_flight_refuses_that_client_only() {
    let release = Latch::default();
    let hold = release.clone();
    let node = Node::start(move |call| {
        let held = row(call) < 10;
        let wait = held.then(|| Act::Hold(hold.clone()));
        wait.into_iter().chain(echo(call)).collect()
    });
    let edge = Edge::with(&node, &[("gateway.max_in_flight_per_client", "2")]);
    let mut held: Vec<Client> = Vec::new();
    for number in [1, 2] {
        let mut client = edge.client();
        client.send(ask_about(number, "7").bytes());
        held.push(client);
    }
    node.wait_for_calls(2);
    let refused = edge.ask(&ask_about(20, "7"));
    assert_error(
        &refused,
        "too_many_in_flight",
        "7",
        "two are in flight already",
    );
    let other = edge.ask(&ask_about(20, "7").with("X-Forwarded-For", "203.0.113.1"));
    assert_eq!(other.status, 200, "another client has places of its own");
    release.open();
    for client in &mut held {
        assert_eq!(
            client.response().status,
            200,
            "those in flight are answered"
        );
    }
    let later = edge.ask(&ask_about(20, "7"));
    assert_eq!(
        later.status, 200,
        "an answered request gives its place back"
    );
    let numbers: Vec<usize> = node.calls().iter().map(row).collect();
    assert_eq!(
        numbers.len(),
        4,
        "the refused request never reached the node: {numbers:?}"
    );
}

/// Asserts that the gateway refuses this connection, with a response or a plain close.
fn assert_turned_away(edge: &Edge, why: &str) {
    let mut client = edge.client();
    client.send(Request::post(QUESTION).bytes());
    if let Ok(response) = client.try_response() {
        assert_error(&response, "overloaded", "null", why);
        client.ends(why);
    }
}

/// Retries over new connections until one is accepted: a permit is free soon after its holder
/// disconnects.
fn assert_let_in_soon(edge: &Edge) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = edge.client();
        client.send(Request::post(QUESTION).bytes());
        if client
            .try_response()
            .is_ok_and(|response| response.status == 200)
        {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "a place that was left stays taken"
        );
    }
}

#[test]
fn a_connection_above_the_cap_is_turned_away() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.connections.max", "3")]);
    let mut clients: Vec<Client> = (0..3).map(|_| edge.client()).collect();
    for client in &mut clients {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "three have a place",
        );
    }
    for _ in 0..3 {
        assert_turned_away(&edge, "the fourth connection");
    }
    for client in &mut clients {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "they keep it",
        );
    }
    assert_eq!(
        node.calls().len(),
        6,
        "who is turned away never reaches the node"
    );
    clients.pop();
    assert_let_in_soon(&edge);
}

#[test]
fn connections_per_peer_are_capped() {
    let node = Node::start(good);
    let keys = [
        ("gateway.connections.max_per_client", "2"),
        ("gateway.trusted_proxies", "[\"::1\"]"),
    ];
    let edge = Edge::with(&node, &keys);
    let mut clients: Vec<Client> = (0..2).map(|_| edge.client()).collect();
    for client in &mut clients {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "two have a place",
        );
    }
    assert_turned_away(&edge, "the third connection of one peer");
    clients.pop();
    assert_let_in_soon(&edge);
}

#[test]
fn a_trusted_proxy_exceeds_the_peer_cap() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.connections.max_per_client", "2")]);
    let mut clients: Vec<Client> = (0..10).map(|_| edge.client()).collect();
    for client in &mut clients {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "many clients in one",
        );
    }
}

#[test]
fn an_exhausted_answer_pool_refuses_until_released() {
    let release = Latch::default();
    let hold = release.clone();
    let node = Node::start(move |call| {
        let body = padded_envelope(call, ANSWER_CAP - 1024);
        if row(call) > 0 {
            return send(json(body));
        }
        let (early, late) = body.split_at(body.len() - 10);
        let length = format!("Content-Length: {}", body.len());
        let start = http("200 OK", &[&length], early);
        vec![
            Act::Send(start),
            Act::Hold(hold.clone()),
            Act::Send(late.into()),
        ]
    });
    let edge = Edge::with(&node, &[("server.answer_memory", "\"4 MiB\"")]);
    let mut first = edge.client();
    first.send(ask_about(0, "\"first\"").bytes());
    eventually(
        &edge,
        "the first answer takes its share as it comes in",
        |now| now.get("portcullis_answer_memory_bytes") > Some(&4_000_000.0),
    );
    let refused = edge.ask(&ask_about(1, "\"second\""));
    assert_error(
        &refused,
        "overloaded",
        "\"second\"",
        "all memory for answers is taken",
    );
    release.open();
    assert_eq!(first.response().status, 200, "who was first is answered");
    let deadline = Instant::now() + PATIENCE;
    while edge.ask(&ask_about(1, "7")).status != 200 {
        assert!(
            Instant::now() < deadline,
            "an answer that was sent gives its memory back"
        );
    }
}

#[test]
fn an_unread_answer_holds_its_memory() {
    let node = Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP - 1024))));
    let edge = Edge::with(&node, &[("server.answer_memory", "\"4 MiB\"")]);
    let mut reader = edge.client();
    let id = |number: usize| format!("slow-reader-{number}");
    let mut sent = 0;
    let deadline = Instant::now() + PATIENCE;
    // The sockets hold a few MiB: only a response that exceeds them waits in the gateway.
    let refused = loop {
        let over = |number: usize| edge.lines().iter().any(|line| line.contains(&id(number)));
        if sent == 0 || over(sent - 1) {
            reader.send(ask_about(sent, "7").with("X-Request-Id", &id(sent)).bytes());
            sent += 1;
        }
        let other = ask_about(1000, "\"other\"").with("X-Forwarded-For", "192.0.2.1");
        let response = edge.ask(&other);
        if response.status != 200 {
            break response;
        }
        assert!(
            Instant::now() < deadline,
            "a client that does not read holds no memory?"
        );
    };
    assert_error(
        &refused,
        "overloaded",
        "\"other\"",
        "a slow reader holds all there is",
    );
    for _ in 0..sent {
        let response = reader.response();
        let whole = response.body.len() > ANSWER_CAP - 2048;
        let is_refused = matches!(response.status, 429 | 503);
        assert!(
            whole || is_refused,
            "it gets each answer whole, or a refusal"
        );
    }
    let deadline = Instant::now() + PATIENCE;
    while edge.ask(&ask_about(1000, "7")).status != 200 {
        assert!(
            Instant::now() < deadline,
            "an answer that was taken gives its memory back"
        );
    }
}

#[test]
fn a_flood_of_refused_connections_is_summarised() {
    let node = Node::start(good);
    let limits = [
        ("gateway.connections.max_per_client", "1"),
        ("gateway.trusted_proxies", "[]"),
    ];
    let edge = Edge::with(&node, &limits);
    let mut first = edge.client();
    assert_eq!(first.ask(&Request::post(QUESTION)).status, 200);
    for _ in 0..30 {
        assert_eq!(edge.client().response().status, 503);
    }
    let summary = edge.line("the sum of the refusals", |line| {
        line["refusals"].is_string()
    });
    assert_eq!(summary["message"], "refused 20 more times: overloaded");
    assert_eq!(summary["verdict"], "failed", "as the requests are counted");
}
