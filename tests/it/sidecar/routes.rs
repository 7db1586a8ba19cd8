//! Paths and methods: the known paths, the methods of each, and the aliases.

use super::skeleton::feed;
use crate::support::check::each;
use crate::support::request::Request;
use crate::support::sidecar::content::{ALICE, ALICE_DID, PAGED_FEED};
use crate::support::sidecar::event::{SESSION, WEBHOOK};
use crate::support::sidecar::expect::{
    anonymous, common, head_of_refusal, lasting_headers, refused,
};
use crate::support::sidecar::stage::{Stage, post};
use crate::support::sidecar::token::Token;

/// Paths that accept GET, with the query that they need to respond with 200.
fn readable() -> [(&'static str, String); 11] {
    let (skeleton, podcast) = (feed(PAGED_FEED), format!("did={ALICE_DID}"));
    [
        ("/functions/describeFeedGenerator", String::new()),
        ("/functions/getFeedSkeleton", skeleton.clone()),
        ("/functions/podcast-rss-feed", podcast),
        ("/functions/seo-sitemap", String::new()),
        ("/functions/seo-robots", String::new()),
        ("/functions/health-check", "probe=live".to_owned()),
        ("/xrpc/app.bsky.feed.describeFeedGenerator", String::new()),
        ("/xrpc/app.bsky.feed.getFeedSkeleton", skeleton),
        ("/.well-known/did.json", String::new()),
        ("/robots.txt", String::new()),
        ("/sitemap.xml", String::new()),
    ]
}

fn target(path: &str, query: &str) -> String {
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

#[test]
fn readable_paths_answer_get_head_and_options() {
    let stage = Stage::new();
    each(readable(), |(path, query)| {
        let target = target(path, &query);
        let got = stage.get(&target);
        common(&got, path);
        assert_eq!(got.status, 200, "GET {target}: {}", got.text());
        let head = stage.head(&Request::new("HEAD", &target), &target);
        common(&head, path);
        assert_eq!(head.status, 200, "HEAD {target}");
        let mut expected = lasting_headers(&got);
        if !lasting_headers(&head)
            .iter()
            .any(|(name, _)| name == "transfer-encoding")
        {
            // a response without a body is not chunked
            expected.retain(|(name, _)| name != "transfer-encoding");
        }
        assert_eq!(
            lasting_headers(&head),
            expected,
            "HEAD {target} is the head of GET"
        );
        let preflight = stage.ask(&Request::new("OPTIONS", &target));
        common(&preflight, path);
        assert_eq!(preflight.status, 204, "OPTIONS {target}");
    });
}

#[test]
fn liveness_has_a_word_and_nothing_else() {
    let stage = Stage::empty(&[]);
    let got = stage.get("/healthz");
    common(&got, "liveness");
    assert_eq!((got.status, got.text().trim_end()), (200, "ok"), "it lives");
    assert_eq!(
        stage.head(&Request::new("HEAD", "/"), "/healthz").status,
        200,
        "without words"
    );
    for method in ["POST", "OPTIONS", "PUT"] {
        let other = stage.ask(&Request::new(method, "/healthz").with("Content-Length", "0"));
        refused(&other, "MethodNotAllowed", method);
        assert_eq!(other.header("Allow"), Some("GET, HEAD"), "{method}");
    }
}

#[test]
fn another_method_gets_the_allowed_ones() {
    let stage = Stage::empty(&[]);
    let read = readable().map(|(path, _)| (path, vec!["GET", "HEAD", "OPTIONS"]));
    let age = [
        (SESSION, vec!["GET", "HEAD", "OPTIONS", "POST"]),
        (WEBHOOK, vec!["POST"]),
    ];
    each(read.into_iter().chain(age), |(path, own)| {
        let all = [
            "GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "get",
        ];
        for method in all.into_iter().filter(|method| !own.contains(method)) {
            let what = format!("{method} {path}");
            let request = Request::new(method, path).with("Content-Length", "0");
            let answer = if method == "HEAD" {
                let answer = stage.head(&request, path);
                head_of_refusal(&answer, "MethodNotAllowed", &what);
                answer
            } else {
                let answer = stage.ask(&request);
                refused(&answer, "MethodNotAllowed", &what);
                answer
            };
            let mut stated: Vec<&str> = answer
                .header("Allow")
                .unwrap_or_default()
                .split(", ")
                .collect();
            stated.sort_unstable();
            assert_eq!(stated, own, "{what}: Allow names what the path takes");
        }
    });
}

#[test]
fn unknown_paths_are_404_for_any_method() {
    let stage = Stage::empty(&[]);
    let paths = [
        "/",
        "/functions",
        "/functions/",
        "/functions/getFeedSkeleton/",
        "/functions/getfeedskeleton",
        "/functions/getFeedSkeleto",
        "/functions/getFeedSkeletons",
        "/functions/%67etFeedSkeleton",
        "/functions//getFeedSkeleton",
        "/functions/./getFeedSkeleton",
        "/functions/../robots.txt",
        "/functions/did.json",
        "/functions/age-verifier-webhook;x",
        "//functions/seo-robots",
        "/Functions/seo-robots",
        "/robots.txt/",
        "/ROBOTS.TXT",
        "/sitemap.xml.gz",
        "/.well-known/did.json/",
        "/.well-known/atproto-did",
        "/xrpc",
        "/xrpc?x=/xrpc/",
        "/XRPC/app.bsky.feed.getFeedSkeleton",
        "/healthz/",
        "/livez",
        "/readyz",
        "/metrics",
        "/rpc",
        "/favicon.ico",
        "*",
    ];
    for path in paths {
        for method in ["GET", "POST", "OPTIONS", "DELETE"] {
            let answer = stage.ask(&post(path, "{}").line(&format!("{method} {path} HTTP/1.1")));
            refused(&answer, "NotFound", &format!("{method} {path}"));
        }
        head_of_refusal(
            &stage.head(&Request::new("HEAD", path), path),
            "NotFound",
            path,
        );
    }
}

#[test]
fn an_unknown_xrpc_method_is_not_implemented() {
    let stage = Stage::empty(&[]);
    let paths = [
        "/xrpc/",
        "/xrpc/app.bsky.feed.getFeed",
        "/xrpc/app.bsky.feed.getfeedskeleton",
        "/xrpc/app.bsky.feed.getFeedSkeleton/",
        "/xrpc/app.bsky.feed.getFeedSkeleton/x",
        "/xrpc/getFeedSkeleton",
        "/xrpc/com.atproto.server.describeServer",
        "/xrpc/_Health",
        "/xrpc//app.bsky.feed.getFeedSkeleton",
        "/xrpc/app.bsky.feed%2EgetFeedSkeleton",
    ];
    for path in paths {
        for method in ["GET", "POST", "OPTIONS"] {
            let answer = stage.ask(&Request::new(method, path).with("Content-Length", "0"));
            refused(&answer, "MethodNotImplemented", &format!("{method} {path}"));
        }
    }
}

#[test]
fn an_alias_serves_the_same_bytes() {
    let stage = Stage::new();
    let long = feed(PAGED_FEED);
    let pairs = [
        (
            "describeFeedGenerator",
            "/xrpc/app.bsky.feed.describeFeedGenerator",
            String::new(),
        ),
        (
            "getFeedSkeleton",
            "/xrpc/app.bsky.feed.getFeedSkeleton",
            long.clone(),
        ),
        (
            "getFeedSkeleton",
            "/xrpc/app.bsky.feed.getFeedSkeleton",
            format!("{long}&limit=0"),
        ),
        (
            "getFeedSkeleton",
            "/xrpc/app.bsky.feed.getFeedSkeleton",
            String::new(),
        ),
        ("seo-robots", "/robots.txt", String::new()),
        ("seo-sitemap", "/sitemap.xml", String::new()),
        ("seo-sitemap", "/sitemap.xml", "page=1".to_owned()),
        ("seo-sitemap", "/sitemap.xml", "page=7".to_owned()),
    ];
    each(pairs, |(name, alias, query)| {
        let own = stage.get(&target(&format!("/functions/{name}"), &query));
        let other = stage.get(&target(alias, &query));
        assert_eq!(anonymous(&own), anonymous(&other), "{alias}?{query}");
    });
}

#[test]
fn head_refuses_as_get_does() {
    let stage = Stage::new();
    let cases = [
        ("/functions/getFeedSkeleton", "InvalidRequest"),
        ("/functions/podcast-rss-feed", "InvalidRequest"),
        (
            "/functions/podcast-rss-feed?handle=nobody.cards.example",
            "NotFound",
        ),
        ("/functions/seo-sitemap?page=9", "NotFound"),
        (SESSION, "AuthenticationRequired"),
    ];
    each(cases, |(path, name)| {
        let got = stage.get(path);
        refused(&got, name, path);
        let head = stage.head(&Request::new("HEAD", path), path);
        head_of_refusal(&head, name, path);
        assert_eq!(lasting_headers(&head), lasting_headers(&got), "HEAD {path}");
    });
    let token = Token::of(ALICE);
    let got = stage.ask(&token.get(SESSION));
    let head = stage.head(&token.get(SESSION), SESSION);
    assert_eq!(
        lasting_headers(&head),
        lasting_headers(&got),
        "HEAD of how a user stands"
    );
}

#[test]
fn the_query_begins_at_the_first_question_mark() {
    let stage = Stage::new();
    for path in [
        "/robots.txt?",
        "/robots.txt?x",
        "/robots.txt?a=b?c=d",
        "/functions/seo-robots?/",
    ] {
        assert_eq!(stage.get(path).status, 200, "{path} is robots.txt");
    }
}
