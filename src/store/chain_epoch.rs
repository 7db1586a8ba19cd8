//! The epoch of the chain that all relays of a store write to. A relay whose node shows it another
//! chain must not declare lost what the others wrote.

use super::db::{FromRow, Row};
use super::{Store, StoreError, journal, sql};
use crate::io::clock::micros;
use portcullis_filters::window::Window;
use std::time::Duration;

/// The epoch in force, and another that was reported since a time in microseconds.
#[derive(Debug, PartialEq, Eq)]
struct Agreement {
    epoch: String,
    candidate: Option<(String, i64)>,
}

impl FromRow for Agreement {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let candidate: Option<String> = row.get("candidate")?;
        let since_us: Option<i64> = row.get("candidate_us")?;
        Ok(Self { epoch: row.get("epoch")?, candidate: candidate.zip(since_us) })
    }
}

impl Agreement {
    /// What follows from the report of an epoch.
    fn after(last: Option<Self>, reported: &str, now_us: i64, patience: Duration) -> Self {
        let new = Self { epoch: reported.to_owned(), candidate: None };
        let Some(last) = last.filter(|last| last.epoch != reported) else { return new };
        let patience = Window::new(now_us, micros(patience));
        let known = last.candidate.filter(|(candidate, since)| {
            // one that is dated further ahead was dated by a clock that was wrong
            candidate == reported && *since <= patience.until_us()
        });
        let since = known.map_or(now_us, |(_, since)| since.min(now_us));
        if patience.end_us(since) <= now_us {
            return new;
        }
        Self { epoch: last.epoch, candidate: Some((reported.to_owned(), since)) }
    }
}

impl Store {
    /// Reports that this process proved the chain of this epoch, and returns the epoch in force.
    /// Another replaces it once that was reported for `patience`, and the old one by no process.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn agree(&self, epoch: &str, patience: Duration) -> Result<String, StoreError> {
        if self.is_exclusive() {
            return Ok(epoch.to_owned());
        }
        let last: Option<Agreement> = self.db.one(sql::CHAIN_EPOCH, &[]).await?;
        if last.is_some_and(|last| last.epoch == epoch && last.candidate.is_none()) {
            return Ok(epoch.to_owned());
        }
        let mut tx = self.db.begin().await?;
        // one process at a time
        journal::lock(&mut tx).await?;
        let last = tx.row(sql::CHAIN_EPOCH, &[]).await?;
        let last = last.as_ref().map(Agreement::read).transpose()?;
        let next = Agreement::after(last, epoch, self.now_us(), patience);
        let (candidate, since) = next.candidate.as_ref().map(|(epoch, us)| (epoch, *us)).unzip();
        let candidate = candidate.map(String::as_str);
        let args = [(&next.epoch).into(), candidate.into(), since.into()];
        tx.run(sql::CHAIN_EPOCH_SET, &args).await?;
        tx.commit().await?;
        Ok(next.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_micros(10);

    fn after(last: Option<Agreement>, reported: &str, now_us: i64) -> Option<Agreement> {
        Some(Agreement::after(last, reported, now_us, PATIENCE))
    }

    #[test]
    fn the_first_epoch_is_in_force_at_once() {
        let first = after(None, "a", 0).unwrap();
        assert_eq!(first, Agreement { epoch: "a".into(), candidate: None });
    }

    #[test]
    fn a_clock_that_was_ahead_prolongs_the_wait_by_one_patience() {
        let in_force = |last: &Option<Agreement>| last.as_ref().unwrap().epoch.clone();
        for ahead in [5, 10, 1_000_000_000] {
            let mut last = after(after(None, "a", 100 + ahead), "b", 100 + ahead);
            last = after(last, "b", 100);
            assert_eq!(in_force(&last), "a", "{ahead} ahead");
            last = after(last, "b", 110);
            assert_eq!(in_force(&last), "b", "{ahead} ahead");
        }
    }

    #[test]
    fn another_epoch_waits_until_no_process_reports_the_old_one() {
        let in_force = |last: &Option<Agreement>| last.as_ref().unwrap().epoch.clone();
        let mut last = after(after(None, "a", 0), "b", 100);
        assert_eq!(in_force(&last), "a");
        last = after(last, "b", 109);
        assert_eq!(in_force(&last), "a", "not yet");
        last = after(last, "a", 109);
        last = after(last, "b", 111);
        assert_eq!(in_force(&last), "a", "a report of the old one begins the wait again");
        last = after(last, "c", 120);
        last = after(last, "b", 121);
        assert_eq!(in_force(&last), "a", "so does a report of a third one");
        last = after(last, "b", 131);
        assert_eq!(in_force(&last), "b");
        assert_eq!(in_force(&after(last, "a", 132)), "b");
    }
}
