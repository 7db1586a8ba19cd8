//! The lifetime of a connection: keep-alive, close, pipelining, upgrade, `Expect`, client abort.

use std::io::Write;

use crate::admin::{eventually, series};
use crate::node_head::{ask_about, row};
use crate::support::check::{assert_error, assert_one_of, assert_result};
use crate::support::client::{Broken, Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request, padded, rpc};
use crate::support::script::{RESULT, echo, good};

#[test]
fn many_requests_share_one_connection_on_both_sides() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    for id in 0..50 {
        let id = id.to_string();
        let response = client.ask(&Request::post(rpc(&id, "starknet_blockNumber", "[]")));
        assert_result(&response, &id, RESULT, "a persistent connection");
        assert!(!response.announces_close(), "HTTP/1.1 keeps its connection");
    }
    assert_eq!(
        (node.calls().len(), node.connections()),
        (50, 1),
        "the node's connection is persistent as well"
    );
}

#[test]
fn an_old_connection_to_the_node_is_replaced() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("node.connection_lifetime", "\"100ms\"")]);
    let mut client = edge.client();
    let deadline = std::time::Instant::now() + PATIENCE;
    while node.connections() < 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "busy connections live for ever"
        );
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "nobody notices",
        );
    }
    assert!(
        node.calls().len() > node.connections(),
        "each serves several requests"
    );
}

/// A refusal need not close the connection if the end of the request is known.
#[test]
fn a_refusal_leaves_the_connection_usable_or_closed() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let refused = [
        Request::post("{"),
        Request::post(rpc("1", "devnet_mint", "[]")),
        Request::post(QUESTION).without("Content-Type"),
        Request::post(QUESTION).with("Content-Encoding", "gzip"),
        Request::post(QUESTION).line("POST /x HTTP/1.1"),
        Request::post(QUESTION).line("PUT /rpc HTTP/1.1"),
        Request::post(padded(QUESTION, 65_537)),
        Request::post_chunked(padded(QUESTION, 65_537), 1000),
    ];
    for request in refused {
        let mut client = edge.client();
        let first = client.ask(&request);
        assert!((400..500).contains(&first.status), "{request:?}");
        if first.announces_close() {
            client.ends("it said that it would close");
        } else {
            let second = client.ask(&Request::post(QUESTION));
            assert_result(
                &second,
                "7",
                RESULT,
                "the body of a refused request is no request",
            );
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_or_dropped() {
    let node = Node::start(echo);
    let edge = Edge::start(&node);
    let ask = |number: usize| {
        let params = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        Request::post(rpc(
            &number.to_string(),
            "starknet_getBlockWithTxHashes",
            &params,
        ))
        .bytes()
    };
    let mut client = edge.client();
    client.send((0..5).flat_map(ask).collect::<Vec<u8>>());
    client.finish();
    let mut answered = 0;
    loop {
        match client.try_response() {
            Ok(response) => {
                let expected = format!(r#"{{"block_id":{{"block_number":{answered}}}}}"#);
                assert_result(
                    &response,
                    &answered.to_string(),
                    &expected,
                    "answers in order",
                );
                answered += 1;
            }
            Err(Broken::Ended(rest) | Broken::Reset(rest)) => {
                assert!(
                    rest.is_empty(),
                    "no half answer: {}",
                    String::from_utf8_lossy(&rest)
                );
                break;
            }
            Err(broken) => panic!("{broken:?}"),
        }
    }
    assert!((1..=5).contains(&answered), "the first request is answered");
    assert_eq!(
        node.calls().len(),
        answered,
        "what is not answered was not sent either"
    );
}

#[test]
fn concurrent_clients_each_get_their_own_answer() {
    let node = Node::start(echo);
    let edge = Edge::start(&node);
    std::thread::scope(|scope| {
        for client_number in 0..16 {
            let mut client = edge.client();
            scope.spawn(move || {
                for turn in 0..25 {
                    let number = client_number * 1000 + turn;
                    let expected = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
                    let id = format!("\"{number}\"");
                    let response = client.ask(&ask_about(number, &id));
                    assert_result(&response, &id, &expected, "nobody else's answer");
                }
            });
        }
    });
    assert_eq!(node.calls().len(), 400, "each request is sent once");
}

#[test]
fn reordered_answers_reach_the_right_client() {
    let latches: Vec<Latch> = (0..5).map(|_| Latch::default()).collect();
    let held = latches.clone();
    let node = Node::start(move |call| {
        let wait = Act::Hold(held[row(call)].clone());
        std::iter::once(wait).chain(echo(call)).collect()
    });
    let edge = Edge::start(&node);
    let mut clients: Vec<Client> = (0..5).map(|_| edge.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(ask_about(number, &number.to_string()).bytes());
    }
    node.wait_for_calls(5);
    for number in (0..5).rev() {
        latches[number].open();
        let expected = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let response = clients[number].response();
        assert_result(
            &response,
            &number.to_string(),
            &expected,
            "last sent, first answered",
        );
    }
}

#[test]
fn an_answer_before_a_pipelined_request_announces_close() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.send(Request::post(QUESTION).bytes().repeat(2));
    let response = client.response();
    assert_result(&response, "7", RESULT, "the first request");
    assert!(
        response.announces_close(),
        "the second is not answered, so the client must know"
    );
    client.ends("the second request is dropped");
    assert_eq!(
        node.calls().len(),
        1,
        "the second request never reaches the node"
    );
}

#[test]
fn an_upload_sees_its_early_refusal() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    // a client that writes all before it reads
    let upload = Request::post(" ".repeat(20 << 20));
    assert!(client.send(upload.bytes()), "the whole upload is taken");
    assert_error(&client.response(), "body_too_large", "null", "20 MiB");
    client.ends("the refusal ends the connection");
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn a_request_behind_connection_close_is_never_read() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    let last = Request::post(QUESTION).with("Connection", "close");
    client.send([last.bytes(), Request::post(QUESTION).bytes()].concat());
    let response = client.response();
    assert_result(&response, "7", RESULT, "the last request of a connection");
    assert!(response.announces_close(), "the edge closes as well");
    client.ends("nothing comes after the last answer");
    assert_eq!(
        node.calls().len(),
        1,
        "what comes behind the last request is ignored"
    );
}

#[test]
fn http_1_0_closes_unless_keep_alive_is_requested() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let old = Request::post(QUESTION).line("POST /rpc HTTP/1.0");
    let cases = [
        ("with a Host", old.clone()),
        ("without a Host", old.clone().without("Host")),
        (
            "with an expectation, which it cannot have",
            old.clone().with("Expect", "100-continue"),
        ),
    ];
    for (what, request) in cases {
        let mut client = edge.client();
        assert_result(&client.ask(&request), "7", RESULT, what);
        client.ends("HTTP/1.0 closes by default");
    }
    let mut client = edge.client();
    let persistent = client.ask(&old.clone().with("Connection", "keep-alive"));
    assert_result(
        &persistent,
        "7",
        RESULT,
        "HTTP/1.0 that requests a persistent connection",
    );
    let stated = persistent
        .header("Connection")
        .unwrap_or_default()
        .to_ascii_lowercase();
    if stated == "keep-alive" {
        assert_result(&client.ask(&old), "7", RESULT, "the response promises it");
    }
    client.ends("HTTP/1.0 closes unless the response says keep-alive");
}

#[test]
fn expect_100_continue_is_answered_after_admission() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let requests = [Request::post(QUESTION), Request::post_chunked(QUESTION, 10)];
    for request in requests {
        for value in ["100-continue", "100-Continue"] {
            let mut client = edge.client();
            client.send(request.clone().with("Expect", value).head());
            let interim = client.response();
            assert_eq!(interim.status, 100, "{value}: the body is invited");
            client.send(request.body());
            let response = client.response();
            assert_result(&response, "7", RESULT, "the answer after the body");
            if response.announces_close() {
                client.ends("one 100 and one answer");
            } else {
                let next = client.ask(&Request::post(QUESTION));
                assert_result(&next, "7", RESULT, "the connection goes on");
            }
        }
    }
}

#[test]
fn a_body_sent_before_100_continue_is_read() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.send(
        Request::post(QUESTION)
            .with("Expect", "100-continue")
            .bytes(),
    );
    let mut response = client.response();
    if response.status == 100 {
        response = client.response();
    }
    assert_result(&response, "7", RESULT, "a client need not wait for the 100");
}

#[test]
fn a_refused_head_gets_no_100_continue() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "5")]);
    let asking = Request::post(QUESTION).with("Expect", "100-continue");
    let too_large = Request::post(padded(QUESTION, 65_537)).with("Expect", "100-continue");
    let cases = [
        ("not_found", asking.clone().line("POST /x HTTP/1.1")),
        (
            "wrong_http_method",
            asking.clone().line("PUT /rpc HTTP/1.1"),
        ),
        (
            "unsupported_media_type",
            asking.clone().without("Content-Type"),
        ),
        (
            "unsupported_encoding",
            asking.clone().with("Content-Encoding", "gzip"),
        ),
        ("body_too_large", too_large),
        (
            "conflicting_framing",
            asking.clone().with("Transfer-Encoding", "chunked"),
        ),
        (
            "expectation_failed",
            asking.clone().without("Expect").with("Expect", "200-ok"),
        ),
        ("rate_limited", asking),
    ];
    for (reason, request) in cases {
        let mut client = edge.client();
        client.send(request.head());
        let response = client.response();
        assert_eq!(
            response.json()["error"]["data"]["reason"],
            reason,
            "no 100 before it"
        );
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn an_upgrade_is_ignored() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let upgrades: [(&str, &[(&str, &str)]); 3] = [
        ("h2c", &[("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")]),
        (
            "websocket",
            &[
                ("Sec-WebSocket-Version", "13"),
                ("Sec-WebSocket-Key", "AAAAAAAAAAA="),
            ],
        ),
        ("TLS/1.2, HTTP/1.1", &[]),
    ];
    for (protocol, lines) in upgrades {
        let asking = Request::post(QUESTION)
            .with("Connection", "Upgrade, HTTP2-Settings")
            .with("Upgrade", protocol);
        let asking = lines
            .iter()
            .fold(asking, |own, (name, value)| own.with(name, value));
        let mut client = edge.client();
        assert_result(
            &client.ask(&asking),
            "7",
            RESULT,
            &format!("Upgrade: {protocol}"),
        );
        let get = lines.iter().fold(
            Request::new("GET", "/rpc")
                .with("Connection", "Upgrade")
                .with("Upgrade", protocol),
            |own, (name, value)| own.with(name, value),
        );
        let refused = edge.ask(&get);
        assert_error(
            &refused,
            "wrong_http_method",
            "null",
            &format!("GET /rpc for {protocol}"),
        );
    }
    let heads: Vec<_> = node.calls().into_iter().map(|call| call.head).collect();
    let crossed = heads
        .iter()
        .any(|head| head.to_ascii_lowercase().contains("upgrade"));
    assert!(!crossed, "an upgrade never crosses: {heads:?}");
}

#[test]
fn leaving_within_a_body_harms_nobody() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for request in [
        Request::post(QUESTION),
        Request::post_chunked(QUESTION, 1000),
    ] {
        let mut client = edge.client();
        let bytes = request.bytes();
        client.send(&bytes[..bytes.len() - 10]);
        client.finish();
        if let Ok(response) = client.try_response() {
            let reasons = ["invalid_request", "parse_error", "conflicting_framing"];
            assert_one_of(&response, &reasons, "null", "half a body");
            client.ends("no second answer");
        }
    }
    assert_eq!(
        node.connections(),
        0,
        "half a request never reaches the node"
    );
    assert_result(
        &edge.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "the edge goes on",
    );
}

#[test]
fn leaving_before_the_answer_harms_nobody() {
    let release = Latch::default();
    let hold = release.clone();
    let node = Node::start(move |call| {
        let mut acts = good(call);
        if call.number == 1 {
            acts.insert(0, Act::Hold(hold.clone()));
        }
        acts
    });
    let edge = Edge::start(&node);
    let mut impatient = edge.client();
    impatient.send(Request::post(QUESTION).bytes());
    node.wait_for_calls(1);
    drop(impatient);
    release.open();
    assert_result(
        &edge.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "the edge goes on",
    );
}

#[test]
fn a_refused_upload_reads_its_refusal() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let large = |size: usize| padded(QUESTION, size);
    let cases = [
        (
            "128 KiB with a length",
            Request::post(large(128 * 1024)),
            "body_too_large",
        ),
        (
            "128 KiB in chunks",
            Request::post_chunked(large(128 * 1024), 4096),
            "body_too_large",
        ),
        (
            "200 KiB of another type",
            { Request::post(large(200 * 1024)).without("Content-Type") },
            "unsupported_media_type",
        ),
        (
            "200 KiB to nowhere",
            { Request::post(large(200 * 1024)).line("POST /x HTTP/1.1") },
            "not_found",
        ),
    ];
    for (what, request, reason) in cases {
        let mut client = edge.client();
        let sent = client.send(request.bytes());
        assert!(
            sent,
            "{what}: the edge takes what is on its way while it answers"
        );
        assert_error(&client.response(), reason, "null", what);
    }
}

#[test]
fn an_endless_upload_still_reads_the_refusal() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let heads = [
        ("a length of 1 GiB", "Content-Length", "1073741824"),
        ("chunks without end", "Transfer-Encoding", "chunked"),
    ];
    for (what, name, value) in heads {
        let mut client = edge.client();
        let mut writer = client.writer();
        let head = Request::post("")
            .without("Content-Length")
            .with(name, value)
            .head();
        let uploading = std::thread::spawn(move || {
            let chunk = [b"4000\r\n".to_vec(), vec![b' '; 0x4000], b"\r\n".to_vec()].concat();
            let _head = writer.write_all(&head);
            // 1 GiB at most: the gateway closes the connection long before.
            (0..65_536)
                .take_while(|_| writer.write_all(&chunk).is_ok())
                .count()
        });
        assert_error(&client.response(), "body_too_large", "null", what);
        let chunks = uploading.join().unwrap();
        assert!(
            chunks < 65_536,
            "{what}: the edge does not read on for ever"
        );
    }
    assert_eq!(
        node.connections(),
        0,
        "a refused request never reaches the node"
    );
}

#[test]
fn probes_are_answered_when_descriptors_run_out() {
    let folder = Folder::new();
    let few = folder.file("few-descriptors");
    let program = env!("CARGO_BIN_EXE_portcullis");
    let script = format!("#!/bin/sh\nulimit -n 200\nexec {program} \"$@\"\n");
    std::fs::write(&few, script).expect("the folder is ours");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&few, mode).expect("the file is ours");
    let node = Node::start(good);
    let edge = Setup::before(node.address()).program(few.as_ref()).start();
    let mut clients: Vec<_> = (0..400).map(|_| edge.client()).collect();
    for path in ["/livez", "/metrics"] {
        assert_eq!(
            edge.admin_get(path).status,
            200,
            "{path} while clients have all others"
        );
    }
    let event = edge.line("the cause", |line| line["condition"] == "open_files");
    assert_eq!(event["level"], "error", "clients are refused");
    let answer = clients[0].ask(&Request::post(rpc("1", "starknet_blockNumber", "[]")));
    assert_eq!(
        answer.status, 200,
        "a connection that was accepted is served"
    );
    let mut last = clients.pop().expect("there are many");
    assert_error(&last.response(), "overloaded", "null", "one too many");
    drop(clients);
    eventually(&edge, "they are gone", |now| {
        series(now, "portcullis_connections", &["gateway"]) == 0.0
    });
    assert_eq!(
        edge.ask(&Request::new("GET", "/healthz")).status,
        200,
        "the next client"
    );
}
