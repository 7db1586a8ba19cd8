//! The sitemap: the product's pages that search engines may list, in sitemap pages of 45,000 ids
//! each. A URL never moves to another page, and no query counts rows to find one.

use super::db::{Db, FromRow, Row};
use super::{StoreError, sql};

/// 45,000 ids per page, as in the tables; a sitemap may have 50,000 URLs.
const PAGE_IDS: i64 = 45_000;
/// 50,000: the most pages that a sitemap index may list.
const MAX_PAGES: i64 = 50_000;

/// A sitemap page that has URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitemapPage {
    /// The page number, from 1; gaps are possible.
    pub page: i64,
    /// When one of its URLs last changed.
    pub lastmod_us: i64,
}

/// Identifies the content of a sitemap page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitemapStamp {
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
}

impl FromRow for SitemapPage {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: page lastmod_us;))
    }
}

impl FromRow for SitemapStamp {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: urls checksum lastmod_us;))
    }
}

impl FromRow for SitemapUrl {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: id loc lastmod_us; json: images;))
    }
}

/// Reads the sitemap.
#[derive(Debug, Clone, Copy)]
pub struct Sitemap<'a> {
    pub(super) db: &'a Db,
}

impl Sitemap<'_> {
    /// The pages that have URLs, in order.
    pub async fn pages(&self) -> Result<Vec<SitemapPage>, StoreError> {
        self.db.all(sql::SITEMAP_PAGES, &[MAX_PAGES.into()]).await
    }

    /// The stamp of a page; `None` if it has no URL.
    pub async fn stamp(&self, page: i64) -> Result<Option<SitemapStamp>, StoreError> {
        self.db.one(sql::SITEMAP_STAMP, &[page.into()]).await
    }

    /// URLs of a page after an id, in order.
    pub async fn urls(
        &self,
        page: i64,
        after_id: i64,
        limit: u32,
    ) -> Result<Vec<SitemapUrl>, StoreError> {
        let last = page.saturating_mul(PAGE_IDS);
        let after_id = after_id.max(last.saturating_sub(PAGE_IDS));
        let args = [after_id.into(), last.into(), i64::from(limit).into()];
        self.db.all(sql::SITEMAP_URLS, &args).await
    }
}
