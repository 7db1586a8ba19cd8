//! Erases what is stored about a user, at the request of the user.
//!
//! Content that the product's backend writes about a user (the account, posts, a podcast) is
//! deleted where it is written. The journal holds no personal data.

use super::db::Db;
use super::syntax::is_did;
use super::{Store, StoreError, sql};
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait for readers of an earlier state, who need the log: a snapshot lasts 30 s.
const READERS_LEAVE: Duration = Duration::from_secs(40);
/// Time between two attempts to empty the log.
const AGAIN: Duration = Duration::from_millis(100);

/// How many rows were erased, by table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Events of the user's age sessions.
    pub age_event: u64,
    /// Age sessions.
    pub age_session: u64,
    /// The age status.
    pub age_user: u64,
    /// Whom the user follows, and the user's followers.
    pub follow: u64,
    /// Accounts that were suggested to the user, and the user to others.
    pub suggestion: u64,
    /// Whether erased rows are still in SQLite's log, because another process reads it.
    pub is_in_log: bool,
}

impl Store {
    /// Erases everything that is stored about a user or, after an error, nothing. The account maps
    /// the user id to the DID and back; without an account, only the rows of `user` itself are
    /// erased.
    pub async fn forget(&self, user: &str) -> Result<Forgotten, StoreError> {
        let (user_id, did) = if is_did(user) {
            let account = self.accounts().by_did(user).await?;
            (
                account.map(|account| account.user_id),
                Some(user.to_owned()),
            )
        } else {
            let account = self.accounts().by_user(user).await?;
            (
                Some(user.to_owned()),
                account.and_then(|account| account.did),
            )
        };
        let mut forgotten = Forgotten::default();
        let mut tx = self.db.begin().await?;
        if let Some(user_id) = &user_id {
            // so that no event is stored meanwhile
            tx.lock(user_id).await?;
            forgotten.age_event = tx.run(sql::FORGET_EVENTS, &[user_id.into()]).await?;
            forgotten.age_session = tx.run(sql::FORGET_SESSIONS, &[user_id.into()]).await?;
            forgotten.age_user = tx.run(sql::FORGET_STATUS, &[user_id.into()]).await?;
        }
        if let Some(did) = &did {
            forgotten.follow = tx.run(sql::FORGET_FOLLOWS, &[did.into()]).await?;
            forgotten.suggestion = tx.run(sql::FORGET_SUGGESTIONS, &[did.into()]).await?;
        }
        tx.commit().await?;
        forgotten.is_in_log = !self.empty_log().await;
        Ok(forgotten)
    }

    /// Moves SQLite's log into its file, where erased rows are overwritten, and empties it; returns
    /// whether that was done within [`READERS_LEAVE`].
    async fn empty_log(&self) -> bool {
        if !matches!(self.db, Db::Sqlite { .. }) {
            return true;
        }
        let deadline = Instant::now() + READERS_LEAVE;
        loop {
            let emptied = self.db.empty_log().await;
            if matches!(emptied, Ok(true)) {
                return true;
            }
            if Instant::now() > deadline {
                if let Err(error) = emptied {
                    error.log();
                }
                return false;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
