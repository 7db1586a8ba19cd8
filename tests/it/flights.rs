//! Single-flight: identical concurrent requests are one call to the node, and each client gets its
//! own response.

use crate::admin::eventually;
use crate::support::check::{assert_error, assert_result};
use crate::support::client::Client;
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::request::{Request, rpc};
use crate::support::response::Response;
use crate::support::script::{RESULT, echo, good, result, send};

/// A node that holds each request until the latch is open, and then runs the script `then`.
fn held(then: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static) -> (Node, Latch) {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| {
        [vec![Act::Hold(hold.clone())], then(call)]
            .into_iter()
            .flatten()
            .collect()
    });
    (node, latch)
}

/// Sends without waiting for the response.
fn ask(edge: &Edge, request: &Request) -> Client {
    let mut client = edge.client();
    assert!(client.send(request.bytes()), "the edge listens");
    client
}

/// Waits until `count` calls with this `cache` label are counted.
fn wait_for(edge: &Edge, cache: &str, count: usize) {
    let label = format!("cache=\"{cache}\"");
    eventually(edge, &format!("{count} calls that are {cache}"), |now| {
        let calls = now.iter().filter(|(name, _)| {
            name.starts_with("portcullis_calls_total{") && name.contains(&label)
        });
        calls.map(|(_, value)| value).sum::<f64>() == count as f64
    });
}

fn cache(response: &Response) -> Option<&str> {
    response.header("X-Cache")
}

const HASH: &str = "0xabc";

#[test]
fn identical_concurrent_calls_share_one_node_call() {
    let (node, latch) = held(echo);
    let edge = Edge::start(&node);
    let method = "starknet_getTransactionReceipt";
    let requested = [
        ("1", format!(r#"["{HASH}"]"#)),
        ("2", format!(r#"["{HASH}"]"#)),
        ("\"two\"", format!(r#"{{"transaction_hash":"{HASH}"}}"#)),
        ("2.50", r#"["0xABC"]"#.to_owned()),
        (
            "\"\\u0032\"",
            r#"{"transaction_hash" : "0x0000abc"}"#.to_owned(),
        ),
        ("1", r#"{"transaction_h\u0061sh":"0xabc"}"#.to_owned()),
    ];
    let (first, others) = requested.split_first().unwrap();
    let mut leader = ask(&edge, &Request::post(rpc(first.0, method, &first.1)));
    node.wait_for_calls(1);
    let followers: Vec<_> = others
        .iter()
        .map(|(id, params)| (id, ask(&edge, &Request::post(rpc(id, method, params)))))
        .collect();
    wait_for(&edge, "shared", others.len());
    latch.open();
    let result = format!(r#"{{"transaction_hash":"{HASH}"}}"#);
    let answer = leader.response();
    assert_result(
        &answer,
        first.0,
        &result,
        "the one whose request was forwarded",
    );
    assert_eq!(cache(&answer), Some("miss"));
    for (id, mut client) in followers {
        let answer = client.response();
        assert_result(&answer, id, &result, "the same question in other words");
        assert_eq!(cache(&answer), Some("shared"));
    }
    assert_eq!(node.calls().len(), 1, "the node was queried once");
    let answer = edge.ask(&Request::post(rpc("3", method, &first.1)));
    assert_eq!(
        (cache(&answer), node.calls().len()),
        (Some("miss"), 2),
        "afterwards it is again"
    );
}

#[test]
fn another_question_is_another_call() {
    let (node, latch) = held(echo);
    let edge = Edge::start(&node);
    let questions = [
        ("starknet_getNonce", r#"["latest","0x1"]"#),
        ("starknet_getNonce", r#"["latest","0x2"]"#),
        ("starknet_getNonce", r#"["pre_confirmed","0x1"]"#),
        ("starknet_getNonce", r#"[{"block_number":1},"0x1"]"#),
        ("starknet_getNonce", r#"[{"block_hash":"0x1"},"0x1"]"#),
        ("starknet_getClassHashAt", r#"["latest","0x1"]"#),
        ("starknet_getClassAt", r#"["latest","0x1"]"#),
    ];
    let mut clients: Vec<_> = questions
        .iter()
        .map(|(method, params)| ask(&edge, &Request::post(rpc("1", method, params))))
        .collect();
    node.wait_for_calls(questions.len());
    latch.open();
    for (client, question) in clients.iter_mut().zip(questions) {
        assert_eq!(cache(&client.response()), Some("miss"), "{question:?}");
    }
}

#[test]
fn a_leaving_leader_fails_no_follower() {
    let (node, latch) = held(good);
    let edge = Edge::start(&node);
    let leader = ask(&edge, &Request::post(rpc("1", "starknet_chainId", "[]")));
    node.wait_for_calls(1);
    let mut stays = ask(&edge, &Request::post(rpc("2", "starknet_chainId", "[]")));
    let leaves = ask(&edge, &Request::post(rpc("3", "starknet_chainId", "[]")));
    wait_for(&edge, "shared", 2);
    drop((leader, leaves));
    let mut late = ask(&edge, &Request::post(rpc("4", "starknet_chainId", "[]")));
    wait_for(&edge, "shared", 3);
    latch.open();
    assert_result(&stays.response(), "2", RESULT, "the leader is gone");
    assert_result(&late.response(), "4", RESULT, "it came after");
    assert_eq!(node.calls().len(), 1, "the node was not queried again");
}

#[test]
fn a_node_error_is_shared_but_not_cached() {
    let (node, latch) = held(|call| match call.number {
        1 => send("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
        _ => good(call),
    });
    let edge = Edge::start(&node);
    let mut leader = ask(&edge, &Request::post(rpc("1", "starknet_chainId", "[]")));
    node.wait_for_calls(1);
    let mut follower = ask(
        &edge,
        &Request::post(rpc("\"b\"", "starknet_chainId", "[]")),
    );
    wait_for(&edge, "shared", 1);
    latch.open();
    let (first, second) = (leader.response(), follower.response());
    assert_error(&first, "upstream_status", "1", "the node failed");
    assert_error(&second, "upstream_status", "\"b\"", "it did for both");
    assert_eq!(
        (cache(&first), cache(&second)),
        (Some("miss"), Some("shared"))
    );
    let request_id = |response: &Response| response.header("X-Request-Id").map(str::to_owned);
    assert_ne!(
        request_id(&first),
        request_id(&second),
        "each has its own request id"
    );
    let answer = edge.ask(&Request::post(rpc("2", "starknet_chainId", "[]")));
    assert_result(&answer, "2", RESULT, "an error is not cached");
}

#[test]
fn a_shared_large_answer_takes_memory_once() {
    let large = format!("\"{}\"", "ab".repeat(1_900_000));
    let text = large.clone();
    let (node, latch) = held(move |call| send(result(call, &text)));
    // room for one of them
    let edge = Edge::with(&node, &[("server.answer_memory", "\"4 MiB\"")]);
    let request = |id: usize| Request::post(rpc(&id.to_string(), "starknet_chainId", "[]"));
    let mut clients = vec![ask(&edge, &request(0))];
    node.wait_for_calls(1);
    clients.extend((1..12).map(|id| ask(&edge, &request(id))));
    wait_for(&edge, "shared", 11);
    latch.open();
    for (id, client) in clients.iter_mut().enumerate() {
        assert_result(&client.response(), &id.to_string(), &large, "3.8 MB");
    }
    eventually(&edge, "the memory is given back", |now| {
        now.get("portcullis_answer_memory_bytes") == Some(&0.0)
    });
}

#[test]
fn the_leaders_trace_reaches_the_node() {
    let (node, latch) = held(good);
    let edge = Edge::start(&node);
    let parent = |digit: &str| format!("00-{}-b7ad6b7169203331-01", digit.repeat(32));
    let question = || Request::post(rpc("1", "starknet_chainId", "[]"));
    let mut leader = ask(&edge, &question().with("traceparent", &parent("a")));
    node.wait_for_calls(1);
    let mut follower = ask(&edge, &question().with("traceparent", &parent("b")));
    wait_for(&edge, "shared", 1);
    latch.open();
    assert_eq!(
        (leader.response().status, follower.response().status),
        (200, 200)
    );
    let headers = node.calls()[0].headers();
    let sent = headers.iter().find(|(name, _)| name == "traceparent");
    assert_eq!(
        sent.map(|(_, value)| value.as_str()),
        Some(parent("a").as_str())
    );
}

#[test]
fn without_single_flight_every_read_is_a_call() {
    let (node, latch) = held(good);
    let setup = Setup::before(node.address()).set("gateway.single_flight", "false");
    let edge = setup.start();
    let question = Request::post(rpc("1", "starknet_chainId", "[]"));
    let mut clients = [ask(&edge, &question), ask(&edge, &question)];
    node.wait_for_calls(2);
    latch.open();
    for client in &mut clients {
        let answer = client.response();
        assert_result(&answer, "1", RESULT, "as ever");
        assert_eq!(cache(&answer), None, "no cache header");
    }
    wait_for(&edge, "off", 2);
    edge.rewrite(&setup.set("gateway.single_flight", "true"));
    edge.signal("HUP");
    edge.line("the change", |line| line["key"] == "gateway.single_flight");
    assert_eq!(
        cache(&edge.ask(&question)),
        Some("miss"),
        "it is switched on while it runs"
    );
}

#[test]
fn only_admitted_calls_carry_x_cache() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for (request, expected) in [
        (
            Request::post(rpc("1", "starknet_chainId", "[]")),
            Some("miss"),
        ),
        (Request::post(rpc("1", "starknet_chainId", "[1]")), None),
        (
            Request::post(rpc("1", "starknet_addInvokeTransaction", "[]")),
            None,
        ),
        (Request::post("{"), None),
        (Request::new("GET", "/healthz"), None),
        (Request::new("OPTIONS", "/rpc"), None),
        (Request::new("GET", "/"), None),
    ] {
        assert_eq!(cache(&edge.ask(&request)), expected, "{request:?}");
    }
}
