//! Responses when the store is unavailable, and functions that do not need it.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, SqliteConnection};

use super::skeleton::{PATH, feed};
use crate::support::check::each;
use crate::support::request::Request;
use crate::support::sidecar::content::{ALICE, ALICE_DID, EMPTY_FEED, PAGED_FEED};
use crate::support::sidecar::event::{Event, SESSION};
use crate::support::sidecar::expect::{answered, common, refused};
use crate::support::sidecar::stage::Stage;
use crate::support::sidecar::token::Token;
use crate::support::sidecar::upstream::{Answer, Upstream};

/// Drops every table, which approximates an unavailable SQLite database.
fn lose_the_store(stage: &Stage) {
    let tables = [
        "feed_label",
        "feed_item",
        "moderation_label",
        "suggestion",
        "follow",
        "episode",
        "podcast",
        "account",
        "sitemap_url",
        "age_event",
        "age_session",
        "age_user",
    ];
    let drops = tables.map(|table| format!("DROP TABLE {table};"));
    stage.sql(&format!("PRAGMA foreign_keys = OFF; {}", drops.concat()));
}

#[test]
fn without_the_store_only_its_functions_fail() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    lose_the_store(&stage);
    let alice = Token::of(ALICE);
    let needing = [
        Request::new("GET", &format!("{PATH}?{}", feed(PAGED_FEED))),
        Request::new("GET", &format!("{PATH}?{}&labels=rare", feed(EMPTY_FEED))),
        alice.get(&format!("{PATH}?{}", feed("whoto-follow"))),
        Request::new(
            "GET",
            &format!("/functions/podcast-rss-feed?did={ALICE_DID}"),
        ),
        Request::new(
            "GET",
            "/functions/podcast-rss-feed?handle=alice.cards.example",
        ),
        Request::new("GET", "/functions/seo-sitemap"),
        Request::new("GET", "/functions/seo-sitemap?page=1"),
        Request::new("GET", "/sitemap.xml"),
        alice.get(SESSION),
        alice.post(SESSION),
        Event::new("lost", &subject, "verified", 0).request(),
    ];
    each(needing, |request| {
        let what = format!("{request:?}");
        let message = refused(&stage.ask(&request), "StoreUnavailable", &what);
        for word in ["table", "SQL", "sqlite", "store.db"] {
            assert!(
                !message.contains(word),
                "{what}: {word} is nobody's business: {message}"
            );
        }
    });
    for path in [
        "/robots.txt",
        "/functions/seo-robots",
        "/functions/describeFeedGenerator",
        "/.well-known/did.json",
        "/functions/health-check?probe=live",
        "/healthz",
    ] {
        let answer = stage.get(path);
        common(&answer, path);
        assert_eq!(
            answer.status,
            200,
            "{path} needs no store: {}",
            answer.text()
        );
    }
}

#[test]
fn a_migrated_store_fails_the_health_check() {
    let platform = Upstream::start(|_| Answer::Is("200 OK", String::new()));
    let url = format!("\"{}\"", platform.url("/"));
    let stage = Stage::empty(&[("sidecar.health.platform", &url)]);
    stage.sql("DELETE FROM _sqlx_migrations;");
    let answer = stage.get("/functions/health-check");
    let body = answered(&answer, 503, "no tables that we know");
    let database = &body["checks"]["database"][0];
    assert_eq!(database["status"], "fail", "{body}");
    assert_eq!(database["output"], "store_error", "{body}");
    assert_eq!(
        body["checks"]["platform"][0]["status"], "pass",
        "it alone fails: {body}"
    );
    let robots = stage.get("/robots.txt");
    assert_eq!(
        robots.status, 200,
        "robots get rules, never an error that forbids the site"
    );
}

#[test]
fn an_event_not_stored_is_not_acknowledged() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let event = Event::new("locked", &subject, "verified", 0);
    let url = format!("sqlite:{}", stage.folder.file("store.db"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut other = runtime.block_on(async {
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("BEGIN IMMEDIATE")
            .execute(&mut other)
            .await
            .unwrap();
        other
    });
    let start = Instant::now();
    refused(
        &stage.send(&event),
        "StoreUnavailable",
        "somebody else writes",
    );
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "the verifier does not wait"
    );
    let feed = stage.get(&format!("{PATH}?{}", feed(PAGED_FEED)));
    assert_eq!(
        feed.status,
        200,
        "who reads is not held up: {}",
        feed.text()
    );
    runtime.block_on(async {
        sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
        other.close().await.unwrap();
    });
    let body = answered(&stage.send(&event), 200, "sent again, as verifiers do");
    assert_eq!(
        body["status"], "applied",
        "nothing of it was stored before: {body}"
    );
}
