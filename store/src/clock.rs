//! The clock that dates entries, and the intents that it has dated ahead of the time.

use super::db::Db;
use super::tx::Tx;
use super::{Store, StoreError, journal, sql};
use parking_lot::Mutex;
use portcullis_base::io::clock::now_us;
use portcullis_filters::clock::{Reading, RemoteClock};
use portcullis_filters::ledger;
use std::time::{Duration, Instant};

/// How far the estimate of another process that shares the store may be from PostgreSQL's clock, in
/// microseconds: half of a round trip of 200 ms, when its fastest answer takes that long.
const OTHERS_ERROR_US: i64 = 100_000;

/// PostgreSQL's clock, by this machine's monotonic clock.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    known: Mutex<Option<RemoteClock>>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            known: Mutex::default(),
        }
    }
}

impl Clock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn read(&self, reading: Reading) {
        let mut known = self.known.lock();
        *known = Some(RemoteClock::after(*known, reading));
    }

    fn now_us(&self) -> i64 {
        let known = *self.known.lock();
        known.map_or_else(now_us, |clock| clock.now_us(self.now()))
    }

    fn error_us(&self) -> i64 {
        let known = *self.known.lock();
        known.map_or(0, |clock| {
            clock.error_us(self.now()).saturating_add(OTHERS_ERROR_US)
        })
    }
}

impl Store {
    /// The time in microseconds since 1970: PostgreSQL's, so that the clocks of machines that share
    /// a store are never compared. With SQLite, whose file belongs to one process, it is this
    /// machine's.
    pub fn now_us(&self) -> i64 {
        self.clock.now_us()
    }

    /// How far the time of another process that shares the store may be from this one's, in
    /// microseconds; 0 with SQLite.
    pub fn clock_error_us(&self) -> i64 {
        self.clock.error_us()
    }

    /// Reads PostgreSQL's clock. Called regularly, because clocks drift and are set.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn read_clock(&self) -> Result<(), StoreError> {
        self.read_clock_of(&self.db).await
    }

    /// Dates the intents anew that a clock which was ahead has dated, so that they count for limits
    /// from now on. Each decision does so as well, but a request may be refused before it.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn date_anew(&self, now_us: i64) -> Result<(), StoreError> {
        let newest = self.db.row(sql::INTENT_NEWEST, &[]).await?;
        let newest_us = newest.map(|row| row.get("newest_us")).transpose()?;
        let Some(after_us) = ledger::ahead_after_us(newest_us, now_us) else {
            return Ok(());
        };
        let (mut tx, _) = journal::begin(&self.db).await?;
        date_anew(&mut tx, after_us, now_us).await?;
        tx.commit().await
    }

    pub(super) async fn read_clock_of(&self, db: &Db) -> Result<(), StoreError> {
        let Db::Postgres(..) = db else { return Ok(()) };
        let sent = self.clock.now();
        if let Some(row) = db.row(sql::NOW, &[]).await? {
            self.clock.read(Reading {
                read_us: row.get("now_us")?,
                sent,
                received: self.clock.now(),
            });
        }
        Ok(())
    }
}

/// Dates the newest intents anew, those that are dated after `after_us`. The journal's end must be
/// locked.
pub(super) async fn date_anew(tx: &mut Tx, after_us: i64, now_us: i64) -> Result<(), StoreError> {
    let args = [now_us.into(), after_us.into()];
    let intents = tx.run(sql::INTENTS_DATE, &args).await?;
    log::warn!(intents; "intents that were dated ahead of the clock are dated anew");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_database_and_goes_on() {
        let clock = Clock::default();
        assert!(
            clock.now_us() > 1_700_000_000_000_000,
            "this machine's before it is known"
        );
        assert_eq!(clock.error_us(), 0, "nobody else uses it");
        clock.read(Reading {
            read_us: 5,
            sent: Duration::ZERO,
            received: Duration::ZERO,
        });
        let passed = clock.now_us();
        assert!((5..60_000_000).contains(&passed), "{passed}");
        assert!(clock.now_us() >= passed);
        assert!(clock.error_us() >= OTHERS_ERROR_US);
    }
}
