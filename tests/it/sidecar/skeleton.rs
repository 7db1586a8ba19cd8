//! `getFeedSkeleton`: each parameter with valid and invalid values.

use serde_json::Value;

use crate::support::check::each;
use crate::support::sidecar::content::{
    ALICE_DID, EMPTY_FEED, MODERATED_FEED, PAGED, PAGED_FEED, post,
};
use crate::support::sidecar::expect::{answered, refused};
use crate::support::sidecar::stage::{Stage, encoded};

/// The DID of the feeds' publisher.
pub(super) const SERVICE: &str = "did:web:cards.example";
pub(super) const PATH: &str = "/functions/getFeedSkeleton";

/// The `feed` parameter for a published feed.
pub(super) fn feed(name: &str) -> String {
    format!("feed=at://{SERVICE}/app.bsky.feed.generator/{name}")
}

/// The posts of a page.
pub(super) fn posts(page: &Value) -> Vec<String> {
    let items = page["feed"].as_array().expect("a page has a feed");
    items
        .iter()
        .map(|item| item["post"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Posts by their numbers.
pub(super) fn numbered(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(post).collect()
}

impl Stage {
    pub(super) fn page(&self, query: &str) -> Value {
        answered(&self.get(&format!("{PATH}?{query}")), 200, query)
    }
}

/// The post numbers of the long feed that match, newest first.
fn descending(wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
    (1..=PAGED).rev().filter(move |number| wanted(*number))
}

#[test]
fn a_page_is_newest_first_with_cursor() {
    let stage = Stage::new();
    let page = stage.page(&feed(PAGED_FEED));
    assert_eq!(
        posts(&page),
        numbered(descending(|number| number > PAGED - 50)),
        "50 by default"
    );
    assert!(page["cursor"].is_string(), "there is more: {page}");
    let item = page["feed"][0].as_object().expect("an item is an object");
    assert_eq!(
        item.len(),
        1,
        "an item of a public feed is a post: {item:?}"
    );
    assert_eq!(
        page.as_object().map(serde_json::Map::len),
        Some(2),
        "no more members: {page}"
    );
    let empty = stage.page(&feed(EMPTY_FEED));
    assert_eq!(
        empty,
        serde_json::json!({ "feed": [] }),
        "no cursor where there is no more"
    );
}

#[test]
fn what_moderators_hid_never_shows() {
    let stage = Stage::new();
    let page = stage.page(&feed(MODERATED_FEED));
    assert_eq!(posts(&page), numbered([104, 101]), "neither 102 nor 103");
    let all = Stage::with(&[("sidecar.feeds.blocked_labels", "[\"spam\"]")]);
    let page = all.page(&feed(MODERATED_FEED));
    assert_eq!(
        posts(&page),
        numbered([104, 102, 101]),
        "where its label is not blocked"
    );
}

#[test]
fn a_feed_has_publisher_and_service_uris() {
    let publisher = ("sidecar.feeds.publisher_did", &*format!("\"{ALICE_DID}\""));
    let stage = Stage::with(&[publisher]);
    let uri = |authority: &str| format!("at://{authority}/app.bsky.feed.generator/{PAGED_FEED}");
    for authority in [ALICE_DID, SERVICE] {
        for uri in [uri(authority), encoded(&uri(authority))] {
            let page = stage.page(&format!("feed={uri}&limit=1"));
            assert_eq!(posts(&page), numbered([PAGED]), "{uri}");
        }
    }
    let stranger = stage.get(&format!(
        "{PATH}?feed={}",
        uri("did:plc:frankaaaaaaaaaaaaaaaaaaa")
    ));
    refused(&stranger, "UnknownFeed", "a feed of somebody else");
}

#[test]
fn a_foreign_feed_is_unknown() {
    let stage = Stage::empty(&[]);
    let uris = [
        format!("at://{SERVICE}/app.bsky.feed.generator/other"),
        format!("at://{SERVICE}/app.bsky.feed.generator/Collection-Posts"),
        format!("at://{SERVICE}/app.bsky.feed.generator/whoto_follow"),
        format!("at://{SERVICE}/app.bsky.feed.post/{PAGED_FEED}"),
        format!("at://did:web:other.example/app.bsky.feed.generator/{PAGED_FEED}"),
        format!("at://{ALICE_DID}/app.bsky.feed.generator/{PAGED_FEED}"),
    ];
    each(uris, |uri| {
        refused(
            &stage.get(&format!("{PATH}?feed={uri}")),
            "UnknownFeed",
            &uri,
        );
    });
}

#[test]
fn a_feed_must_be_an_at_uri() {
    let stage = Stage::empty(&[]);
    let path = format!("app.bsky.feed.generator/{PAGED_FEED}");
    let uris = [
        String::new(),
        PAGED_FEED.to_owned(),
        "at://".to_owned(),
        format!("at://{SERVICE}"),
        format!("at://{SERVICE}/app.bsky.feed.generator"),
        format!("at://{SERVICE}/app.bsky.feed.generator/"),
        format!("at://{SERVICE}/{path}/"),
        format!("at://{SERVICE}/{path}/x"),
        format!("at:///{path}"),
        format!("at:{SERVICE}/{path}"),
        format!("https://{SERVICE}/{path}"),
        format!("AT://{SERVICE}/{path}"),
        format!("at://{SERVICE}/app.bsky.feed.generator/."),
        format!("at://{SERVICE}/app.bsky.feed.generator/.."),
        format!("at://{SERVICE}/app.bsky.feed.generator/a%20b"),
        format!("at://{SERVICE}/app.bsky.feed.generator/{}", "a".repeat(513)),
        format!("at://{SERVICE}/{path}%23x"),
        format!("at://{SERVICE}/{path}%3Fx"),
        format!("%20at://{SERVICE}/{path}"),
        format!("at://{SERVICE}/{path}%00"),
        format!("at://{SERVICE}/{path}%FF"),
    ];
    each(uris, |uri| {
        refused(
            &stage.get(&format!("{PATH}?feed={uri}")),
            "InvalidRequest",
            &uri,
        );
    });
    refused(&stage.get(PATH), "InvalidRequest", "no feed");
    refused(
        &stage.get(&format!("{PATH}?Feed=x")),
        "InvalidRequest",
        "names are exact",
    );
}

#[test]
fn the_limit_is_1_to_100() {
    let stage = Stage::new();
    let long = feed(PAGED_FEED);
    for (limit, count) in [
        ("1", 1),
        ("7", 7),
        ("59", 59),
        ("60", 60),
        ("100", 60),
        ("", 50),
    ] {
        let page = stage.page(&format!("{long}&limit={limit}"));
        assert_eq!(posts(&page).len(), count, "limit={limit}");
        assert_eq!(
            page["cursor"].is_string(),
            count < 60,
            "limit={limit}: is there more?"
        );
    }
    let bad = [
        "0",
        "101",
        "-1",
        "%2B5",
        "+5",
        "5.0",
        "1e1",
        "0x10",
        "5%20",
        "ten",
        "null",
        "99999999999999999999",
        "%D9%A3",
    ];
    each(bad, |limit| {
        let answer = stage.get(&format!("{PATH}?{long}&limit={limit}"));
        refused(&answer, "InvalidRequest", &format!("limit={limit}"));
    });
}

#[test]
fn a_set_filters_and_may_be_empty() {
    let stage = Stage::new();
    let long = format!("{}&limit=100", feed(PAGED_FEED));
    let even: Vec<String> = numbered(descending(|number| number % 2 == 0));
    for set in ["base1", "BASE1", "%20base1%20", "+Base1+", "b%61se1"] {
        assert_eq!(
            posts(&stage.page(&format!("{long}&set={set}"))),
            even,
            "set={set}"
        );
    }
    let all = posts(&stage.page(&format!("{long}&set=")));
    assert_eq!(all.len(), 60, "an empty set counts as absent");
    for set in ["base", "base12", "base1%25", "%25", "a".repeat(64).as_str()] {
        let page = stage.page(&format!("{long}&set={set}"));
        assert_eq!(page, serde_json::json!({ "feed": [] }), "set={set}");
    }
    let answer = stage.get(&format!("{PATH}?{long}&set={}", "a".repeat(65)));
    refused(&answer, "InvalidRequest", "65 characters");
}

#[test]
fn labels_are_any_of_those_that_are_given() {
    let stage = Stage::new();
    let long = format!("{}&limit=100", feed(PAGED_FEED));
    let rare = numbered(descending(|number| number % 3 == 0));
    let any = numbered(descending(|number| number % 3 == 0 || number % 5 == 0));
    let ten = (0..8)
        .map(|number| format!("none{number}"))
        .collect::<Vec<_>>()
        .join(",");
    let cases = [
        ("labels=rare".to_owned(), &rare),
        ("labels=RARE".to_owned(), &rare),
        ("labels=rare,rare&labels=Rare".to_owned(), &rare),
        ("labels=rare,unknown".to_owned(), &rare),
        ("labels=rare,holo".to_owned(), &any),
        ("labels=holo,rare".to_owned(), &any),
        ("labels=rare&labels=holo".to_owned(), &any),
        ("labels=rare%2Cholo".to_owned(), &any),
        ("labels=&labels=rare".to_owned(), &rare),
        (format!("labels={ten},rare,holo"), &any),
        (format!("labels=rare,{}", "a".repeat(128)), &rare),
    ];
    each(cases, |(labels, expected)| {
        assert_eq!(
            posts(&stage.page(&format!("{long}&{labels}"))),
            *expected,
            "{labels}"
        );
    });
    let both = posts(&stage.page(&format!("{long}&labels=rare&set=base1")));
    assert_eq!(
        both,
        numbered(descending(|number| number % 6 == 0)),
        "and the set"
    );
    for (what, labels) in [
        ("eleven labels", format!("labels={ten},rare,holo,graded")),
        (
            "eleven labels in two parts",
            format!("labels={ten}&labels=rare,holo,graded"),
        ),
        (
            "a label of 129 bytes",
            format!("labels={}", "a".repeat(129)),
        ),
    ] {
        refused(
            &stage.get(&format!("{PATH}?{long}&{labels}")),
            "InvalidRequest",
            what,
        );
    }
}

#[test]
fn a_parameter_but_labels_is_given_once() {
    let stage = Stage::new();
    let long = feed(PAGED_FEED);
    for query in [
        format!("{long}&{long}"),
        format!("{long}&feed="),
        format!("{long}&limit=5&limit=5"),
        format!("{long}&limit=5&limit=6"),
        format!("{long}&set=base1&set=base1"),
        format!("{long}&cursor=&cursor="),
        format!("{long}&limit=5&%6cimit=5"),
    ] {
        refused(
            &stage.get(&format!("{PATH}?{query}")),
            "InvalidRequest",
            &query,
        );
    }
}

#[test]
fn parameters_that_are_none_of_ours_are_ignored() {
    let stage = Stage::new();
    let plain = stage.page(&format!("{}&limit=3", feed(PAGED_FEED)));
    for more in [
        "x=1",
        "x=1&x=2",
        "x",
        "=",
        "&&",
        "Limit=0",
        "limit%20=0",
        "did=x",
        "utm=%FF",
    ] {
        let page = stage.page(&format!("{more}&{}&limit=3&{more}", feed(PAGED_FEED)));
        assert_eq!(page, plain, "{more}");
    }
}

#[test]
fn a_query_is_at_most_8_kib() {
    let stage = Stage::new();
    let query = format!("{}&limit=1&x=", feed(PAGED_FEED));
    let filled = |size: usize| format!("{query}{}", "a".repeat(size - query.len()));
    assert_eq!(posts(&stage.page(&filled(8_192))).len(), 1, "8,192 bytes");
    let answer = stage.get(&format!("{PATH}?{}", filled(8_193)));
    refused(&answer, "InvalidRequest", "8,193 bytes");
}
