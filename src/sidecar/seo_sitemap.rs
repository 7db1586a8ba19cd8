//! `seo-sitemap`: the pages that search engines may list, in any number.
//!
//! A page of the sitemap is a range of ids, so a URL never moves to another page. A page is read
//! and written a few hundred URLs at a time, so it takes the memory of one such step. The home page
//! is the first URL of page 1, which is therefore never empty.

use super::document::{Document, etag, seconds, validated};
use super::query::{Query, invalid};
use super::xml::{Attributes, Xml, url};
use super::{HOUR, Refused, Settings, refused};
use crate::reply::{BodyStream, Reply, StreamAborted};
use crate::store::{SitemapPage, SitemapStamp, SitemapUrl, Store, StoreError};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use portcullis_filters::policy::RequestParts;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `Content-Type` of a sitemap.
const MEDIA_TYPE: &str = "application/xml; charset=utf-8";
/// URLs of one step: some ten kilobytes, or megabytes if each has many images.
const STEP: u32 = 250;
/// 50 MB in any meaning of the word: the protocol's bound on a file.
const MAX_BYTES: usize = 50_000_000;
/// The protocol's bound on a URL, which a percent-encoded one may exceed.
const MAX_LOC: usize = 2048;
/// Google's bound on the images of a URL.
const MAX_IMAGES: usize = 1000;

const PROTOCOL: (&str, &str) = ("xmlns", "http://www.sitemaps.org/schemas/sitemap/0.9");
const URLSET: Attributes<'_> =
    &[PROTOCOL, ("xmlns:image", "http://www.google.com/schemas/sitemap-image/1.1")];

pub(super) async fn answer(
    store: &Arc<Store>,
    settings: &Settings,
    request: &RequestParts,
) -> Result<Reply, Refused> {
    let base_url = &settings.config.base_url;
    let query = Query::parse(&request.query);
    let page = match query.one("page")? {
        Some(page) => {
            let is_number = page.bytes().all(|byte| byte.is_ascii_digit());
            let page = page.parse().ok().filter(|page| is_number && *page > 0);
            page.ok_or_else(|| invalid("page must be 1 or more"))?
        }
        None => {
            let pages = store.sitemap().pages().await?;
            if !fits_one_page(&pages) {
                return Ok(index(&pages, base_url).reply(request, HOUR));
            }
            1
        }
    };
    let stamp = store.sitemap().stamp(page).await?;
    if stamp.is_none() && page != 1 {
        return Err(refused(Reason::NotFound, "the sitemap has no such page"));
    }
    let etag = page_etag(base_url, page, stamp.as_ref());
    let mut reply = validated(request, HOUR, &etag, stamp.map(|stamp| stamp.lastmod_us));
    if reply.status == 200 {
        let chunks = urlset(Arc::clone(store), page, base_url);
        let rest = chunks.map(|chunk| {
            chunk.map_err(|error| {
                error.log();
                StreamAborted
            })
        });
        reply.media_type = Some(MEDIA_TYPE);
        reply.rest = Some(BodyStream::new(rest));
    }
    Ok(reply)
}

/// Whether all URLs are on page 1, so that no index is needed.
pub fn fits_one_page(pages: &[SitemapPage]) -> bool {
    pages.iter().all(|page| page.page == 1)
}

/// The index of all pages.
pub fn index(pages: &[SitemapPage], base_url: &str) -> Document {
    let mut xml = Xml::begin();
    xml.open("sitemapindex", &[PROTOCOL]);
    if pages.iter().all(|page| page.page != 1) {
        sitemap(&mut xml, base_url, 1, None);
    }
    for page in pages {
        sitemap(&mut xml, base_url, page.page, Some(page.lastmod_us));
    }
    xml.close("sitemapindex");
    let modified = pages.iter().map(|page| page.lastmod_us).max();
    Document::new(xml.take(), MEDIA_TYPE, modified)
}

fn sitemap(xml: &mut Xml, base_url: &str, page: i64, lastmod_us: Option<i64>) {
    xml.open("sitemap", &[]);
    xml.text("loc", &*format!("{base_url}/functions/seo-sitemap?page={page}"));
    xml.text("lastmod", lastmod_us.map(lastmod).as_deref());
    xml.close("sitemap");
}

/// The `ETag` of a page, without rendering it: from what identifies its state.
pub fn page_etag(base_url: &str, page: i64, stamp: Option<&SitemapStamp>) -> String {
    let state = stamp.map_or([0; 3], |stamp| [stamp.urls, stamp.checksum, stamp.lastmod_us]);
    let [urls, checksum, lastmod] = state.map(i64::to_be_bytes);
    etag(&[&page.to_be_bytes(), &urls, &checksum, &lastmod, base_url.as_bytes()])
}

/// A page, in chunks.
pub fn urlset(
    store: Arc<Store>,
    page: i64,
    base_url: &str,
) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + use<> {
    let urlset = Urlset::begin(page, base_url, MAX_BYTES);
    stream::try_unfold((store, urlset), |(store, mut urlset)| async move {
        if urlset.is_ended {
            return Ok(None);
        }
        let rows = store.sitemap().urls(urlset.page, urlset.after_id, STEP).await?;
        let is_last = rows.len() < STEP as usize;
        let chunk = urlset.next(&rows, is_last);
        Ok(Some((chunk, (store, urlset))))
    })
}

/// A page, while it is written.
pub struct Urlset {
    page: i64,
    home: String,
    xml: Xml,
    /// The id of the last URL.
    pub after_id: i64,
    room: usize,
    /// Whether its end is written.
    pub is_ended: bool,
}

impl Urlset {
    /// Begins a page of at most `max_bytes`.
    pub fn begin(page: i64, base_url: &str, max_bytes: usize) -> Self {
        let home = format!("{base_url}/");
        let mut xml = Xml::begin();
        xml.open("urlset", URLSET);
        if page == 1 {
            // the home page has no date
            entry(&mut xml, &home, None, &[]);
        }
        let room = max_bytes - "\n</urlset>".len();
        Self { page, home, xml, after_id: 0, room, is_ended: false }
    }

    /// Writes the next URLs, and the end after the last ones.
    pub fn next(&mut self, rows: &[SitemapUrl], is_last: bool) -> Bytes {
        self.is_ended = is_last;
        for row in rows {
            self.after_id = row.id;
            let loc = url(&row.loc);
            if loc.len() >= MAX_LOC || (self.page == 1 && loc == self.home) {
                continue;
            }
            let before = self.xml.len();
            entry(&mut self.xml, &loc, Some(row.lastmod_us), &row.images);
            if self.xml.len() > self.room {
                self.xml.truncate(before);
                self.is_ended = true;
                log::error!("sitemap: page {} is truncated: it is too large", self.page);
                break;
            }
        }
        self.room -= self.xml.len();
        if self.is_ended {
            self.xml.close("urlset");
        }
        self.xml.take()
    }
}

fn entry(xml: &mut Xml, loc: &str, lastmod_us: Option<i64>, images: &[String]) {
    xml.open("url", &[]);
    xml.text("loc", loc);
    xml.text("lastmod", lastmod_us.map(lastmod).as_deref());
    for image in images.iter().take(MAX_IMAGES) {
        xml.open("image:image", &[]);
        xml.text("image:loc", &*url(image));
        xml.close("image:image");
    }
    xml.close("url");
}

fn lastmod(us: i64) -> String {
    let instant = OffsetDateTime::from_unix_timestamp(seconds(us));
    let instant = instant.expect("the seconds are within four-digit years");
    instant.format(&Rfc3339).expect("years of four digits can be written")
}
