//! `seo-sitemap`: the pages that search engines may list, in any number.
//!
//! A page of the sitemap is a range of ids, so a URL never moves to another page. A page that is
//! too large for one file is split into parts. A file is read and written in steps of bounded
//! weight and takes the memory of one step, from the pool of documents. It shows one state of the
//! tables: it is read from one snapshot; where that is impossible, it is cut off if the tables have
//! changed by its end. The home page is the first URL of page 1, which is therefore never empty. No
//! file has a `Last-Modified`: the URLs that are left do not show when another one was removed.

use super::document::{Document, etag, seconds, validated};
use super::query::{Query, invalid};
use super::skipped::Skipped;
use super::xml::{Attributes, Xml, url};
use super::{HOUR, Refused, Settings, refused};
use crate::reply::coding::Coding;
use crate::reply::{BodyStream, Reply, StreamAborted};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use portcullis_base::io::{MemoryPermit, cores};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::policy::{Function, RequestParts};
use portcullis_filters::verdict::Reason;
use portcullis_store::syntax::{is_page_of, is_url};
use portcullis_store::{
    SitemapFile, SitemapNumber, SitemapReader, SitemapStamp, SitemapStep, SitemapUrl, Store,
    StoreError,
};
use std::sync::Arc;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `Content-Type` of a sitemap.
const MEDIA_TYPE: &str = "application/xml; charset=utf-8";
/// 256 KiB and 1,000 URLs: a step takes milliseconds, and one client's share of the pool holds
/// those of all its connections. The last URL of a step may exceed it, by [`MAX_ENTRY`] at most.
const STEP: SitemapStep = SitemapStep {
    urls: 1_000,
    weight: STEP_MEMORY as i64,
};
/// Memory that is reserved for one step of a stream.
const STEP_MEMORY: usize = 256 << 10;
/// 8 MiB for a URL with its images: the tables allow no more, and import rejects a larger one.
const MAX_ENTRY: usize = 8 << 20;
/// Schemes of the URLs.
const SCHEMES: &[&str] = &["https://", "http://"];
/// Google's bound on the images of a URL.
const MAX_IMAGES: usize = 1000;

const PROTOCOL: (&str, &str) = ("xmlns", "http://www.sitemaps.org/schemas/sitemap/0.9");
const URLSET: Attributes<'_> = &[
    PROTOCOL,
    (
        "xmlns:image",
        "http://www.google.com/schemas/sitemap-image/1.1",
    ),
];

pub(super) async fn answer(
    store: &Arc<Store>,
    metrics: &Arc<Metrics>,
    settings: &Settings,
    request: &RequestParts,
    mut memory: MemoryPermit,
) -> Result<Reply, Refused> {
    let base_url = &settings.live.base_url;
    let query = Query::parse(&request.query);
    let number = match query.one("page")? {
        Some(page) => SitemapNumber::parse(page)
            .ok_or_else(|| invalid("page must be 1 or more, as the index names it"))?,
        None => {
            let files = store.sitemap().files().await?;
            if !fits_one_file(&files) {
                return Ok(index(&files, base_url).reply(request, HOUR));
            }
            SitemapNumber::FIRST
        }
    };
    let mut reader = store.sitemap().reader().await?;
    let stamp = reader.stamp(number).await?;
    if stamp.is_none() && number != SitemapNumber::FIRST {
        return Err(refused(Reason::NotFound, "the sitemap has no such page"));
    }
    let etag = file_etag(base_url, number, stamp.as_ref());
    let mut reply = validated(request, HOUR, &etag, None, Coding::Negotiable);
    if reply.status == 200 {
        memory.reserve(STEP_MEMORY).map_err(|_| busy())?;
        let file = Urlset::begin(number, base_url, stamp.as_ref());
        reply.media_type = Some(MEDIA_TYPE);
        let chunks = chunks(reader, Arc::clone(metrics), memory, file);
        reply.rest = Some(BodyStream::new(chunks));
    }
    Ok(reply)
}

fn busy() -> Refused {
    refused(Reason::Overloaded, "too many sitemaps are read: try again")
}

/// Whether all URLs are in the first file, so that no index is needed.
pub fn fits_one_file(files: &[SitemapFile]) -> bool {
    files.iter().all(|file| file.number == SitemapNumber::FIRST)
}

/// The index of all files.
pub fn index(files: &[SitemapFile], base_url: &str) -> Document {
    let mut xml = Xml::begin();
    xml.open("sitemapindex", &[PROTOCOL]);
    if files.iter().all(|file| file.number != SitemapNumber::FIRST) {
        sitemap(&mut xml, base_url, SitemapNumber::FIRST, None);
    }
    for file in files {
        sitemap(&mut xml, base_url, file.number, Some(file.lastmod_us));
    }
    xml.close("sitemapindex");
    Document::new(xml.take(), MEDIA_TYPE, None)
}

/// Writes the entry of a file at the origin's root, since a sitemap covers only URLs below its own
/// path.
fn sitemap(xml: &mut Xml, base_url: &str, number: SitemapNumber, lastmod_us: Option<i64>) {
    xml.open("sitemap", &[]);
    xml.text("loc", &*format!("{base_url}/sitemap.xml?page={number}"));
    xml.text("lastmod", lastmod_us.map(lastmod).as_deref());
    xml.close("sitemap");
}

/// The `ETag` of a file, derived from its stamp without rendering it.
pub fn file_etag(base_url: &str, number: SitemapNumber, stamp: Option<&SitemapStamp>) -> String {
    let state = stamp.map_or([0; 5], |stamp| {
        [
            stamp.first_id,
            stamp.last_id,
            stamp.urls,
            stamp.checksum,
            stamp.lastmod_us,
        ]
    });
    let (number, state) = (number.to_string(), state.map(i64::to_be_bytes).concat());
    etag(&[number.as_bytes(), &state, base_url.as_bytes()])
}

/// Streams a file in chunks, whose memory is that of the permit. URLs that are left out are
/// reported at the end.
pub fn chunks(
    reader: SitemapReader,
    metrics: Arc<Metrics>,
    memory: MemoryPermit,
    file: Urlset,
) -> impl Stream<Item = Result<Bytes, StreamAborted>> + Send {
    stream::try_unfold(
        (reader, metrics, memory, file),
        |(mut reader, metrics, mut memory, file)| async move {
            if file.is_ended {
                return Ok(None);
            }
            let (file, chunk) = chunk(&mut reader, file).await.map_err(|cut| {
                cut.log();
                StreamAborted
            })?;
            if memory.reserve(chunk.len()).is_err() {
                log::info!("seo-sitemap: a page is cut off, as no memory is left for a large URL");
                return Err(StreamAborted);
            }
            if file.is_ended {
                file.skipped.report(&metrics, Function::SeoSitemap);
            }
            Ok(Some((chunk, (reader, metrics, memory, file))))
        },
    )
}

/// Why a file is cut off.
enum Cut {
    Changed,
    Store(StoreError),
    Panicked,
}

impl Cut {
    fn log(&self) {
        match self {
            Self::Store(error) => error.log(),
            Self::Changed => {
                log::info!("seo-sitemap: a page is cut off, as its URLs changed while it was sent")
            }
            Self::Panicked => log::error!("seo-sitemap: the rendering of a page was aborted"),
        }
    }
}

/// Reads and writes the next chunk of a file, outside of the runtime. The last chunk is written
/// only if the tables have not changed.
async fn chunk(reader: &mut SitemapReader, mut file: Urlset) -> Result<(Urlset, Bytes), Cut> {
    let rows = reader.urls(file.after_id, file.last_id, STEP).await;
    let rows = rows.map_err(Cut::Store)?;
    let is_last = rows.last().is_none_or(|row| row.id >= file.last_id);
    if is_last && !reader.is_snapshot() {
        let stamp = reader.stamp(file.number).await.map_err(Cut::Store)?;
        if stamp != file.stamp {
            return Err(Cut::Changed);
        }
    }
    let length = rows.iter().map(SitemapUrl::length).sum();
    let write = move || {
        let chunk = if is_last {
            file.last(rows)
        } else {
            file.next(rows)
        };
        (file, chunk)
    };
    cores::run(length, write).await.ok_or(Cut::Panicked)
}

/// A file being written.
pub struct Urlset {
    number: SitemapNumber,
    stamp: Option<SitemapStamp>,
    base_url: String,
    xml: Xml,
    /// The id of the last URL that was written.
    pub after_id: i64,
    last_id: i64,
    /// Whether the end of the file was written.
    pub is_ended: bool,
    /// The rows that were left out.
    pub skipped: Skipped,
}

impl Urlset {
    /// Begins a file.
    pub fn begin(number: SitemapNumber, base_url: &str, stamp: Option<&SitemapStamp>) -> Self {
        let mut xml = Xml::begin();
        xml.open("urlset", URLSET);
        if number == SitemapNumber::FIRST {
            // the home page has no date
            entry(&mut xml, &format!("{base_url}/"), None, &[]);
        }
        let (after_id, last_id) = stamp.map_or((0, 0), |stamp| (stamp.first_id - 1, stamp.last_id));
        let (base_url, skipped) = (base_url.to_owned(), Skipped::default());
        let stamp = stamp.copied();
        Self {
            number,
            stamp,
            base_url,
            xml,
            after_id,
            last_id,
            is_ended: false,
            skipped,
        }
    }

    /// Writes the next URLs.
    pub fn next(&mut self, rows: Vec<SitemapUrl>) -> Bytes {
        self.write_all(rows);
        self.xml.take()
    }

    /// Writes the last URLs and the end of the file.
    pub fn last(&mut self, rows: Vec<SitemapUrl>) -> Bytes {
        self.write_all(rows);
        self.is_ended = true;
        self.xml.close("urlset");
        self.xml.take()
    }

    fn write_all(&mut self, rows: Vec<SitemapUrl>) {
        for row in rows {
            self.after_id = row.id;
            self.write(row);
        }
    }

    /// Writes a URL, or skips it if it is malformed or too large. Malformed images are left out.
    fn write(&mut self, row: SitemapUrl) {
        let loc = url(&row.loc);
        // the first file lists the home page
        if loc.trim_end_matches('/') == self.base_url {
            return;
        }
        let before = self.xml.len();
        let mut images: Vec<_> = row.images.iter().map(|image| url(image)).collect();
        images.retain(|image| is_url(image, SCHEMES));
        let is_listable = is_url(&loc, SCHEMES) && is_page_of(&self.base_url, &loc);
        if is_listable {
            entry(&mut self.xml, &loc, Some(row.lastmod_us), &images);
        }
        if !is_listable || self.xml.len() - before > MAX_ENTRY {
            self.xml.truncate(before);
            self.skipped.add(format_args!("sitemap_url {}", row.id));
        } else if !row.malformed.is_empty() || images.len() < row.images.len() {
            self.skipped
                .add(format_args!("sitemap_url {} images", row.id));
        }
    }
}

fn entry(xml: &mut Xml, loc: &str, lastmod_us: Option<i64>, images: &[String]) {
    xml.open("url", &[]);
    xml.text("loc", loc);
    xml.text("lastmod", lastmod_us.map(lastmod).as_deref());
    for image in images.iter().take(MAX_IMAGES) {
        xml.open("image:image", &[]);
        xml.text("image:loc", &**image);
        xml.close("image:image");
    }
    xml.close("url");
}

fn lastmod(us: i64) -> String {
    let instant = OffsetDateTime::from_unix_timestamp(seconds(us));
    let instant = instant.expect("the seconds are within four-digit years");
    instant
        .format(&Rfc3339)
        .expect("years of four digits can be written")
}
