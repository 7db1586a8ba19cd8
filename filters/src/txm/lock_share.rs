//! How long one process may hold an account that signs, and how long the others wait for it. Pure:
//! time is an argument.

use core::time::Duration;

/// How long a write waits for another process: longer than that process's writes take.
const WAIT: Duration = Duration::from_secs(10);
/// How long a write waits after one that did not get the account: a suspended process delays one
/// write, not each. Long enough for most shares of another process.
pub const RETRY: Duration = Duration::from_millis(500);

/// The most writes of a share, and its longest time, while other writes wait: taking an account
/// costs two round trips, and what other processes have written since must be read.
const WRITES: u32 = 8;
const TIME: Duration = Duration::from_secs(2);

/// The share of one process of the lock of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockShare {
    /// When the account was taken from other processes.
    since: Duration,
    /// Writes since then.
    writes: u32,
    /// Whether the last write waited for another process without getting the account.
    was_in_vain: bool,
}

impl LockShare {
    /// How long a write whose deadline is in `left` waits for another process.
    #[must_use]
    pub fn wait(&self, left: Duration) -> Duration {
        left.min(if self.was_in_vain { RETRY } else { WAIT })
    }

    /// Begins a share: the account was taken at `now`.
    pub fn begin(&mut self, now: Duration) {
        self.since = now;
        self.writes = 0;
    }

    /// Counts a write that begins.
    pub fn begin_write(&mut self) {
        self.was_in_vain = false;
        self.writes = self.writes.saturating_add(1);
    }

    /// Records that a write waited for another process without getting the account.
    pub fn waited_in_vain(&mut self) {
        self.was_in_vain = true;
    }

    /// Whether the account stays here for the next of `waiting` writes once one has ended.
    #[must_use]
    pub fn goes_on(&self, waiting: usize, now: Duration) -> bool {
        let has_share = self.writes < WRITES && now.saturating_sub(self.since) < TIME;
        has_share && waiting > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    /// A share with this many writes.
    fn share(writes: u32) -> LockShare {
        let mut share = LockShare::default();
        share.begin(NOW);
        (0..writes).for_each(|_| share.begin_write());
        share
    }

    #[test]
    fn an_account_stays_for_eight_writes_while_others_wait() {
        assert!(share(1).goes_on(1, NOW) && share(7).goes_on(1, NOW));
        assert!(!share(7).goes_on(0, NOW), "nobody waits here");
        assert!(!share(8).goes_on(1, NOW), "others have their share");
    }

    #[test]
    fn an_account_stays_for_two_seconds() {
        let share = share(1);
        assert!(share.goes_on(1, NOW + TIME - Duration::from_millis(1)));
        assert!(!share.goes_on(1, NOW + TIME));
        assert!(
            share.goes_on(1, NOW - TIME),
            "a clock that went back ends no share"
        );
    }

    #[test]
    fn a_share_begins_anew_when_the_account_was_elsewhere() {
        let mut share = share(8);
        share.begin(NOW + TIME);
        share.begin_write();
        assert!(share.goes_on(1, NOW + TIME + TIME / 2));
    }

    #[test]
    fn a_write_waits_less_after_one_that_waited_in_vain() {
        let mut share = LockShare::default();
        let (long, short) = (WAIT * 2, RETRY / 2);
        assert_eq!(
            (share.wait(long), share.wait(short)),
            (WAIT, short),
            "no longer than is left"
        );
        share.waited_in_vain();
        assert_eq!((share.wait(long), share.wait(short)), (RETRY, short));
        share.begin_write();
        assert_eq!(share.wait(long), WAIT);
    }
}
