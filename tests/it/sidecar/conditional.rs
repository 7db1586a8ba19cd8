//! Conditional requests: a client that has the current document gets 304 and nothing else.

use std::time::{Duration, SystemTime};

use portcullis_edge::sidecar::document;

use crate::support::check::each;
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::sidecar::content::ALICE_DID;
use crate::support::sidecar::expect::{common, lasting_headers};
use crate::support::sidecar::stage::{Stage, encoded};

/// Documents with an `ETag`, and whether they have a `Last-Modified`.
fn documents() -> [(String, bool); 6] {
    [
        (
            format!("/functions/podcast-rss-feed?did={}", encoded(ALICE_DID)),
            true,
        ),
        ("/functions/seo-sitemap".to_owned(), false),
        ("/functions/seo-sitemap?page=1".to_owned(), false),
        ("/sitemap.xml".to_owned(), false),
        ("/functions/seo-robots".to_owned(), false),
        ("/robots.txt".to_owned(), false),
    ]
}

fn etag(response: &Response) -> String {
    response.header("ETag").unwrap_or_default().to_owned()
}

fn date(response: &Response, shift: i64) -> String {
    let stated = response.header("Last-Modified").unwrap_or_default();
    let stated = httpdate::parse_http_date(stated).expect("Last-Modified is a date");
    let shifted = match u64::try_from(shift) {
        Ok(later) => stated + Duration::from_secs(later),
        Err(_) => stated - Duration::from_secs(shift.unsigned_abs()),
    };
    httpdate::fmt_http_date(shifted)
}

/// Asserts a 304 without a body, with the headers of the 200 that a cache refreshes.
fn assert_unchanged(answer: &Response, whole: &Response, why: &str) {
    common(answer, why);
    assert_eq!(answer.status, 304, "{why}");
    assert!(answer.body.is_empty(), "{why}: no body");
    for name in ["ETag", "Last-Modified", "Cache-Control", "Vary", "Link"] {
        let (stated, known) = (answer.header(name), whole.header(name));
        assert!(
            stated == known || name == "Link" && stated.is_none(),
            "{why}: {name} is {stated:?}"
        );
    }
}

fn assert_whole(answer: &Response, whole: &Response, why: &str) {
    common(answer, why);
    assert_eq!(answer.status, 200, "{why}");
    assert_eq!(answer.body, whole.body, "{why}: the whole document");
    assert_eq!(
        lasting_headers(answer),
        lasting_headers(whole),
        "{why}: and its headers"
    );
}

#[test]
fn documents_have_strong_etags_and_content_dates() {
    let stage = Stage::new();
    each(documents(), |(path, dated)| {
        let whole = stage.get(&path);
        let tag = etag(&whole);
        let inner = tag
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        let hex = |own: char| own.is_ascii_hexdigit() && !own.is_ascii_uppercase();
        let strong = inner.is_some_and(|own| own.len() == 64 && own.chars().all(hex));
        assert!(strong, "{path}: {tag} is a strong tag");
        assert_eq!(etag(&stage.get(&path)), tag, "{path}: the same again");
        assert_eq!(whole.header("Last-Modified").is_some(), dated, "{path}");
        if dated {
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_788_912_000);
            assert_eq!(
                date(&whole, 0),
                httpdate::fmt_http_date(written),
                "{path}: of the data"
            );
        }
    });
}

#[test]
fn a_client_with_the_current_tag_gets_304() {
    let stage = Stage::new();
    each(documents(), |(path, _)| {
        let whole = stage.get(&path);
        let tag = etag(&whole);
        let same = [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            format!("{tag} , \"other\""),
            format!("W/\"other\",W/{tag}"),
            format!("\"a,b\" , W/\"c\",, {tag}"),
            " * ".to_owned(),
            "*".to_owned(),
        ];
        for value in same {
            let answer = stage.get_with(&path, "If-None-Match", &value);
            assert_unchanged(&answer, &whole, &format!("{path}: {value}"));
        }
        let lines = Request::new("GET", &path).with("If-None-Match", "\"other\"");
        let answer = stage.ask(&lines.with("If-None-Match", &tag));
        assert_unchanged(&answer, &whole, &format!("{path}: two lines are one list"));
        let others = [
            "\"other\"",
            "W/\"other\"",
            tag.trim_matches('"'),
            &tag[..tag.len() - 1],
            "*, \"a\"",
            &tag.replacen('"', "\"x", 1),
            &tag.to_uppercase(),
            "\"*\"",
            "",
        ];
        for value in others {
            let answer = stage.get_with(&path, "If-None-Match", value);
            assert_whole(&answer, &whole, &format!("{path}: {value}"));
        }
    });
}

#[test]
fn a_date_counts_where_no_tag_is_given() {
    let stage = Stage::new();
    each(
        documents().into_iter().filter(|(_, dated)| *dated),
        |(path, _)| {
            let whole = stage.get(&path);
            for later in [0, 1, 86_400] {
                let answer = stage.get_with(&path, "If-Modified-Since", &date(&whole, later));
                assert_unchanged(&answer, &whole, &format!("{path}: {later} s later"));
            }
            // the same instant in the formats of RFC 850 and asctime
            for since in [
                "Wednesday, 09-Sep-26 00:00:00 GMT",
                "Wed Sep  9 00:00:00 2026",
            ] {
                let answer = stage.get_with(&path, "If-Modified-Since", since);
                assert_unchanged(&answer, &whole, &format!("{path}: {since}"));
            }
            let earlier = date(&whole, -1);
            for since in [
                earlier.as_str(),
                "yesterday",
                "",
                "1788912000",
                "Wed, 09 Sep 2026",
            ] {
                let answer = stage.get_with(&path, "If-Modified-Since", since);
                assert_whole(&answer, &whole, &format!("{path}: {since}"));
            }
            let both = |tag: &str, since: &str| {
                let request = Request::new("GET", &path).with("If-None-Match", tag);
                stage.ask(&request.with("If-Modified-Since", since))
            };
            let answer = both("\"other\"", &date(&whole, 1));
            assert_whole(
                &answer,
                &whole,
                &format!("{path}: the tag wins over the date"),
            );
            let answer = both("nonsense", &date(&whole, 0));
            assert_whole(&answer, &whole, &format!("{path}: so does a malformed one"));
            let answer = both(&etag(&whole), &earlier);
            assert_unchanged(
                &answer,
                &whole,
                &format!("{path}: the tag wins over the date"),
            );
        },
    );
}

#[test]
fn a_document_without_a_date_ignores_dates() {
    let stage = Stage::new();
    each(
        documents().into_iter().filter(|(_, dated)| !dated),
        |(path, _)| {
            let whole = stage.get(&path);
            let since = "Sat, 01 Jan 2050 00:00:00 GMT";
            let answer = stage.get_with(&path, "If-Modified-Since", since);
            assert_whole(&answer, &whole, &path);
        },
    );
}

#[test]
fn a_removed_page_changes_the_sitemap_by_date() {
    let stage = Stage::new();
    let before = stage.get("/sitemap.xml");
    stage.sql("UPDATE sitemap_url SET indexable = 0 WHERE id = 2;");
    let date = before.header("Date").expect("a date");
    let after = stage.get_with("/sitemap.xml", "If-Modified-Since", date);
    assert_eq!(after.status, 200, "the page is gone");
    assert!(after.body.len() < before.body.len());
}

#[test]
fn a_removed_episode_changes_the_feed_by_date() {
    let path = format!("/functions/podcast-rss-feed?did={}", encoded(ALICE_DID));
    let stage = Stage::new();
    stage.sql(&format!("DELETE FROM episode WHERE id = '{ALICE_DID}-1';"));
    let whole = stage.get(&path);
    let dated = httpdate::parse_http_date(&date(&whole, 0)).expect("a date");
    let age = SystemTime::now().duration_since(dated).expect("past");
    assert!(age < Duration::from_secs(60), "dated {age:?} ago");
}

#[test]
fn no_document_is_dated_ahead() {
    let path = format!("/functions/podcast-rss-feed?did={}", encoded(ALICE_DID));
    let stage = Stage::new();
    stage.sql("UPDATE podcast SET updated_us = 1924992000000000;");
    let whole = stage.get(&path);
    assert_eq!(whole.header("Last-Modified"), None, "it is in 2031");
    let since = "Wed, 01 Jan 2031 00:00:00 GMT";
    let answer = stage.get_with(&path, "If-Modified-Since", since);
    assert_whole(&answer, &whole, "that date says nothing");
}

#[test]
fn a_tag_is_the_digest_of_its_parts() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for parts in [&[&b"abc"[..]][..], &[b"a", b"bc"]] {
        assert_eq!(document::etag(parts), format!("\"{digest}\""));
    }
    let robots = Stage::new().get("/robots.txt");
    assert_eq!(
        etag(&robots),
        document::etag(&[&robots.body]),
        "a document is one part"
    );
}

#[test]
fn dates_stay_within_four_digit_years() {
    for (us, date) in [
        (784_111_777_654_321, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        assert_eq!(document::http_date(us), date, "{us}");
    }
}

#[test]
fn a_head_is_answered_conditionally_as_well() {
    let stage = Stage::new();
    each(documents(), |(path, _)| {
        let whole = stage.get(&path);
        let request = Request::new("HEAD", &path).with("If-None-Match", &etag(&whole));
        assert_unchanged(&stage.head(&request, &path), &whole, &path);
        let request = Request::new("HEAD", &path).with("If-None-Match", "\"other\"");
        assert_eq!(stage.head(&request, &path).status, 200, "{path}");
    });
}

#[test]
fn a_tag_changes_with_the_document() {
    let mut stage = Stage::new();
    let paths = documents().map(|(path, _)| path);
    let before = paths.clone().map(|path| etag(&stage.get(&path)));
    let later = 1_788_912_060_000_000_i64;
    stage.sql(&format!(
        "UPDATE podcast SET title = 'Boosters', updated_us = {later};"
    ));
    stage.sql(&format!(
        "UPDATE sitemap_url SET lastmod_us = {later} WHERE id = 2;"
    ));
    // a generated feed is served from memory for some seconds
    stage.restart();
    for (path, before) in paths.iter().zip(before) {
        let answer = stage.get_with(path, "If-None-Match", &before);
        let expected = if path.contains("robots") { 304 } else { 200 };
        assert_eq!(answer.status, expected, "{path} changed, or did not");
        let changed = etag(&answer) != before;
        assert_eq!(
            changed,
            expected == 200,
            "{path}: another tag for another document"
        );
    }
}
