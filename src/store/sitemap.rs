//! The pages of the product that search engines may list, in pages of 45,000 ids each: an address
//! never moves from one to another, and no page is counted to.

use super::db::Row;
use super::{Store, StoreError, sql};

/// 45,000: the ids of a page, as the tables have it, below the 50,000 that a sitemap may have.
const PAGE_IDS: i64 = 45_000;
/// 50,000: as many pages as an index of a sitemap may name.
const MAX_PAGES: i64 = 50_000;

/// A page of the sitemap that has addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitemapPage {
    /// Its number, from 1; there may be gaps.
    pub page: i64,
    /// When one of its addresses last changed.
    pub lastmod_us: i64,
}

/// What tells one state of a page from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitemapStamp {
    /// How many addresses it has.
    pub urls: i64,
    /// A sum over their ids and times.
    pub checksum: i64,
    /// When one of them last changed.
    pub lastmod_us: i64,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SitemapUrl {
    /// Its id.
    pub id: i64,
    /// The address.
    pub loc: String,
    /// When what is there last changed.
    pub lastmod_us: i64,
    /// The images that are there.
    pub images: Vec<String>,
}

impl SitemapPage {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self { page: row.get("page")?, lastmod_us: row.get("lastmod_us")? })
    }
}

impl SitemapUrl {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.get("id")?,
            loc: row.get("loc")?,
            lastmod_us: row.get("lastmod_us")?,
            images: row.json("images")?,
        })
    }
}

impl Store {
    /// The pages that have addresses, in order.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn sitemap_pages(&self) -> Result<Vec<SitemapPage>, StoreError> {
        let rows = self.db.rows(sql::SITEMAP_PAGES, &[MAX_PAGES.into()]).await?;
        rows.iter().map(SitemapPage::read).collect()
    }

    /// What a page comes to; none when it has no address.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn sitemap_stamp(&self, page: i64) -> Result<Option<SitemapStamp>, StoreError> {
        let Some(row) = self.db.row(sql::SITEMAP_STAMP, &[page.into()]).await? else {
            return Ok(None);
        };
        let urls = row.get("urls")?;
        if urls == 0 {
            return Ok(None);
        }
        let (checksum, lastmod_us) = (row.get("checksum")?, row.get("lastmod_us")?);
        Ok(Some(SitemapStamp { urls, checksum, lastmod_us }))
    }

    /// Addresses of a page after an id, in their order.
    ///
    /// # Errors
    /// The database is unavailable. [`StoreError::Corrupt`]: a list can not be read.
    pub async fn sitemap_urls(
        &self,
        page: i64,
        after_id: i64,
        limit: u32,
    ) -> Result<Vec<SitemapUrl>, StoreError> {
        let last = page.saturating_mul(PAGE_IDS);
        let after_id = after_id.max(last.saturating_sub(PAGE_IDS));
        let args = [after_id.into(), last.into(), i64::from(limit).into()];
        let rows = self.db.rows(sql::SITEMAP_URLS, &args).await?;
        rows.iter().map(SitemapUrl::read).collect()
    }
}
