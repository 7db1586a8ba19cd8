//! Pages of feeds: the visible posts after a position, newest first.

use super::db::{Arg, Db, FromRow, Row, slots};
use super::{StoreError, sql};

/// How many labels a query may block.
pub const MAX_BLOCKED: usize = 16;
/// How many labels a query may select.
pub const MAX_LABELS: usize = 10;

/// Selects a page of posts.
#[derive(Debug, Clone, Copy)]
pub struct FeedQuery<'a> {
    /// The feed.
    pub feed: &'a str,
    /// Only posts of this set.
    pub set: Option<&'a str>,
    /// Only posts with one of these labels, at most [`MAX_LABELS`]; all posts if empty.
    pub labels: &'a [String],
    /// No posts with one of these moderation labels, at most [`MAX_BLOCKED`].
    pub blocked: &'a [String],
    /// Posts after the one with this `sort_us` and URI.
    pub after: Option<(i64, &'a str)>,
    /// How many posts at most.
    pub limit: u32,
}

/// A post in a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// Its AT URI.
    pub post_uri: String,
    /// The sort key, in microseconds since 1970 UTC.
    pub sort_us: i64,
}

impl FromRow for FeedItem {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: post_uri sort_us;))
    }
}

/// Reads feeds and suggestions.
#[derive(Debug, Clone, Copy)]
pub struct Feeds<'a> {
    pub(super) db: &'a Db,
}

impl Feeds<'_> {
    /// Posts of a feed, newest first.
    pub async fn posts(&self, query: &FeedQuery<'_>) -> Result<Vec<FeedItem>, StoreError> {
        // nothing is newer than the first position
        let (sort_us, post_uri) = query.after.unwrap_or((i64::MAX, ""));
        let mut args: Vec<Arg<'_>> =
            vec![query.feed.into(), sort_us.into(), post_uri.into(), i64::from(query.limit).into()];
        args.extend(slots::<MAX_BLOCKED>(query.blocked)?);
        if !query.labels.is_empty() {
            args.extend(slots::<MAX_LABELS>(query.labels)?);
        }
        args.extend(query.set.map(Arg::from));
        let statement = match (query.labels.is_empty(), query.set) {
            (true, None) => sql::FEED,
            (true, Some(_)) => sql::FEED_OF_SET,
            (false, None) => sql::FEED_OF_LABELS,
            (false, Some(_)) => sql::FEED_OF_LABELS_AND_SET,
        };
        self.db.all(statement, &args).await
    }
}
