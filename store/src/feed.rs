//! Pages of feeds: the visible posts after a position, newest first; and suggestions of accounts to
//! follow, in pages of one immutable snapshot, so that no account repeats or is skipped while newer
//! snapshots are written.

use super::db::Db;
use super::row::{Arg, FromRow, Row, slots};
use super::{StoreError, sql};

/// How many labels a query may block.
pub const MAX_BLOCKED: usize = 16;
/// How many labels a query may select.
pub const MAX_LABELS: usize = 10;

/// How many sets of moderation labels the posts of a feed may have: a page reads each set that is
/// not blocked.
const MAX_MODERATIONS: usize = 1_000;

/// The viewer of the snapshot that serves viewers without one.
const ANYONE: &str = "*";

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
    /// Maximum number of posts.
    pub limit: u32,
}

/// A post in a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedItem {
    /// The post's AT URI.
    pub post_uri: String,
    /// The sort key, in microseconds since 1970 UTC.
    pub sort_us: i64,
}

impl FromRow for FeedItem {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: post_uri sort_us;))
    }
}

/// Selects a page of suggestions.
#[derive(Debug, Clone, Copy)]
pub struct SuggestionQuery<'a> {
    /// The viewer.
    pub viewer_did: &'a str,
    /// No suggestions whose post has one of these moderation labels, at most [`MAX_BLOCKED`].
    pub blocked: &'a [String],
    /// Continues after this snapshot id and rank, however old the snapshot.
    pub after: Option<(i64, i64)>,
    /// Without `after`, starts with the newest snapshot if it was built after this instant.
    pub newer_than_us: i64,
    /// Maximum number of suggestions.
    pub limit: u32,
}

/// A page of suggestions from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuggestionPage {
    /// The snapshot's id.
    pub snapshot_id: i64,
    /// Best first.
    pub items: Vec<Suggestion>,
}

/// An account to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The rank in the snapshot, from 1.
    pub rank: i64,
    /// The account's DID.
    pub actor_did: String,
    /// A post of the account, to show.
    pub post_uri: String,
    /// A short word for the reason.
    pub reason: String,
}

impl FromRow for Suggestion {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: rank actor_did post_uri reason;))
    }
}

/// Reads feeds and suggestions.
#[derive(Debug, Clone, Copy)]
pub struct Feeds<'a> {
    pub(super) db: &'a Db,
}

impl Feeds<'_> {
    /// Posts of a feed, newest first. Blocked posts cost nothing, however many there are: each set
    /// of moderation labels has its place in an index.
    ///
    /// # Errors
    /// Also returns [`StoreError::TooLarge`] beyond [`MAX_BLOCKED`], [`MAX_LABELS`] or
    /// `MAX_MODERATIONS`.
    pub async fn posts(&self, query: &FeedQuery<'_>) -> Result<Vec<FeedItem>, StoreError> {
        // nothing is newer than the first position
        let (sort_us, post_uri) = query.after.unwrap_or((i64::MAX, ""));
        let mut args: Vec<Arg<'_>> = vec![
            query.feed.into(),
            sort_us.into(),
            post_uri.into(),
            i64::from(query.limit).into(),
        ];
        args.extend(slots::<MAX_BLOCKED>(query.blocked)?);
        if !query.labels.is_empty() {
            args.extend(slots::<MAX_LABELS>(query.labels)?);
        }
        let place = args.len();
        args.push("".into());
        args.extend(query.set.map(Arg::from));
        let statement = match (query.labels.is_empty(), query.set) {
            (true, None) => sql::FEED,
            (true, Some(_)) => sql::FEED_OF_SET,
            (false, None) => sql::FEED_OF_LABELS,
            (false, Some(_)) => sql::FEED_OF_LABELS_AND_SET,
        };
        let mut posts: Vec<FeedItem> = Vec::new();
        for moderation in self.moderations(query.feed).await? {
            // the statement itself checks the labels if this list is malformed
            let labels: Vec<String> = serde_json::from_str(&moderation).unwrap_or_default();
            if !labels.iter().any(|label| query.blocked.contains(label)) {
                args[place] = moderation.into();
                posts.extend(self.db.all(statement, &args).await?);
            }
        }
        posts.sort_unstable_by(|a, b| (b.sort_us, &b.post_uri).cmp(&(a.sort_us, &a.post_uri)));
        // a label may be set between two statements
        posts.dedup();
        posts.truncate(query.limit as usize);
        Ok(posts)
    }

    /// The sets of moderation labels in a feed, each a JSON list.
    async fn moderations(&self, feed: &str) -> Result<Vec<String>, StoreError> {
        let bound = i64::try_from(MAX_MODERATIONS + 1).unwrap_or(i64::MAX);
        let rows = self
            .db
            .rows(sql::FEED_MODERATIONS, &[feed.into(), bound.into()])
            .await?;
        if rows.len() > MAX_MODERATIONS {
            return Err(StoreError::TooLarge("the moderation labels of a feed"));
        }
        rows.iter().map(|row| row.get("moderation")).collect()
    }

    /// Suggestions from the viewer's own snapshot, or else the common one, without the viewer and
    /// the accounts that the viewer follows by now; `None` without a snapshot.
    pub async fn suggestions(
        &self,
        query: &SuggestionQuery<'_>,
    ) -> Result<Option<SuggestionPage>, StoreError> {
        for viewer in [query.viewer_did, ANYONE] {
            let Some(snapshot_id) = self.snapshot_id(viewer, query).await? else {
                continue;
            };
            let rank = query.after.map_or(0, |(_, rank)| rank);
            let limit = i64::from(query.limit);
            let mut args: Vec<Arg<'_>> = vec![
                query.viewer_did.into(),
                snapshot_id.into(),
                rank.into(),
                limit.into(),
            ];
            args.extend(slots::<MAX_BLOCKED>(query.blocked)?);
            args.push(viewer.into());
            let items = self.db.all(sql::SUGGESTIONS, &args).await?;
            return Ok(Some(SuggestionPage { snapshot_id, items }));
        }
        Ok(None)
    }

    /// The snapshot that the query selects among those of `viewer`.
    async fn snapshot_id(
        &self,
        viewer: &str,
        query: &SuggestionQuery<'_>,
    ) -> Result<Option<i64>, StoreError> {
        if let Some((id, _)) = query.after {
            let found = self
                .db
                .row(sql::SNAPSHOT_AT, &[viewer.into(), id.into()])
                .await?;
            return Ok(found.map(|_| id));
        }
        let Some(row) = self.db.row(sql::SNAPSHOT, &[viewer.into()]).await? else {
            return Ok(None);
        };
        let is_recent = row.get::<i64>("built_us")? > query.newer_than_us;
        Ok(is_recent.then_some(row.get("snapshot_id")?))
    }
}
