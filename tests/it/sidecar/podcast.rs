//! `podcast-rss-feed`: the requested feed, and its published content. Feed readers check its
//! format.

use std::time::{Duration, Instant};

use crate::support::check::each;
use crate::support::client::PATIENCE;
use crate::support::response::Response;
use crate::support::sidecar::content::{
    ALICE_DID, DORA_DID, ERIN_DID, FRANK_DID, GINA_DID, episode,
};
use crate::support::sidecar::expect::{common, refused};
use crate::support::sidecar::stage::{BASE, Stage};
use crate::support::sidecar::token::seconds_from_now;

const PATH: &str = "/functions/podcast-rss-feed";

fn by(stage: &Stage, query: &str) -> Response {
    stage.get(&format!("{PATH}?{query}"))
}

/// The `max-age` of a response in seconds.
fn max_age(answer: &Response) -> i64 {
    let stated = answer.header("Cache-Control").unwrap_or_default();
    let age = stated.strip_prefix("public, max-age=").and_then(|rest| rest.split(',').next());
    age.and_then(|age| age.parse().ok()).unwrap_or_else(|| panic!("Cache-Control is {stated}"))
}

#[test]
fn a_feed_is_found_by_did_or_handle() {
    let stage = Stage::new();
    let by_did = by(&stage, &format!("did={ALICE_DID}"));
    common(&by_did, "by DID");
    assert_eq!(by_did.status, 200, "{}", by_did.text());
    let kind = by_did.header("Content-Type");
    assert_eq!(kind, Some("application/rss+xml; charset=utf-8"), "what it is");
    let own = by_did.header("Link").unwrap_or_default();
    let (link, relation) = own.split_once(';').unwrap_or_default();
    assert_eq!(relation.trim(), "rel=\"self\"", "{own}");
    assert!(link.starts_with(&format!("<{BASE}{PATH}?did=")), "the address that lasts: {own}");
    let same = [
        "handle=alice.cards.example".to_owned(),
        "handle=@alice.cards.example".to_owned(),
        "handle=%40ALICE.Cards.Example".to_owned(),
        "handle=&did=did%3Aplc%3Aaliceaaaaaaaaaaaaaaaaaaa".to_owned(),
        format!("did={ALICE_DID}&handle=alice.cards.example"),
        format!("handle=alice.cards.example&did={ALICE_DID}&x=1"),
    ];
    each(same, |query| {
        let answer = by(&stage, &query);
        assert_eq!(answer.text(), by_did.text(), "{query}: byte for byte");
        assert_eq!(answer.header("Link"), Some(own), "{query}: one address, whoever asks how");
        assert_eq!(answer.header("ETag"), by_did.header("ETag"), "{query}");
    });
}

#[test]
fn a_missing_or_contradicting_pair_is_invalid() {
    let stage = Stage::new();
    let queries = [
        String::new(),
        "did=&handle=".to_owned(),
        "x=1".to_owned(),
        format!("DID={ALICE_DID}"),
        format!("did={ALICE_DID}&handle=frank.cards.example"),
        format!("did={FRANK_DID}&handle=alice.cards.example"),
        format!("did={ALICE_DID}&did={FRANK_DID}"),
        "handle=alice.cards.example&handle=frank.cards.example".to_owned(),
    ];
    each(queries, |query| {
        refused(&by(&stage, &query), "InvalidRequest", &query);
    });
}

#[test]
fn a_creator_without_a_podcast_is_404() {
    let stage = Stage::new();
    let queries = [
        "did=did:plc:nobodyaaaaaaaaaaaaaaaaaa".to_owned(),
        "handle=nobody.cards.example".to_owned(),
        format!("did={FRANK_DID}"),
        "handle=frank.cards.example".to_owned(),
        "handle=@".to_owned(),
        "handle=@@alice.cards.example".to_owned(),
    ];
    each(queries, |query| {
        refused(&by(&stage, &query), "NotFound", &query);
    });
}

#[test]
fn what_was_taken_down_or_left_is_gone() {
    let stage = Stage::new();
    let queries = [
        format!("did={DORA_DID}"),
        "handle=dora.cards.example".to_owned(),
        format!("did={ERIN_DID}"),
        "handle=erin.cards.example".to_owned(),
        format!("did={GINA_DID}"),
        "handle=gina.cards.example".to_owned(),
    ];
    each(queries, |query| {
        refused(&by(&stage, &query), "Gone", &query);
    });
    stage.sql("UPDATE account SET status = 'active' WHERE handle = 'erin.cards.example';");
    let back = by(&stage, &format!("did={ERIN_DID}"));
    assert_eq!(back.status, 200, "who comes back is there again");
}

#[test]
fn caching_ends_with_the_next_episode() {
    let feed = format!("did={ALICE_DID}");
    let plain = by(&Stage::new(), &feed);
    assert_eq!(max_age(&plain), 300, "nothing is scheduled");
    let in_seconds = |seconds: i64| {
        let stage = Stage::new();
        stage.sql(&episode(ALICE_DID, 2, seconds_from_now(seconds) * 1_000_000));
        by(&stage, &feed)
    };
    let tomorrow = in_seconds(86_400);
    assert_eq!(max_age(&tomorrow), 300, "tomorrow is far away");
    assert_eq!(tomorrow.text(), plain.text(), "a scheduled episode is not listed");
    let soon = in_seconds(120);
    assert!((110..=120).contains(&max_age(&soon)), "two minutes at most: {}", max_age(&soon));
    assert_eq!(soon.text(), plain.text(), "nor is this one");
    let before = in_seconds(-1);
    assert_eq!(max_age(&before), 300, "nothing is scheduled any more");
    assert!(before.text().contains("Episode 2"), "what is published shows");
}

#[test]
fn what_is_not_public_does_not_show() {
    for visibility in ["members", "hidden", "draft"] {
        let stage = Stage::new();
        stage.sql(&format!("UPDATE episode SET visibility = '{visibility}';"));
        let answer = by(&stage, &format!("did={ALICE_DID}"));
        assert_eq!(answer.status, 200, "{visibility}: {}", answer.text());
        assert!(!answer.text().contains("Episode 1"), "{visibility}: {}", answer.text());
    }
}

#[test]
fn an_episode_appears_at_its_time() {
    let stage = Stage::new();
    stage.sql(&episode(ALICE_DID, 2, seconds_from_now(3) * 1_000_000));
    let deadline = Instant::now() + PATIENCE;
    let mut asked = Vec::new();
    while !asked.iter().any(|text: &String| text.contains("Episode 2")) {
        assert!(Instant::now() < deadline, "it never appears");
        assert!(stage.client().silent_for(Duration::from_millis(50)), "a moment goes by");
        asked.push(by(&stage, &format!("did={ALICE_DID}")).text().to_owned());
    }
    assert!(!asked[0].contains("Episode 2"), "it was not there before");
}
