//! Admin surface: metrics, liveness, readiness, and the log.
//!
//! Label values come from closed sets: client input never creates a new series.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::linux::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::node_head::ask_about;
use crate::operator;
use crate::support::check::REASONS;
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup, scratch_path};
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, padded, rpc};
use crate::support::script::{good, send};

/// Parses `/metrics`: each series with its value.
pub(crate) fn metrics(edge: &Edge) -> BTreeMap<String, f64> {
    let response = edge.admin_get("/metrics");
    assert_eq!(response.status, 200, "metrics are there");
    let media_type = response.header("Content-Type").unwrap_or_default();
    assert!(
        media_type.starts_with("text/plain; version=0.0.4"),
        "Prometheus text: {media_type}"
    );
    let lines = response
        .text()
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let pair = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a series and its value");
        (series.to_owned(), value.parse().expect("a number"))
    };
    lines.map(pair).collect()
}

/// Polls the metrics until they match: they are updated after the response is sent.
pub(crate) fn eventually(edge: &Edge, what: &str, wanted: impl Fn(&BTreeMap<String, f64>) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Client::connect(edge.admin());
    loop {
        let now = metrics(edge);
        if wanted(&now) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "never came true: {what}; metrics: {now:#?}"
        );
        let _silence = pause.silent_for(Duration::from_millis(20));
    }
}

/// The only series of this family that has all of these labels.
pub(crate) fn series(metrics: &BTreeMap<String, f64>, family: &str, labels: &[&str]) -> f64 {
    let mut found = metrics.iter().filter(|(name, _)| {
        name.starts_with(&format!("{family}{{")) && labels.iter().all(|label| name.contains(label))
    });
    let value = found.next().map(|(_, value)| *value);
    assert!(
        found.next().is_none(),
        "{family} {labels:?} is more than one series"
    );
    value.unwrap_or_default()
}

#[test]
fn requests_are_counted_by_verdict_and_reason() {
    let node = Node::start(|call| match call.number {
        1 => good(call),
        _ => send("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
    });
    let edge = Edge::start(&node);
    let requests = [
        ("answered", "", Request::post(QUESTION)),
        ("failed", "upstream_status", Request::post(QUESTION)),
        ("refused", "parse_error", Request::post("{")),
        ("refused", "invalid_request", Request::post("{}")),
        ("refused", "batch", Request::post("[]")),
        (
            "refused",
            "invalid_params",
            Request::post(rpc("1", "starknet_chainId", "[1]")),
        ),
        (
            "refused",
            "method_not_allowed",
            Request::post(rpc("1", "devnet_mint", "[]")),
        ),
        ("refused", "not_found", Request::new("GET", "/")),
        ("refused", "wrong_http_method", Request::new("GET", "/rpc")),
        (
            "refused",
            "body_too_large",
            Request::post(padded(QUESTION, 65_537)),
        ),
        (
            "refused",
            "unsupported_media_type",
            Request::post("").without("Content-Type"),
        ),
        (
            "refused",
            "unsupported_encoding",
            Request::post("").with("Content-Encoding", "br"),
        ),
        (
            "refused",
            "expectation_failed",
            Request::post("").with("Expect", "x"),
        ),
        (
            "refused",
            "conflicting_framing",
            Request::post("").with("Transfer-Encoding", "chunked"),
        ),
        (
            "refused",
            "header_too_large",
            Request::post("").with("X", &"x".repeat(20_000)),
        ),
    ];
    for (_, _, request) in &requests {
        edge.ask(request);
    }
    for (verdict, reason, _) in &requests {
        let verdict_label = format!("verdict=\"{verdict}\"");
        let reason_label = if reason.is_empty() {
            String::new()
        } else {
            format!("reason=\"{reason}\"")
        };
        eventually(&edge, &format!("one {verdict} {reason}"), |now| {
            series(
                now,
                "portcullis_requests_total",
                &[&verdict_label, &reason_label],
            ) == 1.0
        });
    }
    let now = metrics(&edge);
    let of_requests = |(name, _): &(&String, &f64)| name.starts_with("portcullis_requests_total{");
    let all: f64 = now.iter().filter(of_requests).map(|(_, value)| value).sum();
    assert_eq!(all, 15.0, "each request is counted once");
    let count = now
        .get("portcullis_request_duration_seconds_count")
        .copied();
    assert_eq!(count, Some(15.0), "each request has a duration");
}

#[test]
fn calls_count_by_method_and_by_outcome() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for method in [
        "starknet_chainId",
        "starknet_chainId",
        "starknet_specVersion",
    ] {
        assert_eq!(
            edge.ask(&Request::post(rpc("1", method, "[]"))).status,
            200,
            "it passes"
        );
    }
    eventually(
        &edge,
        "two starknet_chainId, one starknet_specVersion, three good calls",
        |now| {
            let calls =
                |method: &str| series(now, "portcullis_calls_total", &[method, "cache=\"miss\""]);
            calls("\"starknet_chainId\"") == 2.0
                && calls("\"starknet_specVersion\"") == 1.0
                && calls("\"starknet_getNonce\"") == 0.0
                && series(now, "portcullis_node_calls_total", &["outcome=\"ok\""]) == 3.0
        },
    );
}

#[test]
fn clients_cannot_add_a_series() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let names = |edge: &Edge| metrics(edge).into_keys().collect::<BTreeSet<String>>();
    let before = names(&edge);
    for number in 0..200 {
        let noise = format!("noise{number}");
        edge.ask(&Request::post(rpc("1", &noise, "[]")).with(&noise, &noise));
        edge.ask(&Request::new(&noise.to_uppercase(), &format!("/{noise}")));
        edge.ask(&Request::post(rpc(
            &format!("\"{noise}\""),
            "starknet_chainId",
            "[]",
        )));
        let from = format!("203.0.113.{number}");
        edge.ask(
            &Request::post("{")
                .with("X-Forwarded-For", &from)
                .with("Origin", &noise),
        );
    }
    eventually(&edge, "800 requests are counted", |now| {
        now.get("portcullis_request_duration_seconds_count")
            .copied()
            == Some(800.0)
    });
    let after = names(&edge);
    let new: Vec<_> = after.difference(&before).collect();
    assert!(new.is_empty(), "a client made these series: {new:?}");
}

#[test]
fn metrics_are_named_helped_and_typed() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let text = edge.admin_get("/metrics").text().to_owned();
    let (mut helped, mut typed) = (BTreeSet::new(), BTreeMap::new());
    for line in text.lines() {
        let mut words = line.split(' ').skip(2);
        let name = words.next().unwrap_or_default().to_owned();
        if line.starts_with("# HELP ") {
            assert!(
                words.next().is_some_and(|word| !word.is_empty()),
                "{name} says what it is"
            );
            assert!(helped.insert(name.clone()), "{name} is helped once");
        } else if line.starts_with("# TYPE ") {
            let kind = words.next().unwrap_or_default().to_owned();
            let total = name.ends_with("_total");
            assert_eq!(
                total,
                kind == "counter",
                "{name}: counters, and only they, are totals"
            );
            let ours = ["portcullis_", "process_"]
                .iter()
                .any(|prefix| name.starts_with(prefix));
            assert!(ours, "{name} is ours, or of any process");
            let unit = name.contains("_seconds") || name.contains("_bytes");
            assert!(
                kind != "histogram" || unit,
                "{name}: a histogram tells its unit"
            );
            typed.insert(name, kind);
        }
    }
    assert_eq!(
        helped,
        typed.keys().cloned().collect(),
        "every family has help and type"
    );
    for name in metrics(&edge).keys() {
        let family = name.split('{').next().unwrap_or_default();
        let stems = ["_bucket", "_sum", "_count"].map(|end| family.strip_suffix(end));
        let known = typed.contains_key(family)
            || stems
                .into_iter()
                .flatten()
                .any(|stem| typed.contains_key(stem));
        assert!(known, "{name} has a family");
    }
}

#[test]
fn connections_are_seen_while_they_are_open() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let open = |now: &BTreeMap<String, f64>| {
        series(now, "portcullis_connections", &["surface=\"gateway\""])
    };
    let mut clients: Vec<_> = (0..5).map(|_| edge.client()).collect();
    for client in &mut clients {
        assert_eq!(
            client.ask(&Request::post(QUESTION)).status,
            200,
            "it is served"
        );
    }
    let base = open(&metrics(&edge));
    assert!(base >= 5.0, "five are open: {base}");
    drop(clients);
    eventually(&edge, "they are closed again", |now| {
        open(now) <= base - 5.0 + 1.0
    });
}

#[test]
fn bounds_are_shown_beside_what_they_bound() {
    let node = Node::start(good);
    let keys = [
        ("gateway.connections.max", "77"),
        ("gateway.cache.enabled", "true"),
        ("gateway.cache.size", "\"5 MiB\""),
        ("server.answer_memory", "\"9 MiB\""),
    ];
    let now = metrics(&Edge::with(&node, &keys));
    let limit = |surface: &str| series(&now, "portcullis_connections_limit", &[surface]);
    assert_eq!(limit("\"gateway\""), 77.0, "as configured");
    assert_eq!(limit("\"relay\""), 0.0, "it is off");
    assert_eq!(
        now.get("portcullis_answer_memory_limit_bytes"),
        Some(&f64::from(9 << 20))
    );
    assert_eq!(now.get("portcullis_cache_enabled"), Some(&1.0), "it is on");
}

#[test]
fn clients_that_the_limiter_forgets_are_counted_once() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.max_clients", "2")]);
    let of_gateway = |now: &BTreeMap<String, f64>, name: &str| series(now, name, &["\"gateway\""]);
    for number in 1..=5 {
        edge.ask(&Request::post(QUESTION).with("X-Forwarded-For", &format!("203.0.113.{number}")));
    }
    for _ in 0..2 {
        let now = metrics(&edge);
        let [tracked, evicted] = ["clients", "evictions_total"]
            .map(|name| of_gateway(&now, &format!("portcullis_limiter_{name}")));
        assert_eq!(
            [tracked, evicted],
            [2.0, 3.0],
            "a second snapshot counts nothing twice"
        );
    }
}

#[test]
fn process_resources_are_exported() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let now = metrics(&edge);
    let value = |name: &str| now.get(name).copied().unwrap_or_default();
    let opened: Vec<_> = (0..20).map(|_| edge.client()).collect();
    let before = value("process_open_fds");
    eventually(&edge, "twenty connections are twenty files", |now| {
        now.get("process_open_fds")
            .is_some_and(|open| *open >= before + 19.0)
    });
    drop(opened);
    assert!(
        before > 3.0 && before < value("process_max_fds"),
        "{before} files are open"
    );
    assert!(
        value("process_resident_memory_bytes") > f64::from(1 << 20),
        "a MiB at least"
    );
    let seconds = value("process_cpu_seconds_total");
    assert!(
        seconds > 0.0 && seconds < 60.0,
        "{seconds} s of CPU for nothing"
    );
    let clock = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .map(|now| now.as_secs_f64());
    let age = clock.map(|clock| clock - value("process_start_time_seconds"));
    assert!(
        age.is_ok_and(|age| age > 0.0 && age < 600.0),
        "it started just now"
    );
}

#[test]
fn admin_serves_its_paths_only() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    assert_eq!(edge.admin_get("/livez").status, 200, "alive");
    assert_eq!(edge.admin_get("/readyz").status, 200, "ready");
    for path in [
        "/metrics/",
        "/rpc",
        "/healthz",
        "/metrics?x",
        "/?x",
        "/page",
        "/debug",
        "//",
    ] {
        assert_eq!(edge.admin_get(path).status, 404, "{path} is nothing here");
    }
    let posted = Client::connect(edge.admin())
        .ask(&Request::new("POST", "/metrics").with("Content-Length", "0"));
    assert_eq!(posted.status, 405, "metrics are only read");
    for path in ["/metrics", "/livez", "/readyz"] {
        let elsewhere = edge.ask(&Request::new("GET", path));
        assert_eq!(elsewhere.status, 404, "{path} is not on the public surface");
    }
}

#[test]
fn only_admin_serves_the_api_documents() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let get = |path| operator::ask(&edge, &operator::local(path));
    let page = get("/docs");
    assert_eq!(page.status, 200, "the page");
    assert!(page.text().starts_with("<!doctype html>"), "it is one");
    let policy = page.header("Content-Security-Policy").unwrap_or_default();
    assert!(
        !policy.contains("unsafe") && !policy.contains("http"),
        "it loads nothing: {policy}"
    );
    assert!(
        page.text().contains("id=\"openapi-relay-post-write\""),
        "it shows what the relay sends, too"
    );
    let openrpc = get("/docs/openrpc.json");
    for document in portcullis_documents::DOCUMENTS.as_flattened() {
        let given = get(document.path);
        assert_eq!(
            (given.status, given.text()),
            (200, document.text),
            "{}",
            document.path
        );
        assert_eq!(
            given.header("Content-Type"),
            Some(document.media_type),
            "{}",
            document.path
        );
        if document.path == "/docs/openrpc/gateway.json" {
            assert_eq!(given.text(), openrpc.text(), "where tools look for it, too");
        }
        assert_eq!(
            edge.ask(&Request::new("GET", document.path)).status,
            404,
            "not for everybody"
        );
    }
    let runbook = get("/runbook");
    assert!(
        runbook.text().contains("id=\"portcullisnodedown\""),
        "each section has an anchor"
    );
    for path in [
        "/docs/",
        "/docs?x",
        "/docs/openapi",
        "/docs/openapi/../gateway.yaml",
    ] {
        assert_eq!(get(path).status, 404, "{path} is nothing here");
    }
}

/// The exact fields of a request log line.
const FIELDS: [&str; 18] = [
    "bytes",
    "cache",
    "client",
    "http_method",
    "level",
    "message",
    "method",
    "node",
    "path",
    "reason",
    "request_id",
    "status",
    "surface",
    "time",
    "total_ms",
    "trace_id",
    "upstream_ms",
    "verdict",
];

#[test]
fn each_request_is_logged_in_one_line() {
    let node = Node::start(|call| match call.number {
        1 => good(call),
        _ => send("HTTP/1.1 301 No\r\nContent-Length: 0\r\n\r\n"),
    });
    let edge = Edge::start(&node);
    let cases = [
        (
            "log-answered",
            "answered",
            "",
            200,
            "starknet_blockNumber",
            Request::post(QUESTION),
        ),
        (
            "log-failed",
            "failed",
            "upstream_redirect",
            502,
            "starknet_blockNumber",
            { Request::post(QUESTION) },
        ),
        ("log-refused", "refused", "method_not_allowed", 403, "", {
            Request::post(rpc("1", "devnet_mint", "[]"))
        }),
        (
            "log-nowhere",
            "refused",
            "not_found",
            404,
            "",
            Request::new("GET", "/a-secret-path"),
        ),
    ];
    for (id, verdict, reason, status, method, request) in cases {
        let request = request
            .with("X-Request-Id", id)
            .with("X-Forwarded-For", "203.0.113.77");
        let response = edge.ask(&request);
        let line = edge.request_line(id);
        let mut fields: Vec<&str> = line
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        fields.sort_unstable();
        let known = fields.iter().all(|name| FIELDS.contains(name));
        assert!(
            known && fields.len() >= FIELDS.len() - 1,
            "{id}: {fields:?}"
        );
        assert_eq!(line["surface"], "gateway", "{id}");
        assert_eq!(line["level"], "info", "{id}");
        assert_eq!(line["client"], "203.0.113.77", "{id}");
        assert_eq!(
            line["method"], method,
            "{id}: a name of the thirteen or nothing"
        );
        let (http_method, path) = if id == "log-nowhere" {
            ("GET", "")
        } else {
            ("POST", "/rpc")
        };
        assert_eq!(line["http_method"], http_method, "{id}");
        assert_eq!(line["path"], path, "{id}: a path of ours or nothing");
        assert_eq!(line["verdict"], verdict, "{id}");
        assert_eq!(line["reason"], reason, "{id}");
        assert_eq!(line["status"], status, "{id}");
        assert_eq!(
            line["bytes"],
            response.body.len(),
            "{id}: the bytes of the answer's body"
        );
        let time = line["time"].as_str().unwrap_or_default();
        assert!(
            time.ends_with('Z') && time.contains('T'),
            "{id}: {time} is RFC 3339 in UTC"
        );
        for name in ["upstream_ms", "total_ms"] {
            assert!(line[name].as_f64() >= Some(0.0), "{id}: {name} in {line}");
        }
        let lines = edge.lines();
        let own = lines.iter().filter(|line| line.contains(id)).count();
        assert_eq!(own, 1, "{id}: one line for one request");
    }
}

#[test]
fn a_line_shows_the_trace_and_the_cache() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let cases = [
        (
            "trace-whole",
            format!("00-{trace}-b7ad6b7169203331-01"),
            trace,
        ),
        ("trace-broken", format!("00-{trace}-01"), ""),
    ];
    for (id, traceparent, shown) in cases {
        let request = Request::post(QUESTION).with("Traceparent", &traceparent);
        edge.ask(&request.with("X-Request-Id", id));
        let line = edge.request_line(id);
        assert_eq!(line["trace_id"], shown, "{traceparent}");
        assert_eq!(line["cache"], "miss", "{line}");
    }
}

#[test]
fn a_flood_of_refusals_is_summarised() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "20")]);
    let client = "203.0.113.9";
    let request = Request::post(QUESTION).with("X-Forwarded-For", client);
    let mut connection = edge.client();
    for _ in 0..220 {
        connection.ask(&request);
    }
    let summary = edge.line("the sum of the refusals", |line| {
        line["refusals"].is_string()
    });
    assert_eq!(summary["message"], "refused 190 more times: rate_limited");
    for (field, value) in [
        ("client", client),
        ("level", "info"),
        ("reason", "rate_limited"),
        ("surface", "gateway"),
        ("verdict", "refused"),
        ("refusals", "190"),
    ] {
        assert_eq!(summary[field], value, "{field}");
    }
    let lines = edge.lines();
    let own = lines
        .iter()
        .filter(|line| line.contains("rate_limited") && line.contains("total_ms"));
    assert_eq!(own.count(), 10, "the first ten have lines of their own");
    let answered = lines.iter().filter(|line| line.contains("\"answered\""));
    assert_eq!(answered.count(), 20, "every answer has one");
}

#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    let node = Node::start(good);
    let path = scratch_path("log");
    let log = File::create(&path).expect("the directory for temporary files can be written");
    let written = log.metadata().expect("the file is there");
    let stream = format!("{}:{}", written.st_dev(), written.st_ino());
    for (stream, priority) in [(&*stream, "<3>"), ("1:1", "")] {
        let setup = Setup::before(node.address()).set("gateway.listen", "\"203.0.113.1:1\"");
        let setup = setup.environment("JOURNAL_STREAM", stream);
        let status = setup.serve_in_vain_to(log.try_clone().expect("the file is open"));
        assert_eq!(status.code(), Some(2), "the address is another machine's");
        let text = std::fs::read_to_string(&path).expect("it is text");
        let last = text.lines().last().unwrap_or_default();
        assert!(last.starts_with(&format!("{priority}{{\"time\"")), "{last}");
    }
    std::fs::remove_file(path).expect("it is there");
}

#[test]
fn the_log_never_repeats_foreign_text() {
    let node = Node::start(|call| match call.number {
        1 => good(call),
        _ => send("HTTP/1.1 500 a-secret-word\r\nContent-Length: 13\r\n\r\na-secret-word"),
    });
    let edge = Edge::with(&node, &[("log.level", "\"debug\"")]);
    let felt = "0xa5ec3e7";
    let hash = rpc(
        "\"a-secret-word\"",
        "starknet_getTransactionStatus",
        &format!("[\"{felt}\"]"),
    );
    let requests = [
        Request::post(&hash).with("Authorization", "Bearer a-secret-word"),
        Request::post(&hash).with("Cookie", "session=a-secret-word"),
        Request::post(rpc("1", "a-secret-word", "[]")),
        Request::post("{\"a-secret-word"),
        Request::post(QUESTION).line("POST /a-secret-word HTTP/1.1"),
        Request::post(QUESTION).line("A-SECRET-WORD /rpc HTTP/1.1"),
        Request::post(QUESTION).line("POST /rpc a-secret-word"),
        Request::post(QUESTION).with("X-Request-Id", "a-secret-word with spaces"),
        Request::post(QUESTION).with("a-secret word", "malformed"),
        Request::post(QUESTION).with("Content-Length", "a-secret-word"),
    ];
    for request in requests {
        edge.ask(&request);
    }
    edge.ask(&Request::post(QUESTION).with("X-Request-Id", "the-last-one"));
    edge.request_line("the-last-one");
    for line in edge.lines() {
        let lower = line.to_lowercase();
        let silent = !lower.contains("a-secret") && !lower.contains(&felt[2..]);
        assert!(silent, "the log repeats what a client sent: {line}");
    }
}

#[test]
fn every_log_line_is_one_json_object() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("log.level", "\"debug\"")]);
    edge.ask(&Request::post(QUESTION));
    edge.client().send(b"noise\r\n\r\n");
    edge.ask(&Request::post(QUESTION).with("X-Request-Id", "the-last-one"));
    edge.request_line("the-last-one");
    for line in edge.lines() {
        let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let whole = value["time"].is_string() && value["level"].is_string();
        assert!(whole, "a line that a collector cannot read: {line}");
    }
}

#[test]
fn client_addresses_are_truncated_if_configured() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("log.clients", "\"truncated\"")]);
    let clients = [
        ("203.0.113.77", "203.0.113."),
        ("2001:db8:1:2:3::4", "2001:db8:1:"),
    ];
    for (number, (client, prefix)) in clients.into_iter().enumerate() {
        let id = format!("truncated-{number}");
        let request = ask_about(1, "7")
            .with("X-Forwarded-For", client)
            .with("X-Request-Id", &id);
        edge.ask(&request);
        let shown = edge.request_line(&id)["client"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            shown.starts_with(prefix),
            "{client} is still recognisable as {shown}"
        );
        let gone = !shown.contains("77") && !shown.contains(":2:") && !shown.contains("::4");
        assert!(gone, "{client} is shown as {shown}");
    }
}

#[test]
fn every_logged_reason_is_a_listed_one() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let names = metrics(&edge);
    for name in names
        .keys()
        .filter(|name| name.starts_with("portcullis_requests_total{"))
    {
        let (_, rest) = name
            .split_once("reason=\"")
            .expect("a request has a reason or none");
        let reason = rest.split('"').next().unwrap_or_default();
        let known = ["", "none"].contains(&reason) || REASONS.iter().any(|row| row.0 == reason);
        assert!(known, "{reason} is no reason of the gateway");
    }
}
