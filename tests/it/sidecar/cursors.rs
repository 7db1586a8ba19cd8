//! Cursors: paging through a feed returns every post once, and a cursor is valid only for the feed
//! and filters that issued it.

use serde_json::Value;

use super::skeleton::{PATH, feed, numbered, posts};
use crate::support::check::each;
use crate::support::sidecar::content::{PAGED, PAGED_FEED, item};
use crate::support::sidecar::expect::refused;
use crate::support::sidecar::stage::{Stage, encoded};

fn cursor(page: &Value) -> Option<&str> {
    page.get("cursor")
        .map(|cursor| cursor.as_str().expect("a cursor is text"))
}

/// Every page from the first to the one without a cursor.
fn walk(stage: &Stage, query: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let cursor_now = next
            .as_ref()
            .map(|cursor| format!("&cursor={}", encoded(cursor)));
        let page = stage.page(&format!("{query}{}", cursor_now.unwrap_or_default()));
        pages.push(posts(&page));
        let Some(cursor) = cursor(&page) else {
            return pages;
        };
        assert!(
            !posts(&page).is_empty(),
            "an empty page with a cursor: {page}"
        );
        assert_ne!(Some(cursor), next.as_deref(), "the same cursor back");
        assert!(pages.len() < 100, "it has no end");
        next = Some(cursor.to_owned());
    }
}

#[test]
fn paging_returns_every_post_once() {
    let stage = Stage::new();
    let all = numbered((1..=PAGED).rev());
    for (limit, pages) in [(1, 60), (7, 9), (20, 3), (59, 2), (60, 1), (100, 1)] {
        let seen = walk(&stage, &format!("{}&limit={limit}", feed(PAGED_FEED)));
        assert_eq!(
            seen.len(),
            pages,
            "limit={limit}: as few pages as there can be"
        );
        assert_eq!(
            seen.concat(),
            all,
            "limit={limit}: each post, once, in order"
        );
    }
    let wanted = |number: &u32| {
        let labelled = number.is_multiple_of(3) || number.is_multiple_of(5);
        labelled && number.is_multiple_of(2)
    };
    let narrow = numbered((1..=PAGED).rev().filter(wanted));
    let seen = walk(
        &stage,
        &format!("{}&limit=3&set=base1&labels=holo,rare", feed(PAGED_FEED)),
    );
    assert_eq!(seen.concat(), narrow, "the same with filters");
}

#[test]
fn inserted_and_deleted_posts_move_no_other() {
    let stage = Stage::new();
    let query = format!("{}&limit=20", feed(PAGED_FEED));
    let first = stage.page(&query);
    // a newer post is added, and the post that the cursor refers to is deleted
    stage.sql(&item(PAGED_FEED, PAGED + 1, "neo"));
    let last = posts(&first).last().cloned().unwrap_or_default();
    stage.sql(&format!("DELETE FROM feed_item WHERE post_uri = '{last}';"));
    let next = cursor(&first).map(encoded).unwrap_or_default();
    let second = stage.page(&format!("{query}&cursor={next}"));
    assert_eq!(
        posts(&second),
        numbered((21..=40).rev()),
        "it goes on where it was"
    );
    let again = stage.page(&query);
    assert_eq!(
        posts(&again)[0],
        numbered([PAGED + 1])[0],
        "what came is on the first page"
    );
}

#[test]
fn a_cursor_is_bound_to_feed_and_filters() {
    let stage = Stage::new();
    let long = feed(PAGED_FEED);
    let of = |query: &str| {
        let page = stage.page(&format!("{query}&limit=2"));
        encoded(cursor(&page).expect("there is more"))
    };
    let plain = of(&long);
    let set = of(&format!("{long}&set=base1"));
    let labels = of(&format!("{long}&labels=rare,holo"));
    let other = feed("showcase");
    let bad = [
        ("another feed", other.clone(), &plain),
        ("a set that it has not", format!("{long}&set=base1"), &plain),
        (
            "labels that it has not",
            format!("{long}&labels=rare"),
            &plain,
        ),
        ("no set", long.clone(), &set),
        ("another set", format!("{long}&set=neo"), &set),
        (
            "labels instead of a set",
            format!("{long}&labels=base1"),
            &set,
        ),
        ("fewer labels", format!("{long}&labels=rare"), &labels),
        ("labels in one", format!("{long}&labels=rareholo"), &labels),
    ];
    each(bad, |(what, query, cursor)| {
        let answer = stage.get(&format!("{PATH}?{query}&cursor={cursor}"));
        refused(&answer, "InvalidRequest", what);
    });
    let good = [
        ("another limit", format!("{long}&limit=5"), &plain),
        ("the set in capitals", format!("{long}&set=BASE1"), &set),
        (
            "labels in another order",
            format!("{long}&labels=HOLO&labels=rare,holo"),
            &labels,
        ),
    ];
    each(good, |(what, query, cursor)| {
        let page = stage.page(&format!("{query}&cursor={cursor}"));
        assert!(!posts(&page).is_empty(), "{what}");
    });
}

#[test]
fn a_malformed_cursor_is_an_invalid_request() {
    let stage = Stage::new();
    let long = feed(PAGED_FEED);
    let page = stage.page(&format!("{long}&limit=2"));
    let own = cursor(&page).expect("there is more");
    let bad = [
        ("a word", "next".to_owned()),
        ("null", "null".to_owned()),
        ("a number", "1788912000000".to_owned()),
        ("a time and a name", "1788912000000::bafy".to_owned()),
        ("one character", "A".to_owned()),
        ("half of it", own[..own.len() / 2].to_owned()),
        ("its end", own[4..].to_owned()),
        ("its beginning", own[..20].to_owned()),
        ("two characters", "AA".to_owned()),
        ("padding alone", "=".to_owned()),
        ("padding", format!("{own}=")),
        ("a space before it", format!(" {own}")),
        ("a line break behind it", format!("{own}\n")),
        ("it twice", format!("{own}{own}")),
        ("another version", format!("_{}", &own[1..])),
        ("another alphabet", format!("+/{}", &own[2..])),
        ("a longer one than there can be", "A".repeat(1_025)),
        ("a beast", "A".repeat(7_000)),
        ("no text", "\u{fffd}".to_owned()),
    ];
    each(bad, |(what, cursor)| {
        let answer = stage.get(&format!("{PATH}?{long}&cursor={}", encoded(&cursor)));
        let message = refused(&answer, "InvalidRequest", what);
        assert!(message.contains("cursor"), "{what}: {message}");
    });
    let raw = stage.get(&format!("{PATH}?{long}&cursor=%FF"));
    refused(&raw, "InvalidRequest", "bytes that are no text");
    let page = stage.page(&format!("{long}&limit=2&cursor="));
    assert_eq!(posts(&page).len(), 2, "an empty cursor counts as absent");
}
