//! A node that is slow, silent or unreachable: the deadline, the pool, the one retry, the breaker.
//!
//! Only tests of a timeout measure time, and they allow a margin.

use std::time::{Duration, Instant};

use crate::node_head::{ask_about, row};
use crate::support::check::{assert_error, assert_one_of, assert_result};
use crate::support::client::PATIENCE;
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::response::Response;
use crate::support::script::{RESULT, echo, envelope, good, http, json};

const CUT_OFF: &[&str] = &["upstream_invalid", "upstream_unreachable"];

type Case = (&'static str, fn(&Call) -> Vec<Act>);

/// Each script stalls the node for far longer than any deadline.
const STALLS: [Case; 8] = [
    ("a node that says nothing", |_| vec![Act::Hang]),
    ("half a head", |_| {
        vec![Act::Send("HTTP/1.1 200 OK\r\nConte".into()), Act::Hang]
    }),
    ("an interim answer only", |_| {
        vec![Act::Send(http("100 Continue", &[], "")), Act::Hang]
    }),
    ("a head only", |_| {
        vec![
            Act::Send(http("200 OK", &["Content-Length: 9"], "")),
            Act::Hang,
        ]
    }),
    ("half a body", |_| {
        vec![
            Act::Send(http("200 OK", &["Content-Length: 9"], "{")),
            Act::Hang,
        ]
    }),
    ("a whole body without its end", |call| {
        let body = envelope(call, "\"a-word-of-the-node\"");
        vec![Act::Send(http("200 OK", &[], body)), Act::Hang]
    }),
    ("chunks without the last one", |_| {
        let chunk = http("200 OK", &["Transfer-Encoding: chunked"], "1\r\n{\r\n");
        vec![Act::Send(chunk), Act::Hang]
    }),
    ("a byte every 100 ms", |call| {
        vec![Act::Drip(
            json(envelope(call, "1")),
            Duration::from_millis(100),
        )]
    }),
];

#[test]
fn a_stalled_node_times_out_at_any_point() {
    for (what, stall) in STALLS {
        let node = Node::start(stall);
        let edge = Edge::with(&node, &[("node.timeout", "\"500ms\"")]);
        let started = Instant::now();
        let response = edge.ask(&ask_about(1, "\"mine\""));
        let took = started.elapsed();
        assert_error(&response, "upstream_timeout", "\"mine\"", what);
        let in_time = Duration::from_millis(400)..Duration::from_secs(5);
        assert!(
            in_time.contains(&took),
            "{what}: given up after {took:?}, not after 500 ms"
        );
        node.wait_for_no_connection();
        assert_eq!(
            node.calls().len(),
            1,
            "{what}: what may have reached the node is not repeated"
        );
    }
}

#[test]
fn the_default_deadline_is_eight_seconds_in_total() {
    let drip = |call: &Call| vec![Act::Drip(json(envelope(call, "1")), Duration::from_secs(1))];
    let node = Node::start(drip);
    let edge = Edge::start(&node);
    let started = Instant::now();
    let response = edge.ask(&ask_about(1, "1"));
    let took = started.elapsed();
    assert_error(&response, "upstream_timeout", "1", "one byte each second");
    let in_time = Duration::from_millis(7_800)..Duration::from_secs(12);
    assert!(
        in_time.contains(&took),
        "given up after {took:?}, not after 8 s"
    );
}

#[test]
fn a_dead_new_connection_is_not_retried() {
    let cases: [Case; 2] = [
        ("closed without a byte", |_| vec![Act::Close]),
        ("reset", |_| vec![Act::Reset]),
    ];
    for (what, death) in cases {
        let node = Node::start(move |call| {
            if call.number == 1 {
                death(call)
            } else {
                echo(call)
            }
        });
        let edge = Edge::start(&node);
        let response = edge.ask(&ask_about(1, "7"));
        assert_one_of(&response, CUT_OFF, "7", what);
        assert_eq!(
            node.calls().len(),
            1,
            "{what}: the node may have run it, so it is not repeated"
        );
        let next = edge.ask(&ask_about(2, "8"));
        assert_result(&next, "8", r#"{"block_id":{"block_number":2}}"#, what);
    }
}

#[test]
fn a_dead_pooled_connection_is_replaced_once() {
    let cases: [Case; 2] = [
        ("closed without a byte", |_| vec![Act::Close]),
        ("reset", |_| vec![Act::Reset]),
    ];
    for (what, death) in cases {
        let node = Node::start(move |call| match (call.connection, call.turn) {
            (1, 2) => death(call),
            _ => echo(call),
        });
        let edge = Edge::start(&node);
        for number in [1, 2] {
            let expected = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
            assert_result(&edge.ask(&ask_about(number, "7")), "7", &expected, what);
        }
        let calls = node.calls();
        let trace: Vec<_> = calls
            .iter()
            .map(|call| (call.connection, call.turn))
            .collect();
        assert_eq!(
            trace,
            [(1, 1), (1, 2), (2, 1)],
            "{what}: one retry, on a new connection"
        );
        let params = |call: &Call| call.json()["params"].clone();
        assert_eq!(
            params(&calls[1]),
            params(&calls[2]),
            "{what}: the retry asks the same"
        );
    }
}

#[test]
fn the_retry_opens_a_new_connection() {
    let both_in = Latch::default();
    let hold = both_in.clone();
    let node = Node::start(move |call| {
        match call.turn {
            1 if call.number <= 2 => [vec![Act::Hold(hold.clone())], echo(call)]
                .into_iter()
                .flatten(),
            1 => [Vec::new(), echo(call)].into_iter().flatten(),
            _ => [vec![Act::Close], Vec::new()].into_iter().flatten(),
        }
        .collect()
    });
    let edge = Edge::start(&node);
    std::thread::scope(|scope| {
        let pending = [1, 2].map(|number| {
            let edge = &edge;
            scope.spawn(move || edge.ask(&ask_about(number, "7")))
        });
        node.wait_for_calls(2);
        both_in.open();
        for answer in pending {
            assert_eq!(
                answer.join().unwrap().status,
                200,
                "both first questions are answered"
            );
        }
    });
    let response = edge.ask(&ask_about(3, "7"));
    assert_result(
        &response,
        "7",
        r#"{"block_id":{"block_number":3}}"#,
        "one retry suffices",
    );
    let trace: Vec<_> = node.calls().iter().skip(2).map(|call| call.turn).collect();
    assert_eq!(
        trace,
        [2, 1],
        "the pooled connection died, the next one was new"
    );
}

#[test]
fn there_is_one_retry_and_no_second() {
    let node = Node::start(|call| {
        if call.number == 1 {
            echo(call)
        } else {
            vec![Act::Close]
        }
    });
    let edge = Edge::start(&node);
    assert_eq!(
        edge.ask(&ask_about(1, "7")).status,
        200,
        "the first question is answered"
    );
    let response = edge.ask(&ask_about(2, "7"));
    assert_one_of(
        &response,
        CUT_OFF,
        "7",
        "pooled and new connection died alike",
    );
    assert_eq!(node.calls().len(), 3, "first, pooled, new, and that is all");
}

#[test]
fn nothing_is_retried_after_the_first_byte() {
    let cases: [Case; 4] = [
        ("one byte", |_| vec![Act::Send("H".into()), Act::Close]),
        ("one byte and a reset", |_| {
            vec![Act::Send("H".into()), Act::Reset]
        }),
        ("an interim answer", |_| {
            vec![Act::Send(http("100 Continue", &[], "")), Act::Close]
        }),
        ("half a body", |_| {
            vec![
                Act::Send(http("200 OK", &["Content-Length: 9"], "{")),
                Act::Close,
            ]
        }),
    ];
    for (what, death) in cases {
        let node = Node::start(move |call| {
            if call.turn == 1 {
                echo(call)
            } else {
                death(call)
            }
        });
        let edge = Edge::start(&node);
        assert_eq!(
            edge.ask(&ask_about(1, "7")).status,
            200,
            "the first question is answered"
        );
        let response = edge.ask(&ask_about(2, "7"));
        assert_one_of(&response, CUT_OFF, "7", what);
        assert_eq!(
            node.calls().len(),
            2,
            "{what}: an answer had begun, so no retry"
        );
    }
}

#[test]
fn a_stalled_pooled_connection_is_not_retried() {
    let node = Node::start(|call| {
        if call.turn == 1 {
            echo(call)
        } else {
            vec![Act::Hang]
        }
    });
    let edge = Edge::with(&node, &[("node.timeout", "\"500ms\"")]);
    assert_eq!(
        edge.ask(&ask_about(1, "7")).status,
        200,
        "the first question is answered"
    );
    let response = edge.ask(&ask_about(2, "7"));
    assert_error(
        &response,
        "upstream_timeout",
        "7",
        "a stalled pooled connection",
    );
    assert_eq!(
        node.calls().len(),
        2,
        "the node may still be at it, so no retry"
    );
}

#[test]
fn a_node_without_keep_alive_fails_no_request() {
    let node = Node::start(|call| {
        [good(call), vec![Act::Close]]
            .into_iter()
            .flatten()
            .collect()
    });
    let edge = Edge::start(&node);
    for number in 0..20 {
        let response = edge.ask(&ask_about(number, "7"));
        assert_result(
            &response,
            "7",
            RESULT,
            "a connection that is closed while idle is no fault",
        );
    }
}

#[test]
fn idle_pooled_connections_expire() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("node.idle_timeout", "\"1s\"")]);
    for number in [1, 2] {
        assert_eq!(
            edge.ask(&ask_about(number, "7")).status,
            200,
            "two questions in a row"
        );
    }
    assert_eq!(node.connections(), 1, "share a connection");
    assert!(
        edge.client().silent_for(Duration::from_millis(1_200)),
        "more than a second goes by"
    );
    assert_eq!(
        edge.ask(&ask_about(3, "7")).status,
        200,
        "the next question"
    );
    assert_eq!(
        node.connections(),
        2,
        "takes a new one: the node may be about to close the old"
    );
}

#[test]
fn the_node_never_has_more_connections_than_configured() {
    let release = Latch::default();
    let hold = release.clone();
    let node = Node::start(move |call| {
        [vec![Act::Hold(hold.clone())], echo(call)]
            .into_iter()
            .flatten()
            .collect()
    });
    let edge = Edge::with(&node, &[("node.max_connections", "2")]);
    let mut clients: Vec<_> = (0..6).map(|_| edge.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(ask_about(number, "7").bytes());
    }
    node.wait_for_calls(2);
    let mut other = edge.client();
    assert!(
        other.silent_for(Duration::from_millis(300)),
        "the rest has arrived as well"
    );
    assert_eq!(node.connections(), 2, "two connections, and no third");
    release.open();
    for client in &mut clients {
        let response = client.response();
        if response.status != 200 {
            assert_error(
                &response,
                "overloaded",
                "7",
                "there was no connection for it",
            );
        }
    }
    assert_eq!(node.connections(), 2, "two connections did all the work");
}

#[test]
fn an_unreachable_node_is_reported_as_such() {
    let edge = Setup::before(Node::nowhere()).start();
    for number in 0..20 {
        let response = edge.ask(&ask_about(number, "\"mine\""));
        assert_error(
            &response,
            "upstream_unreachable",
            "\"mine\"",
            "nothing listens there",
        );
    }
}

#[test]
fn the_breaker_closes_after_an_answered_probe() {
    let address = Node::nowhere();
    // without single-flight: identical requests would wait for the probe's response
    let edge = Setup::before(address)
        .set("gateway.single_flight", "false")
        .start();
    for number in 0..20 {
        let response = edge.ask(&ask_about(number, "7"));
        assert_error(&response, "upstream_unreachable", "7", "the node is down");
    }
    let release = Latch::default();
    let hold = release.clone();
    let node = Node::start_at(address, move |call| {
        [vec![Act::Hold(hold.clone())], echo(call)]
            .into_iter()
            .flatten()
            .collect()
    });
    std::thread::scope(|scope| {
        let persistent = scope.spawn(|| ask_until_it_is_not_unreachable(&edge));
        node.wait_for_calls(1);
        for number in 0..20 {
            let response = edge.ask(&ask_about(number, "7"));
            assert_error(
                &response,
                "upstream_unreachable",
                "7",
                "one probe is out already",
            );
        }
        assert_eq!(
            node.connections(),
            1,
            "a node that may be up again is tried with one request"
        );
        release.open();
        assert_eq!(
            persistent.join().unwrap().status,
            200,
            "the probe itself is answered"
        );
    });
    for number in 0..20 {
        assert_eq!(
            edge.ask(&ask_about(number, "7")).status,
            200,
            "the node is back for all"
        );
    }
}

#[test]
fn slow_calls_do_not_open_the_breaker() {
    const SLOW: usize = 6;
    let node = Node::start(|call| {
        if row(call) < SLOW {
            vec![Act::Hang]
        } else {
            echo(call)
        }
    });
    let edge = Edge::with(&node, &[("node.timeout", "\"2s\"")]);
    let mut clients: Vec<_> = (0..SLOW).map(|_| edge.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(ask_about(number, "7").bytes());
    }
    node.wait_for_calls(SLOW);
    assert_eq!(
        edge.ask(&ask_about(SLOW, "7")).status,
        200,
        "the node answers others meanwhile"
    );
    for client in &mut clients {
        assert_error(&client.response(), "upstream_timeout", "7", "a slow call");
    }
    assert_eq!(
        edge.ask(&ask_about(SLOW, "7")).status,
        200,
        "and afterwards"
    );
}

fn ask_until_it_is_not_unreachable(edge: &Edge) -> Response {
    let deadline = Instant::now() + PATIENCE;
    let mut client = edge.client();
    let mut pause = edge.client();
    while Instant::now() < deadline {
        let response = client.ask(&ask_about(1, "7"));
        if response.status != 502 {
            return response;
        }
        if response.announces_close() {
            client = edge.client();
        }
        // No data arrives here: this is a wait of 20 ms, to avoid a busy loop.
        let _silence = pause.silent_for(Duration::from_millis(20));
    }
    panic!("the breaker never tries the node again");
}

#[test]
fn the_second_url_serves_when_unreachable_first() {
    let second = Node::start(echo);
    let urls = format!(
        "[\"http://{}/rpc\", \"http://{}/rpc\"]",
        Node::nowhere(),
        second.address()
    );
    let edge = Setup::before(second.address())
        .set("node.url", &urls)
        .start();
    for number in 0..20 {
        let expected = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let response = edge.ask(&ask_about(number, "7"));
        assert_result(
            &response,
            "7",
            &expected,
            "the next node of the list answers",
        );
    }
}

#[test]
fn the_first_node_of_a_list_is_preferred() {
    let (first, second) = (Node::start(echo), Node::start(echo));
    let urls = format!(
        "[\"http://{}/rpc\", \"http://{}/rpc\"]",
        first.address(),
        second.address()
    );
    let edge = Setup::before(first.address())
        .set("node.url", &urls)
        .start();
    for number in 1..6 {
        assert_eq!(
            edge.ask(&ask_about(number, "7")).status,
            200,
            "the first node answers"
        );
    }
    // polls ask for block 0, which identifies the chain, and for the newest one
    let is_read = |call: &Call| {
        let number = call.json()["params"]["block_id"]["block_number"].as_u64();
        number.is_some_and(|number| number > 0)
    };
    let reads = |node: &Node| {
        let calls = node.calls();
        calls.iter().filter(|call| is_read(call)).count()
    };
    assert_eq!(
        (reads(&first), reads(&second)),
        (5, 0),
        "the first is enough"
    );
}
