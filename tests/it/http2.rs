//! The gateway over HTTP/2: the same responses as over HTTP/1.1, and the same limits.

use std::time::Instant;

use bytes::Bytes;
use h2::Reason;

use crate::admin::{eventually, metrics, series};
use crate::node_head::ask_about;
use crate::support::check::{assert_error, id_bytes};
use crate::support::client2::Client2;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request, padded, rpc};
use crate::support::response::Response;
use crate::support::script::{ANSWER_CAP, echo, good, json, padded_envelope, send};
use crate::support::secure::{ABOUT_A_SECOND, Pair, secured};

/// A gateway with a certificate.
pub(crate) struct Stage {
    node: Node,
    pub(crate) edge: Edge,
    pub(crate) pair: Pair,
    _folder: Folder,
}

impl Stage {
    pub(crate) fn before(node: Node, keys: &[(&str, &str)]) -> Self {
        let (folder, pair) = (Folder::new(), Pair::new());
        pair.write(&folder);
        let setup = secured(Setup::before(node.address()), "gateway", &folder);
        let setup = keys
            .iter()
            .fold(setup, |setup, (key, value)| setup.set(key, value));
        Self {
            edge: setup.start(),
            node,
            pair,
            _folder: folder,
        }
    }

    pub(crate) fn new(keys: &[(&str, &str)]) -> Self {
        Self::before(Node::start(good), keys)
    }

    /// In front of a node that responds once the latch is open.
    pub(crate) fn held(keys: &[(&str, &str)]) -> (Self, Latch) {
        let latch = Latch::default();
        let hold = latch.clone();
        let node = Node::start(move |call| {
            [vec![Act::Hold(hold.clone())], echo(call)]
                .into_iter()
                .flatten()
                .collect()
        });
        (Self::before(node, keys), latch)
    }

    pub(crate) fn client(&self) -> Client2 {
        Client2::connect(self.edge.gateway(), &self.pair)
    }

    pub(crate) fn in_flight(&self, wanted: f64) {
        eventually(&self.edge, "the requests in flight", |metrics| {
            metrics.get("portcullis_requests_in_flight") == Some(&wanted)
        });
    }
}

/// Asserts the same refusal as over HTTP/1.1, with this id unless the body came after its head.
fn assert_refused(mut response: Response, reason: &str, id: &str, why: &str) {
    assert_eq!(response.version, "HTTP/2");
    let id = if id_bytes(&response) == "null" {
        "null"
    } else {
        id
    };
    response.version = "HTTP/1.1".into();
    assert_error(&response, reason, id, why);
}

/// The parts that must be equal in both versions: status, fields and body, except for values that
/// differ between any two responses, and connection headers.
pub(crate) fn essence(response: &Response) -> (u16, Vec<(String, String)>, String) {
    let differs = |name: &str| {
        matches!(
            name,
            "date" | "x-request-id" | "connection" | "ratelimit" | "transfer-encoding"
        )
    };
    let mut fields: Vec<_> = response
        .headers
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| !differs(name))
        .collect();
    fields.sort();
    let id = response
        .header("x-request-id")
        .expect("every answer has an id");
    assert!(response.header("date").is_some(), "every answer has a date");
    let text = response.text().replace(id, "ID");
    if !text.contains("\"error\"") {
        return (response.status, fields, text);
    }
    // over HTTP/2 a body may come after its head, and with it the id
    fields.retain(|(name, _)| name != "content-length");
    let text = text.replace("\"id\":7", "\"id\":null");
    (response.status, fields, text)
}

#[test]
fn both_http_versions_answer_alike() {
    let stage = Stage::new(&[]);
    let fill = |count: usize| "a".repeat(count);
    let requests = [
        ("a call", Request::post(QUESTION)),
        (
            "an id of the client's",
            Request::post(QUESTION).with("X-Request-Id", "mine-0123456789"),
        ),
        (
            "a page's call",
            Request::post(QUESTION).with("Origin", "https://app.example"),
        ),
        ("no JSON", Request::post("{")),
        ("a batch", Request::post("[]")),
        (
            "a write",
            Request::post(rpc("1", "starknet_addInvokeTransaction", "[]")),
        ),
        (
            "a parameter too many",
            Request::post(rpc("1", "starknet_chainId", "[1]")),
        ),
        (
            "a body at the limit",
            Request::post(padded(QUESTION, 65_536)),
        ),
        (
            "a body over the limit",
            Request::post(padded(QUESTION, 65_537)),
        ),
        (
            "no media type",
            Request::post(QUESTION).without("Content-Type"),
        ),
        (
            "a coding",
            Request::post(QUESTION).with("Content-Encoding", "gzip"),
        ),
        (
            "another expectation",
            Request::post(QUESTION).with("Expect", "a-miracle"),
        ),
        ("no such path", Request::new("GET", "/nothing")),
        ("a query", Request::new("POST", "/rpc?x=1")),
        ("the wrong method", Request::new("GET", "/rpc")),
        ("another wrong method", Request::new("DELETE", "/rpc")),
        ("health", Request::new("GET", "/healthz")),
        ("a preflight", {
            Request::new("OPTIONS", "/rpc")
                .with("Origin", "https://app.example")
                .with("Access-Control-Request-Method", "POST")
        }),
        ("no host", Request::new("GET", "/healthz").without("Host")),
        (
            "a large head",
            Request::new("GET", "/healthz").with("X-Fill", &fill(17 << 10)),
        ),
        (
            "a head that fits",
            Request::new("GET", "/healthz").with("X-Fill", &fill(15 << 10)),
        ),
    ];
    let mut client = stage.client();
    for (what, request) in requests {
        let over_1 = stage.pair.client(stage.edge.gateway()).ask(&request);
        let over_2 = client.ask(&request);
        assert_eq!(essence(&over_2), essence(&over_1), "{what}");
        let allowed = over_2.headers.iter().all(|(name, _)| {
            !matches!(
                name.as_str(),
                "connection" | "keep-alive" | "transfer-encoding"
            )
        });
        assert!(
            allowed,
            "{what}: nothing is said of the connection: {over_2:?}"
        );
    }
    let head = Request::new("HEAD", "/healthz");
    let mut over_1 = stage.pair.client(stage.edge.gateway());
    over_1.send(head.bytes());
    let (over_1, over_2) = (over_1.response_to_head(), client.ask(&head));
    assert_eq!(essence(&over_2), essence(&over_1), "HEAD");
    assert_eq!(
        over_2.header("content-length"),
        Some("3"),
        "of the body that GET has"
    );
}

#[test]
fn many_fields_change_no_answer() {
    let stage = Stage::new(&[]);
    let call = || {
        Request::post(QUESTION)
            .with("X-Request-Id", "mine-0123456789")
            .with(
                "Traceparent",
                &format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16)),
            )
            .with("Origin", "https://app.example")
    };
    let mut client = stage.client();
    for (what, request) in [
        ("a call", call()),
        ("a malformed position", call().with("X-Chain-Position", "x")),
        (
            "a body over the limit",
            Request::post(padded(QUESTION, 65_537)).with("Origin", "null"),
        ),
    ] {
        let many = (0..100).fold(request.clone(), |request, number| {
            request.with(&format!("X-Fill-{number}"), "v")
        });
        let expected = essence(&client.ask(&request));
        let over_1 = stage.pair.client(stage.edge.gateway()).ask(&many);
        for (version, response) in [("HTTP/2", client.ask(&many)), ("HTTP/1", over_1)] {
            assert_eq!(essence(&response), expected, "{what} over {version}");
        }
    }
}

#[test]
fn http_1_only_fields_are_refused() {
    let stage = Stage::new(&[]);
    let mut client = stage.client();
    let tunnel = Request::new("CONNECT", "").with("X-Request-Id", "not-read-here");
    let refused = client.ask(&tunnel);
    assert_refused(refused, "wrong_http_method", "null", "a tunnel");
    // a head far above the limit is refused by the protocol itself
    let huge = Request::new("GET", "/healthz").with("X-Fill", &"a".repeat(60 << 10));
    let status = client.try_ask(&huge).map(|response| response.status);
    assert!(matches!(status, Ok(431) | Err(_)), "{status:?}");
    let short = Request::post(QUESTION)
        .without("Content-Length")
        .with("Content-Length", "9");
    let cut = client
        .try_ask(&short)
        .expect_err("a body longer than its length");
    assert_eq!(
        cut.reason(),
        Some(Reason::PROTOCOL_ERROR),
        "a length that lies"
    );
    assert_eq!(
        client.ask(&Request::post(QUESTION)).status,
        200,
        "the connection goes on"
    );
    assert_eq!(
        stage.node.calls().len(),
        1,
        "and the node heard of that one only"
    );
}

#[test]
fn limits_count_requests_and_not_connections() {
    let stage = Stage::new(&[("gateway.requests_per_minute", "3")]);
    let mut client = stage.client();
    for _ in 0..3 {
        assert_eq!(client.ask(&Request::post(QUESTION)).status, 200);
    }
    let over_2 = client.ask(&Request::post(QUESTION));
    let over_1 = stage
        .pair
        .client(stage.edge.gateway())
        .ask(&Request::post(QUESTION));
    let without_time = |response: &Response| {
        let (status, mut fields, text) = essence(response);
        fields.retain(|(name, _)| name != "retry-after");
        (status, fields, text)
    };
    assert_eq!(over_2.status, 429);
    assert!(over_2.header("retry-after").is_some());
    assert_eq!(
        without_time(&over_2),
        without_time(&over_1),
        "one client, one limit"
    );
}

#[test]
fn concurrent_streams_are_bounded_per_client() {
    let (stage, latch) = Stage::held(&[("gateway.max_in_flight_per_client", "2")]);
    let mut client = stage.client();
    let begun = [1, 2].map(|id| client.send(&ask_about(id, &id.to_string())).expect("sent"));
    stage.node.wait_for_calls(2);
    let refused = client.ask(&ask_about(3, "3"));
    assert_refused(refused, "too_many_in_flight", "3", "a third request");
    latch.open();
    for begun in begun {
        assert_eq!(client.response(begun).expect("an answer").status, 200);
    }
    assert_eq!(
        client.max_streams(),
        100,
        "and the connection has its own bound"
    );
}

#[test]
fn a_reset_cancels_one_request_and_no_other() {
    let (stage, latch) = Stage::held(&[]);
    let mut client = stage.client();
    let mut given_up = client.send(&ask_about(1, "1")).expect("sent");
    let persistent = client.send(&ask_about(2, "2")).expect("sent");
    stage.node.wait_for_calls(2);
    stage.in_flight(2.0);
    given_up.body.send_reset(Reason::CANCEL);
    stage.in_flight(1.0);
    latch.open();
    assert_eq!(client.response(persistent).expect("an answer").status, 200);
    stage.in_flight(0.0);
}

#[test]
fn rapid_resets_end_the_connection() {
    let (stage, _latch) = Stage::held(&[("gateway.connections.proxy_idle_timeout", "\"1h\"")]);
    let mut client = stage.client();
    for round in 0.. {
        // on a busy machine the client is far ahead of the server
        assert!(round < 50_000, "it may go on for ever");
        let Ok(mut begun) = client.send(&Request::post(QUESTION)) else {
            break;
        };
        begun.body.send_reset(Reason::CANCEL);
    }
    let _how = client.ended();
    stage.in_flight(0.0);
    assert_eq!(
        stage.client().ask(&Request::new("GET", "/healthz")).status,
        200,
        "others go on"
    );
}

#[test]
fn a_proxys_connection_survives_one_bad_client() {
    let (stage, latch) = Stage::held(&[]);
    let mut client = stage.client();
    for _ in 0..120 {
        let mut begun = client
            .send(&of("192.0.2.1", Request::post(QUESTION)))
            .expect("sent");
        stage.in_flight(1.0);
        begun.body.send_reset(Reason::CANCEL);
        stage.in_flight(0.0);
    }
    latch.open();
    let other = client.ask(&of("192.0.2.2", Request::post(QUESTION)));
    assert_eq!(other.status, 200, "another client of the same connection");
}

#[test]
fn a_slow_body_is_refused_at_the_deadline() {
    let stage = Stage::new(&[("gateway.connections.body_timeout", "\"1s\"")]);
    let mut client = stage.client();
    let start = Instant::now();
    let mut begun = client.begin(&Request::post(QUESTION), false).expect("sent");
    begun
        .body
        .send_data(Bytes::from_static(b"{\"jsonrpc\""), false)
        .expect("sent");
    let stated = client.response(begun).expect("an answer");
    assert!(
        ABOUT_A_SECOND.contains(&start.elapsed()),
        "took {:?}",
        start.elapsed()
    );
    assert_refused(stated, "request_timeout", "null", "half a body");
    assert_eq!(
        client.ask(&Request::post(QUESTION)).status,
        200,
        "the connection goes on"
    );
}

#[test]
fn an_early_refusal_reaches_a_sending_client() {
    let stage = Stage::new(&[]);
    let mut client = stage.client();
    let request = Request::post("").without("Content-Length");
    let mut begun = client.begin(&request, false).expect("sent");
    begun
        .body
        .send_data(Bytes::from(vec![b' '; 200_000]), false)
        .expect("queued");
    let stated = client.response(begun).expect("an answer");
    assert_refused(stated, "body_too_large", "null", "a body without an end");
    assert_eq!(
        client.ask(&Request::post(QUESTION)).status,
        200,
        "the connection goes on"
    );
}

#[test]
fn a_waiting_client_gets_100_continue() {
    let stage = Stage::new(&[]);
    let mut client = stage.client();
    let response = client.ask(&Request::post(QUESTION).with("Expect", "100-continue"));
    assert_eq!(response.status, 200);
}

#[test]
fn the_largest_answer_is_whole() {
    let stage = Stage::before(
        Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP)))),
        &[],
    );
    let mut client = Client2::with_window(stage.edge.gateway(), &stage.pair, 20_000);
    let over_2 = client.ask(&Request::post(QUESTION));
    assert_eq!(over_2.status, 200);
    let stated = over_2
        .header("content-length")
        .expect("a length")
        .to_owned();
    assert_eq!(stated, over_2.body.len().to_string());
    let over_1 = stage
        .pair
        .client(stage.edge.gateway())
        .ask(&Request::post(QUESTION));
    assert!(
        over_1.body == over_2.body,
        "byte for byte what HTTP/1.1 gets"
    );
}

#[test]
fn an_unread_answer_is_dropped_at_the_deadline() {
    let node = Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP))));
    let stage = Stage::before(node, &[("gateway.connections.write_timeout", "\"1s\"")]);
    let mut client = Client2::with_window(stage.edge.gateway(), &stage.pair, 10_000);
    let start = Instant::now();
    let begun = client.send(&Request::post(QUESTION)).expect("sent");
    assert_eq!(
        client.end_of(begun),
        Some(Reason::CANCEL),
        "the answer is cut"
    );
    assert!(
        ABOUT_A_SECOND.contains(&start.elapsed()),
        "took {:?}",
        start.elapsed()
    );
    assert_eq!(
        client.ask(&Request::new("GET", "/healthz")).status,
        200,
        "the connection goes on"
    );
}

/// A request of the client of this address, which an edge behind a proxy takes from it.
pub(crate) fn of(address: &str, request: Request) -> Request {
    request.with("X-Forwarded-For", address)
}

#[test]
fn one_client_holds_a_share_of_answers() {
    let node = Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP - 1024))));
    let stage = Stage::before(node, &[("server.answer_memory", "\"20 MiB\"")]);
    let mut client = Client2::with_window(stage.edge.gateway(), &stage.pair, 10_000);
    let first = client
        .send(&of("192.0.2.1", ask_about(0, "7")))
        .expect("sent");
    let (status, unread) = client.unread(first);
    assert_eq!(status, 200, "one large answer");
    let refused = client.ask(&of("192.0.2.1", ask_about(1, "7")));
    assert_refused(
        refused,
        "too_many_in_flight",
        "7",
        "a second one while it does not read",
    );
    let other = stage.client().ask(&of("192.0.2.2", ask_about(2, "7")));
    assert_eq!(other.status, 200, "another client");
    drop(unread);
    eventually(&stage.edge, "the memory is free", |now| {
        now.get("portcullis_answer_memory_bytes") == Some(&0.0)
    });
    let again = stage.client().ask(&of("192.0.2.1", ask_about(1, "7")));
    assert_eq!(again.status, 200, "what is no longer held");
}

#[test]
fn a_closed_window_ends_a_stream() {
    let node = Node::start(|call| send(json(padded_envelope(call, ANSWER_CAP - 1024))));
    let stage = Stage::before(node, &[]);
    let mut client = Client2::with_window(stage.edge.gateway(), &stage.pair, 0);
    let begun = client.send(&Request::post(QUESTION)).expect("sent");
    let start = Instant::now();
    assert_eq!(
        client.end_of(begun),
        Some(Reason::CANCEL),
        "long before the write timeout"
    );
    assert!(
        (9..20).contains(&start.elapsed().as_secs()),
        "took {:?}",
        start.elapsed()
    );
}

#[test]
fn one_client_uploads_a_share_at_a_time() {
    let stage = Stage::new(&[("gateway.max_in_flight_per_client", "10000")]);
    let upload = of("192.0.2.1", Request::post("x".repeat(65_536)));
    // a quarter of 128 MiB is 512 bodies of 64 KiB; a connection takes 100 requests at a time
    let mut clients: Vec<Client2> = (0..6).map(|_| stage.client()).collect();
    let mut held = Vec::new();
    for number in 0..512 {
        held.push(clients[number / 100].begin(&upload, false).expect("begun"));
    }
    stage.in_flight(512.0);
    let over = clients[5].begin(&upload, false).expect("begun");
    let refused = clients[5].response(over).expect("a refusal");
    assert_refused(refused, "too_many_in_flight", "null", "the share is taken");
    let other = stage
        .client()
        .ask(&of("192.0.2.2", Request::post(QUESTION)));
    assert_eq!(other.status, 200, "another client");
}

#[test]
fn a_slow_head_ends_the_connection() {
    let stage = Stage::new(&[("gateway.connections.header_timeout", "\"1s\"")]);
    let stream = crate::support::secure::tunnel(
        stage.edge.gateway(),
        stage.pair.config(crate::support::secure::ANY, &["h2"]),
    );
    let mut client = crate::support::client::Client::over(stream);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]); // SETTINGS
    client.send([0, 0, 9, 1, 1, 0, 0, 0, 1]); // HEADERS, of which nothing follows
    let start = Instant::now();
    let _ours = client.rest();
    assert!(
        ABOUT_A_SECOND.contains(&start.elapsed()),
        "took {:?}",
        start.elapsed()
    );
    stage
        .edge
        .line("the refusal", |line| line["reason"] == "request_timeout");
}

#[test]
fn an_idle_connection_is_closed() {
    let stage = Stage::new(&[("gateway.connections.proxy_idle_timeout", "\"1s\"")]);
    let mut client = stage.client();
    assert_eq!(client.ask(&Request::post(QUESTION)).status, 200);
    let start = Instant::now();
    client.ended().expect("GOAWAY without an error");
    assert!(
        ABOUT_A_SECOND.contains(&start.elapsed()),
        "took {:?}",
        start.elapsed()
    );
}

#[test]
fn an_old_connection_finishes_and_closes() {
    let (stage, latch) = Stage::held(&[("gateway.connections.lifetime", "\"1s\"")]);
    let mut client = stage.client();
    let begun = client.send(&Request::post(QUESTION)).expect("sent");
    client.farewell();
    latch.open();
    assert_eq!(client.response(begun).expect("an answer").status, 200);
    client.ended().expect("GOAWAY without an error");
}

#[test]
fn a_stopping_process_sends_goaway_and_finishes() {
    let (mut stage, latch) = Stage::held(&[]);
    let mut client = stage.client();
    let begun = client.send(&Request::post(QUESTION)).expect("sent");
    stage.node.wait_for_calls(1);
    let idle = {
        let mut idle = stage.client();
        assert_eq!(idle.ask(&Request::new("GET", "/healthz")).status, 200);
        idle
    };
    stage.edge.signal("TERM");
    client.farewell();
    idle.ended().expect("GOAWAY without an error");
    latch.open();
    assert_eq!(client.response(begun).expect("an answer").status, 200);
    client.ended().expect("GOAWAY without an error");
    assert_eq!(stage.edge.wait().code(), Some(0));
}

#[test]
fn new_connections_are_served_during_drain_delay() {
    let mut stage = Stage::new(&[("server.drain_delay", "\"3s\"")]);
    assert_eq!(
        stage.client().ask(&Request::post(QUESTION)).status,
        200,
        "it is up"
    );
    stage.edge.signal("TERM");
    eventually(&stage.edge, "it stops", |metrics| {
        metrics.get("portcullis_draining") == Some(&1.0)
    });
    let mut client = stage.client();
    assert_eq!(
        client.ask(&Request::post(QUESTION)).status,
        200,
        "the first request"
    );
    client.ended().expect("GOAWAY without an error");
    assert_eq!(stage.edge.wait().code(), Some(0));
}

#[test]
fn frames_without_content_end_the_connection() {
    let stage = Stage::new(&[]);
    let mut client = stage.client();
    let mut begun = client.begin(&Request::post(QUESTION), false).expect("sent");
    // the client may not flush every frame at once
    while begun.body.send_data(Bytes::new(), false).is_ok() {
        std::thread::yield_now();
    }
    // a reset may discard the GOAWAY while the client still sends
    if let Err(how) = client.ended()
        && let Some(reason) = how.reason()
    {
        assert_eq!(reason, Reason::ENHANCE_YOUR_CALM);
    }
    assert_eq!(
        stage.client().ask(&Request::post(QUESTION)).status,
        200,
        "others go on"
    );
}

#[test]
fn http_2_requests_are_logged_and_counted() {
    let stage = Stage::new(&[]);
    let mut client = stage.client();
    let request = Request::post(QUESTION).with("X-Request-Id", "logged-over-http-2");
    let answer = client.ask(&request);
    let line = stage.edge.request_line("logged-over-http-2");
    assert_eq!(line["method"], "starknet_blockNumber");
    assert_eq!(line["status"], 200);
    assert_eq!(line["bytes"], answer.body.len());
    assert_eq!(line["client"], "127.0.0.1");
    client.ask(&Request::post("{"));
    eventually(&stage.edge, "both are counted", |metrics| {
        let count = |labels| series(metrics, "portcullis_requests_total", labels);
        count(&["\"answered\"", "\"none\""]) == 1.0 && count(&["\"parse_error\""]) == 1.0
    });
    let open = series(
        &metrics(&stage.edge),
        "portcullis_connections",
        &["gateway"],
    );
    assert_eq!(open, 1.0, "both came over one connection");
}

#[test]
fn host_and_authority_must_agree() {
    let stage = Stage::new(&[]);
    let mut client = stage.client();
    let request = Request::new("GET", "/healthz");
    assert_eq!(
        client
            .ask(&request.clone().with("Host", "edge.test"))
            .status,
        200
    );
    let refused = client.ask(&request.with("Host", "other.test"));
    assert_refused(
        refused,
        "invalid_request",
        "null",
        "two names for one place",
    );
}
