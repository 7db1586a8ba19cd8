//! Startup, reload and shutdown: secrets, disabled functions, and requests in flight.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use super::skeleton::{PATH, feed};
use crate::admin::eventually;
use crate::stop::wait_until_closed;
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{AMPLE, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;
use crate::support::sidecar::content::PAGED_FEED;
use crate::support::sidecar::event::{Event, NOBODY};
use crate::support::sidecar::expect::{common_with_quota, refused, refused_with_quota};
use crate::support::sidecar::stage::{SESSION_SECRET, Stage, WEBHOOK_SECRET, setup};

impl Stage {
    /// Writes another configuration, and waits until the change of this key is applied.
    pub(super) fn reload(&self, key: &str, setup: &Setup) {
        let stated = || {
            let lines = self.edge.lines();
            lines
                .iter()
                .filter(|line| line.contains(key))
                .cloned()
                .collect::<Vec<_>>()
        };
        let before = stated().len();
        self.edge.rewrite(setup);
        self.edge.signal("HUP");
        let deadline = Instant::now() + PATIENCE;
        while stated().len() == before {
            assert!(Instant::now() < deadline, "{key}: not applied");
            std::thread::yield_now();
        }
        let line = stated().pop().unwrap_or_default();
        assert!(
            line.contains("\"now\""),
            "{key} changes without a restart: {line}"
        );
    }
}

/// Asserts that `serve` exits with 2 and `check` with 1, that both name the cause, and that neither
/// prints a secret.
fn assert_refused(setup: &Setup, named: &str, why: &str) {
    for (subcommand, code) in [("serve", 2), ("check", 1)] {
        let output = setup.run(subcommand);
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{why}: {subcommand} says {said}"
        );
        assert!(said.contains(named), "{why}: {named} is named: {said}");
        for secret in [SESSION_SECRET, WEBHOOK_SECRET, "too-short-a-secret"] {
            assert!(!said.contains(secret), "{why}: {secret} is printed: {said}");
        }
    }
}

#[test]
fn a_readable_or_invalid_secret_stops_startup() {
    let name = "operator.token";
    for file in ["session.secret", "webhook.secret", name] {
        let folder = Folder::new();
        let token = folder.secret(name, "the-token-of-the-operator-0123456789abcdef");
        let quoted = format!("\"{token}\"");
        let setup = setup(&folder, &[("sidecar.operator_token_file", &quoted)]);
        let right = setup.run("check");
        assert_eq!(right.status.code(), Some(0), "{right:?}");
        for mode in [0o640, 0o604, 0o660] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.file(file), permissions).unwrap();
            assert_refused(&setup, file, &format!("{file} of mode {mode:o}"));
        }
        std::fs::remove_file(folder.file(file)).unwrap();
        assert_refused(&setup, file, "a file that is not there");
        for text in ["", "too-short-a-secret"] {
            folder.secret(file, text);
            assert_refused(&setup, file, &format!("{file} holds {text:?}"));
        }
    }
}

#[test]
fn a_sidecar_that_is_left_out_is_off() {
    let node = Node::start(good);
    let edge = Setup::before(node.address()).start();
    let lines = edge.lines();
    let silent = !lines.iter().any(|line| line.contains("\"sidecar\""));
    assert!(silent, "it listens nowhere: {lines:?}");
    let path = format!("{PATH}?{}", feed(PAGED_FEED));
    for path in [
        &*path,
        "/robots.txt",
        "/functions/seo-robots",
        "/.well-known/did.json",
    ] {
        let answer = edge.ask(&Request::new("GET", path));
        assert_eq!(answer.status, 404, "{path} is nothing of the gateway's");
    }
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the gateway needs no sidecar"
    );
}

#[test]
fn sidecar_and_gateway_answer_for_themselves() {
    let node = Node::start(good);
    let folder = Folder::new();
    let second = setup(&folder, &[("gateway.listen", "\"127.0.0.1:0\"")]);
    let second = second.set("node.url", &format!("\"http://{}/rpc\"", node.address()));
    let edge = second.start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the gateway"
    );
    let mut sidecar = Client::connect(edge.sidecar());
    refused(
        &sidecar.ask(&Request::post(QUESTION)),
        "NotFound",
        "a question to the sidecar",
    );
    eventually(&edge, "each counts its own requests", |now| {
        let refused = r#"portcullis_sidecar_requests_total{reason="not_found",verdict="refused"}"#;
        let answered = r#"portcullis_requests_total{reason="none",verdict="answered"}"#;
        now.get(refused) == Some(&1.0) && now.get(answered) == Some(&1.0)
    });
}

#[test]
fn sighup_changes_limits_unless_mistaken() {
    let stage = Stage::empty(&[]);
    let mut client = stage.client();
    common_with_quota(
        &client.ask(&Request::new("GET", "/robots.txt")),
        AMPLE,
        "at first",
    );
    let key = "sidecar.requests_per_minute";
    let lower = stage.setup.clone().set(key, "7000");
    stage.reload(key, &lower);
    let answer = client.ask(&Request::new("GET", "/robots.txt"));
    common_with_quota(&answer, 7_000, "the same connection, the new quota");
    let short = stage.folder.secret("short.secret", "too-short-a-secret");
    let files = format!("[\"{short}\"]");
    let mistake = lower
        .set(key, "5000")
        .set("sidecar.age.webhook_secret_files", &files);
    stage.edge.rewrite(&mistake);
    stage.edge.signal("HUP");
    stage.edge.line("the mistake", |line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.contains("reload failed") && message.contains("short.secret")
    });
    let answer = client.ask(&Request::new("GET", "/robots.txt"));
    common_with_quota(&answer, 7_000, "what was in force still is");
    let event = Event::new("reload", NOBODY, "verified", 0).request();
    refused_with_quota(
        &client.ask(&event),
        "UnknownSubject",
        7_000,
        "and so is the old secret",
    );
}

#[test]
fn another_base_url_is_everybody_s_at_once() {
    let stage = Stage::new();
    let key = "sidecar.base_url";
    stage.reload(
        key,
        &stage.setup.clone().set(key, "\"https://moved.example\""),
    );
    for path in ["/robots.txt", "/sitemap.xml", "/.well-known/did.json"] {
        let text = stage.get(path).text().to_owned();
        assert!(text.contains("moved.example"), "{path}: {text}");
    }
    let home = "<loc>https://cards.example/</loc>";
    assert!(
        !stage.get("/sitemap.xml").text().contains(home),
        "home has moved, too"
    );
}

#[test]
fn draining_answers_in_flight_and_refuses_new() {
    let mut stage = Stage::empty(&[]);
    let event = Event::new("drain", NOBODY, "verified", 0).request();
    let mut early = stage.client();
    early.send(event.clone().with("Expect", "100-continue").head());
    assert_eq!(early.response().status, 100, "it is in flight");
    let mut late = stage.client();
    late.send(&event.head()[..20]);
    let robots = Request::new("GET", "/functions/seo-robots").bytes();
    let mut crawler = stage.client();
    crawler.send(&robots[..20]);
    // connections are accepted in turn
    assert_eq!(stage.get("/robots.txt").status, 200);
    stage.edge.signal("TERM");
    wait_until_closed(stage.edge.sidecar());
    crawler.send(&robots[20..]);
    assert_eq!(
        crawler.response().status,
        200,
        "a crawler would take an error for a whole site forbidden"
    );
    late.send(&event.bytes()[20..]);
    refused(
        &late.response(),
        "NotEnoughResources",
        "a request that came after the signal",
    );
    late.ends("its connection is over");
    assert!(stage.edge.runs(), "something is in flight");
    early.send(event.body());
    refused(
        &early.response(),
        "UnknownSubject",
        "what was in flight is answered",
    );
    early.ends("its connection is over");
    assert_eq!(stage.edge.wait().code(), Some(0), "a stop is no failure");
}
