//! A URL that gives no valid answers is left for another one, whatever it does instead; and an
//! answer that is behind is never repeated over the connection that it arrived on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::admin::{eventually, metrics};
use crate::support::check::{assert_error, assert_result, each};
use crate::support::client::PATIENCE;
use crate::support::edge::{Edge, Setup};
use crate::support::node::{Act, Call, Node};
use crate::support::relay::chain::method;
use crate::support::request::{Request, rpc};
use crate::support::response::Response;
use crate::support::script::{envelope, http, json as body, result, send, sized};

/// The answer of a node of one chain; its name is the answer to all other calls.
fn honest(call: &Call, name: &str) -> Vec<Act> {
    at_head(call, name, 5)
}

/// The same of a node whose newest block has this number.
fn at_head(call: &Call, name: &str, head: usize) -> Vec<Act> {
    let answer = match method(call).as_str() {
        "starknet_chainId" => json!("0x1"),
        "starknet_blockNumber" => json!(head),
        "starknet_getBlockWithTxHashes" => {
            let number = call.json()["params"]["block_id"]["block_number"].as_u64();
            let number = number.unwrap_or(head as u64);
            let status = "ACCEPTED_ON_L2";
            json!({"status": status, "block_number": number, "block_hash": "0xb", "timestamp": 1})
        }
        _ => json!(name),
    };
    send(result(call, &answer.to_string()))
}

/// A JSON-RPC error of this code.
fn error(call: &Call, code: i64) -> Vec<Act> {
    let id = call.id();
    send(body(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#
    )))
}

fn is_poll(call: &Call) -> bool {
    method(call) != "starknet_getClassHashAt"
}

fn question() -> Request {
    let params = r#"{"block_id":"latest","contract_address":"0x5"}"#;
    Request::post(rpc("7", "starknet_getClassHashAt", params))
}

fn urls(nodes: &[&Node]) -> Setup {
    let urls: Vec<_> = nodes
        .iter()
        .map(|node| format!("http://{}/rpc", node.address()))
        .collect();
    Setup::before(nodes[0].address())
        .set("node.url", &json!(urls).to_string())
        .set("gateway.single_flight", "false")
}

fn pause(edge: &Edge, ms: u64) {
    let _silence = edge.client().silent_for(Duration::from_millis(ms));
}

/// Waits until the URL of this index is left out because it fails.
fn is_left_out(edge: &Edge, node: usize) {
    let name = format!(r#"portcullis_node_left_out{{node="{node}",reason="failing"}}"#);
    eventually(edge, &name, |now| now.get(&name) == Some(&1.0));
}

fn count(edge: &Edge, message: &str) -> usize {
    let lines = edge.lines();
    lines.iter().filter(|line| line.contains(message)).count()
}

type Fault = (&'static str, fn(&Call) -> Vec<Act>);

fn status(line: &str) -> Vec<Act> {
    send(sized(line, &["Content-Type: text/html"], "<html>no</html>"))
}

const FAULTS: [Fault; 13] = [
    ("502", |_| status("502 Bad Gateway")),
    ("503", |_| status("503 Service Unavailable")),
    ("504", |_| status("504 Gateway Timeout")),
    ("500", |_| status("500 Internal Server Error")),
    ("401", |_| status("401 Unauthorized")),
    ("403", |_| status("403 Forbidden")),
    ("404", |_| status("404 Not Found")),
    ("429", |_| status("429 Too Many Requests")),
    ("301", |_| {
        send(http("301 Moved", &["Location: /", "Content-Length: 0"], ""))
    }),
    ("HTML", |_| send(body("<html>hello</html>"))),
    ("another id", |_| {
        send(body(r#"{"jsonrpc":"2.0","id":"x","result":"0x1"}"#))
    }),
    ("internal", |call| error(call, -32_603)),
    ("limited", |call| error(call, -32_005)),
];

#[test]
fn no_read_fails_while_another_url_answers() {
    each(FAULTS, |(what, fault)| {
        let first = Node::start(fault);
        let second = Node::start(|call| honest(call, "b"));
        let edge = urls(&[&first, &second]).start();
        for _ in 0..20 {
            assert_result(&edge.ask(&question()), "7", r#""b""#, what);
        }
        is_left_out(&edge, 0);
        let line = edge.line("the failing URL", |line| {
            line["message"] == "node URL failed"
        });
        assert_eq!(line["level"], "warn", "{what}: {line}");
        assert_eq!(count(&edge, "node URL works again"), 0, "{what}");
        let asked = first.calls().iter().filter(|call| !is_poll(call)).count();
        assert!(
            asked < 10,
            "{what}: it is left, and was asked {asked} times"
        );
    });
}

#[test]
fn a_url_right_only_for_polls_is_left() {
    let works = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&works);
    let first = Node::start(move |call| {
        if is_poll(call) || now.load(Ordering::SeqCst) {
            honest(call, "a")
        } else {
            error(call, -32_603)
        }
    });
    let second = Node::start(|call| honest(call, "b"));
    let edge = urls(&[&first, &second]).start();
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        assert_result(&edge.ask(&question()), "7", r#""b""#, "the second answers");
        pause(&edge, 20);
    }
    is_left_out(&edge, 0);
    assert_eq!(count(&edge, "node URL works again"), 0, "it does not");
    let cause = edge.line("the cause", |line| line["message"] == "node URL failed");
    assert_eq!(cause["cause"], "internal error (-32603)");
    let asked = first.calls().iter().filter(|call| !is_poll(call)).count();
    assert!(asked <= 10, "one read a second is tried there: {asked}");
    works.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while edge.ask(&question()).json()["result"] != "a" {
        assert!(Instant::now() < deadline, "the first never returns");
        pause(&edge, 20);
    }
    edge.line("the end", |line| line["message"] == "node URL works again");
}

#[test]
fn errors_of_every_url_are_passed_on() {
    let failing = |call: &Call| match is_poll(call) {
        true => honest(call, "a"),
        false => error(call, -32_603),
    };
    let (first, second) = (Node::start(failing), Node::start(failing));
    let edge = urls(&[&first, &second]).start();
    for _ in 0..10 {
        let response = edge.ask(&question());
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.json()["error"]["code"], -32_603);
    }
}

#[test]
fn an_error_waits_for_a_url_that_catches_up() {
    let heads = [5, 5].map(|head| Arc::new(AtomicUsize::new(head)));
    let [first, second] = heads.each_ref().map(Arc::clone);
    let late = Arc::clone(&second);
    let a = Node::start(move |call| {
        if !is_poll(call) {
            // the other URL gets the block while this read fails
            late.store(6, Ordering::SeqCst);
            return error(call, -32603);
        }
        at_head(call, "a", first.load(Ordering::SeqCst))
    });
    let b = Node::start(move |call| at_head(call, "b", second.load(Ordering::SeqCst)));
    let edge = urls(&[&a, &b]).start();
    heads[0].store(6, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while ask_head(&edge).json()["result"] != 6 {
        assert!(Instant::now() < deadline, "the first URL is asked");
    }
    let answer = edge.ask(&question());
    assert_eq!(answer.json()["result"], "b", "{}", answer.text());
}

#[test]
fn an_error_of_the_api_is_an_answer() {
    let first = Node::start(|call| match is_poll(call) {
        true => honest(call, "a"),
        false => error(call, 20),
    });
    let second = Node::start(|call| honest(call, "b"));
    let edge = urls(&[&first, &second]).start();
    for _ in 0..10 {
        assert_eq!(edge.ask(&question()).json()["error"]["code"], 20);
    }
    assert!(
        second.calls().iter().all(is_poll),
        "only the first is asked"
    );
    assert_eq!(count(&edge, "node URL failed"), 0);
}

#[test]
fn a_stopped_url_holds_no_read_for_long() {
    let stopped = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&stopped);
    let first = Node::start(move |call| match now.load(Ordering::SeqCst) {
        true => vec![Act::Hang],
        false => honest(call, "a"),
    });
    let second = Node::start(|call| honest(call, "b"));
    let edge = urls(&[&first, &second]).start();
    assert_result(
        &edge.ask(&question()),
        "7",
        r#""a""#,
        "the first is preferred",
    );
    stopped.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(8) {
        let sent = Instant::now();
        assert_result(&edge.ask(&question()), "7", r#""b""#, "the second answers");
        slowest = slowest.max(sent.elapsed());
        pause(&edge, 20);
    }
    println!("slowest read: {slowest:?}");
    // a call that waits for the stopped one takes eight
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
    is_left_out(&edge, 0);
}

#[test]
fn few_calls_are_hedged() {
    const READS: usize = 200;
    let reads = AtomicUsize::new(0);
    let spared = Arc::new(AtomicBool::new(false));
    let is_spared = spared.clone();
    let first = Node::start(move |call| {
        if is_poll(call) {
            return honest(call, "a");
        }
        let is_slow = reads.fetch_add(1, Ordering::SeqCst) >= READS / 2;
        if !is_slow {
            return honest(call, "a");
        }
        let mut first = result(call, r#""a""#);
        let rest = first.split_off(1);
        // no bound is longer than a second, however slow this machine is
        let is_spared = is_spared.load(Ordering::SeqCst);
        let pause = Duration::from_millis(if is_spared { 80 } else { 1_500 });
        vec![Act::Drip(first, pause), Act::Send(rest)]
    });
    let second = Node::start(move |call| {
        if !is_poll(call) {
            spared.store(true, Ordering::SeqCst);
        }
        honest(call, "b")
    });
    let edge = urls(&[&first, &second]).start();
    let mut client = edge.client();
    let ask = |client: &mut crate::support::client::Client| {
        client.ask(&question()).json()["result"].clone()
    };
    let found: Vec<Value> = (0..READS).map(|_| ask(&mut client)).collect();
    let hedged = second.calls().iter().filter(|call| !is_poll(call)).count();
    println!("hedged: {hedged} of {READS}");
    assert!(found.contains(&json!("b")), "a slow one is spared");
    assert!(hedged * 20 <= READS, "{hedged} of {READS} cost double");
}

/// A node behind a balancer that ties each connection to one of two nodes: every second one is a
/// block behind.
fn balanced(head: Arc<AtomicUsize>, behind: Arc<AtomicUsize>) -> Node {
    Node::start(move |call| {
        let late = call.connection % 2;
        behind.fetch_add(late, Ordering::SeqCst);
        let head = head.load(Ordering::SeqCst) - late;
        send(result(call, &head.to_string()))
    })
}

fn ask_head(edge: &Edge) -> Response {
    edge.ask(&Request::post(rpc("7", "starknet_blockNumber", "[]")))
}

#[test]
fn a_balancer_of_connections_shows_no_old_head() {
    let (head, behind) = (Arc::new(AtomicUsize::new(1_000)), Arc::default());
    let node = balanced(Arc::clone(&head), Arc::clone(&behind));
    let edge = urls(&[&node]).start();
    let mut seen = 0;
    let mut older = 0;
    for read in 0..200 {
        if read % 20 == 0 {
            head.fetch_add(1, Ordering::SeqCst);
        }
        let before = seen;
        std::thread::scope(|scope| {
            let asked = [(); 2].map(|()| scope.spawn(|| ask_head(&edge)));
            for found in asked.map(|asked| asked.join().expect("it is answered")) {
                let number = found.json()["result"].as_u64().unwrap_or_default();
                assert_eq!(found.status, 200, "{}", found.text());
                older += usize::from(number < before);
                seen = seen.max(number);
            }
        });
    }
    let late = behind.load(Ordering::SeqCst);
    println!(
        "{late} answers behind, {older} passed on, {} connections",
        node.connections()
    );
    assert!(late > 0, "some connections are behind");
    assert_eq!(older, 0, "none is passed on");
    assert_eq!(count(&edge, "went back"), 0, "nothing was rolled back");
}

#[test]
fn a_repeat_opens_a_new_connection() {
    let node = Node::start(|call| {
        let head = if call.number == 1 || call.connection >= 4 {
            9
        } else {
            8
        };
        send(result(call, &head.to_string()))
    });
    let edge = urls(&[&node]).start();
    assert_eq!(ask_head(&edge).json()["result"], 9);
    assert_eq!(ask_head(&edge).json()["result"], 9, "never 8 again");
    let calls = node.calls();
    let later = calls.iter().skip(2).filter(|call| call.turn > 1).count();
    assert_eq!(later, 0, "each repeat and poll has its own connection");
}

#[test]
fn a_rollback_needs_three_connections() {
    let node = Node::start(|call| {
        let head = if call.number == 1 { 9 } else { 8 };
        send(result(call, &head.to_string()))
    });
    let edge = urls(&[&node]).start();
    assert_eq!(ask_head(&edge).json()["result"], 9);
    let deadline = Instant::now() + PATIENCE;
    while ask_head(&edge).json()["result"] != 8 {
        assert!(Instant::now() < deadline, "the rollback is never believed");
    }
    edge.line("the rollback", |line| {
        line["message"] == "the node went back to an earlier block"
    });
    let connections: BTreeSet<_> = node.calls().iter().map(|call| call.connection).collect();
    assert!(connections.len() >= 4, "{connections:?}");
}

#[test]
fn a_408_on_a_reused_connection_is_repeated() {
    let node = Node::start(|call| {
        if call.turn > 1 {
            let late = http(
                "408 Request Timeout",
                &["Content-Length: 0", "Connection: close"],
                envelope(call, "1").get(..0).unwrap_or_default(),
            );
            return vec![Act::Send(late), Act::Close];
        }
        honest(call, "a")
    });
    let edge = urls(&[&node]).start();
    for _ in 0..6 {
        assert_result(&edge.ask(&question()), "7", r#""a""#, "it is repeated");
    }
}

#[test]
fn a_408_on_a_new_connection_is_a_timeout() {
    let node = Node::start(|_| status("408 Request Timeout"));
    let edge = urls(&[&node]).start();
    let response = edge.ask(&question());
    assert_error(&response, "upstream_timeout", "7", "the node's own timeout");
    assert_eq!(node.calls().len(), 1, "it is not repeated");
}

#[test]
fn a_hanging_and_a_failing_url_fail_no_read() {
    let hanging = Node::start(|call| match is_poll(call) {
        true => honest(call, "a"),
        false => vec![Act::Hang],
    });
    let failing = Node::start(|call| match is_poll(call) {
        true => honest(call, "b"),
        false => status("502 Bad Gateway"),
    });
    let right = Node::start(|call| honest(call, "c"));
    let edge = urls(&[&hanging, &failing, &right]).start();
    for _ in 0..5 {
        let sent = Instant::now();
        assert_result(&edge.ask(&question()), "7", r#""c""#, "the third answers");
        assert!(
            sent.elapsed() < Duration::from_secs(3),
            "{:?}",
            sent.elapsed()
        );
    }
}

#[test]
fn garbage_never_works_again() {
    let works = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&works);
    let node = Node::start(move |call| match now.load(Ordering::SeqCst) {
        true => honest(call, "a"),
        false => send(body(r#"{"jsonrpc":"2.0","id":"x","result":"0x1"}"#)),
    });
    let edge = urls(&[&node]).set("gateway.cache.enabled", "true").start();
    let deadline = Instant::now() + Duration::from_secs(8);
    while Instant::now() < deadline {
        assert_eq!(edge.ask(&question()).status, 502);
        pause(&edge, 30);
    }
    let verdict = edge.admin_get("/readyz?verbose").text().to_owned();
    assert!(verdict.contains("failing"), "{verdict}");
    assert_eq!(count(&edge, "node URL works again"), 0, "it does not");
    assert_eq!(count(&edge, "node URL failed"), 1, "one event");
    works.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while edge.ask(&question()).status != 200 {
        assert!(Instant::now() < deadline, "it never returns");
        pause(&edge, 20);
    }
    edge.line("the end", |line| line["message"] == "node URL works again");
}

#[test]
fn figures_say_which_method_and_which_outcome() {
    let node = Node::start(|call| match method(call).as_str() {
        "starknet_getClassHashAt" => error(call, -32_603),
        "starknet_getNonce" => status("502 Bad Gateway"),
        _ => honest(call, "a"),
    });
    let edge = urls(&[&node]).start();
    edge.ask(&question());
    let params = r#"{"block_id":"latest","contract_address":"0x5"}"#;
    let fails = Request::post(rpc("7", "starknet_getNonce", params));
    assert_error(&edge.ask(&fails), "upstream_status", "7", "it fails");
    edge.ask(&Request::post(rpc("7", "starknet_specVersion", "[]")));
    edge.ask(&Request::post(rpc(
        "7",
        "starknet_addInvokeTransaction",
        "[]",
    )));
    let count = |method: &str| {
        let name = format!(r#"portcullis_call_duration_seconds_count{{method="{method}"}}"#);
        move |now: &BTreeMap<String, f64>| now.get(&name).copied()
    };
    let asked = count("starknet_specVersion");
    let unknown = count("starknet_addInvokeTransaction");
    eventually(&edge, "the calls", |now| asked(now) == Some(1.0));
    let now = metrics(&edge);
    assert_eq!(
        unknown(&now),
        None,
        "only the methods of the policy have a series"
    );
    let internal = r#"portcullis_node_attempts_total{node="0",outcome="internal"}"#;
    assert!(now[internal] >= 1.0, "{now:?}");
    let failed = r#"portcullis_calls_failed_total{method="starknet_getNonce"}"#;
    eventually(&edge, "the failure", |now| now.get(failed) == Some(&1.0));
}
