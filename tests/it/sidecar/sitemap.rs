//! The sitemap: its index, and pages in chunks of bounded size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_base::io::{MemoryPermit, MemoryPool};
use portcullis_edge::sidecar::seo_sitemap::{Urlset, chunks, file_etag, fits_one_file, index};
use portcullis_store::{SitemapFile, SitemapNumber, SitemapStamp, SitemapUrl, Store};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use crate::support::folder::Folder;
use crate::support::sidecar::xml::{Node, read};

const BASE: &str = "https://cards.example";
/// The namespaces of a page.
const URLSET: [(&str, &str); 2] = [
    ("xmlns", "http://www.sitemaps.org/schemas/sitemap/0.9"),
    (
        "xmlns:image",
        "http://www.google.com/schemas/sitemap-image/1.1",
    ),
];
const NOVEMBER: i64 = 1_793_491_200_999_999; // just before 2026-11-01T00:00:01Z

fn number(page: i64, part: i64) -> SitemapNumber {
    SitemapNumber { page, part }
}

fn row(id: i64, path: &str) -> SitemapUrl {
    let loc = format!("{BASE}/{path}");
    SitemapUrl {
        id,
        loc,
        lastmod_us: NOVEMBER,
        ..SitemapUrl::default()
    }
}

fn locs(root: &Node) -> Vec<&str> {
    root.children
        .iter()
        .map(|child| child.one("loc").text.as_str())
        .collect()
}

#[test]
fn an_index_always_lists_the_first_page() {
    let file = |page, part| SitemapFile {
        number: number(page, part),
        lastmod_us: NOVEMBER - page,
    };
    let document = index(&[file(2, 1), file(2, 2), file(7, 1)], BASE);
    assert_eq!(document.modified_us, None, "a file may have been removed");
    assert_eq!(document.media_type, "application/xml; charset=utf-8");
    let root = read(&document.body);
    assert_eq!(root.name, "sitemapindex");
    assert_eq!(root.attribute("xmlns"), Some(URLSET[0].1));
    let expected = ["1", "2", "2.2", "7"].map(|page| format!("{BASE}/sitemap.xml?page={page}"));
    assert_eq!(locs(&root), expected);
    assert_eq!(
        root.children[0].all("lastmod").count(),
        0,
        "an empty page has no date"
    );
    assert_eq!(root.children[1].one("lastmod").text, "2026-11-01T00:00:00Z");
}

#[test]
fn several_files_need_an_index() {
    for (on, fits) in [
        (&[][..], true),
        (&[(1, 1)], true),
        (&[(2, 1)], false),
        (&[(1, 1), (1, 2)], false),
        (&[(1, 1), (2, 1)], false),
    ] {
        let files = on.iter().map(|(page, part)| number(*page, *part));
        let files: Vec<_> = files
            .map(|number| SitemapFile {
                number,
                lastmod_us: 0,
            })
            .collect();
        assert_eq!(fits_one_file(&files), fits, "{on:?}");
    }
}

#[test]
fn a_file_number_has_one_spelling() {
    for (text, parsed) in [
        ("1", Some((1, 1))),
        ("4.2", Some((4, 2))),
        ("1.1", None),
        ("1.0", None),
        ("01", None),
        ("1.02", None),
        ("1.", None),
        (".2", None),
        ("1.2.3", None),
        ("-1", None),
        ("1.-2", None),
    ] {
        let found = SitemapNumber::parse(text).map(|number| (number.page, number.part));
        assert_eq!(found, parsed, "{text}");
    }
}

#[test]
fn a_page_is_one_document_in_chunks() {
    let mut urlset = Urlset::begin(number(1, 1), BASE, None);
    let first = urlset.next(vec![row(1, "a?b&c"), row(2, ""), row(5, "é x")]);
    assert_eq!(urlset.after_id, 5);
    assert!(!urlset.is_ended);
    let second = urlset.last(vec![row(6, &"x".repeat(2100)), row(9, "z")]);
    assert!(urlset.is_ended);
    let root = read(&[first, second].concat());
    assert_eq!(root.name, "urlset");
    for (name, value) in URLSET {
        assert_eq!(root.attribute(name), Some(value));
    }
    let expected = ["/", "/a?b&c", "/%C3%A9%20x", "/z"].map(|path| format!("{BASE}{path}"));
    assert_eq!(
        locs(&root),
        expected,
        "home is first and appears once, no URL is too long"
    );
    assert_eq!(root.children[1].one("lastmod").text, "2026-11-01T00:00:00Z");
}

#[test]
fn only_the_first_page_lists_the_home_page() {
    let page = Urlset::begin(number(1, 1), BASE, None).last(Vec::new());
    assert_eq!(locs(&read(&page)), [format!("{BASE}/")]);
    for (page, part) in [(2, 1), (1, 2)] {
        let rows = vec![row(45_001, "a"), row(45_002, "")];
        let file = Urlset::begin(number(page, part), BASE, None).last(rows);
        assert_eq!(
            locs(&read(&file)),
            [format!("{BASE}/a")],
            "page {page}, part {part}"
        );
    }
}

#[test]
fn images_are_listed_with_their_page() {
    let images = (0..1001)
        .map(|at| format!("https://media.example/{at}.jpg?é&x"))
        .collect();
    let row = SitemapUrl {
        images,
        ..row(1, "a")
    };
    let page = Urlset::begin(number(2, 1), BASE, None).last(vec![row]);
    let root = read(&page);
    let images: Vec<_> = root.children[0].all("image:image").collect();
    assert_eq!(images.len(), 1000, "no more than crawlers read");
    assert_eq!(
        images[7].one("image:loc").text,
        "https://media.example/7.jpg?%C3%A9&x"
    );
}

#[test]
fn malformed_urls_are_left_out_and_counted() {
    let bare = |loc: &str| SitemapUrl {
        loc: loc.to_owned(),
        ..row(1, "")
    };
    let images = ["garbage", "https://media.example/1.jpg"]
        .map(ToOwned::to_owned)
        .to_vec();
    let rows = vec![
        bare("garbage"),
        bare("ftp://cards.example/a"),
        bare("https://other.example/a"),
        bare("http://cards.example/a"),
        bare("https://cards.example:8443/a"),
        bare("https://cards.example.evil.test/a"),
        bare("https://cards.example/a#b"),
        SitemapUrl {
            images,
            ..row(2, "a")
        },
        SitemapUrl {
            malformed: vec!["images"],
            ..row(3, "b")
        },
        SitemapUrl {
            images: vec!["https://a.example/".repeat(500_000)],
            ..row(4, "c")
        },
    ];
    let mut file = Urlset::begin(number(2, 1), BASE, None);
    let root = read(&file.last(rows));
    assert_eq!(
        locs(&root),
        ["a", "b", "c"].map(|path| format!("{BASE}/{path}"))
    );
    assert_eq!(
        root.children
            .iter()
            .flat_map(|url| url.all("image:image"))
            .count(),
        1
    );
    assert_eq!(
        file.skipped.count, 10,
        "seven rows, and the images of three"
    );
}

#[test]
fn each_state_of_a_page_has_its_tag() {
    let stamp = |urls, checksum, lastmod_us| {
        let (first_id, last_id) = (1, 9);
        SitemapStamp {
            first_id,
            last_id,
            urls,
            checksum,
            lastmod_us,
        }
    };
    let tags = [
        file_etag(BASE, number(1, 1), None),
        file_etag(BASE, number(2, 1), None),
        file_etag(BASE, number(1, 2), None),
        file_etag(BASE, number(1, 1), Some(&stamp(1, 0, 0))),
        file_etag(BASE, number(1, 1), Some(&stamp(0, 1, 0))),
        file_etag(BASE, number(1, 1), Some(&stamp(0, 0, 1))),
        file_etag("https://other.example", number(1, 1), None),
    ];
    for (at, tag) in tags.iter().enumerate() {
        assert_eq!(tag.len(), 66, "a quoted digest: {tag}");
        assert!(!tags[..at].contains(tag), "{at} has a tag of its own");
    }
    assert_eq!(tags[0], file_etag(BASE, number(1, 1), None));
}

fn config(url: &str, max_connections: u32) -> StoreConfig {
    StoreConfig {
        url: url.to_owned(),
        read_url: None,
        password_file: None,
        max_connections,
        connection_lifetime: Duration::from_secs(600),
        tls: StoreTls::Off,
        ca_file: None,
    }
}

/// More than any step takes.
fn memory() -> MemoryPermit {
    MemoryPermit::of(&MemoryPool::new(64 << 20))
}

#[tokio::test]
async fn without_a_snapshot_a_changed_page_is_cut_off() {
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.file("content.db"));
    let config = config(&url, 2);
    let store = Store::open(&config, None).await.unwrap();
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let insert = "WITH RECURSIVE ids (id) AS \
        (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 1200) \
        INSERT INTO sitemap_url (id, loc, lastmod_us) \
        SELECT id, 'https://cards.example/' || id, id FROM ids";
    sqlx::raw_sql(insert)
        .execute(&mut connection)
        .await
        .unwrap();
    // crawlers that take their time
    let mut held = Vec::new();
    for change in ["", "UPDATE sitemap_url SET lastmod_us = 9 WHERE id = 1"] {
        let mut reader = store.sitemap().reader().await.unwrap();
        while reader.is_snapshot() {
            held.push(reader);
            reader = store.sitemap().reader().await.unwrap();
        }
        let stamp = reader.stamp(SitemapNumber::FIRST).await.unwrap();
        let file = Urlset::begin(SitemapNumber::FIRST, BASE, stamp.as_ref());
        let mut stream = Box::pin(chunks(reader, Arc::default(), memory(), file));
        assert!(stream.try_next().await.unwrap().is_some());
        sqlx::raw_sql(change)
            .execute(&mut connection)
            .await
            .unwrap();
        let rest: Result<Vec<Bytes>, _> = stream.try_collect().await;
        assert_eq!(rest.is_ok(), change.is_empty(), "{change}");
    }
}

#[tokio::test]
async fn a_page_streams_every_row_once() {
    let insert = "WITH RECURSIVE ids (id) AS \
        (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 2000) \
        INSERT INTO sitemap_url (id, loc, lastmod_us, indexable) \
        SELECT id, 'https://cards.example/' || id, id, 1 FROM ids UNION ALL \
        SELECT id + 45000, 'https://cards.example/b/' || id, id, id % 2 FROM ids";
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.file("content.db"));
    let config = config(&url, 1);
    let store = Store::open(&config, None).await.unwrap();
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(insert)
        .execute(&mut connection)
        .await
        .unwrap();
    for (page, steps, listed, last) in [
        (1, 3, 2001, "/2000"),
        (2, 2, 1000, "/b/1999"),
        (3, 1, 0, ""),
    ] {
        let mut reader = store.sitemap().reader().await.unwrap();
        let stamp = reader.stamp(number(page, 1)).await.unwrap();
        let file = Urlset::begin(number(page, 1), BASE, stamp.as_ref());
        let stream = chunks(reader, Arc::default(), memory(), file);
        let found: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert_eq!(found.len(), steps, "page {page} is read in steps");
        assert!(
            found.iter().all(|chunk| !chunk.is_empty()),
            "an empty chunk ends a body"
        );
        let root = read(&found.concat());
        let locs = locs(&root);
        assert_eq!(locs.len(), listed, "page {page}");
        let end = locs.last().copied().unwrap_or_default();
        assert!(end.ends_with(last), "page {page} ends with {end}");
    }
}

/// Writes these URLs, each with images of this many bytes in all.
async fn store_with_images(urls: u32, bytes: u32) -> (Folder, Store) {
    let folder = Folder::new();
    let url = format!("sqlite:{}", folder.file("content.db"));
    let store = Store::open(&config(&url, 1), None).await.unwrap();
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let image = format!("https://media.example/{}", "x".repeat(2_000));
    let images = vec![image; (bytes / 2_000) as usize];
    let images = serde_json::to_string(&images).unwrap();
    let insert = format!(
        "WITH RECURSIVE ids (id) AS \
        (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < {urls}) \
        INSERT INTO sitemap_url (id, loc, lastmod_us, images) \
        SELECT id, 'https://cards.example/' || id, id, '{images}' FROM ids"
    );
    sqlx::raw_sql(AssertSqlSafe(insert))
        .execute(&mut connection)
        .await
        .unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_step_ends_by_weight() {
    for (urls, bytes, largest, why) in [
        (300, 20_000, 300 << 10, "about four URLs together"),
        (5, 1_000_000, 3 << 19, "a heavy URL is alone"),
    ] {
        let (_folder, store) = store_with_images(urls, bytes).await;
        let mut reader = store.sitemap().reader().await.unwrap();
        let stamp = reader.stamp(SitemapNumber::FIRST).await.unwrap();
        let file = Urlset::begin(SitemapNumber::FIRST, BASE, stamp.as_ref());
        let pool = MemoryPool::new(64 << 20);
        let stream = chunks(reader, Arc::default(), MemoryPermit::of(&pool), file);
        let found: Vec<Bytes> = stream.try_collect().await.unwrap();
        let sizes: Vec<_> = found.iter().map(Bytes::len).collect();
        assert!(sizes.iter().all(|size| *size < largest), "{why}: {sizes:?}");
        let root = read(&found.concat());
        assert_eq!(locs(&root).len() as u32, urls + 1, "{why}");
        assert_eq!(pool.taken(), 0, "{why}: the memory is returned");
    }
}

#[tokio::test]
async fn a_file_without_memory_is_cut_off() {
    let (_folder, store) = store_with_images(3, 1_000_000).await;
    let mut reader = store.sitemap().reader().await.unwrap();
    let stamp = reader.stamp(SitemapNumber::FIRST).await.unwrap();
    let file = Urlset::begin(SitemapNumber::FIRST, BASE, stamp.as_ref());
    let pool = MemoryPool::new(512 << 10);
    let stream = chunks(reader, Arc::default(), MemoryPermit::of(&pool), file);
    let found: Result<Vec<Bytes>, _> = stream.try_collect().await;
    assert!(found.is_err(), "a URL takes a megabyte");
    assert_eq!(pool.taken(), 0);
}
