//! Limits per client: requests per minute, and concurrent requests.

use super::skeleton::feed;
use crate::support::check::rate_limit;
use crate::support::request::Request;
use crate::support::sidecar::content::{ALICE, PAGED_FEED};
use crate::support::sidecar::event::{Event, NOBODY, SESSION, WEBHOOK, signed};
use crate::support::sidecar::expect::{common_with_quota, refused, refused_with_quota};
use crate::support::sidecar::stage::{Stage, post};
use crate::support::sidecar::token::Token;

const QUOTA: u32 = 12;

fn limited(more: &[(&str, &str)]) -> Stage {
    let quota = QUOTA.to_string();
    Stage::with(&[&[("sidecar.requests_per_minute", &*quota)], more].concat())
}

#[test]
fn only_calls_count_against_the_quota() {
    let stage = limited(&[]);
    let free = [
        Request::new("GET", "/healthz"),
        Request::new("OPTIONS", SESSION).with("Origin", "https://a.test"),
        Request::new("OPTIONS", "/functions/seo-robots"),
        Request::new("GET", "/functions/nothing"),
        Request::new("GET", "/xrpc/app.bsky.feed.getFeed"),
        Request::new("DELETE", SESSION).with("Content-Length", "0"),
        Request::new("GET", "/robots.txt"),
        Request::new("GET", "/.well-known/did.json"),
        Request::new("GET", "/xrpc/_health"),
    ];
    let skeleton = format!("/xrpc/app.bsky.feed.getFeedSkeleton?{}", feed(PAGED_FEED));
    let counted = [
        Request::new("GET", &skeleton),
        Request::new("GET", "/functions/getFeedSkeleton"),
        Request::new("GET", "/sitemap.xml"),
        Request::new("GET", "/functions/health-check?probe=live"),
        Request::new("GET", "/functions/describeFeedGenerator"),
        Request::new("GET", SESSION),
        Token::of(ALICE).post(SESSION),
        post(SESSION, "x".repeat(1_025)),
        Event::new("limits-1", NOBODY, "verified", 0).request(),
        post(WEBHOOK, "{}"),
        signed("{}").with("Content-Encoding", "gzip"),
        post(WEBHOOK, "x".repeat(16_385)),
    ];
    let left = |request: &Request| {
        let response = stage.ask(request);
        common_with_quota(&response, QUOTA, "any answer");
        (response.status, rate_limit(&response, "any answer").0)
    };
    for (number, request) in (1..).zip(&counted) {
        for free in &free {
            assert_eq!(
                left(free).1,
                QUOTA + 1 - number,
                "it does not count: {free:?}"
            );
        }
        let (status, left) = left(request);
        assert_ne!(status, 429, "within the quota: {request:?}");
        assert_eq!(left, QUOTA - number, "it counts: {request:?}");
    }
    for request in &counted {
        let name = "RateLimitExceeded";
        refused_with_quota(&stage.ask(request), name, QUOTA, "the quota is used up");
    }
    for free in &free {
        assert_ne!(
            left(free).0,
            429,
            "what does not count is not limited: {free:?}"
        );
    }
    let other = stage.ask(&counted[0].clone().with("X-Forwarded-For", "203.0.113.1"));
    assert_eq!(
        other.status, 200,
        "another client behind the proxy has a quota of its own"
    );
}

#[test]
fn exempt_callers_have_no_quota() {
    let more = [("sidecar.exempt", "[\"203.0.113.0/24\", \"2001:db8::7\"]")];
    let stage = limited(&more);
    let skeleton = format!("/xrpc/app.bsky.feed.getFeedSkeleton?{}", feed(PAGED_FEED));
    let request = Request::new("GET", &skeleton);
    for (client, passes) in [
        ("203.0.113.9", 20),
        ("2001:db8::8", QUOTA),
        // a neighbor in the same /64 used up the quota of both
        ("2001:db8::7", 20),
        ("203.0.114.1", QUOTA),
        // the client wrote the first hop itself
        ("203.0.113.9, 192.0.2.1", QUOTA),
    ] {
        let request = request.clone().with("X-Forwarded-For", client);
        let statuses = (0..20).map(|_| stage.ask(&request).status);
        let passed = statuses.filter(|status| *status == 200).count();
        assert_eq!(passed, passes as usize, "{client}");
    }
}

#[test]
fn an_untrusted_peer_can_not_name_itself_anew() {
    let stage = limited(&[("sidecar.trusted_proxies", "[]")]);
    let requested: Vec<u16> = (0..=QUOTA)
        .map(|number| {
            let client = format!("203.0.113.{number}");
            stage
                .get_with("/sitemap.xml", "X-Forwarded-For", &client)
                .status
        })
        .collect();
    assert_eq!(
        requested.iter().filter(|status| **status == 200).count(),
        12,
        "{requested:?}"
    );
    assert_eq!(requested.last(), Some(&429), "{requested:?}");
}

#[test]
fn too_many_in_flight_refuses_that_client_only() {
    let stage = Stage::with(&[("sidecar.max_in_flight_per_client", "2")]);
    let event = Event::new("limits-2", NOBODY, "verified", 0).request();
    let mut held: Vec<_> = (0..2)
        .map(|_| {
            let mut client = stage.client();
            client.send(event.clone().with("Expect", "100-continue").head());
            assert_eq!(client.response().status, 100, "its body is waited for");
            client
        })
        .collect();
    refused(
        &stage.get("/sitemap.xml"),
        "RateLimitExceeded",
        "two are in flight already",
    );
    assert_eq!(stage.get("/robots.txt").status, 200, "no crawler is banned");
    let other = stage.get_with("/sitemap.xml", "X-Forwarded-For", "203.0.113.1");
    assert_eq!(other.status, 200, "another client has places of its own");
    assert_eq!(stage.get("/healthz").status, 200, "liveness takes no place");
    for client in &mut held {
        client.send(event.body());
        refused(
            &client.response(),
            "UnknownSubject",
            "those in flight are answered",
        );
    }
    assert_eq!(
        stage.get("/sitemap.xml").status,
        200,
        "an answered one gives its place back"
    );
}
