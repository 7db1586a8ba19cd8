//! The clock that dates entries.

use super::db::Db;
use super::{Store, StoreError, sql};
use crate::io::clock::{micros, now_us};
use parking_lot::Mutex;
use std::time::Instant;

/// PostgreSQL's clock, in microseconds since 1970, at an instant of this machine's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Clock(Mutex<Option<(i64, Instant)>>);

impl Clock {
    fn set(&self, now_us: i64, at: Instant) {
        *self.0.lock() = Some((now_us, at));
    }

    fn now_us(&self) -> i64 {
        let set = *self.0.lock();
        set.map_or_else(now_us, |(then, at)| {
            then.saturating_add(micros(at.elapsed()))
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

    /// Reads PostgreSQL's clock. Called regularly, because clocks drift and are set.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn read_clock(&self) -> Result<(), StoreError> {
        self.read_clock_of(&self.db).await
    }

    pub(super) async fn read_clock_of(&self, db: &Db) -> Result<(), StoreError> {
        let Db::Postgres(..) = db else { return Ok(()) };
        let start = Instant::now();
        if let Some(row) = db.row(sql::NOW, &[]).await? {
            // assumed to be read half-way between request and response
            self.clock
                .set(row.get("now_us")?, start + start.elapsed() / 2);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_is_that_of_the_database_and_goes_on() {
        let clock = Clock::default();
        assert!(
            clock.now_us() > 1_700_000_000_000_000,
            "this machine's before it is known"
        );
        let hour = Duration::from_secs(3_600);
        let long_ago = Instant::now()
            .checked_sub(hour)
            .unwrap_or_else(Instant::now);
        clock.set(5, long_ago);
        let passed = clock.now_us();
        assert!((5..2 * micros(hour)).contains(&passed), "{passed}");
        assert!(clock.now_us() >= passed);
    }
}
