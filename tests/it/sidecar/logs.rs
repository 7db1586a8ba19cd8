//! The request log: the function and the outcome, and nothing of the request's content.

use std::time::Instant;

use serde_json::json;

use super::skeleton::feed;
use crate::support::check::{each, request_id};
use crate::support::client::PATIENCE;
use crate::support::request::Request;
use crate::support::sidecar::content::{ALICE, ALICE_DID, PAGED_FEED};
use crate::support::sidecar::event::{Event, NOBODY, SESSION, WEBHOOK, sign, signed};
use crate::support::sidecar::stage::{SESSION_SECRET, Stage, WEBHOOK_SECRET, post};
use crate::support::sidecar::token::Token;

#[test]
fn each_request_is_logged_with_its_function() {
    let stage = Stage::new();
    let skeleton = format!("/xrpc/app.bsky.feed.getFeedSkeleton?{}", feed(PAGED_FEED));
    let get = |path: &str| Request::new("GET", path);
    let cases = [
        (
            "log-describe",
            "describeFeedGenerator",
            "answered",
            "",
            200,
            { get("/functions/describeFeedGenerator") },
        ),
        (
            "log-skeleton",
            "getFeedSkeleton",
            "answered",
            "",
            200,
            get(&skeleton),
        ),
        (
            "log-unknown-feed",
            "getFeedSkeleton",
            "refused",
            "unknown_feed",
            400,
            { get("/functions/getFeedSkeleton?feed=at://did:web:x.example/a.b.c/d") },
        ),
        ("log-podcast", "podcast-rss-feed", "answered", "", 200, {
            get(&format!("/functions/podcast-rss-feed?did={ALICE_DID}"))
        }),
        (
            "log-no-podcast",
            "podcast-rss-feed",
            "refused",
            "not_found",
            404,
            { get("/functions/podcast-rss-feed?handle=nobody.example") },
        ),
        (
            "log-sitemap",
            "seo-sitemap",
            "answered",
            "",
            200,
            get("/sitemap.xml"),
        ),
        (
            "log-robots",
            "seo-robots",
            "answered",
            "",
            200,
            get("/robots.txt"),
        ),
        ("log-health", "health-check", "answered", "", 200, {
            get("/functions/health-check?probe=live")
        }),
        (
            "log-did-document",
            "did.json",
            "answered",
            "",
            200,
            get("/.well-known/did.json"),
        ),
        (
            "log-session",
            "age-verification-session",
            "answered",
            "",
            201,
            { Token::of(ALICE).post(SESSION) },
        ),
        (
            "log-nobody",
            "age-verification-session",
            "refused",
            "unauthorized",
            401,
            get(SESSION),
        ),
        (
            "log-expired",
            "age-verification-session",
            "refused",
            "jwt_expired",
            401,
            { Token::of(ALICE).with("exp", json!(1)).get(SESSION) },
        ),
        (
            "log-webhook",
            "age-verifier-webhook",
            "refused",
            "bad_webhook_signature",
            401,
            { post(WEBHOOK, "{}") },
        ),
        (
            "log-nowhere",
            "",
            "refused",
            "not_found",
            404,
            get("/a-secret-path"),
        ),
        (
            "log-no-method",
            "",
            "refused",
            "unknown_method",
            501,
            get("/xrpc/a.secret.method"),
        ),
    ];
    each(cases, |(id, function, verdict, reason, status, request)| {
        let response = stage.ask(&request.with("X-Request-Id", id));
        assert_eq!(
            (request_id(&response), response.status),
            (id, status),
            "{id}"
        );
        let line = stage.edge.request_line(id);
        assert_eq!(line["surface"], "sidecar", "{id}: {line}");
        assert_eq!(line["method"], function, "{id}: {line}");
        assert_eq!(line["verdict"], verdict, "{id}: {line}");
        assert_eq!(line["reason"], reason, "{id}: {line}");
        assert_eq!(line["status"], status, "{id}: {line}");
        assert_eq!(
            line["bytes"],
            response.body.len(),
            "{id}: the bytes of the answer's body"
        );
        let own = stage
            .edge
            .lines()
            .iter()
            .filter(|line| line.contains(id))
            .count();
        assert_eq!(own, 1, "{id}: one line for one request");
    });
}

#[test]
fn neither_log_nor_metrics_repeat_client_text() {
    let stage = Stage::with(&[("log.level", "\"debug\"")]);
    let subject = stage.session(ALICE);
    let token = Token::of(ALICE).text();
    let event = Event::new("a-secret-event", &subject, "verified", 0);
    let born = event.clone().with("date_of_birth", "1990-12-31");
    let signature = sign(WEBHOOK_SECRET, event.body());
    let requests = [
        event.request(),
        born.request(),
        signed("{\"a-secret-word"),
        post(WEBHOOK, "a-secret-word").with("X-Service-Verifier-Signature", &signature),
        Token::of(ALICE).get(SESSION),
        Token::of(ALICE).on(post(SESSION, r#"{"email":"a-secret@mail.example"}"#)),
        Request::new("GET", SESSION).with("Authorization", "Bearer a-secret.b.c"),
        Request::new(
            "GET",
            &format!("/functions/getFeedSkeleton?{}&set=a-secret", feed("x")),
        ),
        Request::new("GET", "/functions/podcast-rss-feed?handle=a-secret.example"),
        Request::new("GET", "/functions/a-secret"),
        Request::new("GET", "/xrpc/a-secret.b.c?a-secret"),
        Request::new("A-SECRET", SESSION),
        Request::new("GET", "/robots.txt").with("Cookie", "session=a-secret"),
    ];
    for request in requests {
        stage.ask(&request);
    }
    stage.ask(&Request::new("GET", "/healthz").with("X-Request-Id", "the-last-one"));
    stage.edge.request_line("the-last-one");
    let log = stage.edge.lines().join("\n").to_lowercase();
    let metrics = stage.edge.admin_get("/metrics").text().to_lowercase();
    let (_, signed_part) = token.rsplit_once('.').unwrap_or_default();
    for word in [
        "a-secret",
        "1990-12-31",
        "mail.example",
        ALICE,
        &subject,
        &signature,
        &token.to_lowercase(),
        &signed_part.to_lowercase(),
        SESSION_SECRET,
        WEBHOOK_SECRET,
    ] {
        assert!(!log.contains(word), "the log repeats {word}: {log}");
        assert!(
            !metrics.contains(word),
            "the metrics repeat {word}: {metrics}"
        );
    }
}

#[test]
fn metric_labels_never_come_from_clients() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let event = Event::new("counted", &subject, "verified", 0);
    for request in [
        event.request(),
        event.request(),
        Event::new("older", &subject, "pending", -1).request(),
        Event::new("lost", NOBODY, "revoked", -1).request(),
        Request::new("GET", "/functions/noise").with("X-Forwarded-For", "203.0.113.9"),
        Request::new("GET", "/xrpc/noise.noise.noise"),
        Request::new("NOISE", SESSION),
        Request::new(
            "GET",
            &format!("/functions/getFeedSkeleton?{}", feed("noise")),
        ),
        Request::new("GET", "/functions/seo-sitemap?page=1"),
        Request::new("GET", "/functions/health-check"),
    ] {
        stage.ask(&request);
    }
    let expected = [
        r#"portcullis_sidecar_age_events_total{outcome="applied"} 1"#,
        r#"portcullis_sidecar_age_events_total{outcome="duplicate"} 1"#,
        r#"portcullis_sidecar_age_events_total{outcome="stale"} 1"#,
        r#"portcullis_sidecar_age_events_total{outcome="unknown"} 1"#,
        r#"portcullis_sidecar_calls_total{function="age-verifier-webhook"} 4"#,
        r#"portcullis_sidecar_calls_total{function="getFeedSkeleton"} 1"#,
        r#"portcullis_sidecar_calls_total{function="seo-sitemap"} 1"#,
        "portcullis_sidecar_request_duration_seconds_count 11",
    ];
    let deadline = Instant::now() + PATIENCE;
    let text = loop {
        let text = stage.edge.admin_get("/metrics").text().to_owned();
        if expected
            .iter()
            .all(|line| text.lines().any(|own| own == *line))
        {
            break text;
        }
        assert!(
            Instant::now() < deadline,
            "not all of {expected:?} is counted: {text}"
        );
    };
    let chosen = ["noise", "203.0"].iter().any(|word| text.contains(word));
    assert!(!chosen, "a client made a series: {text}");
}
