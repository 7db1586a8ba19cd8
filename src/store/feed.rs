//! Pages of the feeds: the posts after a position, newest first, as far as nothing hides them.

use super::db::{Arg, Row, slots};
use super::{Store, StoreError, sql};

/// How many labels can hide a post.
pub const MAX_BLOCKED: usize = 16;
/// How many labels can be asked for at once.
pub const MAX_LABELS: usize = 10;

/// Which posts are asked for.
#[derive(Debug, Clone, Copy)]
pub struct FeedQuery<'a> {
    /// The feed.
    pub feed: &'a str,
    /// Of this set only.
    pub set: Option<&'a str>,
    /// With one of these labels only, at most [`MAX_LABELS`]; with any or none when empty.
    pub labels: &'a [String],
    /// With none of these moderation labels, at most [`MAX_BLOCKED`].
    pub blocked: &'a [String],
    /// After the post with this time and address.
    pub after: Option<(i64, &'a str)>,
    /// So many at most.
    pub limit: u32,
}

/// A post in a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// Its address.
    pub post_uri: String,
    /// What it is ordered by, in microseconds since 1970 UTC.
    pub sort_us: i64,
}

impl FeedItem {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self { post_uri: row.get("post_uri")?, sort_us: row.get("sort_us")? })
    }
}

impl Store {
    /// Posts of a feed, newest first.
    ///
    /// # Errors
    /// The database is unavailable. [`StoreError::TooLarge`]: more labels than there may be.
    pub async fn feed(&self, query: &FeedQuery<'_>) -> Result<Vec<FeedItem>, StoreError> {
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
        let rows = self.db.rows(statement, &args).await?;
        rows.iter().map(FeedItem::read).collect()
    }
}
