//! `describeFeedGenerator` and `did.json`: the identity of the feed generator, and its feeds.

use serde_json::json;

use crate::support::sidecar::content::ALICE_DID;
use crate::support::sidecar::expect::{answered, refused};
use crate::support::sidecar::stage::{Stage, post};

const FEEDS: [&str; 7] = [
    "card-reviews",
    "collection-posts",
    "fresh-pulls",
    "journals",
    "showcase",
    "trade-listings",
    "whoto-follow",
];
const PATH: &str = "/functions/describeFeedGenerator";
const DID: &str = "/.well-known/did.json";

#[test]
fn the_description_matches_the_lexicon() {
    let stage = Stage::empty(&[]);
    let body = answered(&stage.get(PATH), 200, "the description");
    assert_eq!(
        body["did"], "did:web:cards.example",
        "the host of the base URL"
    );
    let mut names: Vec<&str> = body["feeds"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|feed| {
            assert_eq!(
                feed.as_object().map(serde_json::Map::len),
                Some(1),
                "an address: {feed}"
            );
            let uri = feed["uri"].as_str().unwrap_or_default();
            let name = uri.strip_prefix("at://did:web:cards.example/app.bsky.feed.generator/");
            name.unwrap_or_else(|| panic!("{uri} is no feed of ours"))
        })
        .collect();
    names.sort_unstable();
    assert_eq!(names, FEEDS, "the seven feeds");
    assert_eq!(
        body.as_object().map(serde_json::Map::len),
        Some(2),
        "no links: {body}"
    );
}

#[test]
fn publisher_and_links_are_the_configured_ones() {
    let publisher = format!("\"{ALICE_DID}\"");
    let stage = Stage::empty(&[
        ("sidecar.feeds.publisher_did", &*publisher),
        (
            "sidecar.feeds.privacy_policy",
            "\"https://cards.example/privacy\"",
        ),
        (
            "sidecar.feeds.terms_of_service",
            "\"https://cards.example/terms\"",
        ),
    ]);
    let body = answered(&stage.get(PATH), 200, "the description");
    assert_eq!(
        body["did"], "did:web:cards.example",
        "the service is still ours"
    );
    let first = body["feeds"][0]["uri"].as_str().unwrap_or_default();
    let own = format!("at://{ALICE_DID}/app.bsky.feed.generator/");
    assert!(first.starts_with(&own), "{first} is the publisher's record");
    let links = json!({
        "privacyPolicy": "https://cards.example/privacy",
        "termsOfService": "https://cards.example/terms",
    });
    assert_eq!(body["links"], links, "both");
    let one = [(
        "sidecar.feeds.terms_of_service",
        "\"https://cards.example/terms\"",
    )];
    let stage = Stage::empty(&one);
    let body = answered(&stage.get(PATH), 200, "the description");
    assert_eq!(
        body["links"],
        json!({ "termsOfService": "https://cards.example/terms" }),
        "one"
    );
}

#[test]
fn the_did_document_names_the_service() {
    let stage = Stage::empty(&[]);
    let document = answered(&stage.get(DID), 200, "the document");
    assert_eq!(
        document,
        json!({
            "@context": ["https://www.w3.org/ns/did/v1"],
            "id": "did:web:cards.example",
            "service": [{
                "id": "#bsky_fg",
                "type": "BskyFeedGenerator",
                "serviceEndpoint": "https://cards.example",
            }],
        }),
        "a resolver finds the endpoint"
    );
}

#[test]
fn a_foreign_did_has_no_document() {
    for did in [
        "did:web:feeds.example",
        ALICE_DID,
        "did:web:www.cards.example",
    ] {
        let stage = Stage::empty(&[("sidecar.feeds.service_did", &format!("\"{did}\""))]);
        refused(&stage.get(DID), "NotFound", did);
        let body = answered(&stage.get(PATH), 200, did);
        assert_eq!(body["did"], did, "the service is the configured one");
        let uri = body["feeds"][0]["uri"].as_str().unwrap_or_default();
        assert!(
            uri.starts_with(&format!("at://{did}/")),
            "which publishes, too: {uri}"
        );
    }
}

#[test]
fn a_description_needs_no_store() {
    let stage = Stage::empty(&[]);
    stage.sql("PRAGMA foreign_keys = OFF; DROP TABLE feed_item; DROP TABLE account;");
    answered(&stage.get(PATH), 200, "the description");
    answered(&stage.get(DID), 200, "the document");
    let posted = stage.ask(&post(PATH, "{}"));
    refused(&posted, "MethodNotAllowed", "it is only read");
}

#[test]
fn xrpc_clients_see_the_version() {
    let stage = Stage::empty(&[]);
    let body = answered(&stage.get("/xrpc/_health"), 200, "as the PDS does");
    assert_eq!(body, json!({ "version": env!("CARGO_PKG_VERSION") }));
    refused(
        &stage.ask(&post("/xrpc/_health", "{}")),
        "MethodNotAllowed",
        "it takes nothing",
    );
}
