//! `podcast-rss-feed`: the requested feed, and its published content. Feed readers check its
//! format.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::check::each;
use crate::support::client::{Client, PATIENCE};
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::sidecar::content::{
    ALICE_DID, DORA_DID, ERIN_DID, FRANK_DID, GINA_DID, episode,
};
use crate::support::sidecar::expect::{common, refused};
use crate::support::sidecar::stage::{BASE, Stage};
use crate::support::sidecar::token::seconds_from_now;
use crate::support::sidecar::xml::read;

const PATH: &str = "/functions/podcast-rss-feed";

fn by(stage: &Stage, query: &str) -> Response {
    stage.get(&format!("{PATH}?{query}"))
}

/// The `max-age` of a response in seconds.
fn max_age(answer: &Response) -> i64 {
    let stated = answer.header("Cache-Control").unwrap_or_default();
    let age = stated
        .strip_prefix("public, max-age=")
        .and_then(|rest| rest.split(',').next());
    age.and_then(|age| age.parse().ok())
        .unwrap_or_else(|| panic!("Cache-Control is {stated}"))
}

#[test]
fn a_feed_is_found_by_did_or_handle() {
    let stage = Stage::new();
    let by_did = by(&stage, &format!("did={ALICE_DID}"));
    common(&by_did, "by DID");
    assert_eq!(by_did.status, 200, "{}", by_did.text());
    let kind = by_did.header("Content-Type");
    assert_eq!(
        kind,
        Some("application/rss+xml; charset=utf-8"),
        "what it is"
    );
    let own = by_did.header("Link").unwrap_or_default();
    let (link, relation) = own.split_once(';').unwrap_or_default();
    assert_eq!(relation.trim(), "rel=\"self\"", "{own}");
    assert!(
        link.starts_with(&format!("<{BASE}{PATH}?did=")),
        "the address that lasts: {own}"
    );
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
        assert_eq!(
            answer.header("Link"),
            Some(own),
            "{query}: one address for every query"
        );
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
fn a_podcast_that_moved_is_redirected() {
    let stage = Stage::with(&[("sidecar.podcasts.redirect_moved", "true")]);
    let query = format!("did={ALICE_DID}");
    let moved = |url: &str| {
        stage.sql(&format!("UPDATE podcast SET new_feed_url = {url}"));
        // a rendered feed is cached
        std::thread::sleep(Duration::from_secs(11));
        by(&stage, &query)
    };
    let answer = moved("'https://new.example/feed?a&b'");
    assert_eq!(answer.status, 301, "{}", answer.text());
    let to = answer.header("Location");
    assert_eq!(to, Some("https://new.example/feed?a&b"));
    let caching = answer.header("Cache-Control");
    let expected = "public, max-age=300, stale-if-error=86400";
    assert_eq!(caching, Some(expected), "not for ever");
    let answer = moved(&format!("'{BASE}{PATH}?did={ALICE_DID}'"));
    assert_eq!(answer.status, 200, "it has just arrived here");
    let plain = Stage::new();
    plain.sql("UPDATE podcast SET new_feed_url = 'https://new.example/feed'");
    assert_eq!(by(&plain, &query).status, 200, "by default the tag alone");
}

#[test]
fn one_client_cannot_render_all_feeds() {
    let stage = Stage::empty(&[]);
    // text that takes long to read
    stage.sql(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 24)
         INSERT INTO podcast (did, guid, title, description, link, language, category, explicit,
           image_url, updated_us)
           SELECT 'did:web:p' || i || '.example', 'g' || i, 'P', 'P', 'https://a.example', 'en',
             'Leisure', 0, 'https://a.example/i.jpg', 1 FROM n;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1440)
         INSERT INTO episode (id, did, guid, title, description_html, enclosure_url,
           enclosure_length, enclosure_type, published_us, updated_us)
           SELECT 'e' || i, 'did:web:p' || (i % 24 + 1) || '.example', 'g' || i, 'E', '{}',
             'https://a.example/' || i, 1, 'audio/mpeg', i, i FROM n;",
        "<b>&amp;".repeat(400)
    ));
    let feed = |number: u32, client: &str| {
        let path = format!("{PATH}?did=did:web:p{number}.example");
        Request::new("GET", &path).with("X-Forwarded-For", client)
    };
    let mut greedy: Vec<_> = (1..=20).map(|_| stage.client()).collect();
    for (number, client) in (1..).zip(&mut greedy) {
        client.send(feed(number, "198.51.100.1").bytes());
    }
    // it has a slot although the other client waits for all of them
    let other = stage.ask(&feed(24, "198.51.100.2"));
    assert_eq!(other.status, 200, "{}", other.text());
    let lines = stage.edge.lines();
    let is_greedy = |line: &&String| line.contains("198.51.100.1") && line.contains("answered");
    let before = lines.iter().filter(is_greedy).count();
    assert!(before < 10, "{before} of 20 came first");
    let answered = |client: &mut Client| client.response_to_head().status;
    let statuses: Vec<_> = greedy.iter_mut().map(answered).collect();
    let is_known = |status: &u16| matches!(status, 200 | 429 | 503);
    assert!(statuses.iter().all(is_known), "{statuses:?}");
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
        stage.sql(&episode(
            ALICE_DID,
            2,
            seconds_from_now(seconds) * 1_000_000,
        ));
        by(&stage, &feed)
    };
    let tomorrow = in_seconds(86_400);
    assert_eq!(max_age(&tomorrow), 300, "tomorrow is far away");
    assert_eq!(
        tomorrow.text(),
        plain.text(),
        "a scheduled episode is not listed"
    );
    let soon = in_seconds(120);
    assert!(
        (110..=120).contains(&max_age(&soon)),
        "two minutes at most: {}",
        max_age(&soon)
    );
    assert_eq!(soon.text(), plain.text(), "nor is this one");
    let before = in_seconds(-1);
    assert_eq!(max_age(&before), 300, "nothing is scheduled any more");
    assert!(
        before.text().contains("Episode 2"),
        "what is published shows"
    );
}

/// The relations of a feed's links to the pages they name.
fn links(answer: &Response) -> Vec<(String, String)> {
    let channel = read(&answer.body).children.remove(0);
    let links = channel.all("atom:link").map(|link| {
        let [relation, url] = ["rel", "href"].map(|name| link.attribute(name).unwrap_or_default());
        (
            relation.to_owned(),
            url.strip_prefix(BASE).unwrap_or_default().to_owned(),
        )
    });
    links.collect()
}

#[test]
fn every_episode_is_on_exactly_one_page() {
    let stage = Stage::new();
    stage.sql(&format!(
        "DELETE FROM episode;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
         INSERT INTO episode (id, did, guid, title, description_html, enclosure_url, \
         enclosure_length, enclosure_type, published_us, visibility, updated_us) \
         SELECT 'n' || i, '{ALICE_DID}', 'guid-' || i, 'T', 'D', \
         CASE i WHEN 350 THEN 'https://' ELSE 'https://media.example/' || i END, 1, 'audio/mpeg', \
         i / 3 * 1000000, CASE i % 100 WHEN 0 THEN 'hidden' ELSE 'public' END, 1 FROM n;"
    ));
    let (mut path, mut found, mut tags) = (format!("{PATH}?did={ALICE_DID}"), vec![], vec![]);
    loop {
        let answer = stage.get(&path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let channel = read(&answer.body).children.remove(0);
        found.extend(
            channel
                .all("item")
                .map(|item| item.one("guid").text.clone()),
        );
        let etag = answer.header("ETag").expect("a tag").to_owned();
        let again = stage.get_with(&path, "If-None-Match", &etag);
        assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
        assert!(
            answer
                .header("Last-Modified")
                .is_some_and(|time| time.ends_with("GMT"))
        );
        tags.push(etag);
        let links = links(&answer);
        assert!(
            links.contains(&("self".to_owned(), path.clone())),
            "{links:?}"
        );
        assert!(
            links
                .iter()
                .any(|(name, url)| name == "last" && url.ends_with("&page=3"))
        );
        let next = links.into_iter().find(|(relation, _)| relation == "next");
        let Some((_, next)) = next else { break };
        path = next;
    }
    let mut expected: Vec<_> = (1..=700).filter(|i| i % 100 > 0 && *i != 350).collect();
    expected.sort_by_key(|i| (i / 3, format!("n{i}")));
    let expected: Vec<_> = expected.iter().rev().map(|i| format!("guid-{i}")).collect();
    assert_eq!(found, expected, "newest first, none twice, none lost");
    assert_eq!(tags.len(), 3);
    assert!(
        tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2],
        "{tags:?}"
    );
    let first = stage.get(&format!("{PATH}?did={ALICE_DID}&page=1"));
    assert_eq!(
        first.header("ETag"),
        Some(&*tags[0]),
        "the feed itself is the first page"
    );
    let by_handle = stage.get(&format!("{PATH}?handle=alice.cards.example&page=3"));
    assert_eq!(by_handle.header("ETag"), Some(&*tags[2]), "by handle, too");
    for (page, error) in [
        ("4", "NotFound"),
        ("99999999999", "NotFound"),
        ("0", "InvalidRequest"),
        ("01", "InvalidRequest"),
        ("-1", "InvalidRequest"),
        ("x", "InvalidRequest"),
    ] {
        refused(
            &by(&stage, &format!("did={ALICE_DID}&page={page}")),
            error,
            page,
        );
    }
    refused(
        &by(&stage, &format!("did={FRANK_DID}&page=2")),
        "NotFound",
        "no podcast",
    );
}

#[test]
fn a_hostile_row_shows_no_links() {
    let stage = Stage::new();
    stage.sql(&episode(ALICE_DID, 8, 1));
    stage.sql(&episode(ALICE_DID, 9, 2));
    // as it was written before the database refused it
    stage.sql(
        "DROP TRIGGER podcast_changes;
         DROP TRIGGER episode_changes;
         UPDATE podcast SET link = 'javascript:a', language = '', category = 'Pokers', \
         image_url = 'ftp://x', owner_email = 'x', new_feed_url = 'javascript:b', \
         medium = 'zzz', funding = '[{\"url\":\"javascript:c\",\"text\":\"t\"},\
         {\"url\":\"https://a.example/ö\",\"text\":\"t\"}]', \
         persons = '[{\"name\":\"Ann\",\"href\":\"javascript:d\"}]';
         UPDATE episode SET link = 'data:text/html,x', image_url = 'data:x', \
         chapters_url = 'javascript:e', social_uri = 'at://x', \
         transcripts = '[{\"url\":\"javascript:f\",\"kind\":\"text/vtt\"}]' \
         WHERE guid = 'guid-8';
         UPDATE episode SET enclosure_type = 'nope' WHERE guid = 'guid-9';",
    );
    let answer = by(&stage, &format!("did={ALICE_DID}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    for hidden in [
        "javascript",
        "data:",
        "ftp:",
        "Pokers",
        "zzz",
        "guid-9",
        "at://x",
    ] {
        assert!(!text.contains(hidden), "{hidden} in {text}");
    }
    let channel = read(&answer.body).children.remove(0);
    let funding: Vec<_> = channel.all("podcast:funding").collect();
    assert_eq!(funding.len(), 1, "the other one is kept");
    assert_eq!(
        funding[0].attribute("url"),
        Some("https://a.example/%C3%B6")
    );
    assert_eq!(channel.one("podcast:person").text, "Ann");
    for absent in [
        "link",
        "image",
        "language",
        "itunes:category",
        "itunes:owner",
    ] {
        assert_eq!(channel.all(absent).count(), 0, "{absent}");
    }
    let counted = "portcullis_sidecar_skipped_total{function=\"podcast-rss-feed\"} 15";
    let metrics = stage.edge.admin_get("/metrics");
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

/// As many episodes, with 65,536 times this character each.
fn long_episodes(did: &str, count: u32, character: char) -> String {
    format!(
        "DELETE FROM episode WHERE did = '{did}';
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO episode (id, did, guid, title, description_html, enclosure_url, \
         enclosure_length, enclosure_type, published_us, updated_us) \
         SELECT '{did}' || i, '{did}', 'guid-' || i, 'T', \
         replace(hex(zeroblob(32768)), '0', '{character}'), \
         'https://media.example/' || i, 1, 'audio/mpeg', i, 1 FROM n;"
    )
}

#[test]
fn a_page_ends_by_weight() {
    let stage = Stage::new();
    stage.sql(&long_episodes(ALICE_DID, 130, '<'));
    let (mut path, mut items) = (format!("{PATH}?did={ALICE_DID}"), vec![]);
    loop {
        let answer = stage.get(&path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.body.len() < 6_500_000,
            "{path}: {} bytes",
            answer.body.len()
        );
        let channel = read(&answer.body).children.remove(0);
        items.push(channel.all("item").count());
        let next = links(&answer)
            .into_iter()
            .find(|(relation, _)| relation == "next");
        let Some((_, next)) = next else { break };
        path = next;
    }
    assert_eq!(items, [60, 60, 10], "every episode is on a page");
}

/// Reads 64 KiB per second until `is_over`, so that the response goes on however long it takes to
/// render the next one.
fn read_slowly(mut stream: impl Read, is_over: &AtomicBool) {
    let mut part = vec![0; 32 << 10];
    while !is_over.load(Ordering::Relaxed) && stream.read_exact(&mut part).is_ok() {
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn unread_feeds_do_not_exceed_a_share() {
    let stage = Stage::new();
    stage.sql(&long_episodes(ALICE_DID, 240, '"'));
    let page = |page: u32| format!("{PATH}?did={ALICE_DID}&page={page}");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let found = [1, 2, 3, 4].map(|number| {
            let mut client = stage.client();
            client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", page(number)));
            let (mut stream, mut status) = (client.writer(), [0; 12]);
            stream.read_exact(&mut status).expect("a status line");
            let is_over = &is_over;
            scope.spawn(move || {
                read_slowly(stream, is_over);
                drop(client);
            });
            String::from_utf8_lossy(&status[9..]).into_owned()
        });
        let small = by(&stage, &format!("did={FRANK_DID}"));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(
            found,
            ["200", "200", "200", "429"],
            "three pages are a quarter of 64 MiB"
        );
        refused(&small, "NotFound", "small responses are not charged");
    });
    let deadline = Instant::now() + PATIENCE;
    while stage.get(&page(4)).status == 429 {
        assert!(Instant::now() < deadline, "its readers have left");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_is_not_public_does_not_show() {
    for visibility in ["members", "hidden", "draft"] {
        let stage = Stage::new();
        stage.sql(&format!("UPDATE episode SET visibility = '{visibility}';"));
        let answer = by(&stage, &format!("did={ALICE_DID}"));
        assert_eq!(answer.status, 200, "{visibility}: {}", answer.text());
        assert!(
            !answer.text().contains("Episode 1"),
            "{visibility}: {}",
            answer.text()
        );
    }
}

#[test]
fn an_episode_appears_at_its_time() {
    let stage = Stage::new();
    stage.sql(&episode(ALICE_DID, 2, seconds_from_now(3) * 1_000_000));
    let deadline = Instant::now() + PATIENCE;
    let mut requested = Vec::new();
    while !requested
        .iter()
        .any(|text: &String| text.contains("Episode 2"))
    {
        assert!(Instant::now() < deadline, "it never appears");
        assert!(
            stage.client().silent_for(Duration::from_millis(50)),
            "a moment goes by"
        );
        requested.push(by(&stage, &format!("did={ALICE_DID}")).text().to_owned());
    }
    assert!(
        !requested[0].contains("Episode 2"),
        "it was not there before"
    );
}
