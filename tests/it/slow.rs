//! Slow clients: slow heads, bodies and readers, and idle connections.
//!
//! These tests measure time, so the deadlines are short and the margins wide.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::support::check::{assert_error, assert_result};
use crate::support::client::{Broken, Client};
use crate::support::edge::Edge;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;
use crate::support::script::{ANSWER_CAP, RESULT, good, json, padded_envelope, send};

const SECOND: (&str, &str) = ("gateway.connections.header_timeout", "\"1s\"");
const BODY_SECOND: (&str, &str) = ("gateway.connections.body_timeout", "\"1s\"");

/// The measured range of a one-second deadline on a busy machine.
const ABOUT_A_SECOND: Range<Duration> = Duration::from_millis(800)..Duration::from_secs(6);

fn assert_took(since: Instant, range: Range<Duration>, what: &str) {
    let took = since.elapsed();
    assert!(
        range.contains(&took),
        "{what}: took {took:?}, expected {range:?}"
    );
}

/// Sends a byte every 100 ms, for far longer than the deadline, then reads the response.
fn drip(client: &mut Client, bytes: &[u8]) -> Response {
    client.drip(bytes, Duration::from_millis(100));
    client.response()
}

/// Asserts that half a head followed by silence, or sent byte by byte, ends after a second.
fn assert_head_is_given_up(client: &mut Client, silent: bool, what: &str) {
    let head = Request::post(QUESTION)
        .with("X-Fill", &"a".repeat(300))
        .head();
    let start = Instant::now();
    let response = if silent {
        client.send(&head[..40]);
        client.response()
    } else {
        drip(client, &head)
    };
    assert_took(start, ABOUT_A_SECOND, what);
    assert_error(&response, "request_timeout", "null", what);
    client.ends("a head that was not read ends the connection");
}

#[test]
fn a_slow_head_times_out() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[SECOND]);
    for silent in [true, false] {
        let what = if silent {
            "half a head, then silence"
        } else {
            "a byte every 100 ms"
        };
        let mut client = edge.client();
        assert_head_is_given_up(&mut client, silent, what);
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn a_slow_head_times_out_on_reused_connections() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[SECOND]);
    for silent in [true, false] {
        let what = if silent {
            "half a second head"
        } else {
            "a second head, byte by byte"
        };
        let mut client = edge.client();
        for _ in 0..2 {
            assert_result(
                &client.ask(&Request::post(QUESTION)),
                "7",
                RESULT,
                "a brisk request",
            );
        }
        assert_head_is_given_up(&mut client, silent, what);
    }
    assert_eq!(
        node.calls().len(),
        4,
        "only the brisk requests reach the node"
    );
}

#[test]
fn a_slow_body_is_refused_at_the_deadline() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[BODY_SECOND]);
    let requests = [
        ("a length", Request::post(QUESTION)),
        ("chunks", Request::post_chunked(QUESTION, 1)),
    ];
    for (kind, request) in requests {
        for silent in [true, false] {
            let what = format!(
                "a body with {kind}, {}",
                if silent { "half" } else { "dripping" }
            );
            let mut client = edge.client();
            client.send(request.head());
            let start = Instant::now();
            let body = &request.body()[..request.body().len() - 1];
            let response = if silent {
                client.send(&body[..body.len() / 2]);
                client.response()
            } else {
                drip(&mut client, body)
            };
            assert_took(start, ABOUT_A_SECOND, &what);
            assert_error(&response, "request_timeout", "null", &what);
            client.ends("a body that was not read ends the connection");
        }
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn a_body_missing_after_100_continue_times_out() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[BODY_SECOND]);
    let mut client = edge.client();
    let start = Instant::now();
    client.send(
        Request::post(QUESTION)
            .with("Expect", "100-continue")
            .head(),
    );
    assert_eq!(client.response().status, 100, "the body is invited");
    assert_error(
        &client.response(),
        "request_timeout",
        "null",
        "no body came",
    );
    assert_took(start, ABOUT_A_SECOND, "no body after 100");
}

#[test]
fn a_slow_sender_within_the_deadline_is_answered() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.drip(&Request::post(QUESTION).bytes(), Duration::from_millis(1));
    assert_result(&client.response(), "7", RESULT, "slow but in time");
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    assert_disconnects("\"1s\"", ABOUT_A_SECOND);
}

#[test]
fn a_reader_without_progress_is_disconnected() {
    // 10 s, long before the write timeout
    assert_disconnects("\"60s\"", Duration::from_secs(8)..Duration::from_secs(25));
}

fn assert_disconnects(write_timeout: &str, after: Range<Duration>) {
    let node = Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP))));
    let edge = Edge::with(
        &node,
        &[("gateway.connections.write_timeout", write_timeout)],
    );
    let mut client = edge.client();
    // The sockets of both sides hold a few MiB, so several responses are needed to fill them.
    let stuck = (0..20).find(|number| {
        let start = Instant::now();
        let id = format!("slow-reader-{number}");
        client.send(Request::post(QUESTION).with("X-Request-Id", &id).bytes());
        edge.request_line(&id);
        after.contains(&start.elapsed())
    });
    let stuck = stuck.expect("twenty answers of 4 MiB fit into no socket");
    for _ in 0..stuck {
        assert!(
            client.response().body.len() > ANSWER_CAP - 100,
            "whole answers before it"
        );
    }
    let end = client.try_response();
    let cut = matches!(end, Err(Broken::Ended(_) | Broken::Reset(_)));
    assert!(
        cut,
        "the answer that was not taken is cut, and the connection ends"
    );
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "others are not held up"
    );
}

#[test]
fn a_slow_reader_gets_the_whole_answer() {
    let node = Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP))));
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.send(Request::post(QUESTION).bytes());
    node.wait_for_calls(1);
    let mut other = edge.client();
    assert!(
        other.silent_for(Duration::from_millis(300)),
        "the first client does not read yet"
    );
    assert!(
        client.response().body.len() > ANSWER_CAP - 100,
        "the whole answer comes"
    );
}

#[test]
fn idle_connections_close_at_their_timeout() {
    let node = Node::start(good);
    for (trusted, key) in [
        ("[]", "gateway.connections.idle_timeout"),
        ("[\"127.0.0.1\"]", "gateway.connections.proxy_idle_timeout"),
    ] {
        let keys = [
            ("gateway.trusted_proxies", trusted),
            (key, "\"1s\""),
            SECOND,
        ];
        let edge = Edge::with(&node, &keys);
        let mut client = edge.client();
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "an answer first",
        );
        let start = Instant::now();
        client.ends("an idle connection is closed without a word");
        assert_took(start, ABOUT_A_SECOND, key);
    }
}

#[test]
fn a_connection_that_never_says_anything_is_closed() {
    let node = Node::start(good);
    let keys = [("gateway.connections.proxy_idle_timeout", "\"1s\""), SECOND];
    let edge = Edge::with(&node, &keys);
    let mut client = edge.client();
    let start = Instant::now();
    let words = client.try_response();
    assert_took(start, ABOUT_A_SECOND, "a silent connection");
    if let Ok(response) = words {
        assert_error(&response, "request_timeout", "null", "a silent connection");
        client.ends("nothing comes after the refusal");
    }
}

#[test]
fn a_connection_ends_at_its_lifetime_between_requests() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.connections.lifetime", "\"1s\"")]);
    let mut client = edge.client();
    let start = Instant::now();
    let mut answers = 0;
    // Sends a request every 20 ms, so that the connection is never idle for long.
    loop {
        client.send(Request::post(QUESTION).bytes());
        match client.try_response() {
            Ok(response) => {
                assert_result(&response, "7", RESULT, "no request is cut");
                answers += 1;
                if response.announces_close() {
                    client.ends("as it said");
                    break;
                }
            }
            Err(broken) => {
                let clean = matches!(&broken, Broken::Ended(rest) | Broken::Reset(rest)
                    if rest.is_empty());
                assert!(clean, "it ends between answers: {broken:?}");
                break;
            }
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "the connection never ends"
        );
        if !client.silent_for(Duration::from_millis(20)) {
            break;
        }
    }
    assert!(
        answers > 5,
        "it was used for its whole life: {answers} answers"
    );
    assert_took(start, ABOUT_A_SECOND, "a connection of one second");
}
