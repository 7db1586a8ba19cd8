//! The operator's page on the wire: its files, its event stream, and that open
//! streams do not delay a stop. Its rendering is tested in a browser, its journal in `relay`.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request, rpc};
use crate::support::response::Response;
use crate::support::script::good;

/// The limit on open event streams.
const LISTENERS: usize = 16;

/// A `GET` as a browser on this machine sends it.
pub(crate) fn local(path: &str) -> Request {
    Request::new("GET", path)
        .without("Host")
        .with("Host", "127.0.0.1:8083")
}

pub(crate) fn ask(edge: &Edge, request: &Request) -> Response {
    Client::connect(edge.admin()).ask(request)
}

/// A connection that reads the event stream.
pub(crate) struct Page(Client);

impl Page {
    /// Opens the stream, or returns the refusal.
    fn open(edge: &Edge) -> Result<Self, Response> {
        let mut client = Client::connect(edge.admin());
        client.send(local("/events").bytes());
        let head = client.response_to_head();
        if head.status != 200 {
            return Err(head);
        }
        assert_eq!(head.header("Content-Type"), Some("text/event-stream"));
        assert_eq!(
            client.chunk(),
            b"retry: 1000\n\n",
            "it says when to come again"
        );
        Ok(Self(client))
    }

    pub(crate) fn listening(edge: &Edge) -> Self {
        Self::open(edge).unwrap_or_else(|refused| panic!("there is room: {refused:?}"))
    }

    /// The next snapshot; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let event = self.0.chunk();
        if event.is_empty() {
            return None;
        }
        let text = std::str::from_utf8(&event).expect("an event is text");
        let data = text
            .strip_prefix("data: ")
            .and_then(|rest| rest.strip_suffix("\n\n"));
        let data = data.unwrap_or_else(|| panic!("one event of one line: {text:?}"));
        Some(serde_json::from_str(data).expect("a snapshot is JSON"))
    }

    /// The first snapshot that matches.
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let snapshot = self
                .next()
                .unwrap_or_else(|| panic!("it ended before: {what}"));
            if wanted(&snapshot) {
                return snapshot;
            }
            assert!(
                Instant::now() < deadline,
                "never came true: {what}; {snapshot:#}"
            );
        }
    }
}

fn total(counts: &Value, name: &str) -> u64 {
    let all = counts.as_array().expect("counts are a list");
    let found = all.iter().find(|count| count["name"] == name);
    found
        .and_then(|count| count["total"].as_u64())
        .unwrap_or_default()
}

/// Each file of the page with its text: the page, and the files that those found name.
fn files(edge: &Edge) -> Vec<(String, Response)> {
    let (mut paths, mut files) = (vec!["/".to_owned()], Vec::new());
    while let Some(path) = paths.get(files.len()).cloned() {
        let file = ask(edge, &local(&path));
        assert_eq!(file.status, 200, "{path}");
        let quoted = file.text().split(['"', '\'']).skip(1).step_by(2);
        let is_file = |word: &&str| {
            [".js", ".css", ".svg"]
                .iter()
                .any(|end| word.ends_with(end))
        };
        for name in quoted
            .filter(is_file)
            .map(|name| name.trim_start_matches('.'))
        {
            if !paths.iter().any(|path| path == name) {
                paths.push(name.to_owned());
            }
        }
        files.push((path, file));
    }
    assert_eq!(files.len(), 14, "the page asks for files: {paths:?}");
    files
}

#[test]
fn the_page_loads_and_injects_nothing() {
    let node = Node::start(good);
    for (path, file) in files(&Edge::start(&node)) {
        // the name of a vocabulary is no address
        let text = file.text().replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http:",
            "https:",
            "//cdn",
            "innerHTML",
            "insertAdjacentHTML",
            "eval(",
        ] {
            assert!(!text.contains(word), "{path} has {word}");
        }
        for word in [" style=\"", " onclick=", "<style", "javascript:"] {
            assert!(
                !text.contains(word),
                "{path} has {word}, which its policy forbids"
            );
        }
    }
}

#[test]
fn each_page_file_carries_its_security_headers() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let html = ask(&edge, &local("/"));
    assert_eq!(
        html.header("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    for (path, answer) in files(&edge) {
        let path = &*path;
        assert!(!answer.body.is_empty(), "{path} is not empty");
        let policy = answer.header("Content-Security-Policy").unwrap_or_default();
        for part in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "script-src 'self'",
        ] {
            assert!(policy.contains(part), "{path}: {part} in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        for (name, value) in [
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        assert!(answer.announces_close(), "{path}: one request a connection");
        let mut client = Client::connect(edge.admin());
        client.send(local(path).line(&format!("HEAD {path} HTTP/1.1")).bytes());
        let head = client.response_to_head();
        let length = answer.body.len().to_string();
        assert_eq!(
            head.header("Content-Length"),
            Some(&*length),
            "{path}: HEAD tells the length"
        );
        client.ends("and nothing else");
        let posted = local(path).line(&format!("POST {path} HTTP/1.1"));
        let posted = ask(&edge, &posted.with("Content-Length", "0"));
        assert_eq!(
            (posted.status, posted.header("Allow")),
            (405, Some("GET, HEAD")),
            "{path}"
        );
        assert_eq!(
            ask(&edge, &local(&format!("{path}?x=1"))).status,
            404,
            "{path} has no query"
        );
        assert_eq!(
            edge.ask(&Request::new("GET", path)).status,
            404,
            "{path} is not public"
        );
    }
}

#[test]
fn the_events_tell_what_happens() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.requests_per_minute", "3")]);
    let mut page = Page::listening(&edge);
    let first = page.next().expect("the first comes at once");
    assert_eq!(first["draining"], false);
    assert_eq!(first["surfaces"][0]["name"], "gateway");
    assert_eq!(first["surfaces"][0]["listen"], edge.gateway().to_string());
    assert_eq!(first["surfaces"][0]["answered"], 0);
    assert_eq!(
        (&first["relay"], &first["sidecar"]),
        (&Value::Null, &Value::Null)
    );
    let url = format!("http://{}/rpc", node.address());
    let urls = &first["node"]["urls"];
    assert_eq!(
        (&urls[0]["url"], &urls[0]["broken"]),
        (&url.into(), &false.into())
    );
    for body in [QUESTION, &rpc("1", "devnet_mint", "[]"), "{", QUESTION] {
        edge.ask(&Request::post(body).with("X-Forwarded-For", "203.0.113.77"));
    }
    let after = page.until("all four are counted", |now| {
        let gateway = &now["surfaces"][0];
        gateway["answered"] == 1 && total(&gateway["refused"], "rate_limited") == 1
    });
    let gateway = &after["surfaces"][0];
    assert_eq!(total(&gateway["refused"], "method_not_allowed"), 1);
    assert_eq!(total(&gateway["refused"], "parse_error"), 1);
    assert_eq!(total(&gateway["calls"], "starknet_blockNumber"), 1);
    assert_eq!(
        gateway["latency"]["count"], 1,
        "a refusal takes no time, and says nothing"
    );
    let bounds = after["bounds"].as_array().map(Vec::len);
    assert_eq!(
        gateway["latency"]["below"].as_array().map(Vec::len),
        bounds,
        "a count a bound"
    );
    assert_eq!(total(&after["node"]["calls"], "ok"), 1);
    let busiest = &gateway["limits"]["busiest"][0];
    assert_eq!(
        (&busiest["network"], &busiest["requests"]),
        (&"203.0.113.0/24".into(), &3.into())
    );
    assert!(
        !after.to_string().contains("203.0.113.77"),
        "no client is shown in full"
    );
}

#[test]
fn busiest_clients_are_added_up_by_network() {
    let node = Node::start(good);
    let partner = "[{ networks = \"203.0.113.0/24\", requests_per_minute = 20 }]";
    let keys = [
        ("gateway.requests_per_minute", "10"),
        ("gateway.clients", partner),
    ];
    let edge = Edge::with(&node, &keys);
    for (client, requests) in [("198.51.100.1", 3), ("203.0.113.1", 2), ("198.51.100.2", 1)] {
        for _ in 0..requests {
            edge.ask(&Request::post(QUESTION).with("X-Forwarded-For", client));
        }
    }
    let snapshot = Page::listening(&edge).next().expect("a snapshot");
    let expected = serde_json::json!([
        { "network": "198.51.100.0/24", "clients": 2, "requests": 4, "most": 3, "limit": 10 },
        { "network": "203.0.113.0/24", "clients": 1, "requests": 2, "most": 2, "limit": 20 },
    ]);
    assert_eq!(snapshot["surfaces"][0]["limits"]["busiest"], expected);
}

/// The values of a series, oldest first.
fn series(history: &Value, name: &str) -> Vec<Option<f64>> {
    let names = history["series"].as_array().expect("a list");
    let points = history["points"].as_array().expect("a list").iter();
    let at = names.iter().position(|known| known == name);
    points
        .map(|point| point["values"][at.expect("a series")].as_f64())
        .collect()
}

#[test]
fn the_past_is_sampled_without_a_page() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for _ in 0..20 {
        edge.ask(&Request::post(QUESTION));
    }
    let deadline = Instant::now() + PATIENCE;
    let history = loop {
        let history = ask(&edge, &local("/history")).json();
        assert_eq!(history["interval_s"], 5);
        let rates = series(&history, "gateway.requests");
        if rates.len() > 1 && rates.last() == Some(&Some(0.0)) {
            break history;
        }
        assert!(Instant::now() < deadline, "no points: {history}");
    };
    let requests: f64 = series(&history, "gateway.requests").iter().flatten().sum();
    // of each second, in intervals of 5 s or a little more
    assert!(requests > 3.0 && requests < 4.1, "20 requests: {history}");
    assert!(series(&history, "node.calls")[0] > Some(0.0));
    let p99 = series(&history, "gateway.p99");
    assert!(p99[0] > Some(0.0), "{p99:?}");
    assert_eq!(p99.last(), Some(&None), "the latency of nothing is unknown");
    assert!(
        !history["series"].to_string().contains("relay"),
        "what is off has no series"
    );

    // a stream continues it
    let snapshot = Page::listening(&edge).next().expect("a snapshot");
    let newest = &snapshot["point"];
    let is_newer = newest["at_ms"].as_u64() >= history["points"][1]["at_ms"].as_u64();
    assert!(is_newer, "{newest}");
    assert_eq!(newest["values"]["gateway.requests"], 0.0);
}

#[test]
fn what_is_wrong_names_its_surfaces() {
    let edge = Setup::before(Node::nowhere()).start();
    let mut page = Page::listening(&edge);
    let is_wrong = |now: &Value| now["verdict"]["state"] == "failing";
    let snapshot = page.until("the outage is known", |now| {
        edge.ask(&Request::post(QUESTION));
        is_wrong(now)
    });
    let trouble = &snapshot["verdict"]["troubles"][0];
    assert_eq!(trouble["condition"], "node_url");
    assert_eq!(
        trouble["surfaces"],
        serde_json::json!(["gateway"]),
        "and not admin"
    );
    assert!(
        snapshot["host"].is_string(),
        "tabs of several hosts look different"
    );
}

#[test]
fn event_streams_are_capped_and_released() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut pages: Vec<_> = (0..LISTENERS).map(|_| Page::listening(&edge)).collect();
    let refused = Page::open(&edge).err().expect("one too many");
    assert_eq!(
        (refused.status, refused.header("Retry-After")),
        (503, Some("5"))
    );
    let [first, second] = [0, 1].map(|at| pages[at].next().expect("a snapshot"));
    assert_eq!(first, second, "all have the same");
    pages.pop();
    let deadline = Instant::now() + PATIENCE;
    while let Err(refused) = Page::open(&edge) {
        assert_eq!(refused.status, 503);
        assert!(
            Instant::now() < deadline,
            "the place of a page that is gone stays taken"
        );
    }
    assert!(pages[0].next().is_some(), "the others go on");
}

#[test]
fn events_support_head_and_http_1_0() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = Client::connect(edge.admin());
    client.send(local("/events").line("HEAD /events HTTP/1.1").bytes());
    let head = client.response_to_head();
    assert_eq!(
        (head.status, head.header("Transfer-Encoding")),
        (200, Some("chunked"))
    );
    assert_eq!(head.header("Content-Type"), Some("text/event-stream"));
    client.ends("nothing follows a head");
    let mut old = Client::connect(edge.admin());
    old.send(local("/events").line("GET /events HTTP/1.0").bytes());
    let head = old.response_to_head();
    assert_eq!((head.status, head.header("Transfer-Encoding")), (200, None));
    assert!(!old.silent_for(Duration::from_secs(10)), "events come");
}

#[test]
fn event_streams_show_the_drain_without_delaying() {
    let node = Node::start(good);
    let mut edge = Edge::with(&node, &[("server.drain_delay", "\"2500ms\"")]);
    let mut page = Page::listening(&edge);
    assert!(page.next().is_some());
    let start = Instant::now();
    edge.signal("TERM");
    page.until("it drains", |now| now["draining"] == true);
    while page.next().is_some() {}
    assert_eq!(edge.wait().code(), Some(0), "a stop is no failure");
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn the_page_shows_applied_and_pending_changes() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let edge = setup.start();
    let config = ask(&edge, &local("/config")).json();
    assert_eq!(
        (&config["reloaded_ms"], &config["mistaken"]),
        (&Value::Null, &false.into())
    );
    assert_eq!(
        config["changes"],
        Value::Array(Vec::new()),
        "nothing is other than it was"
    );
    let mut page = Page::listening(&edge);
    let setup = setup
        .set("node.max_idle", "3")
        .set("gateway.requests_per_minute", "7000");
    edge.rewrite(&setup);
    edge.signal("HUP");
    page.until("it was read again", |now| now["reloads"] == 1);
    let config = ask(&edge, &local("/config")).json();
    assert!(config["reloaded_ms"].as_u64() > Some(0), "{config}");
    let changes = config["changes"].as_array().expect("a list");
    let found: Vec<_> = changes
        .iter()
        .map(|change| {
            (
                change["key"].as_str(),
                change["to"].as_str(),
                change["live"].as_bool(),
            )
        })
        .collect();
    let expected = [
        (Some("node.max_idle"), Some("3"), Some(false)),
        (
            Some("gateway.requests_per_minute"),
            Some("7000"),
            Some(true),
        ),
    ];
    assert_eq!(found, expected);
    edge.rewrite(&setup.set("node.max_idle", "\"many\""));
    edge.signal("HUP");
    page.until("the mistake is noted", |now| now["reloads"] == 2);
    let config = ask(&edge, &local("/config")).json();
    assert_eq!(config["mistaken"], true);
    assert_eq!(
        config["changes"].as_array(),
        Some(changes),
        "nothing changed by it"
    );
    let errors = ask(&edge, &local("/errors")).json();
    let mut lines = errors.as_array().expect("a list").iter();
    let newest = lines
        .find(|line| line["level"] == "error")
        .expect("the mistake");
    let text = newest["text"].as_str().unwrap_or_default();
    assert!(
        text.contains("reload failed") || text.contains("node.max_idle"),
        "{text}"
    );
    let live = errors.as_array().expect("a list").iter().any(|line| {
        let text = line["text"].as_str().unwrap_or_default();
        text.contains("key=gateway.requests_per_minute") && text.contains("effective=now")
    });
    assert!(live, "each change is among the warnings: {errors}");
}

#[test]
fn a_journal_is_not_there_without_a_relay() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    assert_eq!(ask(&edge, &local("/journal")).status, 404);
    assert_eq!(ask(&edge, &local("/journal?state=gone")).status, 400);
}
