//! Whom a viewer may want to follow: pages of one snapshot, which never changes, so that nobody
//! comes twice or is left out while newer snapshots are written.

use super::db::{Arg, Row, slots};
use super::feed::MAX_BLOCKED;
use super::{Store, StoreError, sql};

/// Whose snapshot serves a viewer that has none.
const ANYONE: &str = "*";

/// Which suggestions are asked for.
#[derive(Debug, Clone, Copy)]
pub struct SuggestionQuery<'a> {
    /// To whom.
    pub viewer_did: &'a str,
    /// With none of these moderation labels on the post, at most [`MAX_BLOCKED`].
    pub blocked: &'a [String],
    /// After this rank of this snapshot, however old.
    pub after: Option<(i64, i64)>,
    /// Otherwise from the newest snapshot, if it was built after this instant.
    pub newer_than_us: i64,
    /// So many at most.
    pub limit: u32,
}

/// Suggestions of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestions {
    /// Which snapshot.
    pub snapshot_id: i64,
    /// Best first.
    pub items: Vec<Suggestion>,
}

/// Somebody to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The place in the snapshot.
    pub rank: i64,
    /// Who.
    pub actor_did: String,
    /// A post that introduces them.
    pub post_uri: String,
    /// Why, in a word.
    pub reason: String,
}

impl Suggestion {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            rank: row.get("rank")?,
            actor_did: row.get("actor_did")?,
            post_uri: row.get("post_uri")?,
            reason: row.get("reason")?,
        })
    }
}

impl Store {
    /// Suggestions to a viewer, from their own snapshot or else from everybody's; neither those
    /// whom they follow by now, nor themselves. None when there is no such snapshot.
    ///
    /// # Errors
    /// The database is unavailable. [`StoreError::TooLarge`]: more labels than there may be.
    pub async fn suggestions(
        &self,
        query: &SuggestionQuery<'_>,
    ) -> Result<Option<Suggestions>, StoreError> {
        for whose in [query.viewer_did, ANYONE] {
            let Some(snapshot_id) = self.snapshot(whose, query).await? else { continue };
            let rank = query.after.map_or(0, |(_, rank)| rank);
            let limit = i64::from(query.limit);
            let mut args: Vec<Arg<'_>> =
                vec![query.viewer_did.into(), snapshot_id.into(), rank.into(), limit.into()];
            args.extend(slots::<MAX_BLOCKED>(query.blocked)?);
            args.push(whose.into());
            let rows = self.db.rows(sql::SUGGESTIONS, &args).await?;
            let items = rows.iter().map(Suggestion::read).collect::<Result<_, _>>()?;
            return Ok(Some(Suggestions { snapshot_id, items }));
        }
        Ok(None)
    }

    /// The snapshot that the query is about, if it is this viewer's.
    async fn snapshot(
        &self,
        whose: &str,
        query: &SuggestionQuery<'_>,
    ) -> Result<Option<i64>, StoreError> {
        if let Some((asked, _)) = query.after {
            let found = self.db.row(sql::SNAPSHOT_AT, &[whose.into(), asked.into()]).await?;
            return Ok(found.map(|_| asked));
        }
        let Some(row) = self.db.row(sql::SNAPSHOT, &[whose.into()]).await? else {
            return Ok(None);
        };
        let is_new = row.get::<i64>("built_us")? > query.newer_than_us;
        Ok(is_new.then_some(row.get("snapshot_id")?))
    }
}
