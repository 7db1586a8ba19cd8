//! Graceful shutdown: readiness fails first, then requests in flight finish, then the process
//! exits; a second signal stops it at once.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::node_head::ask_about;
use crate::support::check::{assert_common, assert_error};
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request};
use crate::support::script::{echo, good};

/// Far below any grace period or node timeout, far above the time a stop takes.
const SOON: Duration = Duration::from_secs(5);

/// Waits until the gateway reports that it is not ready.
fn wait_until_not_ready(edge: &Edge) {
    let deadline = Instant::now() + PATIENCE;
    while edge.admin_get("/readyz").status != 503 {
        assert!(Instant::now() < deadline, "a stopping edge is still ready");
    }
}

/// Waits until the listener at this address is closed.
pub(crate) fn wait_until_closed(listener: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(listener).is_ok() {
        assert!(
            Instant::now() < deadline,
            "a stopping edge still takes connections"
        );
    }
}

/// A node that responds once the latch is open.
fn held_node() -> (Node, Latch) {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| {
        [vec![Act::Hold(hold.clone())], echo(call)]
            .into_iter()
            .flatten()
            .collect()
    });
    (node, latch)
}

#[test]
fn a_draining_process_serves_until_the_delay_ends() {
    for signal in ["TERM", "INT"] {
        let node = Node::start(good);
        let mut edge = Edge::with(&node, &[("server.drain_delay", "\"3s\"")]);
        assert_eq!(edge.admin_get("/readyz").status, 200, "ready before");
        let start = Instant::now();
        edge.signal(signal);
        wait_until_not_ready(&edge);
        assert_eq!(edge.admin_get("/livez").status, 200, "stopping is not dead");
        let response = edge.ask(&Request::post(QUESTION));
        assert_common(&response, "a request in the drain delay");
        assert_eq!(
            response.status, 200,
            "new requests are served in the drain delay"
        );
        assert!(
            response.announces_close(),
            "but their connections are not persistent"
        );
        assert_eq!(
            edge.ask(&Request::new("GET", "/healthz")).status,
            200,
            "stopping is not dead"
        );
        assert_eq!(
            edge.wait().code(),
            Some(0),
            "a stop on {signal} is no failure"
        );
        let took = start.elapsed();
        let in_time = Duration::from_millis(2_800)..Duration::from_secs(3) + SOON;
        assert!(in_time.contains(&took), "it ends after the delay: {took:?}");
    }
}

#[test]
fn draining_answers_in_flight_and_refuses_new() {
    let (node, latch) = held_node();
    let mut edge = Edge::start(&node);
    let mut early = edge.client();
    early.send(ask_about(1, "\"early\"").bytes());
    node.wait_for_calls(1);
    let mut halfway = edge.client();
    let head = ask_about(2, "\"halfway\"").bytes();
    halfway.send(&head[..20]);
    // connections are accepted in turn
    assert_eq!(edge.ask(&Request::new("GET", "/healthz")).status, 200);
    edge.signal("TERM");
    wait_until_closed(edge.gateway());
    halfway.send(&head[20..]);
    let refused = halfway.response();
    assert_error(
        &refused,
        "draining",
        "\"halfway\"",
        "a request that came after the signal",
    );
    halfway.ends("its connection is over");
    assert!(edge.runs(), "something is in flight");
    assert_eq!(edge.admin_get("/livez").status, 200, "the operator sees it");
    let released = Instant::now();
    latch.open();
    let answer = early.response();
    assert_eq!(
        answer.status,
        200,
        "what was in flight is answered: {}",
        answer.text()
    );
    early.ends("its connection is over");
    assert_eq!(edge.wait().code(), Some(0), "a stop is no failure");
    assert!(
        released.elapsed() < SOON,
        "it does not sleep its grace period"
    );
    assert_eq!(
        node.calls().len(),
        1,
        "a refused request never reaches the node"
    );
}

#[test]
fn idle_connections_do_not_delay_a_stop() {
    let node = Node::start(good);
    let mut edge = Edge::start(&node);
    let mut idle: Vec<Client> = (0..5).map(|_| edge.client()).collect();
    for client in &mut idle {
        assert_eq!(
            client.ask(&Request::post(QUESTION)).status,
            200,
            "it is served"
        );
    }
    let start = Instant::now();
    edge.signal("TERM");
    for client in &mut idle {
        client.ends("an idle connection ends without a word");
    }
    assert_eq!(edge.wait().code(), Some(0), "a stop is no failure");
    assert!(
        start.elapsed() < SOON,
        "nothing was in flight: {:?}",
        start.elapsed()
    );
}

#[test]
fn unfinished_requests_end_with_the_grace_period() {
    let (node, _never) = held_node();
    let mut edge = Edge::with(&node, &[("server.grace_period", "\"1s\"")]);
    let mut client = edge.client();
    client.send(ask_about(1, "7").bytes());
    node.wait_for_calls(1);
    let start = Instant::now();
    edge.signal("TERM");
    edge.wait();
    let took = start.elapsed();
    let in_time = Duration::from_millis(900)..Duration::from_secs(1) + SOON;
    assert!(
        in_time.contains(&took),
        "the grace period is one second: {took:?}"
    );
    assert!(
        client.try_response().is_err(),
        "no answer comes out of a cut connection"
    );
}

#[test]
fn a_second_signal_ends_at_once() {
    for second in ["TERM", "INT"] {
        let (node, _never) = held_node();
        let setup = Setup::before(node.address());
        let mut edge = setup.set("server.grace_period", "\"60s\"").start();
        let mut client = edge.client();
        client.send(ask_about(1, "7").bytes());
        node.wait_for_calls(1);
        edge.signal("TERM");
        wait_until_not_ready(&edge);
        assert!(edge.runs(), "something is in flight");
        let start = Instant::now();
        edge.signal(second);
        edge.wait();
        assert!(
            start.elapsed() < SOON,
            "{second} again: took {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_second_signal_skips_the_drain_delay() {
    let node = Node::start(good);
    let mut edge = Edge::with(&node, &[("server.drain_delay", "\"60s\"")]);
    edge.signal("TERM");
    wait_until_not_ready(&edge);
    assert!(edge.runs(), "it waits");
    let start = Instant::now();
    edge.signal("TERM");
    edge.wait();
    assert!(start.elapsed() < SOON, "took {:?}", start.elapsed());
}
