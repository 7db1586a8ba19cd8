//! The sitemap: the product's pages that search engines may list, in sitemap pages of 45,000 ids
//! each. A URL never moves to another page, and no query counts rows to find one. A page that is
//! too large for a file has several parts, by the stored weight of its URLs.

use super::db::{Db, FromRow, Row};
use super::{StoreError, sql};
use std::fmt;

/// 50,000: the most files that a sitemap index may list.
const MAX_FILES: u32 = 50_000;
/// 32 MiB: with one more URL of at most 8 MiB, a part stays below 45 MB.
const PART_WEIGHT: i64 = 32 << 20;

/// The number of a sitemap file: the page and its part, both from 1. Page 4 starts with `4`, which
/// `4.2` continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SitemapNumber {
    /// The page; gaps are possible.
    pub page: i64,
    /// The part of the page, without gaps.
    pub part: i64,
}

impl SitemapNumber {
    /// The file that lists the home page.
    pub const FIRST: Self = Self { page: 1, part: 1 };

    /// Parses a number in its only spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let (page, part) = text.split_once('.').unwrap_or((text, "1"));
        let [page, part] = [page, part].map(|digits| digits.parse().ok().filter(|n| *n > 0));
        let number = Self { page: page?, part: part? };
        (number.to_string() == text).then_some(number)
    }
}

impl fmt::Display for SitemapNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            1 => write!(f, "{}", self.page),
            part => write!(f, "{}.{part}", self.page),
        }
    }
}

/// A sitemap file that has URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitemapFile {
    /// Its number.
    pub number: SitemapNumber,
    /// When one of the URLs of its page last changed.
    pub lastmod_us: i64,
}

/// Identifies the content of a sitemap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SitemapStamp {
    /// The id of its first URL.
    pub first_id: i64,
    /// The id of its last URL.
    pub last_id: i64,
    /// How many URLs it has.
    pub urls: i64,
    /// A checksum over their ids and times.
    pub checksum: i64,
    /// When one of them last changed.
    pub lastmod_us: i64,
}

/// A URL of the sitemap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SitemapUrl {
    /// The id.
    pub id: i64,
    /// The URL.
    pub loc: String,
    /// When its page last changed.
    pub lastmod_us: i64,
    /// The images on its page.
    pub images: Vec<String>,
    /// Columns of which malformed items were left out.
    pub malformed: Vec<&'static str>,
}

/// A page of one part or several.
struct Page {
    page: i64,
    weight: i64,
    lastmod_us: i64,
}

impl FromRow for Page {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: page weight lastmod_us;))
    }
}

impl Page {
    /// None is empty: a URL weighs less than a part.
    fn files(self) -> impl Iterator<Item = SitemapFile> {
        let Self { page, weight, lastmod_us } = self;
        let parts = 1..=(weight - 1) / PART_WEIGHT + 1;
        parts.map(move |part| SitemapFile { number: SitemapNumber { page, part }, lastmod_us })
    }
}

impl FromRow for SitemapStamp {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: first_id last_id urls checksum lastmod_us;))
    }
}

impl FromRow for SitemapUrl {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let mut malformed = Vec::new();
        let images = row.list("images", &mut malformed)?;
        Ok(from_row!(row; get: id loc lastmod_us; { images, malformed }))
    }
}

/// Reads the sitemap.
#[derive(Debug, Clone, Copy)]
pub struct Sitemap<'a> {
    pub(super) db: &'a Db,
}

impl Sitemap<'_> {
    /// The files that have URLs, in order.
    pub async fn files(&self) -> Result<Vec<SitemapFile>, StoreError> {
        let pages: Vec<Page> =
            self.db.all(sql::SITEMAP_PAGES, &[i64::from(MAX_FILES).into()]).await?;
        Ok(pages.into_iter().flat_map(Page::files).take(MAX_FILES as usize).collect())
    }

    /// The stamp of a file; `None` if it has no URL.
    pub async fn stamp(&self, number: SitemapNumber) -> Result<Option<SitemapStamp>, StoreError> {
        let args = [number.page.into(), number.part.into(), PART_WEIGHT.into()];
        self.db.one(sql::SITEMAP_STAMP, &args).await
    }

    /// URLs after an id, up to another, in order.
    pub async fn urls(
        &self,
        after_id: i64,
        last_id: i64,
        limit: u32,
    ) -> Result<Vec<SitemapUrl>, StoreError> {
        let args = [after_id.into(), last_id.into(), i64::from(limit).into()];
        self.db.all(sql::SITEMAP_URLS, &args).await
    }
}
