//! The bearer token: it is checked before anything else, and the response does not disclose why a
//! token is invalid.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::check::request_id;
use crate::support::client::PATIENCE;
use crate::support::edge::Setup;
use crate::support::relay::expect::{common, refused, rpc_refused};
use crate::support::relay::stage::{Stage, TOKEN, authorised};
use crate::support::request::Request;
use crate::support::response::Response;

const OPERATIONS: [&str; 10] = [
    "/register",
    "/verification-attest",
    "/verification-revoke",
    "/mint-card",
    "/submit-usership",
    "/faucet-drip",
    "/recovery-propose",
    "/recovery-execute",
    "/recovery-cancel",
    "/require-v2",
];
const NEXT: &str = "the-next-token-0123456789abcdef0123";

/// The response without values that differ per request. `Connection` is excluded, because an unread
/// body closes the connection whatever the token.
fn anonymous(response: &Response) -> (u16, String, Vec<(String, String)>) {
    let mut headers = response.headers.clone();
    let differs = ["connection", "date", "x-request-id"];
    headers.retain(|(name, _)| !differs.contains(&name.to_ascii_lowercase().as_str()));
    let body = response.text().replace(request_id(response), "ID");
    (response.status, body, headers)
}

/// Sends a request as another client, which has no failed attempts so far.
fn from_client(request: Request, number: usize) -> Request {
    request.with("X-Forwarded-For", &format!("192.0.2.{number}"))
}

#[test]
fn every_bad_token_gets_the_same_answer() {
    let stage = Stage::scripted();
    let good = format!("Bearer {TOKEN}");
    let fields: [&[&str]; 14] = [
        &[],
        &[""],
        &["Bearer"],
        &["Bearer "],
        &[TOKEN],
        &["Bearer wrong-0123456789abcdef0123456789abc"],
        &[&good[..good.len() - 1]],
        &[&format!("{good}x")],
        &[&format!("Basic {TOKEN}")],
        &[&format!("Bearer  {TOKEN}")],
        &[&format!("Bearer\t{TOKEN}")],
        &[&format!("{good}, {good}")],
        &[&good, &good],
        &["Bearer wrong-0123456789abcdef0123456789abc", &good],
    ];
    let mut answers = BTreeSet::new();
    for (at, fields) in fields.iter().enumerate() {
        let request = from_client(Request::post("{}"), at);
        let request = request.line("POST /register HTTP/1.1");
        let request = fields.iter().fold(request, |request, field| {
            request.with("Authorization", field)
        });
        let answer = stage.ask(&request);
        refused(&answer, "unauthorized", &format!("{fields:?}"));
        answers.insert(anonymous(&answer));
    }
    assert_eq!(
        answers.len(),
        1,
        "an answer tells what is wrong: {answers:?}"
    );
    assert_eq!(stage.node.calls().len(), 0, "the node is not queried");
}

#[test]
fn every_path_but_liveness_authenticates_first() {
    let stage = Stage::scripted();
    let big = "x".repeat(1000);
    let mut answers = BTreeSet::new();
    for (at, path) in OPERATIONS.into_iter().enumerate() {
        for (body, more) in [
            ("{}", ("Content-Type", "application/json")),
            (&big, ("Content-Type", "text/plain")),
            ("[]", ("Content-Encoding", "gzip")),
            ("{}", ("Idempotency-Key", "two words")),
            ("{}", ("Expect", "the-unexpected")),
        ] {
            let request = Request::post(body).line(&format!("POST {path} HTTP/1.1"));
            let request = from_client(request, at);
            let request = match more.0 {
                "Content-Type" => request.without("Content-Type").with(more.0, more.1),
                _ => request.with(more.0, more.1),
            };
            let answer = stage.ask(&request);
            refused(&answer, "unauthorized", &format!("{path} {more:?}"));
            answers.insert(anonymous(&answer));
        }
    }
    let ready = stage.ask(&Request::new("GET", "/readyz"));
    refused(&ready, "unauthorized", "/readyz");
    answers.insert(anonymous(&ready));
    assert_eq!(answers.len(), 1, "they differ: {answers:?}");
    let rpc = stage.ask(&Request::post("{}"));
    rpc_refused(&rpc, "unauthorized", "null", "/rpc in its own words");
    assert_eq!(stage.node.calls().len(), 0, "the node is not queried");

    let health = stage.ask(&Request::new("GET", "/healthz"));
    common(&health, "liveness");
    assert_eq!(
        (health.status, health.text()),
        (200, "ok\n"),
        "liveness needs no token"
    );
}

#[test]
fn without_a_token_no_body_is_read() {
    let stage = Stage::scripted();
    let mut client = stage.client();
    let request = Request::new("POST", "/register")
        .with("Content-Type", "application/json")
        .with("Content-Length", "60000");
    let answer = client.ask(&request);
    refused(&answer, "unauthorized", "a head alone");
}

#[test]
fn guessing_is_limited_but_valid_tokens_pass() {
    let stage = Stage::scripted();
    let guess = || Request::new("GET", "/readyz").with("Authorization", "Bearer guess");
    for at in 0..10 {
        refused(&stage.ask(&guess()), "unauthorized", &format!("guess {at}"));
    }
    for at in 10..13 {
        let answer = stage.ask(&guess());
        refused(&answer, "rate_limited", &format!("guess {at}"));
        let seconds = answer
            .header("Retry-After")
            .and_then(|text| text.parse::<u32>().ok());
        assert!(
            seconds.is_some_and(|wait| (2..=60).contains(&wait)),
            "a minute: {seconds:?}"
        );
        assert_eq!(
            answer.header("RateLimit"),
            None,
            "the quota is shown with a token only"
        );
    }
    assert_eq!(
        stage.ready().status,
        200,
        "the token opens from the same address"
    );
    let other = stage.ask(&from_client(guess(), 7));
    refused(&other, "unauthorized", "another client has guessed once");
    assert_eq!(
        stage.ask(&Request::new("GET", "/healthz")).status,
        200,
        "liveness is no guess"
    );
}

#[test]
fn tokens_are_changed_without_a_request_being_refused() {
    let stage = Stage::scripted();
    let with = |token: &str| {
        let request =
            Request::new("GET", "/readyz").with("Authorization", &format!("Bearer {token}"));
        stage.ask(&request)
    };
    let current = stage.folder.file("relay.token");
    let next = stage.folder.secret("next.token", NEXT);
    let files = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|file| format!("\"{file}\"")).collect();
        stage
            .setup
            .clone()
            .set("relay.token_files", &format!("[{}]", files.join(",")))
    };
    // a client that uses the current token throughout the rotation is never refused
    let (over, moved_on) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut requested = 0;
            let deadline = Instant::now() + PATIENCE;
            while !over.load(Ordering::Acquire) && Instant::now() < deadline {
                let token = if moved_on.load(Ordering::Acquire) {
                    NEXT
                } else {
                    TOKEN
                };
                assert_eq!(
                    with(token).status,
                    200,
                    "a request is refused in the change"
                );
                requested += 1;
            }
            requested
        });
        assert_eq!(with(NEXT).status, 401, "the next token opens nothing yet");
        reload(&stage, &files(&[&current, &next]), "both tokens");
        assert_eq!(with(TOKEN).status, 200, "the current token still opens");
        assert_eq!(with(NEXT).status, 200, "and so does the next");
        moved_on.store(true, Ordering::Release);
        with(NEXT);
        over.store(true, Ordering::Release);
        assert!(client.join().unwrap() > 0, "requests were sent");
    });
    reload(&stage, &files(&[&next]), "the next token alone");
    assert_eq!(
        with(NEXT).status,
        200,
        "the next token is the current one now"
    );
    assert_eq!(
        with(TOKEN).status,
        401,
        "the old one opens nothing any more"
    );
    assert_eq!(
        stage
            .ask(&authorised(Request::new("GET", "/healthz")))
            .status,
        200,
        "it lives"
    );
}

#[test]
fn a_reload_with_a_bad_token_changes_nothing() {
    let stage = Stage::scripted();
    stage.folder.secret("relay.token", "short");
    stage.edge.signal("HUP");
    stage.edge.line("the mistake", |line| {
        line["message"]
            .as_str()
            .unwrap_or_default()
            .contains("relay.token")
    });
    assert_eq!(stage.ready().status, 200, "the token that was there opens");
}

/// Writes the configuration, and waits until it is applied.
fn reload(stage: &Stage, setup: &Setup, what: &str) {
    let stated = || {
        let lines = stage.edge.lines();
        lines
            .iter()
            .filter(|line| line.contains("relay.token_files"))
            .count()
    };
    let before = stated();
    stage.edge.rewrite(setup);
    stage.edge.signal("HUP");
    let deadline = Instant::now() + PATIENCE;
    while stated() == before {
        assert!(Instant::now() < deadline, "{what}: not reloaded");
        std::thread::yield_now();
    }
}
