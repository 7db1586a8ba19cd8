//! The sitemap: the product's pages that search engines may list, in sitemap pages of 45,000 ids
//! each. A URL never moves to another page, and no query counts rows to find one. A page that is
//! too large for a file has several parts, by the stored weight of its URLs. [`Page::split`]
//! decides where they end: all but the last two are full and stay as they are while the page
//! grows, and no part has a single URL.

use super::db::Db;
use super::row::{Arg, FromRow, Row};
use super::tx::Tx;
use super::{StoreError, sql};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of files that a sitemap index may list.
const MAX_FILES: u32 = 50_000;
/// Maximum number of URLs in a file, home included.
const MAX_URLS: i64 = 45_000;
/// Maximum weight of a URL, in bytes.
const MAX_WEIGHT: i64 = 8 << 20;
/// Weight of a full part, in bytes: with one more URL, a part stays below 45 MB.
const PART_WEIGHT: i64 = 32 << 20;

/// How long one reader may hold a snapshot, which occupies a connection and prevents the database
/// from reclaiming old rows. A crawler takes seconds.
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

    /// Parses a number in its canonical spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let (page, part) = text.split_once('.').unwrap_or((text, "1"));
        let [page, part] = [page, part].map(|digits| digits.parse().ok().filter(|n| *n > 0));
        let number = Self {
            page: page?,
            part: part?,
        };
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
    /// The file's number.
    pub number: SitemapNumber,
    /// When one of its URLs last changed.
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

/// How many URLs are read together: as many as these bounds allow, and at least one.
#[derive(Debug, Clone, Copy)]
pub struct SitemapStep {
    /// Maximum number of URLs.
    pub urls: i64,
    /// Weight, in bytes, after which no URL follows.
    pub weight: i64,
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

impl SitemapUrl {
    /// Bytes of its text.
    pub fn length(&self) -> usize {
        let images = self.images.iter().map(String::len);
        self.loc.len() + images.sum::<usize>()
    }
}

/// A page that has URLs.
#[derive(Debug, Clone, Copy)]
struct Page {
    page: i64,
    urls: i64,
    weight: i64,
    lastmod_us: i64,
}

/// Where the parts of a page end, in the cumulative weight of its URLs. A URL is in the part in
/// which it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    /// Number of parts.
    parts: i64,
    /// Where the full parts end: all but the last two.
    settled: i64,
    /// Where the last part but one ends.
    middle: i64,
}

impl FromRow for Page {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: page urls weight lastmod_us;))
    }
}

impl Page {
    /// Splits the page into the fewest parts that fit into files. The last two are equal halves, so
    /// that each has at least two URLs.
    fn split(self) -> Split {
        let by_weight = (self.weight - 1) / PART_WEIGHT + 1;
        let home = i64::from(self.page == SitemapNumber::FIRST.page);
        // with home, a page may have one URL more than fit into a file
        let by_urls = (self.urls + home - 1) / MAX_URLS + 1;
        let parts = by_weight.max(by_urls);
        if parts == 1 {
            return Split {
                parts,
                settled: 0,
                middle: 0,
            };
        }
        let settled = (parts - 2) * PART_WEIGHT;
        // the weight of the last id of page 1 is unknown, and usually small
        let last = if by_urls > by_weight { MAX_WEIGHT } else { 0 };
        let middle = settled + (self.weight - settled - last - 1) / 2 + 1;
        Split {
            parts,
            settled,
            middle,
        }
    }

    /// The page's only file, if it has one part.
    fn whole(self) -> Option<SitemapFile> {
        let Self {
            page, lastmod_us, ..
        } = self;
        let number = SitemapNumber { page, part: 1 };
        (self.split().parts == 1).then_some(SitemapFile { number, lastmod_us })
    }

    /// The arguments of [`sql::SITEMAP_STAMPS`].
    fn stamps(self) -> [Arg<'static>; 6] {
        let Split {
            parts,
            settled,
            middle,
        } = self.split();
        [self.page, MAX_WEIGHT, PART_WEIGHT, settled, middle, parts].map(Arg::from)
    }
}

/// The URL of a page of the product.
struct Loc {
    loc: String,
}

impl FromRow for Loc {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: loc;))
    }
}

/// A part of a page.
struct Part {
    part: i64,
    stamp: SitemapStamp,
}

impl FromRow for Part {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: part; { stamp: SitemapStamp::read(row)? }))
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

/// Reads a file of the sitemap, from one snapshot as long as that lasts.
#[derive(Debug)]
pub struct SitemapReader {
    db: Db,
    /// The snapshot's transaction, when it began, and its permit among all snapshots.
    snapshot: Option<(Tx, Instant, OwnedSemaphorePermit)>,
}

impl SitemapReader {
    /// The stamp of a file; `None` if it has no URL.
    pub async fn stamp(
        &mut self,
        number: SitemapNumber,
    ) -> Result<Option<SitemapStamp>, StoreError> {
        let page = [number.page.into(), MAX_WEIGHT.into()];
        let page: Option<Page> = self.all(sql::SITEMAP_PAGE, &page).await?.pop();
        let Some(page) = page else { return Ok(None) };
        let parts: Vec<Part> = self.all(sql::SITEMAP_STAMPS, &page.stamps()).await?;
        Ok(parts
            .into_iter()
            .find(|part| part.part == number.part)
            .map(|part| part.stamp))
    }

    /// The next URLs of a file after an id, up to its last one, in order. None is left after the
    /// last one, or if the others were deleted meanwhile.
    pub async fn urls(
        &mut self,
        after_id: i64,
        last_id: i64,
        step: SitemapStep,
    ) -> Result<Vec<SitemapUrl>, StoreError> {
        let args = [
            after_id.into(),
            last_id.into(),
            step.urls.into(),
            step.weight.into(),
        ];
        self.all(sql::SITEMAP_URLS, &args).await
    }

    /// Whether everything was read from one snapshot. If too many others had snapshots at the
    /// start, or this reader took too long, it reads the newest state instead.
    pub fn is_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    async fn all<T: FromRow>(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<T>, StoreError> {
        self.snapshot
            .take_if(|(_, since, _)| since.elapsed() > SNAPSHOT);
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
    /// The files that have URLs, in order. Only pages of several parts are read twice.
    pub async fn files(&self) -> Result<Vec<SitemapFile>, StoreError> {
        let args = [i64::from(MAX_FILES).into(), MAX_WEIGHT.into()];
        let pages: Vec<Page> = self.db.all(sql::SITEMAP_PAGES, &args).await?;
        let mut files = Vec::with_capacity(pages.len());
        for page in pages {
            if files.len() >= MAX_FILES as usize {
                break;
            }
            match page.whole() {
                Some(file) => files.push(file),
                None => files.extend(self.parts(page).await?),
            }
        }
        files.truncate(MAX_FILES as usize);
        Ok(files)
    }

    /// URLs that begin with `prefix`, in ASCII, at most `most`.
    pub async fn pages_below(&self, prefix: &str, most: u32) -> Result<Vec<String>, StoreError> {
        let end = format!("{prefix}\u{7f}");
        let args = [prefix.into(), end.as_str().into(), i64::from(most).into()];
        let pages: Vec<Loc> = self.db.all(sql::SITEMAP_BELOW, &args).await?;
        Ok(pages.into_iter().map(|Loc { loc }| loc).collect())
    }

    async fn parts(&self, page: Page) -> Result<impl Iterator<Item = SitemapFile>, StoreError> {
        let parts: Vec<Part> = self.db.all(sql::SITEMAP_STAMPS, &page.stamps()).await?;
        Ok(parts.into_iter().map(move |Part { part, stamp }| {
            let number = SitemapNumber {
                page: page.page,
                part,
            };
            SitemapFile {
                number,
                lastmod_us: stamp.lastmod_us,
            }
        }))
    }

    /// Starts to read a file, from a snapshot unless too many others have one.
    pub async fn reader(&self) -> Result<SitemapReader, StoreError> {
        let permit = Arc::clone(self.snapshots).try_acquire_owned().ok();
        let snapshot = match permit {
            Some(permit) => Some((self.db.snapshot(SNAPSHOT).await?, Instant::now(), permit)),
            None => None,
        };
        Ok(SitemapReader {
            db: self.db.clone(),
            snapshot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(page: i64, weights: &[i64]) -> Page {
        let (urls, weight) = (weights.len() as i64, weights.iter().sum());
        Page {
            page,
            urls,
            weight,
            lastmod_us: 1,
        }
    }

    /// The URLs and the weight of each part, as the query places them.
    fn placed(page: Page, weights: &[i64]) -> Vec<(i64, i64)> {
        let Split {
            parts,
            settled,
            middle,
        } = page.split();
        let mut placed = vec![(0, 0); parts as usize];
        let mut end = 0;
        for weight in weights {
            end += weight;
            let part = match end {
                _ if end <= settled => (end - 1) / PART_WEIGHT + 1,
                _ if end <= middle => parts - 1,
                _ => parts,
            };
            let (urls, sum) = &mut placed[part as usize - 1];
            *urls += 1;
            *sum += weight;
        }
        placed
    }

    #[test]
    fn no_part_is_too_large_or_a_single_url() {
        let light = 337;
        let mut pages = vec![
            (1, vec![light]),
            (2, vec![MAX_WEIGHT; 4]),
            (2, vec![MAX_WEIGHT; 5]),
            (2, vec![MAX_WEIGHT; 9]),
            (2, [vec![PART_WEIGHT / 64; 64], vec![1]].concat()),
            (2, [vec![1], vec![MAX_WEIGHT; 8], vec![1]].concat()),
            (1, [vec![light; 44_999], vec![MAX_WEIGHT]].concat()),
            (
                1,
                [vec![MAX_WEIGHT], vec![265; 44_998], vec![MAX_WEIGHT]].concat(),
            ),
            (1, [vec![700; 44_999], vec![MAX_WEIGHT]].concat()),
            (1, [vec![2_000; 44_999], vec![MAX_WEIGHT]].concat()),
            (2, vec![light; 45_000]),
        ];
        // pages of many sizes, from a fixed sequence
        let mut state = 1_u64;
        let mut next = |below: i64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as i64 % below
        };
        for _ in 0..2_000 {
            let (urls, most) = (1 + next(60), 1 + next(MAX_WEIGHT));
            pages.push((2, (0..urls).map(|_| 1 + next(most)).collect()));
        }
        for (number, weights) in pages {
            let page = page(number, &weights);
            let parts = placed(page, &weights);
            let shown = format!("{parts:?} of {page:?}");
            for (at, (urls, weight)) in parts.iter().enumerate() {
                let home = i64::from(number == 1 && at == 0);
                assert!(urls + home <= MAX_URLS, "{shown}");
                assert!(urls + home > 1 || parts.len() == 1, "{shown}");
                assert!(*weight <= PART_WEIGHT + MAX_WEIGHT, "{shown}");
            }
            let fits = page.weight <= PART_WEIGHT && (number > 1 || page.urls < MAX_URLS);
            assert_eq!(parts.len() == 1, fits, "{shown}");
        }
    }

    #[test]
    fn a_full_first_page_has_equal_halves() {
        let weights = [vec![337; 44_999], vec![MAX_WEIGHT]].concat();
        let urls = placed(page(1, &weights), &weights)
            .into_iter()
            .map(|(urls, _)| urls);
        assert_eq!(urls.collect::<Vec<_>>(), [22_499, 22_501]);
    }

    #[test]
    fn full_parts_stay_while_a_page_grows() {
        let mut weights = vec![MAX_WEIGHT / 2; 17];
        let before = placed(page(2, &weights), &weights);
        assert_eq!(before.len(), 3, "{before:?}");
        for _ in 0..30 {
            weights.push(MAX_WEIGHT / 2);
            let after = placed(page(2, &weights), &weights);
            assert_eq!(after[0], before[0], "{after:?}");
        }
    }
}
