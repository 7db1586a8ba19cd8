//! Documents for crawlers: robots.txt and the sitemap. Parsers check their format.

use std::collections::HashSet;

use crate::support::check::each;
use crate::support::request::Request;
use crate::support::response::Framing;
use crate::support::sidecar::content::{ALICE_DID, PAGED, page, post};
use crate::support::sidecar::expect::{common, refused};
use crate::support::sidecar::stage::{BASE, Stage};

const SITEMAP: &str = "/functions/seo-sitemap";
const ROBOTS: &str = "/functions/seo-robots";

/// The addresses in a document, in order.
fn locations(text: &str) -> Vec<&str> {
    let rest = text.split("<loc>").skip(1);
    rest.map(|rest| rest.split("</loc>").next().unwrap_or_default())
        .collect()
}

#[test]
fn the_sitemap_lists_home_and_listable_pages() {
    let stage = Stage::new();
    let map = stage.get(SITEMAP);
    common(&map, "the sitemap");
    let kind = map.header("Content-Type");
    assert_eq!(kind, Some("application/xml; charset=utf-8"), "what it is");
    assert_eq!(map.framing, Framing::Chunked, "it is streamed");
    let expected = [
        "https://cards.example/",
        "https://cards.example/cards/pikachu",
        "https://cards.example/cards/mew",
    ];
    assert_eq!(locations(map.text()), expected, "without what is private");
    assert!(map.text().contains("<urlset"), "one list of pages");
    let first = stage.get(&format!("{SITEMAP}?page=1"));
    assert_eq!(first.text(), map.text(), "which is the first page");
}

#[test]
fn a_rule_that_hides_a_listed_page_is_reported() {
    let mut stage = Stage::with(&[("sidecar.robots.disallow", r#"["/none/", "/*/mew$"]"#)]);
    let said = |stage: &Stage| {
        let output = stage.setup.run("check");
        assert_eq!(output.status.code(), Some(0), "a warning is no mistake");
        String::from_utf8(output.stdout).unwrap()
    };
    let warning = "/*/mew$ forbids pages of the sitemap, such as https://cards.example/cards/mew: \
                   crawlers skip them";
    assert!(said(&stage).contains(warning), "{}", said(&stage));
    assert!(!said(&stage).contains("/none/"), "it hides no page");
    let line = format!("sidecar.robots.disallow: {warning}");
    stage.restart();
    stage
        .edge
        .line("the warning of a start", |found| found["message"] == line);
    let mild = stage
        .setup
        .clone()
        .set("sidecar.robots.disallow", r#"["/cards/m"]"#);
    stage.edge.rewrite(&mild);
    stage.edge.signal("HUP");
    let line = line.replace("/*/mew$", "/cards/m");
    stage
        .edge
        .line("the warning of a reload", |found| found["message"] == line);
    stage.sql("UPDATE sitemap_url SET indexable = 0 WHERE loc LIKE '%mew';");
    assert!(
        !said(&stage).contains("forbids"),
        "what is not listed may be hidden"
    );
}

#[test]
fn http_1_0_gets_the_whole_sitemap() {
    let stage = Stage::new();
    let request = Request::new("GET", "/sitemap.xml").line("GET /sitemap.xml HTTP/1.0");
    let old = stage.ask(&request);
    assert_eq!(
        (old.status, old.framing),
        (200, Framing::Close),
        "chunks are unknown to it"
    );
    let new = stage.get("/sitemap.xml");
    assert_eq!(old.body, new.body, "the whole document");
    let caching = [old, new].map(|one| one.header("Cache-Control").map(str::to_owned));
    let expected = ["no-store", "public, max-age=3600"].map(|text| Some(text.to_owned()));
    assert_eq!(caching, expected, "a cut shows in chunks only");
}

#[test]
fn a_page_is_what_it_was_when_its_tag_was_made() {
    let stage = Stage::empty(&[]);
    // far more than fits into the buffers of a connection
    let images = format!(
        "[{}]",
        vec!["\"https://media.example/a.jpg\""; 500].join(",")
    );
    stage.sql(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
         INSERT INTO sitemap_url (loc, lastmod_us, images) \
         SELECT 'https://cards.example/' || i, 1000000 * i, '{images}' FROM n;"
    ));
    let whole = stage.get("/sitemap.xml?page=1");
    assert_eq!(whole.text().matches("<url>").count(), 301, "with home");
    let mut slow = stage.client();
    slow.send(Request::new("GET", "/sitemap.xml?page=1").bytes());
    let first = slow.response_to_head();
    assert_eq!(first.header("ETag"), whole.header("ETag"));
    stage.sql(
        "UPDATE sitemap_url SET lastmod_us = 1800000000000000, loc = loc || '/changed'; \
         DELETE FROM sitemap_url WHERE id % 2 = 0;",
    );
    let mut body = Vec::new();
    while !body.ends_with(b"</urlset>") {
        body.extend(slow.chunk());
    }
    assert!(body == whole.body, "byte for byte what the tag stands for");
    let changed = stage.get("/sitemap.xml?page=1");
    assert_ne!(changed.header("ETag"), whole.header("ETag"));
    assert!(
        changed.text().contains("/299/changed</loc>"),
        "the next request sees the changes"
    );
}

#[test]
fn an_empty_store_lists_the_home_page() {
    let stage = Stage::empty(&[]);
    let map = stage.get(SITEMAP);
    assert_eq!(
        map.status,
        200,
        "an empty list would be no sitemap: {}",
        map.text()
    );
    assert_eq!(
        locations(map.text()),
        ["https://cards.example/"],
        "home is always there"
    );
}

#[test]
fn a_large_sitemap_becomes_an_index() {
    let stage = Stage::new();
    stage.sql(&page(44_999, "https://cards.example/cards/last", 1));
    assert!(
        stage.get(SITEMAP).text().contains("<urlset"),
        "44,999 and home fit"
    );
    stage.sql(&page(45_001, "https://cards.example/cards/first", 1));
    stage.sql(&page(135_001, "https://cards.example/cards/far", 1));
    let index = stage.get(SITEMAP);
    common(&index, "the index");
    assert!(index.text().contains("<sitemapindex"), "{}", index.text());
    let expected = [1, 2, 4].map(|page| format!("{BASE}/sitemap.xml?page={page}"));
    assert_eq!(locations(index.text()), expected, "those that have pages");
    for (number, expected) in [
        (1, "https://cards.example/cards/last"),
        (2, "https://cards.example/cards/first"),
        (4, "https://cards.example/cards/far"),
    ] {
        let shard = stage.get(&format!("{SITEMAP}?page={number}"));
        let listed = locations(shard.text());
        assert_eq!(listed.last(), Some(&expected), "page {number}");
        let has_home = listed.contains(&"https://cards.example/");
        assert_eq!(has_home, number == 1, "home is on the first page alone");
    }
    assert_eq!(
        stage.get("/sitemap.xml").text(),
        index.text(),
        "the alias is the index, too"
    );
    stage.sql("UPDATE sitemap_url SET indexable = 0 WHERE id = 45001;");
    let gone = stage.get(&format!("{SITEMAP}?page=2"));
    refused(
        &gone,
        "NotFound",
        "a page on which nothing may be listed any more",
    );
}

/// The times in a document, in order.
fn times(text: &str) -> Vec<&str> {
    let rest = text.split("<lastmod>").skip(1);
    rest.map(|rest| rest.split("</lastmod>").next().unwrap_or_default())
        .collect()
}

/// Fills a whole page, each URL a second newer than the one before, and reads all files of the
/// index. Returns their number.
#[track_caller]
fn whole_page(path: &str) -> usize {
    let stage = Stage::empty(&[]);
    stage.sql(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 45000)
         INSERT INTO sitemap_url (id, loc, lastmod_us, images)
         SELECT i, 'https://cards.example/' || {path}, i * 1000000, '[]' FROM n;"
    ));
    let index = stage.get("/sitemap.xml");
    assert!(index.text().contains("<sitemapindex"), "{}", index.text());
    let (mut listed, files) = (HashSet::new(), locations(index.text()));
    assert_eq!(times(index.text()).len(), files.len());
    for (file, newest) in files.iter().zip(times(index.text())) {
        let page = stage.get(file.strip_prefix(BASE).expect("it is at the base URL"));
        assert!(
            page.body.len() <= 45_000_000,
            "{file}: {} bytes",
            page.body.len()
        );
        let urls = locations(page.text());
        assert!(
            (2..=45_000).contains(&urls.len()),
            "{file}: {} URLs",
            urls.len()
        );
        assert_eq!(times(page.text()).into_iter().max(), Some(newest), "{file}");
        for url in urls {
            assert!(listed.insert(url.to_owned()), "{url} is listed twice");
        }
    }
    assert_eq!(listed.len(), 45_001, "every page and home, in {files:?}");
    files.len()
}

#[test]
fn no_url_of_a_large_page_is_lost() {
    assert!(whole_page("i || hex(zeroblob(600))") > 2);
}

#[test]
fn home_splits_off_no_single_url() {
    assert_eq!(whole_page("i"), 2);
}

#[test]
fn missing_pages_are_404_malformed_ones_400() {
    let stage = Stage::new();
    for page in ["2", "1.2", "45000", "4294967295"] {
        refused(
            &stage.get(&format!("{SITEMAP}?page={page}")),
            "NotFound",
            page,
        );
    }
    let bad = [
        "0",
        "-1",
        "1.0",
        "1.1",
        "one",
        "%201",
        "0x1",
        "1,2",
        "99999999999999999999",
        "+1",
        "%D9%A1",
    ];
    each(bad, |page| {
        refused(
            &stage.get(&format!("{SITEMAP}?page={page}")),
            "InvalidRequest",
            page,
        );
    });
    refused(
        &stage.get(&format!("{SITEMAP}?page=1&page=1")),
        "InvalidRequest",
        "twice",
    );
    assert_eq!(
        stage.get(&format!("{SITEMAP}?x=1")).status,
        200,
        "others are ignored"
    );
}

#[test]
fn robots_txt_allows_and_disallows_paths() {
    let stage = Stage::with(&[
        ("sidecar.robots.blocked_agents", "[\"GPTBot\", \"CCBot\"]"),
        ("sidecar.robots.disallow", "[\"/auth\", \"/settings\"]"),
    ]);
    let robots = stage.get(ROBOTS);
    common(&robots, "robots");
    assert_eq!(
        robots.header("Content-Type"),
        Some("text/plain; charset=utf-8"),
        "what it is"
    );
    assert_eq!(
        robots.text(),
        "User-agent: GPTBot\n\
         User-agent: CCBot\n\
         Disallow: /\n\
         \n\
         User-agent: *\n\
         Allow: /functions/podcast-rss-feed\n\
         Allow: /functions/seo-sitemap\n\
         Disallow: /functions/\n\
         Disallow: /xrpc/\n\
         Disallow: /auth\n\
         Disallow: /settings\n\
         \n\
         Sitemap: https://cards.example/sitemap.xml\n",
        "what is allowed comes before what is not"
    );
}

#[test]
fn robots_txt_has_one_group_by_default() {
    let robots = Stage::new().get(ROBOTS);
    assert!(
        robots.text().starts_with("User-agent: *\nAllow: "),
        "{}",
        robots.text()
    );
    for path in ["/auth/", "/auth$", "/settings$", "/search?"] {
        assert!(
            robots.text().contains(&format!("\nDisallow: {path}\n")),
            "{}",
            robots.text()
        );
    }
}

#[test]
fn an_unlisted_site_disallows_every_robot() {
    let stage = Stage::with(&[
        ("sidecar.robots.indexing", "false"),
        ("sidecar.robots.blocked_agents", "[\"GPTBot\"]"),
    ]);
    let robots = stage.get("/robots.txt");
    assert_eq!(
        robots.text(),
        "User-agent: *\nDisallow: /\n",
        "nothing at all"
    );
    assert_eq!(robots.status, 200, "an error would be read in another way");
}

#[test]
fn links_use_the_base_url_for_any_host() {
    let stage = Stage::new();
    for path in [
        SITEMAP,
        ROBOTS,
        "/functions/describeFeedGenerator",
        "/.well-known/did.json",
    ] {
        let requested = Request::new("GET", path).without("Host");
        let requested = requested
            .with("Host", "evil.test")
            .with("X-Forwarded-Host", "evil.test");
        let answer = stage.ask(&requested.with("Forwarded", "host=evil.test;proto=http"));
        assert!(
            !answer.text().contains("evil.test"),
            "{path} repeats a header: {answer:?}"
        );
        assert_eq!(
            answer.body,
            stage.get(path).body,
            "{path} is the same for everyone"
        );
    }
}

#[test]
fn unlistable_rows_are_skipped() {
    let stage = Stage::empty(&[]);
    // each encoded address exceeds the maximum length: whole batches have no rows to send
    let rows: String = (1..=600)
        .map(|id| {
            page(
                id,
                &format!("https://cards.example/{id}/{}", "\u{e9}".repeat(400)),
                1,
            )
        })
        .collect();
    stage.sql(&rows);
    stage.sql(&page(601, "https://cards.example/last", 1));
    let mut client = stage.client();
    client.send(Request::new("GET", SITEMAP).bytes());
    let map = client.response();
    assert_eq!(
        locations(map.text()),
        ["https://cards.example/", "https://cards.example/last"]
    );
    assert!(map.text().trim_end().ends_with("</urlset>"), "it is whole");
    client.send(Request::new("GET", ROBOTS).bytes());
    assert!(
        client.response().text().starts_with("User-agent"),
        "and the next answer is the next"
    );
}

#[test]
fn one_bad_row_spoils_no_document() {
    let stage = Stage::new();
    let feed = "at://did:web:cards.example/app.bsky.feed.generator/collection-posts";
    let documents = [
        SITEMAP.to_owned(),
        format!("/functions/podcast-rss-feed?did={ALICE_DID}"),
        format!("/functions/getFeedSkeleton?limit=1&feed={feed}"),
    ];
    stage.sql(
        "UPDATE sitemap_url SET images = 'x' WHERE id = 1;
         UPDATE podcast SET persons = 'not json';
         UPDATE episode SET transcripts = '[1]';
         INSERT INTO feed_item (feed, post_uri, author_did, sort_us)
           VALUES ('collection-posts', 'garbage', 'did:plc:x', 1888912000000000),
           ('collection-posts', 'more garbage', 'did:plc:x', 1888912000000001);",
    );
    let [map, podcast, feed] = documents.map(|path| stage.get(&path));
    assert_eq!(
        [map.status, podcast.status, feed.status],
        [200; 3],
        "{}",
        feed.text()
    );
    assert_eq!(locations(map.text()).len(), 3, "each page: {}", map.text());
    assert!(podcast.text().contains("Episode 1"), "{}", podcast.text());
    assert!(!feed.text().contains("garbage"), "{}", feed.text());
    assert!(
        feed.text().contains(&post(PAGED)),
        "the next one is there: {}",
        feed.text()
    );
    let metrics = stage.edge.admin_get("/metrics");
    for (function, count) in [
        ("seo-sitemap", 1),
        ("podcast-rss-feed", 2),
        ("getFeedSkeleton", 2),
    ] {
        let line = format!("portcullis_sidecar_skipped_total{{function=\"{function}\"}} {count}");
        assert!(
            metrics.text().lines().any(|own| own == line),
            "{line}: {}",
            metrics.text()
        );
    }
}
