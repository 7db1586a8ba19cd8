//! Requests that wait, over all connections of a client: how many, and what becomes of the others.

use std::collections::BTreeMap;
use std::time::Instant;

use h2::Reason;

use crate::admin::{eventually, metrics, series};
use crate::http2::{Stage, of};
use crate::support::check::assert_error;
use crate::support::client2::{Begun, Client2};
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;

/// All requests of a client may be in flight, and none is over before the test.
const MANY: &[(&str, &str)] = &[
    ("gateway.max_in_flight_per_client", "10000"),
    ("gateway.connections.body_timeout", "\"10m\""),
];

/// Opens streams whose bodies never come, on as many connections as needed, until one is refused;
/// returns the others.
fn fill(stage: &Stage, request: &Request) -> (Vec<Client2>, Vec<Begun>) {
    let (mut clients, mut open) = (Vec::new(), Vec::new());
    while open.len() < 5_000 {
        let mut client = stage.client();
        let begun = (0..90).map(|_| client.begin(request, false).expect("begun"));
        let begun: Vec<_> = begun.collect();
        // its response follows what became of those before
        let last = client.ask(&of("192.0.2.99", Request::new("GET", "/healthz")));
        assert_eq!(last.status, 200, "another client of the same connection");
        let before = open.len();
        for mut begun in begun {
            match client.reset_of(&mut begun) {
                None => open.push(begun),
                Some(reason) => assert_eq!(reason, Reason::REFUSED_STREAM),
            }
        }
        clients.push(client);
        if open.len() < before + 90 {
            return (clients, open);
        }
    }
    panic!("a client has as many streams as it likes");
}

#[test]
fn open_streams_of_one_client_are_bounded() {
    let stage = Stage::new(MANY);
    let waiting = of("192.0.2.1", Request::post(QUESTION));
    let (mut clients, mut open) = fill(&stage, &waiting);
    assert!((512..600).contains(&open.len()), "{} streams", open.len());
    stage.in_flight(open.len() as f64);
    stage.edge.line("the refusals", |line| {
        line["reason"] == "too_many_in_flight"
    });
    let client = clients.last_mut().expect("there is one");
    let refused = client
        .try_ask(&waiting)
        .expect_err("over all of its connections");
    assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM));
    let other = client.ask(&of("192.0.2.2", Request::post(QUESTION)));
    assert_eq!(other.status, 200, "another client of the same connection");
    let mut left = open.split_off(10);
    left.iter_mut()
        .for_each(|begun| begun.body.send_reset(Reason::CANCEL));
    stage.in_flight(10.0);
    assert_eq!(client.ask(&waiting).status, 200, "what is no longer held");
}

#[test]
fn large_heads_take_more_of_the_share() {
    let stage = Stage::new(MANY);
    let post = || of("192.0.2.1", Request::post(QUESTION));
    let many = |name: &str| (0..200).fold(post(), |request, _| request.with(name, "a"));
    for (what, request, expected) in [
        (
            "heads of 2 KiB",
            post().with("X-Fill", &"a".repeat(2 << 10)),
            400..512,
        ),
        ("200 crumbs", many("cookie"), 80..128),
        ("200 values", many("x-v"), 80..128),
        (
            "one of 15 KiB",
            post().with("X-Fill", &"a".repeat(15 << 10)),
            240..280,
        ),
    ] {
        let (_clients, open) = fill(&stage, &request);
        assert!(
            expected.contains(&open.len()),
            "{what}: {} streams",
            open.len()
        );
        drop((_clients, open));
        stage.in_flight(0.0);
    }
}

#[test]
fn an_unread_refusal_holds_no_request() {
    let stage = Stage::new(&[("gateway.max_in_flight_per_client", "1")]);
    let mut client = Client2::with_window(stage.edge.gateway(), &stage.pair, 0);
    let _first = client
        .begin(&Request::post(QUESTION), false)
        .expect("begun");
    stage.in_flight(1.0);
    let start = Instant::now();
    let mut refused: Vec<_> = (0..20)
        .map(|_| {
            let begun = client
                .begin(&Request::post(QUESTION), false)
                .expect("begun");
            let (status, body) = client.unread(begun);
            assert_eq!(status, 429);
            body
        })
        .collect();
    stage.in_flight(1.0);
    let are_open = refused.iter_mut().all(|body| client.is_silent(body));
    assert!(are_open, "the client may still read them");
    for mut body in refused {
        let ended = client
            .rest_of(&mut body)
            .expect_err("nothing of it fits the window");
        assert_eq!(ended.reason(), Some(Reason::CANCEL));
    }
    assert!(
        start.elapsed().as_secs() >= 9,
        "they waited without a request"
    );
}

#[test]
fn waiting_heads_of_http_1_are_bounded() {
    let node = Node::start(good);
    let edge = Edge::with(&node, MANY);
    let request = of(
        "192.0.2.1",
        Request::post(QUESTION).with("X-Fill", &"a".repeat(15 << 10)),
    );
    let mut clients: Vec<_> = (0..300).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send(request.head());
    }
    let waiting = |now: &BTreeMap<String, f64>| now["portcullis_requests_in_flight"];
    eventually(&edge, "each waits or is refused", |now| {
        let refused = series(
            now,
            "portcullis_requests_total",
            &["\"too_many_in_flight\""],
        );
        refused > 0.0 && waiting(now) + refused == 300.0
    });
    let waiting = waiting(&metrics(&edge));
    assert!(
        (100.0..256.0).contains(&waiting),
        "{waiting} heads of 15 KiB"
    );
    let mut client = edge.client();
    client.send(request.head());
    assert_error(
        &client.response(),
        "too_many_in_flight",
        "null",
        "over all of its connections",
    );
    let other = of("192.0.2.2", Request::post(QUESTION));
    assert_eq!(edge.ask(&other).status, 200, "another client");
    let small = of("192.0.2.1", Request::post(QUESTION));
    assert_eq!(
        edge.ask(&small).status,
        200,
        "a body that is there needs no share"
    );
    clients[0].send(request.body());
    assert_eq!(clients[0].response().status, 200, "the first one waited");
}
