//! The sitemap: its index, and pages in chunks of bounded size.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use portcullis::config::StoreConfig;
use portcullis::sidecar::seo_sitemap::{Urlset, fits_one_page, index, page_etag, urlset};
use portcullis::store::{SitemapPage, SitemapStamp, SitemapUrl, Store};
use sqlx::{Connection as _, SqliteConnection};

use crate::support::folder::Folder;
use crate::support::sidecar::xml::{Node, read};

const BASE: &str = "https://cards.example";
/// The protocol's bound on a file.
const MAX_BYTES: usize = 50_000_000;
/// The namespaces of a page.
const URLSET: [(&str, &str); 2] = [
    ("xmlns", "http://www.sitemaps.org/schemas/sitemap/0.9"),
    ("xmlns:image", "http://www.google.com/schemas/sitemap-image/1.1"),
];
const NOVEMBER: i64 = 1_793_491_200_999_999; // just before 2026-11-01T00:00:01Z

fn row(id: i64, path: &str) -> SitemapUrl {
    let loc = format!("{BASE}/{path}");
    SitemapUrl { id, loc, lastmod_us: NOVEMBER, images: Vec::new() }
}

fn locs(root: &Node) -> Vec<&str> {
    root.children.iter().map(|child| child.one("loc").text.as_str()).collect()
}

#[test]
fn an_index_always_lists_the_first_page() {
    let pages = [2, 7].map(|page| SitemapPage { page, lastmod_us: NOVEMBER - page });
    let document = index(&pages, BASE);
    assert_eq!(document.modified_us, Some(NOVEMBER - 2));
    assert_eq!(document.media_type, "application/xml; charset=utf-8");
    let root = read(&document.body);
    assert_eq!(root.name, "sitemapindex");
    assert_eq!(root.attribute("xmlns"), Some(URLSET[0].1));
    let expected = [1, 2, 7].map(|page| format!("{BASE}/functions/seo-sitemap?page={page}"));
    assert_eq!(locs(&root), expected);
    assert_eq!(root.children[0].all("lastmod").count(), 0, "an empty page has no date");
    assert_eq!(root.children[1].one("lastmod").text, "2026-11-01T00:00:00Z");
}

#[test]
fn several_pages_need_an_index() {
    let pages = |pages: &[i64]| -> Vec<_> {
        pages.iter().map(|page| SitemapPage { page: *page, lastmod_us: 0 }).collect()
    };
    for (on, fits) in [(&[][..], true), (&[1], true), (&[2], false), (&[1, 2], false)] {
        assert_eq!(fits_one_page(&pages(on)), fits, "{on:?}");
    }
}

#[test]
fn a_page_is_one_document_in_chunks() {
    let mut urlset = Urlset::begin(1, BASE, MAX_BYTES);
    let first = urlset.next(&[row(1, "a?b&c"), row(2, ""), row(5, "é x")], false);
    assert_eq!(urlset.after_id, 5);
    assert!(!urlset.is_ended);
    let second = urlset.next(&[row(6, &"x".repeat(2100)), row(9, "z")], true);
    assert!(urlset.is_ended);
    let root = read(&[first, second].concat());
    assert_eq!(root.name, "urlset");
    for (name, value) in URLSET {
        assert_eq!(root.attribute(name), Some(value));
    }
    let expected = ["/", "/a?b&c", "/%C3%A9%20x", "/z"].map(|path| format!("{BASE}{path}"));
    assert_eq!(locs(&root), expected, "home is first and appears once, no URL is too long");
    assert_eq!(root.children[1].one("lastmod").text, "2026-11-01T00:00:00Z");
}

#[test]
fn only_the_first_page_lists_the_home_page() {
    let page = Urlset::begin(1, BASE, MAX_BYTES).next(&[], true);
    assert_eq!(locs(&read(&page)), [format!("{BASE}/")]);
    let page = Urlset::begin(2, BASE, MAX_BYTES).next(&[row(45_001, "a")], true);
    assert_eq!(locs(&read(&page)), [format!("{BASE}/a")]);
}

#[test]
fn images_are_listed_with_their_page() {
    let images = (0..1001).map(|at| format!("https://media.example/{at}.jpg?é&x")).collect();
    let row = SitemapUrl { images, ..row(1, "a") };
    let page = Urlset::begin(2, BASE, MAX_BYTES).next(&[row], true);
    let root = read(&page);
    let images: Vec<_> = root.children[0].all("image:image").collect();
    assert_eq!(images.len(), 1000, "no more than crawlers read");
    assert_eq!(images[7].one("image:loc").text, "https://media.example/7.jpg?%C3%A9&x");
}

#[test]
fn a_page_that_is_too_large_is_truncated() {
    let rows: Vec<_> = (1..=100).map(|id| row(id, &format!("page-{id}"))).collect();
    let whole = Urlset::begin(2, BASE, MAX_BYTES).next(&rows, true).len();
    for (max, listed) in [(whole, 100), (whole - 1, 99), (whole / 2, 49)] {
        let mut urlset = Urlset::begin(2, BASE, max);
        let mut page = Vec::new();
        for rows in rows.chunks(10) {
            if !urlset.is_ended {
                page.extend_from_slice(&urlset.next(rows, rows[0].id == 91));
            }
        }
        assert!(urlset.is_ended && page.len() <= max, "{} of {max} bytes", page.len());
        assert_eq!(read(&page).children.len(), listed, "in {max} bytes");
    }
}

#[test]
fn each_state_of_a_page_has_its_tag() {
    let stamp = |urls, checksum, lastmod_us| SitemapStamp { urls, checksum, lastmod_us };
    let tags = [
        page_etag(BASE, 1, None),
        page_etag(BASE, 2, None),
        page_etag(BASE, 1, Some(&stamp(1, 0, 0))),
        page_etag(BASE, 1, Some(&stamp(0, 1, 0))),
        page_etag(BASE, 1, Some(&stamp(0, 0, 1))),
        page_etag("https://other.example", 1, None),
    ];
    for (at, tag) in tags.iter().enumerate() {
        assert_eq!(tag.len(), 66, "a quoted digest: {tag}");
        assert!(!tags[..at].contains(tag), "{at} has a tag of its own");
    }
    assert_eq!(tags[0], page_etag(BASE, 1, None));
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
    let config = StoreConfig { url: url.clone(), password_file: None, max_connections: 1 };
    let store = Arc::new(Store::open(&config, None).await.unwrap());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(insert).execute(&mut connection).await.unwrap();
    for (page, chunks, listed, last) in
        [(1, 9, 2001, "/2000"), (2, 5, 1000, "/b/1999"), (3, 1, 0, "")]
    {
        let stream = urlset(store.clone(), page, BASE);
        let found: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert_eq!(found.len(), chunks, "page {page} is read in steps");
        assert!(found.iter().all(|chunk| !chunk.is_empty()), "an empty chunk ends a body");
        let root = read(&found.concat());
        let locs = locs(&root);
        assert_eq!(locs.len(), listed, "page {page}");
        let end = locs.last().copied().unwrap_or_default();
        assert!(end.ends_with(last), "page {page} ends with {end}");
    }
}
