//! Each path with the statuses that the other tests produce on one of its aliases only; `documents`
//! checks every response.

use serde_json::json;

use super::skeleton::feed;
use crate::stop::wait_until_closed;
use crate::support::request::Request;
use crate::support::sidecar::content::ALICE;
use crate::support::sidecar::event::{Event, SESSION, WEBHOOK};
use crate::support::sidecar::stage::{Stage, post};
use crate::support::sidecar::token::Token;

const SKELETON: &str = "/xrpc/app.bsky.feed.getFeedSkeleton";

/// Every path that accepts GET, without the liveness probe.
const READ: [&str; 13] = [
    "/functions/describeFeedGenerator",
    "/functions/getFeedSkeleton",
    "/functions/podcast-rss-feed",
    "/functions/seo-sitemap",
    "/functions/seo-robots",
    "/functions/health-check",
    SESSION,
    "/xrpc/app.bsky.feed.describeFeedGenerator",
    SKELETON,
    "/xrpc/_health",
    "/.well-known/did.json",
    "/robots.txt",
    "/sitemap.xml",
];
/// Those that do not count towards the rate limit.
const UNCOUNTED: [&str; 4] = [
    "/functions/seo-robots",
    "/xrpc/_health",
    "/.well-known/did.json",
    "/robots.txt",
];

#[test]
fn each_path_enforces_the_rate_limit() {
    let stage = Stage::empty(&[("sidecar.requests_per_minute", "1")]);
    let counted = READ.into_iter().filter(|path| !UNCOUNTED.contains(path));
    let reads = counted.map(|path| Request::new("GET", path));
    let writes = [post(SESSION, "{}"), post(WEBHOOK, "{}")];
    for (at, request) in reads.chain(writes).enumerate() {
        let request = request.with("X-Forwarded-For", &format!("192.0.2.{at}"));
        stage.ask(&request);
        let again = stage.ask(&request);
        assert_eq!(again.status, 429, "{request:?}: {}", again.text());
    }
}

#[test]
fn only_crawler_paths_are_served_while_draining() {
    let mut stage = Stage::empty(&[]);
    let event = Event::new("walk", "0".repeat(48).as_str(), "verified", 0).request();
    let mut early = stage.client();
    early.send(event.clone().with("Expect", "100-continue").head());
    assert_eq!(early.response().status, 100, "it is in flight");
    let halfway = READ.map(|path| {
        let (request, mut client) = (Request::new("GET", path).bytes(), stage.client());
        client.send(&request[..request.len() - 2]);
        (path, request, client)
    });
    // connections are accepted in turn
    assert_eq!(stage.get("/robots.txt").status, 200);
    stage.edge.signal("TERM");
    wait_until_closed(stage.edge.sidecar());
    for (path, request, mut client) in halfway {
        let crawled = ["/functions/seo-robots", "/robots.txt"].contains(&path);
        let expected = if crawled { 200 } else { 503 };
        client.send(&request[request.len() - 2..]);
        assert_eq!(client.response().status, expected, "{path}");
    }
    early.send(event.body());
    assert_eq!(
        early.response().status,
        404,
        "what was in flight is answered"
    );
    assert_eq!(stage.edge.wait().code(), Some(0), "a stop is no failure");
}

#[test]
fn an_alias_refuses_as_its_function_does() {
    let stage = Stage::new();
    assert_eq!(
        stage.get("/sitemap.xml?page=0").status,
        400,
        "there is no such page"
    );
    let personal = format!("{SKELETON}?{}", feed("whoto-follow"));
    assert_eq!(stage.get(&personal).status, 401, "nobody is signed in");
    let anonymous = Token::of(ALICE)
        .with("is_anonymous", json!(true))
        .get(&personal);
    assert_eq!(
        stage.ask(&anonymous).status,
        403,
        "an anonymous user follows nobody"
    );
}
