//! Response headers: how long a response may be cached and by whom, and which origins may read it.

use super::skeleton::feed;
use crate::support::check::{each, request_id};
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::sidecar::content::{ALICE, ALICE_DID, PAGED_FEED};
use crate::support::sidecar::event::{SESSION, WEBHOOK, signed};
use crate::support::sidecar::expect::{common, refused};
use crate::support::sidecar::stage::{Stage, post};
use crate::support::sidecar::token::Token;

const ORIGIN: &str = "https://www.cards.example";

/// Accepted and refused requests of browsers: all except webhooks.
fn of_pages() -> Vec<(String, Request)> {
    let paths = [
        "/functions/describeFeedGenerator".to_owned(),
        format!("/functions/getFeedSkeleton?{}", feed(PAGED_FEED)),
        format!("/xrpc/app.bsky.feed.getFeedSkeleton?{}", feed(PAGED_FEED)),
        format!("/functions/getFeedSkeleton?{}", feed("whoto-follow")),
        "/functions/getFeedSkeleton".to_owned(),
        format!("/functions/podcast-rss-feed?did={ALICE_DID}"),
        "/functions/podcast-rss-feed".to_owned(),
        "/functions/seo-sitemap".to_owned(),
        "/functions/seo-sitemap?page=none".to_owned(),
        "/functions/seo-robots".to_owned(),
        "/functions/health-check?probe=live".to_owned(),
        "/.well-known/did.json".to_owned(),
        SESSION.to_owned(),
    ];
    let mut requests: Vec<_> = paths
        .map(|path| (path.clone(), Request::new("GET", &path)))
        .into_iter()
        .collect();
    requests.push(("a status".to_owned(), Token::of(ALICE).get(SESSION)));
    requests.push(("a session".to_owned(), Token::of(ALICE).post(SESSION)));
    requests.push((
        "a bad session".to_owned(),
        Token::of(ALICE).on(post(SESSION, "[]")),
    ));
    requests.push((
        "PUT".to_owned(),
        Request::new("PUT", SESSION).with("Content-Length", "0"),
    ));
    requests
}

#[test]
fn every_answer_has_a_cache_lifetime() {
    let stage = Stage::new();
    let skeleton = "public, max-age=30, s-maxage=30, stale-while-revalidate=60";
    let podcast = format!("/functions/podcast-rss-feed?did={ALICE_DID}");
    let paged = format!("/functions/getFeedSkeleton?{}", feed(PAGED_FEED));
    let cases = [
        ("/healthz", "no-store"),
        ("/functions/describeFeedGenerator", "public, max-age=3600"),
        (&paged, skeleton),
        (&podcast, "public, max-age=300, stale-if-error=86400"),
        ("/functions/seo-sitemap", "public, max-age=3600"),
        ("/functions/seo-sitemap?page=1", "public, max-age=3600"),
        ("/functions/seo-robots", "public, max-age=3600"),
        ("/functions/health-check", "no-store"),
        ("/functions/health-check?probe=live", "no-store"),
        ("/functions/nothing", "no-store"),
        ("/functions/getFeedSkeleton", "no-store"),
        ("/functions/seo-sitemap?page=9", "no-store"),
        (SESSION, "no-store"),
        (WEBHOOK, "no-store"),
    ];
    each(cases, |(path, expected)| {
        let answer = stage.get(path);
        assert_eq!(
            answer.header("Cache-Control"),
            Some(expected),
            "{path}: {}",
            answer.status
        );
    });
    let of_alice = Token::of(ALICE);
    for request in [of_alice.get(SESSION), of_alice.post(SESSION)] {
        let answer = stage.ask(&request);
        assert_eq!(
            answer.header("Cache-Control"),
            Some("no-store"),
            "{}",
            answer.status
        );
    }
}

#[test]
fn request_ids_are_echoed_or_minted() {
    let stage = Stage::new();
    each(of_pages(), |(what, request)| {
        let answer = stage.ask(&request.clone().with("X-Request-Id", "a-clients-own-id-42"));
        assert_eq!(request_id(&answer), "a-clients-own-id-42", "{what}");
        common(&answer, &what);
    });
    for none in [
        "short",
        "with spaces in it",
        "under_score_under_score",
        &"a".repeat(65),
        "",
    ] {
        let request = Request::new("GET", "/robots.txt").with("X-Request-Id", none);
        let answer = stage.ask(&request);
        common(&answer, none);
        assert_ne!(request_id(&answer), none, "{none:?} is not valid");
    }
    let made = |_| request_id(&stage.get("/robots.txt")).to_owned();
    let [first, second] = [0, 1].map(made);
    assert_ne!(first, second, "each request has its own");
    let answer = stage.ask(&signed("{}").with("X-Request-Id", "the-verifiers-own-id"));
    assert_eq!(request_id(&answer), "the-verifiers-own-id", "a webhook");
}

fn assert_open_to_pages(answer: &Response, why: &str) {
    assert_eq!(
        answer.header("Access-Control-Allow-Origin"),
        Some("*"),
        "{why}: any page"
    );
    let credentials = answer.header("Access-Control-Allow-Credentials");
    assert_eq!(credentials, None, "{why}: but never with cookies");
}

#[test]
fn any_origin_may_read_all_but_webhooks() {
    let stage = Stage::new();
    each(of_pages(), |(what, request)| {
        let answer = stage.ask(&request.clone().with("Origin", ORIGIN));
        assert_open_to_pages(&answer, &what);
        let exposed = answer
            .header("Access-Control-Expose-Headers")
            .unwrap_or_default();
        for name in [
            "RateLimit",
            "RateLimit-Policy",
            "Retry-After",
            "X-Request-Id",
        ] {
            let stated = exposed
                .split(", ")
                .any(|own| own.eq_ignore_ascii_case(name));
            assert!(stated, "{what}: {name} in {exposed}");
        }
    });
    for request in [
        signed("{}"),
        post(WEBHOOK, "{}"),
        Request::new("GET", WEBHOOK),
        Request::new("OPTIONS", WEBHOOK),
    ] {
        let answer = stage.ask(&request.with("Origin", ORIGIN));
        let cors: Vec<_> = answer
            .headers
            .iter()
            .filter(|(name, _)| name.to_lowercase().starts_with("access-control"))
            .collect();
        assert!(cors.is_empty(), "a webhook is no page's business: {cors:?}");
    }
}

#[test]
fn cacheable_answers_allow_every_origin() {
    let stage = Stage::new();
    for path in [
        "/robots.txt",
        "/sitemap.xml",
        "/functions/describeFeedGenerator",
    ] {
        let answer = stage.get(path);
        assert_open_to_pages(&answer, path);
        let cached = answer.header("Cache-Control").unwrap_or_default();
        assert!(cached.starts_with("public"), "{path}: {cached}");
    }
}

#[test]
fn a_preflight_tells_what_a_page_may_send() {
    let stage = Stage::empty(&[]);
    let cases = [
        (
            "/functions/describeFeedGenerator",
            ["GET", "HEAD"].as_slice(),
        ),
        ("/xrpc/app.bsky.feed.getFeedSkeleton", &["GET", "HEAD"]),
        ("/functions/podcast-rss-feed", &["GET", "HEAD"]),
        ("/functions/health-check", &["GET", "HEAD"]),
        (SESSION, &["GET", "HEAD", "POST"]),
    ];
    each(cases, |(path, methods)| {
        let bare = Request::new("OPTIONS", path);
        let requested = bare.clone().with("Origin", ORIGIN);
        assert_eq!(stage.ask(&bare).status, 204, "{path}: of no page");
        for request in [
            requested.clone(),
            requested.with("Access-Control-Request-Method", "GET"),
        ] {
            let answer = stage.ask(&request);
            common(&answer, path);
            assert_eq!(answer.status, 204, "{path}");
            assert_open_to_pages(&answer, path);
            assert_eq!(
                answer.header("Access-Control-Max-Age"),
                Some("86400"),
                "{path}: a day"
            );
            let allowed = answer
                .header("Access-Control-Allow-Methods")
                .unwrap_or_default();
            let allows = |method: &&str| allowed.split(", ").any(|own| own == *method);
            assert!(
                methods.iter().all(allows),
                "{path}: {methods:?} in {allowed}"
            );
            let headers = answer.header("Access-Control-Allow-Headers");
            let expected = "Authorization, *, X-Client-Info, Apikey, Content-Type, Traceparent, \
                            X-Request-Id";
            assert_eq!(headers, Some(expected), "{path}");
        }
    });
    let webhook = stage.ask(&Request::new("OPTIONS", WEBHOOK).with("Origin", ORIGIN));
    refused(&webhook, "MethodNotAllowed", "a preflight of the webhook");
}
