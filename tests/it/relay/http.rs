//! The relay as an HTTP server: paths, methods, sizes, media types, quotas, and graceful shutdown.

use crate::stop::wait_until_closed;
use crate::support::node::{Act, Latch};
use crate::support::relay::chain::{honest, method};
use crate::support::relay::expect::{common, refused, rpc_refused};
use crate::support::relay::stage::{Stage, authorised, post};
use crate::support::request::{Request, padded};

/// A body that is refused by its content alone, so that every earlier check takes precedence.
const JUDGED: &str = r#"{"recipient":"0x202","card_id":"7"}"#;
const VERDICT: &str = "argument_not_allowed";

#[test]
fn unknown_paths_are_404_after_authentication() {
    let stage = Stage::scripted();
    for path in [
        "/",
        "/register/",
        "/Register",
        "/register?x=1",
        "//register",
        "/./register",
        "/%72egister",
        "/readyz/",
        "/rpc/",
        "/rpc/v0_10",
        "/metrics",
        "/livez",
        "*",
    ] {
        let request = Request::post(JUDGED).line(&format!("POST {path} HTTP/1.1"));
        refused(&stage.ask(&request), "not_found", path);
        refused(&stage.ask(&authorised(request)), "not_found", path);
    }
    assert_eq!(stage.node.calls().len(), 0, "the node is not queried");
}

#[test]
fn a_path_says_which_methods_it_takes() {
    let stage = Stage::scripted();
    for (line, allow) in [
        ("GET /register", "POST"),
        ("PUT /mint-card", "POST"),
        ("OPTIONS /require-v2", "POST"),
        ("POST /readyz", "GET, HEAD"),
        ("POST /healthz", "GET, HEAD"),
        ("DELETE /healthz", "GET, HEAD"),
    ] {
        let request = post("/", JUDGED).line(&format!("{line} HTTP/1.1"));
        let answer = stage.ask(&request);
        refused(&answer, "wrong_http_method", line);
        assert_eq!(answer.header("Allow"), Some(allow), "{line}");
    }
    let answer = stage.ask(&authorised(Request::new("GET", "/rpc")));
    rpc_refused(&answer, "wrong_http_method", "null", "GET /rpc");
    assert_eq!(answer.header("Allow"), Some("POST"), "GET /rpc");
    let mut client = stage.client();
    client.send(Request::new("HEAD", "/healthz").bytes());
    let answer = client.response_to_head();
    common(&answer, "HEAD /healthz");
    assert_eq!(answer.status, 200, "liveness without its words");
}

#[test]
fn bodies_pass_up_to_65536_bytes() {
    let stage = Stage::scripted();
    for (size, reason) in [(65_536, VERDICT), (65_537, "body_too_large")] {
        let body = padded(JUDGED, size);
        let answer = stage.post("/mint-card", &body);
        refused(&answer, reason, &format!("{size} bytes"));
        let chunked = Request::post_chunked(&body, 8_192).line("POST /mint-card HTTP/1.1");
        let answer = stage.ask(&authorised(chunked));
        refused(&answer, reason, &format!("{size} bytes in chunks"));
    }
    let lying = authorised(Request::new("POST", "/mint-card"))
        .with("Content-Type", "application/json")
        .with("Content-Length", "65537");
    refused(
        &stage.ask(&lying),
        "body_too_large",
        "refused by its head, before a byte came",
    );
}

#[test]
fn a_late_body_times_out() {
    let stage = Stage::scripted();
    let paths = ["/mint-card", "/rpc"];
    let [mut plain, mut rpc] = paths.map(|path| {
        let (mut client, bytes) = (stage.client(), post(path, JUDGED).bytes());
        client.send(&bytes[..bytes.len() - 1]);
        client
    });
    refused(&plain.response(), "request_timeout", "an operation");
    rpc_refused(&rpc.response(), "request_timeout", "null", "a transaction");
    for mut client in [plain, rpc] {
        client.ends("the rest of the body is not taken for another request");
    }
}

#[test]
fn bodies_need_json_type_and_one_length() {
    let stage = Stage::scripted();
    let plain = || post("/mint-card", JUDGED).without("Content-Type");
    let json = || post("/mint-card", JUDGED);
    for (what, request, reason) in [
        ("no type", plain(), "unsupported_media_type"),
        (
            "text",
            plain().with("Content-Type", "text/plain"),
            "unsupported_media_type",
        ),
        (
            "a coding",
            json().with("Content-Encoding", "gzip"),
            "unsupported_encoding",
        ),
        (
            "two framings",
            json().with("Transfer-Encoding", "chunked"),
            "conflicting_framing",
        ),
        ("no host", json().without("Host"), "invalid_request"),
        (
            "a charset",
            plain().with("Content-Type", "application/json;charset=utf-8"),
            VERDICT,
        ),
        (
            "no coding at all",
            json().with("Content-Encoding", "identity"),
            VERDICT,
        ),
    ] {
        refused(&stage.ask(&request), reason, what);
    }
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
}

#[test]
fn idempotency_keys_have_1_to_128_characters() {
    let stage = Stage::scripted();
    let keyed = |keys: &[&str]| {
        let fold = |request: Request, key: &&str| request.with("Idempotency-Key", key);
        stage.ask(&keys.iter().fold(post("/mint-card", JUDGED), fold))
    };
    let (longest, too_long) = ("k".repeat(128), "k".repeat(129));
    for keys in [
        &[""][..],
        &["two words"],
        &[&too_long],
        &["k", "k"],
        &["k\tk"],
        &["süß"],
    ] {
        refused(&keyed(keys), "invalid_request", &format!("{keys:?}"));
    }
    for keys in [&["k"][..], &[&longest], &["!~"]] {
        refused(&keyed(keys), VERDICT, &format!("{keys:?}"));
    }
}

#[test]
fn each_authenticated_client_has_its_quota() {
    let stage = Stage::scripted_with(&[("relay.requests_per_minute", "3")]);
    let from = |client: &str| post("/mint-card", JUDGED).with("X-Forwarded-For", client);
    for left in [2, 1, 0] {
        let answer = stage.ask(&from("192.0.2.1"));
        refused(&answer, VERDICT, "within the quota");
        let stated = answer.header("RateLimit").unwrap_or_default();
        assert!(
            stated.starts_with(&format!("\"minute\";r={left};t=")),
            "{left} left: {stated}"
        );
    }
    for _ in 0..2 {
        let answer = stage.ask(&from("192.0.2.1"));
        let retry = answer
            .header("Retry-After")
            .and_then(|value| value.parse::<u32>().ok());
        refused(&answer, "rate_limited", "over the quota");
        assert!(
            matches!(retry, Some(1..=60)),
            "when to come again: {retry:?}"
        );
    }
    let rpc = stage.ask(&post("/rpc", "[]").with("X-Forwarded-For", "192.0.2.1"));
    rpc_refused(&rpc, "rate_limited", "null", "one quota for all paths");
    refused(
        &stage.ask(&from("192.0.2.2")),
        VERDICT,
        "another client has a quota of its own",
    );
    assert_eq!(
        stage.ask(&Request::new("GET", "/healthz")).status,
        200,
        "liveness has no quota"
    );
}

#[test]
fn a_stopping_relay_finishes_its_writes() {
    let latch = Latch::default();
    let held = latch.clone();
    let script = move |call: &crate::support::node::Call| {
        let wait = (method(call) == "starknet_specVersion").then(|| Act::Hold(held.clone()));
        wait.into_iter().chain(honest(call)).collect()
    };
    let mut stage = Stage::with_script(script, &[]);
    let mut early = stage.client();
    early.send(authorised(Request::new("GET", "/readyz")).bytes());
    stage.node.wait_for_calls(1);
    let [mint, rpc] = [("/mint-card", JUDGED), ("/rpc", "[]")].map(|(path, body)| {
        let (request, mut client) = (post(path, body).bytes(), stage.client());
        client.send(&request[..20]);
        (request, client)
    });
    // connections are accepted in turn
    assert_eq!(stage.ask(&Request::new("GET", "/healthz")).status, 200);
    stage.edge.signal("TERM");
    wait_until_closed(stage.edge.relay());
    let [mint, rpc] = [mint, rpc].map(|(request, mut client)| {
        client.send(&request[20..]);
        client.response()
    });
    refused(&mint, "draining", "a request after the signal");
    rpc_refused(&rpc, "draining", "null", "the same in JSON-RPC's words");
    assert!(stage.edge.runs(), "something is in flight");
    latch.open();
    let answer = early.response();
    assert_eq!(
        answer.status,
        200,
        "what was in flight is answered: {}",
        answer.text()
    );
    assert_eq!(stage.edge.wait().code(), Some(0), "a stop is no failure");
    assert_eq!(stage.adds().len(), 0, "nothing was submitted");
}
