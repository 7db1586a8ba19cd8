//! The sitemap: the product's pages that search engines may list, in sitemap pages of 45,000 ids
//! each. A URL never moves to another page, and no query counts rows to find one. A page that is
//! too large for a file has several parts, by the stored weight of its URLs.

use super::db::{Arg, Db, FromRow, Row};
use super::tx::Tx;
use super::{StoreError, sql};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// 50,000: the most files that a sitemap index may list.
const MAX_FILES: u32 = 50_000;
/// 32 MiB: with one more URL of at most 8 MiB, a part stays below 45 MB.
const PART_WEIGHT: i64 = 32 << 20;

/// How long one reader holds a snapshot. It keeps a connection, and the database from reclaiming
/// what changed since: a crawler takes seconds.
const SNAPSHOT: Duration = Duration::from_secs(30);

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

/// Reads a file of the sitemap from one snapshot, as long as it has one.
#[derive(Debug)]
pub struct SitemapReader {
    db: Db,
    /// With its start and its place among all snapshots.
    snapshot: Option<(Tx, Instant, OwnedSemaphorePermit)>,
}

impl SitemapReader {
    /// The stamp of a file; `None` if it has no URL.
    pub async fn stamp(
        &mut self,
        number: SitemapNumber,
    ) -> Result<Option<SitemapStamp>, StoreError> {
        let args = [number.page.into(), number.part.into(), PART_WEIGHT.into()];
        Ok(self.all(sql::SITEMAP_STAMP, &args).await?.into_iter().next())
    }

    /// URLs after an id, up to another, in order.
    pub async fn urls(
        &mut self,
        after_id: i64,
        last_id: i64,
        limit: u32,
    ) -> Result<Vec<SitemapUrl>, StoreError> {
        let args = [after_id.into(), last_id.into(), i64::from(limit).into()];
        self.all(sql::SITEMAP_URLS, &args).await
    }

    /// Whether all that it read is of one state. It is not if too many others had snapshots at its
    /// start, or if it took too long: it then reads the newest state.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    async fn all<T: FromRow>(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<T>, StoreError> {
        self.snapshot.take_if(|(_, since, _)| since.elapsed() > SNAPSHOT);
        let Some((mut tx, since, permit)) = self.snapshot.take() else {
            return self.db.all(sql, args).await;
        };
        // a snapshot that fails, or whose reader leaves meanwhile, ends
        let rows = tx.rows(sql, args).await?;
        self.snapshot = Some((tx, since, permit));
        rows.iter().map(T::read).collect()
    }
}

/// Reads the sitemap.
#[derive(Debug, Clone, Copy)]
pub struct Sitemap<'a> {
    pub(super) db: &'a Db,
    pub(super) snapshots: &'a Arc<Semaphore>,
}

impl Sitemap<'_> {
    /// The files that have URLs, in order.
    pub async fn files(&self) -> Result<Vec<SitemapFile>, StoreError> {
        let pages: Vec<Page> =
            self.db.all(sql::SITEMAP_PAGES, &[i64::from(MAX_FILES).into()]).await?;
        Ok(pages.into_iter().flat_map(Page::files).take(MAX_FILES as usize).collect())
    }

    /// Begins to read a file.
    pub async fn reader(&self) -> Result<SitemapReader, StoreError> {
        let permit = Arc::clone(self.snapshots).try_acquire_owned().ok();
        let snapshot = match permit {
            Some(permit) => Some((self.db.snapshot(SNAPSHOT).await?, Instant::now(), permit)),
            None => None,
        };
        Ok(SitemapReader { db: self.db.clone(), snapshot })
    }
}
