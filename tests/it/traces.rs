//! Traces: which requests are recorded, what their spans contain, and collectors that fail.

use crate::admin::{eventually, series};
use crate::support::client::Client;
use crate::support::collector::{Collector, Span};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::relay::chain::{error, honest, is_add, is_view, method, receipt, result};
use crate::support::relay::stage::{Stage, post};
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::script::{good, http, json, send, sized};
use crate::support::secure::{Pair, secured};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// A gateway that records no failed or slow requests, unless a test sets more keys.
fn setup(node: &Node, collector: &Collector) -> Setup {
    Setup::before(node.address())
        .set("trace.endpoint", &collector.url())
        .set("trace.per_second", "0")
}

fn ask_with(edge: &Edge, flags: &str) -> u16 {
    edge.ask(&Request::post(QUESTION).with("traceparent", &traceparent(flags)))
        .status
}

/// The `traceparent` of a call to the node.
fn sent(call: &Call) -> Option<String> {
    let headers = call.headers().into_iter();
    headers
        .filter(|(name, _)| name == "traceparent")
        .map(|(_, value)| value)
        .next()
}

/// Ends the process, which exports what it has: all spans.
fn spans_at_the_end(mut edge: Edge, collector: &Collector) -> Vec<Span> {
    edge.signal("TERM");
    assert!(edge.wait().success(), "it exits with 0");
    collector.spans()
}

#[test]
fn a_trusted_peers_trace_continues_at_the_node() {
    let (node, collector) = (Node::start(good), Collector::start());
    let edge = setup(&node, &collector).start();
    let request = Request::post(QUESTION).with("traceparent", &traceparent("01"));
    let response = edge.ask(&request);
    assert_eq!(response.status, 200, "it is answered");
    let spans = collector.wait_for(2);
    let [request, call] = spans.as_slice() else {
        panic!("two spans: {spans:?}")
    };
    assert_eq!(
        (&*request.trace, &*request.parent),
        (TRACE, PARENT),
        "of the peer's trace"
    );
    assert_eq!(
        (request.name.as_str(), request.kind),
        ("POST /rpc", 2),
        "a server's span"
    );
    assert_eq!(
        (call.name.as_str(), call.kind),
        ("starknet_blockNumber", 3),
        "a client's span"
    );
    call.assert_part_of(request);
    let expected = format!("00-{TRACE}-{}-01", call.id);
    assert_eq!(
        sent(&node.calls()[0]),
        Some(expected),
        "the call is the node's parent"
    );
    for (span, key, value) in [
        (request, "http.request.method", "POST"),
        (request, "http.route", "/rpc"),
        (request, "http.response.status_code", "200"),
        (request, "rpc.method", "starknet_blockNumber"),
        (request, "url.path", "/rpc"),
        (request, "url.scheme", "http"),
        (request, "network.protocol.version", "1.1"),
        (request, "portcullis.surface", "gateway"),
        (request, "portcullis.cache", "miss"),
        (call, "rpc.system.name", "jsonrpc"),
        (call, "jsonrpc.protocol.version", "2.0"),
        (call, "rpc.method", "starknet_blockNumber"),
        (call, "portcullis.node", "0"),
    ] {
        assert_eq!(span.attribute(key), Some(value), "{key} of {}", span.name);
    }
    assert!(!request.is_error && !call.is_error, "nothing failed");
    let line = edge.request_line(response.header("X-Request-Id").unwrap());
    assert_eq!(line["trace_id"], TRACE, "the log names the trace");
    eventually(&edge, "two spans are exported", |now| {
        series(now, "portcullis_trace_spans_total", &["\"exported\""]) == 2.0
    });
}

/// Asserts that the trace continues at the node, unsampled, and that nothing is recorded. Returns
/// the `traceparent` that the node was sent.
fn assert_unsampled(edge: Edge, flags: &str, (node, collector): (&Node, &Collector)) -> String {
    assert_eq!(ask_with(&edge, flags), 200, "it is answered");
    let node_sent = sent(&node.calls()[0]).expect("the trace continues");
    assert!(
        node_sent.starts_with(&format!("00-{TRACE}-")),
        "{node_sent}"
    );
    assert!(
        node_sent.ends_with("-00"),
        "the node does not record it: {node_sent}"
    );
    assert_eq!(
        spans_at_the_end(edge, collector).len(),
        0,
        "nothing is recorded"
    );
    node_sent
}

#[test]
fn a_trusted_peer_can_decide_against_a_record() {
    let (node, collector) = (Node::start(good), Collector::start());
    let edge = setup(&node, &collector).set("trace.ratio", "1.0").start();
    assert_unsampled(edge, "00", (&node, &collector));
}

#[test]
fn a_public_clients_flag_is_ignored() {
    let (node, collector) = (Node::start(good), Collector::start());
    let edge = setup(&node, &collector)
        .set("gateway.trusted_proxies", "[]")
        .start();
    let node_sent = assert_unsampled(edge, "01", (&node, &collector));
    assert!(
        !node_sent.contains(PARENT),
        "a changed flag has a new parent: {node_sent}"
    );
}

#[test]
fn without_traces_the_clients_context_is_forwarded() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    assert_eq!(ask_with(&edge, "01"), 200, "it is answered");
    assert_eq!(sent(&node.calls()[0]), Some(traceparent("01")), "unchanged");
}

#[test]
fn the_ratio_decides_without_a_trusted_peer() {
    let (node, collector) = (Node::start(good), Collector::start());
    let setup = setup(&node, &collector).set("gateway.trusted_proxies", "[]");
    let edge = setup.set("trace.ratio", "1").start();
    let public = Request::post(QUESTION).with("traceparent", &traceparent("00"));
    let secret = "0x5ec4e7";
    let (unknown, read) = (
        format!("/{secret}?a={secret}"),
        rpc(secret, "starknet_chainId", "[]"),
    );
    let requests = [
        public,
        Request::post(read.replace(secret, "\"0x5ec4e7\"")).with("X-Request-Id", "0x5ec4e7-abc"),
        Request::post(rpc("1", "starknet_getNonce", "{\"block_id\":\"0x5ec4e7\"}")),
        Request::new("GET", &unknown).with("Authorization", secret),
        Request::new("GET", "/healthz"),
    ];
    let statuses = requests.iter().map(|request| {
        let response = edge.ask(request);
        // logged when it is recorded
        edge.request_line(response.header("X-Request-Id").unwrap());
        response.status
    });
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 400, 404, 200]);
    let line = edge.request_line("0x5ec4e7-abc");
    let spans = collector.wait_for(7);
    let requests: Vec<_> = spans.iter().filter(|span| span.kind == 2).collect();
    let names: Vec<_> = requests.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        ["POST /rpc", "POST /rpc", "POST /rpc", "GET", "GET /healthz"]
    );
    let parents: Vec<_> = requests.iter().map(|span| span.parent.as_str()).collect();
    assert_eq!(
        parents,
        [PARENT, "", "", "", ""],
        "the first one is part of the client's trace"
    );
    assert_eq!(
        line["trace_id"],
        requests[1].trace.as_str(),
        "the log names the new trace"
    );
    let reasons: Vec<_> = requests
        .iter()
        .map(|span| span.attribute("portcullis.reason"))
        .collect();
    assert_eq!(
        reasons,
        [None, None, Some("invalid_params"), Some("not_found"), None]
    );
    assert!(
        spans.iter().all(|span| !span.is_error),
        "a refusal is the client's error"
    );
    let exports: Vec<_> = collector
        .0
        .calls()
        .into_iter()
        .map(|call| call.body)
        .collect();
    let text = String::from_utf8(exports.concat()).expect("JSON");
    assert!(
        !text.contains("5ec4e7"),
        "no text of a client is in a span: {text}"
    );
}

#[test]
fn followers_wait_for_a_shared_call() {
    let (latch, collector) = (Latch::default(), Collector::start());
    let hold = latch.clone();
    let node = Node::start(move |call| {
        [vec![Act::Hold(hold.clone())], good(call)]
            .into_iter()
            .flatten()
            .collect()
    });
    let edge = setup(&node, &collector).set("trace.ratio", "1.0").start();
    let mut clients = [edge.client(), edge.client()];
    assert!(
        clients[0].send(Request::post(QUESTION).bytes()),
        "the edge listens"
    );
    node.wait_for_calls(1);
    assert!(
        clients[1].send(Request::post(QUESTION).bytes()),
        "the edge listens"
    );
    eventually(&edge, "one call is shared", |now| {
        series(
            now,
            "portcullis_calls_total",
            &["\"starknet_blockNumber\"", "\"shared\""],
        ) == 1.0
    });
    latch.open();
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.response().status, 200));
    let spans = collector.wait_for(4);
    for (name, kind) in [("starknet_blockNumber", 3), ("shared call", 1)] {
        let stage = spans
            .iter()
            .find(|span| span.name == name)
            .expect("each waited");
        assert_eq!(stage.kind, kind, "{name}");
        let parent = spans
            .iter()
            .find(|span| span.id == stage.parent)
            .expect("its request");
        stage.assert_part_of(parent);
    }
}

#[test]
fn failed_requests_are_recorded() {
    let node = Node::start(|_| send(sized("500 Internal Server Error", &[], "")));
    let collector = Collector::start();
    let edge = setup(&node, &collector)
        .set("trace.per_second", "100")
        .start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        502,
        "the node fails"
    );
    let spans = collector.wait_for(2);
    assert!(
        spans.iter().all(|span| span.is_error),
        "both failed: {spans:?}"
    );
    assert_eq!(
        spans[0].attribute("error.type"),
        Some("upstream_status"),
        "{spans:?}"
    );
    assert_eq!(
        spans[0].attribute("http.response.status_code"),
        Some("502"),
        "{spans:?}"
    );
    assert_eq!(
        spans[0].attribute("rpc.response.status_code"),
        Some("-32603"),
        "{spans:?}"
    );
    spans[1].assert_part_of(&spans[0]);
}

#[test]
fn the_error_of_a_call_is_recorded() {
    let node = Node::start(|call| {
        let id = call.json()["id"].clone();
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":20,"message":"x"}}}}"#);
        send(json(&body))
    });
    let collector = Collector::start();
    let edge = setup(&node, &collector).set("trace.ratio", "1.0").start();
    edge.ask(&Request::post(QUESTION));
    let spans = spans_at_the_end(edge, &collector);
    let codes = spans
        .iter()
        .map(|span| (span.kind, span.attribute("rpc.response.status_code")));
    let codes: Vec<_> = codes.collect();
    assert_eq!(codes, [(2, Some("20")), (3, Some("20"))], "{spans:?}");
}

#[test]
fn the_scheme_of_a_secured_listener_is_https() {
    let (node, collector) = (Node::start(good), Collector::start());
    let (pair, folder) = (Pair::new(), Folder::new());
    pair.write(&folder);
    let edge = secured(setup(&node, &collector), "gateway", &folder).set("trace.ratio", "1.0");
    let edge = edge.start();
    let mut client = pair.client(edge.gateway());
    assert_eq!(client.ask(&Request::post(QUESTION)).status, 200);
    let spans = collector.wait_for(2);
    assert_eq!(spans[0].attribute("url.scheme"), Some("https"), "{spans:?}");
}

#[test]
fn the_service_is_described_as_the_operator_says() {
    let (node, collector) = (Node::start(good), Collector::start());
    let attributes = "service.namespace=shop,deployment.environment.name=prod%20eu";
    let start = |name: &str| {
        setup(&node, &collector)
            .set("trace.ratio", "1.0")
            .environment("OTEL_RESOURCE_ATTRIBUTES", attributes)
            .environment("OTEL_SERVICE_NAME", name)
            .start()
    };
    let instances = ["one", "two"].map(|name| {
        let edge = start(name);
        edge.ask(&Request::post(QUESTION));
        spans_at_the_end(edge, &collector);
        let mut resource = collector.resource();
        let instance = resource.remove("service.instance.id");
        let version = env!("CARGO_PKG_VERSION");
        let expected = [
            ("deployment.environment.name", "prod eu"),
            ("service.name", name),
            ("service.namespace", "shop"),
            ("service.version", version),
        ];
        let found: Vec<_> = resource.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(found, expected);
        instance
    });
    assert_ne!(instances[0], instances[1], "each process has its own");
}

#[test]
fn a_hosted_collector_gets_its_key() {
    let (node, folder) = (Node::start(good), Folder::new());
    let keys = |collector: &Collector| -> Vec<_> {
        let headers = collector.0.calls().last().expect("an export").headers();
        let named = |(name, value): (String, String)| (name == "x-key").then_some(value);
        headers.into_iter().filter_map(named).collect()
    };
    let exported = |edge: Edge, collector: &Collector| {
        edge.ask(&Request::post(QUESTION));
        let log = edge.lines().join("\n");
        spans_at_the_end(edge, collector);
        assert!(!log.contains("hunter2"), "{log}");
        keys(collector)
    };
    let collector = Collector::start();
    let traced = setup(&node, &collector).set("trace.ratio", "1.0");
    let edge = traced
        .clone()
        .environment("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter2%20a")
        .start();
    assert_eq!(exported(edge, &collector), ["hunter2 a"], "by the variable");
    let file = folder.secret("collector.headers", "X-Key: hunter2 b");
    let edge = traced
        .clone()
        .set("trace.header_file", &format!("{file:?}"))
        .start();
    folder.secret("collector.headers", "X-Key: hunter2 c");
    assert_eq!(exported(edge, &collector), ["hunter2 c"], "read each time");
    folder.secret("collector.headers", "hunter2");
    let output = traced
        .set("trace.header_file", &format!("{file:?}"))
        .run("check");
    let message = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("trace.header_file") && !message.contains("hunter2"),
        "{message}"
    );
}

#[test]
fn slow_requests_are_recorded() {
    let node = Node::start(|call| match good(call).remove(0) {
        Act::Send(bytes) => {
            let (last, first) = bytes.split_last().unwrap();
            let pause = std::time::Duration::from_millis(150);
            vec![Act::Send(first.to_vec()), Act::Drip(vec![*last], pause)]
        }
        other => vec![other],
    });
    let collector = Collector::start();
    let setup = setup(&node, &collector).set("trace.per_second", "100");
    let edge = setup.set("trace.slow", "\"100ms\"").start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "it is answered"
    );
    assert_eq!(
        edge.ask(&Request::new("GET", "/healthz")).status,
        200,
        "it is fast"
    );
    let spans = spans_at_the_end(edge, &collector);
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        ["POST /rpc", "starknet_blockNumber"],
        "only the slow one"
    );
}

#[test]
fn a_write_has_a_span_for_each_stage() {
    // every account is verified, and the node has every transaction
    let willing = |call: &Call| match method(call).as_str() {
        _ if is_add(call) => error(call, 59),
        "starknet_getTransactionReceipt" => receipt(call),
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    };
    let collector = Collector::start();
    let keys = [
        ("trace.endpoint", &*collector.url()),
        ("trace.per_second", "0"),
    ];
    let stage = Stage::with_script(willing, &keys);
    let body = r#"{"recipient":"0x9","card_id":"7"}"#;
    let request = post("/mint-card", body);
    let response = stage.ask(&request.with("traceparent", &traceparent("01")));
    assert!(response.status < 300, "{}", response.text());
    let spans = collector.wait_for(6);
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "POST /mint-card",
            "pins",
            "queue",
            "sign",
            "send",
            "receipt"
        ]
    );
    assert_eq!(
        spans[0].attribute("portcullis.operation"),
        Some("mint-card")
    );
    spans[1..]
        .iter()
        .for_each(|span| span.assert_part_of(&spans[0]));
    let expected = format!("00-{TRACE}-{}-01", spans[4].id);
    assert_eq!(
        sent(&stage.adds()[0]),
        Some(expected),
        "the node's parent is the span of the call"
    );
}

#[test]
fn the_last_spans_are_exported_before_the_end() {
    let (node, collector) = (Node::start(good), Collector::start());
    let edge = setup(&node, &collector).set("trace.ratio", "1.0").start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "it is answered"
    );
    assert_eq!(
        spans_at_the_end(edge, &collector).len(),
        2,
        "nothing is lost by a restart"
    );
}

/// Waits until spans have this outcome.
fn wait_for_outcome(edge: &Edge, outcome: &str) {
    eventually(edge, &format!("spans are {outcome}"), |now| {
        series(now, "portcullis_trace_spans_total", &[outcome]) > 0.0
    });
}

#[test]
fn a_collector_that_refuses_gets_no_retry() {
    for status in ["400 Bad Request", "404 Not Found", "500 Oops", "302 Found"] {
        let node = Node::start(good);
        let collector = Collector::with(move |_| {
            send(http(
                status,
                &["Location: http://127.0.0.1:1/", "Content-Length: 0"],
                "",
            ))
        });
        let edge = setup(&node, &collector).set("trace.ratio", "1.0").start();
        assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200, "{status}");
        wait_for_outcome(&edge, "\"refused\"");
        assert_eq!(collector.0.calls().len(), 1, "{status}: once");
        edge.line(status, |line| {
            line["message"] == "the collector does not accept spans"
        });
    }
}

#[test]
fn a_busy_collector_gets_the_spans_again() {
    let node = Node::start(good);
    let collector = Collector::with(|call| match call.number {
        1 => send(http("503 Service Unavailable", &["Content-Length: 0"], "")),
        // the rest of its response is not read
        _ => vec![
            Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n".to_vec()),
            Act::Flood(vec![b' '; 65_536]),
        ],
    });
    let edge = setup(&node, &collector).set("trace.ratio", "1.0").start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "it is answered"
    );
    wait_for_outcome(&edge, "\"exported\"");
    let bodies: Vec<_> = collector
        .0
        .calls()
        .into_iter()
        .map(|call| call.body)
        .collect();
    assert!(
        bodies.len() == 2 && bodies[0] == bodies[1],
        "the same spans, twice"
    );
    edge.line("recovery", |line| {
        line["message"] == "the collector accepts spans again"
    });
}

#[test]
fn an_unreachable_or_hanging_collector_delays_no_request() {
    let node = Node::start(good);
    let (unused, hanging) = (Collector::start(), Collector::with(|_| vec![Act::Hang]));
    let nowhere = format!("\"http://{}\"", Node::nowhere());
    let setup = setup(&node, &unused).set("trace.ratio", "1.0");
    let lost = setup.clone().set("trace.endpoint", &nowhere).start();
    let edge = setup.set("trace.endpoint", &hanging.url()).start();
    assert_eq!(
        lost.ask(&Request::post(QUESTION)).status,
        200,
        "no request waits for a collector"
    );
    let mut client = Client::connect(edge.gateway());
    for _ in 0..100 {
        assert_eq!(
            client.ask(&Request::post(QUESTION)).status,
            200,
            "or for a slow one"
        );
    }
    spans_at_the_end(edge, &hanging);
    wait_for_outcome(&lost, "\"lost\"");
}
