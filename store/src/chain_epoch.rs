//! The epoch of the chain that all relays of a store write to. A relay whose node serves another
//! chain must not declare the writes of the others lost.

use super::row::{FromRow, Row};
use super::{Store, StoreError, journal, sql};
use portcullis_base::io::clock::micros;
use portcullis_filters::ledger::Agreement;
use std::time::Duration;

impl FromRow for Agreement {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let candidate: Option<String> = row.get("candidate")?;
        let since_us: Option<i64> = row.get("candidate_us")?;
        Ok(Self {
            epoch: row.get("epoch")?,
            candidate: candidate.zip(since_us),
        })
    }
}

impl Store {
    /// Reports that this process proved the chain of this epoch, and returns the epoch in force.
    /// Another epoch replaces it after it was reported for `patience` while no process reported the
    /// old one. The first epoch of a store is in force at once.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn agree(&self, epoch: &str, patience: Duration) -> Result<String, StoreError> {
        let last: Option<Agreement> = self.db.one(sql::CHAIN_EPOCH, &[]).await?;
        if last.is_some_and(|last| last.epoch == epoch && last.candidate.is_none()) {
            return Ok(epoch.to_owned());
        }
        // serialized across processes
        let (mut tx, _) = journal::begin(&self.db).await?;
        let last = tx.row(sql::CHAIN_EPOCH, &[]).await?;
        let last = last.as_ref().map(Agreement::read).transpose()?;
        let next = Agreement::after(last, epoch, self.now_us(), micros(patience));
        let (candidate, since) = next
            .candidate
            .as_ref()
            .map(|(epoch, us)| (epoch, *us))
            .unzip();
        let candidate = candidate.map(String::as_str);
        let args = [(&next.epoch).into(), candidate.into(), since.into()];
        tx.run(sql::CHAIN_EPOCH_SET, &args).await?;
        tx.commit().await?;
        Ok(next.epoch)
    }
}
